//! The variables a run starts with: a few of the caller's, its own, and those that keep programs
//! from waiting for a person or for a network that is not there.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::Spec;
use super::sandboxes::Sandbox;
use super::spec::Stdin;
use crate::isolate::files::{FilesPlan, HOME, USER_NAME};
use crate::isolate::sandbox::{SANDBOX_HOME, SANDBOX_USER};
use crate::zygote::PYTHON_DIRECTORY;

/// Variables of the caller that a run keeps; everything else stays out.
const KEPT_VARIABLES: [&str; 8] =
    ["LANG", "LANGUAGE", "TERM", "COLORTERM", "NO_COLOR", "TZ", "COLUMNS", "LINES"];

/// Variables that a run with GPUs keeps too: which GPUs it is to use, and where the libraries of
/// their driver are.
const KEPT_WITH_GPU: [&str; 7] = [
    "CUDA_DEVICE_ORDER",
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "HIP_VISIBLE_DEVICES",
    "HSA_OVERRIDE_GFX_VERSION",
    "LD_LIBRARY_PATH",
    "ROCR_VISIBLE_DEVICES",
];

/// Set where a run has no terminal: an editor, a pager or a question would wait for a user who is
/// not there.
pub const WITHOUT_TERMINAL: [(&str, &str); 12] = [
    ("TERM", "dumb"),
    ("EDITOR", "false"),
    ("VISUAL", "false"),
    ("GIT_EDITOR", GIT_EDITOR),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_PAGER", "cat"),
    ("PAGER", "cat"),
    ("MANPAGER", "cat"),
    ("SYSTEMD_PAGER", "cat"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("PIP_NO_INPUT", "1"),
    ("npm_config_yes", "true"),
];

/// Where every Python looks for modules first, and executes `sitecustomize` from.
const PYTHON_PATH: &str = "PYTHONPATH";

/// Git has a shell execute this, and shows what it writes.
const GIT_EDITOR: &str = "echo 'this run has no terminal for an editor: give the message with -m, or set GIT_EDITOR \
    (GIT_EDITOR=true keeps the text as it is)' >&2; false";

/// Set where a run has neither a terminal nor any input. Vi reads its keys from stderr once stdin
/// has ended, and waits there for ever; commands given with -c come before VimEnter, so that
/// editing by a script works.
pub const WITHOUT_INPUT: [(&str, &str); 1] = [("VIMINIT", "autocmd VimEnter * cquit")];

/// Set where a run has no network: what cannot be reached is not tried again.
pub const WITHOUT_NETWORK: [(&str, &str); 5] = [
    // With none, pip does not report why it found nothing.
    ("PIP_RETRIES", "1"),
    ("UV_HTTP_RETRIES", "0"),
    ("CONDA_REMOTE_MAX_RETRIES", "0"),
    ("npm_config_fetch_retries", "0"),
    ("CARGO_NET_RETRY", "0"),
];

/// The environment of a run; `private` is its directory on the host where nothing is mounted.
pub(super) fn environment(
    spec: &Spec,
    files: &FilesPlan,
    private: Option<&Path>,
) -> Vec<(OsString, OsString)> {
    let of_gpu: &[&str] = if spec.gpu { &KEPT_WITH_GPU } else { &[] };
    let mut list: Vec<(OsString, OsString)> = std::env::vars_os()
        .filter(|(name, _)| {
            let mut kept = KEPT_VARIABLES.iter().chain(of_gpu);
            kept.any(|kept| name == kept) || name.as_bytes().starts_with(b"LC_")
        })
        .collect();
    let mut set = |name: &OsStr, value: OsString| {
        list.retain(|(other, _)| other != name);
        list.push((name.to_owned(), value));
    };
    for (name, value) in unattended(spec) {
        set(name.as_ref(), value.into());
    }
    set("PATH".as_ref(), files.path_variable.clone());
    let temporary = private.unwrap_or(Path::new(HOME));
    let (home, user) = match spec.sandbox {
        Some(_) => (Path::new(SANDBOX_HOME), SANDBOX_USER),
        None => (temporary, USER_NAME),
    };
    set("HOME".as_ref(), home.into());
    set("TMPDIR".as_ref(), temporary.into());
    set("USER".as_ref(), user.into());
    set("LOGNAME".as_ref(), user.into());
    set("SHELL".as_ref(), "/bin/sh".into());
    set("PWD".as_ref(), files.cwd.clone().into_os_string());
    for (name, value) in &files.environment {
        set(name.as_ref(), value.clone());
    }
    for (name, value) in &spec.environment {
        set(name, value.clone());
    }
    if private.is_none() {
        let named = list.iter_mut().find(|(name, _)| name == PYTHON_PATH).map(|(_, value)| value);
        match named {
            Some(value) if !value.is_empty() => {
                *value = [PYTHON_DIRECTORY.as_ref(), value.as_os_str()].join(":".as_ref())
            }
            Some(value) => *value = PYTHON_DIRECTORY.into(),
            None => list.push((PYTHON_PATH.into(), PYTHON_DIRECTORY.into())),
        }
    }
    list
}

/// The variables for what the run does not have.
fn unattended(spec: &Spec) -> impl Iterator<Item = (&'static str, &'static str)> {
    let has_terminal = spec.terminal.is_some();
    let terminal: &[_] = if has_terminal { &[] } else { &WITHOUT_TERMINAL };
    let is_empty = match &spec.stdin {
        Stdin::Null => true,
        Stdin::Bytes(bytes) => bytes.is_empty(),
        _ => false,
    };
    let has_input = has_terminal || !is_empty;
    let input: &[_] = if has_input { &[] } else { &WITHOUT_INPUT };
    let proxy = spec.sandbox.as_ref().map_or(&[][..], Sandbox::network_variables);
    let network = match proxy {
        _ if spec.network => &[],
        [] => &WITHOUT_NETWORK[..],
        variables => variables,
    };
    terminal.iter().chain(input).chain(network).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(spec: &Spec) -> Vec<&'static str> {
        unattended(spec).map(|(name, _)| name).collect()
    }

    #[test]
    fn variables_name_what_the_run_lacks() {
        let bare = names(&Spec::command(["true"]));
        for name in ["TERM", "GIT_EDITOR", "PAGER", "VIMINIT", "PIP_RETRIES"] {
            assert!(bare.contains(&name), "{name}: {bare:?}");
        }
        let fed = names(&Spec::command(["true"]).stdin_bytes(*b"x").network(true));
        assert!(
            fed.contains(&"TERM") && !fed.contains(&"VIMINIT") && !fed.contains(&"PIP_RETRIES"),
            "{fed:?}"
        );
        let terminal = Some(crate::engine::Terminal::new(80, 24));
        assert!(names(&Spec { terminal, network: true, ..Spec::command(["sh"]) }).is_empty());
    }
}
