//! Code as the command that executes it.

/// The longest argument of a command, in bytes: execve(2) takes 128 KiB with the NUL.
pub const MOST_ARGUMENT: usize = 128 * 1024 - 1;

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
        Self::of(&["bash", "-c", code], &["bash", "/dev/fd/3"], code)
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
