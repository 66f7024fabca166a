//! Steps that replace the process by a command.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use sandtimer_os::program::StepProgram;
use sandtimer_os::wire::op;

/// Appends the last step: become the command. `descriptors` are the indices of those that it is
/// given from number 3 on; the last one may have another number in its upper half
/// ([`op::EXECUTE_WITH`]).
pub fn execute(
    program: &mut StepProgram,
    path: &Path,
    arguments: &[OsString],
    environment: &[(OsString, OsString)],
    descriptors: &[u64],
) -> u64 {
    let op = if descriptors.is_empty() { op::EXECUTE } else { op::EXECUTE_WITH };
    let numbers = [&[arguments.len() as u64], descriptors].concat();
    program.push(op, true, &numbers, &strings_of(path.as_os_str(), arguments, &variables(environment)))
}

/// As [`execute`], for the first of these paths that can be executed inside, as execvp(3) finds it.
pub fn execute_first(
    program: &mut StepProgram,
    paths: &[PathBuf],
    arguments: &[OsString],
    environment: &[(OsString, OsString)],
    descriptors: &[u64],
) -> u64 {
    let paths: Vec<&OsStr> = paths.iter().map(|path| path.as_os_str()).collect();
    let paths = paths.join(OsStr::new("\0"));
    let numbers = [&[arguments.len() as u64], descriptors].concat();
    program.push(op::EXECUTE_SEARCH, true, &numbers, &strings_of(&paths, arguments, &variables(environment)))
}

fn strings_of<'a>(path: &'a OsStr, arguments: &'a [OsString], variables: &'a [OsString]) -> Vec<&'a OsStr> {
    let rest = arguments.iter().chain(variables).map(OsString::as_os_str);
    std::iter::once(path).chain(rest).collect()
}

/// The variables as execve(2) takes them.
fn variables(environment: &[(OsString, OsString)]) -> Vec<OsString> {
    environment
        .iter()
        .map(|(name, value)| [name.as_os_str(), value.as_os_str()].join(OsStr::new("=")))
        .collect()
}
