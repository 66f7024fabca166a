//! The text of a program, which a run has as a file: a sealed memory file at a descriptor, and
//! names that lead to that.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::Path;

use sandtimer_os::zygote::sealed_file;

use super::Spec;
use super::error::Error;
use crate::isolate::files::FILE_DESCRIPTOR;
use crate::isolate::plan::IsolationLayer;
use crate::model::{FileCommand, NODE_FILE, NODE_FILE_SOURCE, PROGRAM_FILES, ProgramSource};

/// The name of what Node.js executes first, in the private directory of a run that has no root of
/// its own.
const PRIVATE_NODE_FILE: &str = ".sandtimer.cjs";

/// The text of a run's program.
pub(super) struct ProgramFile {
    pub text: OwnedFd,
    /// The descriptor that the command has it at, if that is not the first one after its standard
    /// streams.
    pub number: Option<u64>,
}

impl ProgramFile {
    /// Takes the text of `spec`, and has its command execute the file. `private`: the directory on
    /// the host that the run has in place of mounts. Returns `None` without a text, and for a run
    /// that has neither a root nor such a directory: its command has the text in an argument.
    pub fn take(
        spec: &mut Spec,
        private: Option<&Path>,
        open_files: Option<u64>,
    ) -> Result<Option<Self>, Error> {
        let Some(ProgramSource { text, file }) = spec.program.take() else { return Ok(None) };
        let is_bare = private.is_none() && spec.without.contains(&IsolationLayer::Mount);
        let number = match file {
            Some(_) if is_bare => return Ok(None),
            Some(file) => Some(name_file(spec, file, private, open_files)?),
            None => None,
        };
        let text = sealed_file("sandtimer-program", text.as_bytes());
        Ok(Some(ProgramFile { text: text.map_err(Error::system("cannot write the program"))?, number }))
    }
}

/// Has the command execute the file, by the name that it has in the run. Returns its descriptor.
fn name_file(
    spec: &mut Spec,
    file: FileCommand,
    private: Option<&Path>,
    open_files: Option<u64>,
) -> Result<u64, Error> {
    let number = open_files.map_or(FILE_DESCRIPTOR, |limit| FILE_DESCRIPTOR.min(limit.saturating_sub(1)));
    let has_names = private.is_none() && number == FILE_DESCRIPTOR;
    let require = format!("--require={NODE_FILE}");
    let mut arguments = Vec::with_capacity(file.arguments.len());
    for argument in file.arguments {
        arguments.push(match private {
            Some(private) if argument == require => required_from(private)?,
            _ if !has_names && PROGRAM_FILES.contains(&argument.as_str()) => {
                format!("/proc/self/fd/{number}").into()
            }
            _ => OsString::from(argument),
        });
    }
    let end = file.replaced.end.min(spec.command.len());
    spec.command.splice(file.replaced.start.min(end)..end, arguments);
    Ok(number)
}

/// The option by which Node.js executes its first file from this directory, where that is written.
fn required_from(private: &Path) -> Result<OsString, Error> {
    let path = private.join(PRIVATE_NODE_FILE);
    std::fs::write(&path, NODE_FILE_SOURCE)
        .map_err(Error::system("cannot write to the run's private directory"))?;
    let mut option = OsString::from("--require=");
    option.push(path);
    Ok(option)
}
