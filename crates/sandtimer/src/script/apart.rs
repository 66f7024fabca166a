//! What a process that does nothing else reads for another one.

use std::io::{Read, Write};
use std::sync::atomic::Ordering;

use super::cells::cell;
use super::programs::JavaScriptProgram;
use super::reader::IS_APART;

/// What TypeScript is to become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadTarget {
    /// A cell of a context.
    Cell,
    /// A program of its own.
    Program,
}

impl ReadTarget {
    /// Its name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            ReadTarget::Cell => "cell",
            ReadTarget::Program => "program",
        }
    }

    /// What has this name.
    pub fn of(name: &str) -> Option<Self> {
        [ReadTarget::Cell, ReadTarget::Program].into_iter().find(|wanted| wanted.name() == name)
    }

    /// What TypeScript has become, or `e`, the place of a syntax error, and on the next line what
    /// it is.
    pub fn read(self, source: &str) -> String {
        match self {
            ReadTarget::Cell => cell(source, true),
            ReadTarget::Program => {
                JavaScriptProgram::of(source, true).map_or_else(|error| error.text(), |made| made.text())
            }
        }
    }
}

/// Reads TypeScript from stdin, and writes the result to stdout: the main function of a reader
/// process.
///
/// # Errors
/// What cannot be read from stdin or written to stdout.
pub fn serve(wanted: ReadTarget) -> std::io::Result<()> {
    IS_APART.store(true, Ordering::Relaxed);
    let mut source = String::new();
    std::io::stdin().lock().read_to_string(&mut source)?;
    let mut out = std::io::stdout().lock();
    out.write_all(wanted.read(&source).as_bytes())?;
    out.flush()
}
