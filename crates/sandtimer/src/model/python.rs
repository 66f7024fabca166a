//! Python stacks of a run.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The Python stack of a thread, as read from outside; code in the run can forge it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PythonThread {
    /// Its number inside the sandbox, where the interpreter says it: from Python 3.11 on.
    pub thread: Option<u32>,
    /// The innermost first.
    pub frames: Vec<PythonFrame>,
    /// There is more of it, which was not or could not be read.
    pub truncated: bool,
}

impl PythonThread {
    /// The innermost frame of code that is not Sandtimer's. The frames around the outermost one of
    /// Sandtimer's belong to the start of the interpreter.
    pub(crate) fn user_frame(&self) -> Option<&PythonFrame> {
        let within = self.frames.iter().rposition(PythonFrame::is_internal).unwrap_or(self.frames.len());
        self.frames[..within].iter().find(|frame| !frame.is_internal())
    }
}

/// A frame of a Python stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PythonFrame {
    /// The qualified name of the function, or `<module>`.
    pub function: String,
    /// The path of the source file, as the interpreter has it.
    pub file: String,
    /// The line in `file`, from 1; `None` if it could not be read.
    pub line: Option<u32>,
}

impl PythonFrame {
    /// Whether it is of the program that calls functions, and not of the function's own code.
    pub(crate) fn is_internal(&self) -> bool {
        self.file == "<sandtimer>"
    }
}

impl fmt::Display for PythonFrame {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PythonFrame { function, file, line } = self;
        let line = line.map_or(String::new(), |line| format!(":{line}"));
        write!(formatter, "`{function}` at {file}{line}")
    }
}
