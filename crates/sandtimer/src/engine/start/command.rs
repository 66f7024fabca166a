//! The end of a plan: the process becomes the command.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use sandtimer_os::program::StepProgram;

use crate::isolate::files::Executable;
use crate::isolate::host::HostCapabilities;
use crate::isolate::plan::{self, IsolationPolicy, Plan};

/// What the end of a plan is made from.
pub(crate) struct PlanContext<'a> {
    pub host: &'a HostCapabilities,
    pub policy: &'a IsolationPolicy<'a>,
    /// How many `tasks` descriptors come first among the extra ones.
    pub tasks: usize,
}

/// Appends the command of a live interpreter, with the descriptors that come first after the plan's
/// own.
pub(crate) fn push_interpreter(
    plan: &mut Plan,
    context: &PlanContext<'_>,
    command: &[OsString],
    environment: &[(OsString, OsString)],
    count: u64,
) {
    let first = plan::first_given(plan, context.policy, context.tasks);
    let given: Vec<u64> = (first..first + count).collect();
    match &context.policy.files.executable {
        _ if context.policy.sandbox.is_some() => {
            let paths = candidates(&command[0], environment);
            plan::execute_first(&mut plan.program, &paths, command, environment, &given);
            plan.names.push("execute the command".into());
        }
        Some(executable) => {
            plan::execute_with(plan, command, &executable.path, environment, &given);
        }
        None => {}
    }
}

/// The longest name of a file, NAME_MAX in limits.h: of a longer one the kernel reports that.
const MAX_NAME_BYTES: usize = 255;

/// Directories of a PATH that are searched: a client gives it, and there is a path for each.
const MAX_PATH_DIRECTORIES: usize = 1_000;

/// The paths at which a command may be in a sandbox, by the PATH that it has there: only inside it
/// is known which of them exist.
pub(super) fn candidates(command: &OsStr, environment: &[(OsString, OsString)]) -> Vec<PathBuf> {
    if command.as_bytes().contains(&b'/') {
        return vec![PathBuf::from(command)];
    }
    if command.len() > MAX_NAME_BYTES {
        return vec![Path::new("/").join(command)];
    }
    let path = environment.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
    let mut visited = HashSet::new();
    let directories = std::env::split_paths(path.unwrap_or_default());
    let distinct =
        directories.filter(|directory| visited.insert(directory.clone())).take(MAX_PATH_DIRECTORIES);
    distinct.map(|directory| directory.join(command)).collect()
}

/// The last step of a program: become the command, by way of a shell where execve(2) would refuse
/// the file.
pub(crate) fn push_execute(
    program: &mut StepProgram,
    command: &[OsString],
    executable: &Executable,
    environment: &[(OsString, OsString)],
    given: &[u64],
) {
    if executable.needs_shell {
        let mut arguments: Vec<OsString> = vec!["sh".into(), executable.path.clone().into_os_string()];
        arguments.extend(command.iter().skip(1).cloned());
        plan::execute(program, Path::new("/bin/sh"), &arguments, environment, given);
    } else {
        plan::execute(program, &executable.path, command, environment, given);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_paths_are_bounded() {
        let count = |command: &str, path: String| {
            candidates(OsStr::new(command), &[("PATH".into(), path.into())]).len()
        };
        assert_eq!(count("ls", "/usr/bin:/bin:/usr/bin".to_owned()), 2);
        assert_eq!(count("ls", ":".repeat(100_000)), 1);
        let directories: String = (0..20_000).map(|number| format!("/{number}:")).collect();
        assert_eq!(count("ls", directories.clone()), MAX_PATH_DIRECTORIES);
        assert_eq!(count(&"x".repeat(20_000), directories), 1);
    }
}
