//! `sandtimer jupyter install`: writes a kernelspec whose kernels run in sandboxes, by the Python
//! package, which knows Jupyter's directories and has the provisioner.
#![allow(clippy::disallowed_methods, reason = "it is the user's own interpreter, not untrusted code")]

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use super::CommandFailure;
use crate::args::{JupyterAction, JupyterArguments, JupyterInstall};

/// The interpreter whose environment has Jupyter.
const PYTHON: &str = "python3";

pub(crate) fn main(given: &JupyterArguments) -> Result<ExitCode, CommandFailure> {
    let JupyterAction::Install(install) = &given.action;
    require_package()?;
    let mut command = python();
    command.args(["-m", "sandtimer.integrations.jupyter", "install"]).args(arguments(install));
    let status = command.status().map_err(CommandFailure::system("python3 cannot be started"))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    // The package's own usage errors are 2, as of every program in Python.
    Ok(ExitCode::from(match code {
        Some(2) | None => 125,
        Some(code) => code,
    }))
}

fn python() -> Command {
    Command::new(PYTHON)
}

/// Fails if the interpreter in PATH has no package, with the remedy.
fn require_package() -> Result<(), CommandFailure> {
    let mut command = python();
    command.args(["-c", "import sandtimer, jupyter_client"]);
    let output = command
        .output()
        .map_err(CommandFailure::system("python3 cannot be started; Jupyter needs Python in PATH"))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let reason = stderr.lines().last().unwrap_or("it failed");
    Err(CommandFailure::usage(format!(
        "the first python3 in PATH cannot install the kernelspec ({reason}); activate the environment that has Jupyter and the \
         package `sandtimer`"
    )))
}

fn arguments(install: &JupyterInstall) -> Vec<OsString> {
    let JupyterInstall { user, sys_prefix, prefix, name, memory, wall, cell_timeout, network, workspace } =
        install;
    let mut arguments: Vec<OsString> = Vec::new();
    for (flag, is_given) in [("--user", user), ("--sys-prefix", sys_prefix), ("--network", network)] {
        arguments.extend(is_given.then(|| flag.into()));
    }
    let valued = [
        ("--prefix", prefix),
        ("--name", name),
        ("--memory", memory),
        ("--wall", wall),
        ("--cell-timeout", cell_timeout),
    ];
    let repeated = workspace.iter().map(|directory| ("--workspace", directory));
    let given = valued.into_iter().filter_map(|(flag, value)| value.as_ref().map(|value| (flag, value)));
    for (flag, value) in given.chain(repeated) {
        let mut argument = OsString::from(flag);
        argument.push("=");
        argument.push(value);
        arguments.push(argument);
    }
    arguments
}
