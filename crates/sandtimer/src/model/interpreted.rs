//! Code as the command that executes it.

/// The longest argument of a command, in bytes: execve(2) takes 128 KiB with the NUL.
pub const MOST_ARGUMENT: usize = 128 * 1024 - 1;

/// Bytes of a program's name that a message shows.
const MAX_SHOWN: usize = 100;

/// What an argument of a command is called in messages.
pub fn argument_name(index: usize, program: &str) -> String {
    let program: String = program.chars().take(MAX_SHOWN).collect();
    format!("argument {index} of `{program}`")
}

/// What a variable is called in messages.
pub fn variable_name(name: &str) -> String {
    let name: String = name.chars().take(MAX_SHOWN).collect();
    format!("the variable `{name}`")
}

/// Why an argument or a variable of so many bytes cannot be passed, and what to do instead.
pub fn too_long(what: &str, bytes: usize) -> String {
    format!(
        "{what} has {bytes} bytes, and the kernel takes at most {MOST_ARGUMENT} in one: write it to a file and name that, or pass it by \
         standard input (`python3 -`, `bash -s`, `node -`); a program's text can be given as `code` over HTTP, MCP and in jobs, as an argument of \
         `Sandbox.exec` in Python, and as a file for `sandtimer python`, `bash` and `node`"
    )
}

/// What an interpreter of Python executes to give the code at descriptor 3 a file.
pub(crate) const PROGRAM_FILE: &str = include_str!("../zygote/program_file.py");

/// A command that executes code, and what it reads at descriptor 3 where that is longer than an argument may be
/// ([`Spec::program`](crate::Spec::program)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interpreted {
    pub command: Vec<String>,
    pub program: Option<String>,
}

impl Interpreted {
    /// Code for this interpreter of Python.
    pub fn python(interpreter: &str, code: &str) -> Self {
        Self::of(&[interpreter, "-c", code], &[interpreter, "-c", PROGRAM_FILE], code)
    }

    /// Code for bash.
    pub fn bash(code: &str) -> Self {
        Self::shell("bash", code)
    }

    /// Code for this shell.
    pub fn shell(shell: &str, code: &str) -> Self {
        Self::of(&[shell, "-c", code], &[shell, "/dev/fd/3"], code)
    }

    fn of(short: &[&str], long: &[&str], code: &str) -> Self {
        let fits = code.len() <= MOST_ARGUMENT;
        let command = if fits { short } else { long };
        Interpreted {
            command: command.iter().map(|part| (*part).to_owned()).collect(),
            program: (!fits).then(|| code.to_owned()),
        }
    }
}
