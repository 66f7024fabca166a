//! Why a sandbox cannot be made, used or removed.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::ended::SandboxEnd;
use crate::time::instant;

/// Why a sandbox cannot be made, used or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// There is none, or it was deleted.
    #[error("there is no sandbox `{0}`")]
    NotFound(String),
    /// It ended at a limit of its own.
    #[error(
        "the sandbox `{}` ended at {}, when it reached its {} of {:?}, and its files were deleted",
        .0.id, instant(.0.at_ms), .0.limit.text(), Duration::from_millis(.0.limit_ms)
    )]
    Ended(SandboxEnd),
    /// It is paused.
    #[error("the sandbox `{0}` is paused; resume it first")]
    Paused(String),
    /// It is to be resumed, and is not paused.
    #[error("the sandbox `{0}` is not paused; only a paused sandbox can be resumed")]
    NotPaused(String),
    /// The template cannot be shown.
    #[error("the template directory `{}` {problem}", path.display())]
    Template {
        /// The directory that was given as a template.
        path: PathBuf,
        /// What makes it unusable, as the end of a sentence.
        problem: String,
    },
    /// The kernel rejects the overlay mount of the layer.
    #[error(
        "the kernel rejected the overlay mount of the sandbox's layer: {source}; {}",
        overlay_remedy(source)
    )]
    Overlay {
        /// The reason, as mount(2) gave it.
        source: io::Error,
    },
    /// The file system of the state directory cannot hold layers.
    #[error(
        "the directory of the sandboxes `{}` lies on an overlay, as the root of most containers does, and the kernel takes no layer \
         from there; give a state directory on another file system, such as a volume", path.display()
    )]
    OnOverlay {
        /// The directory in which the engine keeps its sandboxes.
        path: PathBuf,
    },
    /// Its layer was made by an engine with other privileges, whose marks in it this one would not
    /// find.
    #[error("the sandbox was made by an engine {}, and can be used by such a one alone; start the engine as before", privileges(*was_privileged))]
    OtherPrivileges {
        /// Whether that engine had the capabilities of root.
        was_privileged: bool,
    },
    /// The host has no namespaces.
    #[error("a sandbox needs a mount namespace, and {0}")]
    NoNamespaces(String),
    /// It cannot have a network with an allow-list.
    #[error("network: a sandbox with a network allow-list is not possible here: {0}; leave `network` out")]
    NoNetwork(String),
    /// It cannot be limited as a whole.
    #[error(
        "memory, processes: limits of a sandbox as a whole are not possible here: {0}; give them to its runs, or start the server with control groups of its own (`sandtimer doctor` has what is missing)"
    )]
    NoWholeLimits(String),
    /// A sandbox as a whole has no limit of this kind; the wire name.
    #[error(
        "{0}: a sandbox as a whole cannot have this limit; give it to its runs. What it can have is idle, wall, memory and processes"
    )]
    NoSuchLimit(&'static str),
    /// Processes of an engine that has ended still use it.
    #[error("the sandbox is in use by another engine, or by processes of one that was killed; try again")]
    Locked,
    /// Its processes do not end.
    #[error("the sandbox `{0}` still has processes that have not ended; try again")]
    Busy(String),
    /// It is in use, and what was asked for needs that it is not: `runs` are the ids of its runs.
    /// `contexts` is how many live contexts and sessions it has, counted only once it has no runs;
    /// `files` is how many reads and writes of its files are being made.
    #[error(
        "the sandbox `{id}` {}; a snapshot or a fork needs that nothing uses it: {}",
        describe_users(runs, *contexts, *files),
        users_remedy(runs, *contexts)
    )]
    HasRuns {
        /// The sandbox.
        id: String,
        /// The ids of the runs that are using it.
        runs: Vec<String>,
        /// Live contexts and sessions; 0 while there are runs.
        contexts: usize,
        /// Reads and writes of its files that are in progress.
        files: usize,
    },
    /// It cannot have another layer.
    #[error(
        "the sandbox `{id}` is stacked from {most} layers, the maximum; make a new sandbox from its template, and copy what has \
         changed into it"
    )]
    TooDeep {
        /// The sandbox.
        id: String,
        /// The maximum number of layers.
        most: usize,
    },
    /// A template cannot have this name.
    #[error("name: `{name}` {problem}")]
    TemplateName {
        /// The name that was given.
        name: String,
        /// What is wrong with it, as the end of a sentence.
        problem: String,
    },
    /// The owner has one of this name.
    #[error("name: there is a template `{0}` already; delete it first, or give another name")]
    TemplateExists(String),
    /// There is none, or it was deleted.
    #[error("there is no template `{0}`")]
    NoTemplate(String),
    /// A number of forks that cannot be made at once.
    #[error("count: `{count}` is not a number of sandboxes from 1 to {most}")]
    ForkCount {
        /// The number that was asked for.
        count: usize,
        /// The maximum for one request.
        most: usize,
    },
    /// Something was asked of a run in a sandbox that it cannot have.
    #[error("{field}: a run in a sandbox cannot have it; {remedy}")]
    Conflict {
        /// The setting that cannot be combined with a sandbox.
        field: &'static str,
        /// What to do instead.
        remedy: &'static str,
    },
    /// It has more names than one call reads.
    #[error(
        "the sandbox has more than {most} files and directories, the maximum that is read at once; delete some of them, or make an \
         archive of a part by a run"
    )]
    TooManyFiles {
        /// The maximum number of files and directories that one call reads.
        most: u64,
    },
    /// A path in it is longer than the engine reads. The path is shortened.
    #[error(
        "the path `{path}` in the sandbox is longer than {most} bytes, the maximum that is read; move what is below it by a run"
    )]
    PathTooLong {
        /// The start of the path.
        path: String,
        /// The maximum length in bytes.
        most: usize,
    },
    /// The disk, or the directory of the sandboxes.
    #[error("{doing}: {source}{}", storage_remedy(source))]
    Storage {
        /// What failed, such as `cannot write the record of the sandbox`.
        doing: &'static str,
        /// The reason, as the system gave it.
        source: io::Error,
    },
}

