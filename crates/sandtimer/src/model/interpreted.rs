//! Code as the command that executes it.

use std::ops::Range;

/// The longest argument of a command, in bytes: execve(2) takes 128 KiB with the NUL.
pub const MAX_ARGUMENT_BYTES: usize = 128 * 1024 - 1;

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

/// The message that an argument or a variable of `bytes` bytes cannot be passed, with a remedy.
pub fn too_long(what: &str, bytes: usize) -> String {
    format!(
        "{what} has {bytes} bytes, and the kernel takes at most {MAX_ARGUMENT_BYTES} in one: write it to a file and name that, or pass it by \
         standard input (`python3 -`, `bash -s`, `node -`); a program's text can be given as `code` over HTTP, MCP and in jobs, as an argument of \
         `Sandbox.exec` in Python, and as a file for `sandtimer python`, `bash` and `node`"
    )
}

/// What an interpreter of Python executes to give the code at descriptor 3 a file.
pub(crate) const PROGRAM_FILE: &str = include_str!("../zygote/program_file.py");

/// The name of a program's file in a run that has a root of its own, by the extension that the
/// interpreter knows it by.
pub(crate) const PROGRAM_FILES: [&str; 3] =
    ["/sandtimer/main.cjs", "/sandtimer/main.mjs", "/sandtimer/main.sh"];

/// What Node.js executes before a program that has a file.
pub(crate) const NODE_FILE: &str = "/sandtimer/node.cjs";
pub(crate) const NODE_FILE_SOURCE: &str = include_str!("program_file.cjs");

/// A command that executes code, and the code where it is not in the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterpretedCommand {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The text that the command executes; `None` if the command contains it.
    pub program: Option<ProgramSource>,
}

/// The text of a program, which its command is given as a file
/// ([`Spec::program`](crate::Spec::program)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramSource {
    /// The source text.
    pub text: String,
    /// The command that executes the file. Without one the command of the run reads the text from
    /// descriptor 3.
    pub file: Option<FileCommand>,
}

impl ProgramSource {
    /// A text that the command of a run reads from descriptor 3.
    pub fn at_descriptor(text: impl Into<String>) -> Self {
        ProgramSource { text: text.into(), file: None }
    }
}

/// A command that executes a program's file, and the arguments of the run's command that it
/// replaces. Those are what records show, and what is executed where a run can have no such file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileCommand {
    /// The program and its arguments that execute the file.
    pub arguments: Vec<String>,
    /// The range of arguments in the run's command that `arguments` replaces.
    pub replaced: Range<usize>,
}

impl InterpretedCommand {
    /// A command without a program's text.
    pub fn command(command: Vec<String>) -> Self {
        InterpretedCommand { command, program: None }
    }

    /// Code for this interpreter of Python.
    pub fn python(interpreter: &str, code: &str) -> Self {
        let fits = code.len() <= MAX_ARGUMENT_BYTES;
        let argument = if fits { code } else { PROGRAM_FILE };
        InterpretedCommand {
            command: strings(&[interpreter, "-c", argument]),
            program: (!fits).then(|| ProgramSource::at_descriptor(code)),
        }
    }

    /// A program for bash.
    pub fn bash(code: &str) -> Self {
        let [.., file] = PROGRAM_FILES;
        Self::file(strings(&["bash", "-c", code]), strings(&["bash", file]), code.to_owned())
    }

    /// A command line for this shell.
    pub fn shell(shell: &str, line: &str) -> Self {
        let command = strings(&[shell, "-c", line]);
        if line.len() <= MAX_ARGUMENT_BYTES {
            return Self::command(command);
        }
        let [.., file] = PROGRAM_FILES;
        Self::file(command, strings(&[shell, file]), line.to_owned())
    }

    /// Code that this command executes if it is in a file; `argument`: the command that has it in
    /// an argument.
    pub(crate) fn file(argument: Vec<String>, command: Vec<String>, code: String) -> Self {
        let fits = argument.iter().all(|part| part.len() <= MAX_ARGUMENT_BYTES);
        let shown = if fits { argument } else { command.clone() };
        let file = FileCommand { arguments: command, replaced: 0..shown.len() };
        InterpretedCommand { command: shown, program: Some(ProgramSource { text: code, file: Some(file) }) }
    }
}

fn strings(strings: &[&str]) -> Vec<String> {
    strings.iter().map(|string| (*string).to_owned()).collect()
}
