//! `sandtimer read-typescript`: what an engine has run in a sandbox, to read TypeScript where that
//! can be ended.

use std::ffi::OsString;
use std::process::ExitCode;

use sandtimer::script::{self, ReadTarget};

use super::CommandFailure;
use crate::args::ReadArguments;

/// The command that an engine reads TypeScript with; `None` where this program cannot be found.
pub(crate) fn reader() -> Option<Vec<OsString>> {
    let program = std::env::current_exe().ok()?;
    Some(vec![program.into(), "read-typescript".into()])
}

/// Reads code from stdin, and writes the result to stdout.
pub(crate) fn main(given: &ReadArguments) -> Result<ExitCode, CommandFailure> {
    let wanted = ReadTarget::of(&given.wanted)
        .ok_or_else(|| CommandFailure::usage(format!("`{}` is neither cell nor program", given.wanted)))?;
    script::serve(wanted).map_err(CommandFailure::system("cannot read the code"))?;
    Ok(ExitCode::SUCCESS)
}