impl SandboxError {
    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            SandboxError::Locked
                | SandboxError::Busy(_)
                | SandboxError::HasRuns { .. }
                | SandboxError::Storage { .. }
        )
    }
}

fn describe_users(runs: &[String], contexts: usize, files: usize) -> String {
    /// Runs that a message names.
    const MAX_NAMED: usize = 10;
    let runs = match runs {
        [] => None,
        [one] => Some(format!("has the run {one}")),
        _ if runs.len() <= MAX_NAMED => Some(format!("has the runs {}", runs.join(", "))),
        _ => Some(format!("has {} runs, such as {}", runs.len(), runs[..MAX_NAMED].join(", "))),
    };
    let contexts = match contexts {
        0 => None,
        1 => Some("has 1 live context or session".to_owned()),
        _ => Some(format!("has {contexts} live contexts or sessions")),
    };
    let files = (files > 0).then(|| "has files that are being read or written".to_owned());
    let users: Vec<String> = [runs, contexts, files].into_iter().flatten().collect();
    users.join(" and ")
}

fn users_remedy(runs: &[String], contexts: usize) -> &'static str {
    match (runs, contexts) {
        ([], 0) => "try again when the reads and writes of its files have ended",
        ([], _) => "close its contexts and sessions, and try again",
        _ => "wait for the end of its runs, or end them",
    }
}

fn privileges(are_there: bool) -> &'static str {
    if are_there { "with root's privileges" } else { "without privileges" }
}

fn overlay_remedy(error: &io::Error) -> &'static str {
    use io::ErrorKind;
    match error.kind() {
        ErrorKind::StorageFull => "free space or inodes on the file system of the state directory",
        ErrorKind::ReadOnlyFilesystem => {
            "it can be read only, because the disk is full or does not keep extended attributes; free space, or give another state directory"
        }
        ErrorKind::PermissionDenied => "a user without privileges needs Linux 5.11",
        _ => "give a state directory on ext4, xfs, btrfs or tmpfs; as root Linux 5.19 is needed",
    }
}

fn storage_remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free space on the file system of the state directory, or delete sandboxes"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_of_a_sandbox_is_named_by_kind() {
        let text = |runs: &[&str], contexts, files| {
            let runs = runs.iter().map(|run| (*run).to_owned()).collect();
            SandboxError::HasRuns { id: "x".to_owned(), runs, contexts, files }.to_string()
        };
        let needs = "; a snapshot or a fork needs that nothing uses it: ";
        let end = "wait for the end of its runs, or end them";
        assert_eq!(text(&["a"], 0, 0), format!("the sandbox `x` has the run a{needs}{end}"));
        let both = "has the runs a, b and has files that are being read or written";
        assert_eq!(text(&["a", "b"], 0, 1), format!("the sandbox `x` {both}{needs}{end}"));
        let close = "close its contexts and sessions, and try again";
        assert_eq!(text(&[], 1, 0), format!("the sandbox `x` has 1 live context or session{needs}{close}"));
        assert_eq!(text(&[], 2, 0), format!("the sandbox `x` has 2 live contexts or sessions{needs}{close}"));
        let again = "try again when the reads and writes of its files have ended";
        assert_eq!(
            text(&[], 0, 3),
            format!("the sandbox `x` has files that are being read or written{needs}{again}")
        );
    }

    #[test]
    fn messages_have_single_blanks() {
        let errors = [
            SandboxError::TooDeep { id: "x".to_owned(), most: 32 },
            SandboxError::OnOverlay { path: "/x".into() },
            SandboxError::TooManyFiles { most: 10 },
            SandboxError::PathTooLong { path: "/x".to_owned(), most: 10 },
        ];
        for error in errors {
            let text = error.to_string();
            assert!(!text.contains("  ") && !text.contains('\n'), "{text}");
            assert!(!error.is_retryable(), "{text}");
        }
    }
}
