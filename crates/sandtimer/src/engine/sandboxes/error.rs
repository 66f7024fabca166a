//! Why a sandbox cannot be made, used or removed.

use std::io;
use std::path::PathBuf;

/// Why a sandbox cannot be made, used or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// There is none, or it was deleted.
    #[error("there is no sandbox `{0}`")]
    NotFound(String),
    /// The template cannot be shown.
    #[error("the template directory `{}` {problem}", path.display())]
    Template { path: PathBuf, problem: String },
    /// The kernel refuses the layer.
    #[error("the kernel mounts no overlay over the sandbox's layer: {source}; {}", overlay_remedy(source))]
    Overlay { source: io::Error },
    /// The file system of the state directory cannot hold layers.
    #[error(
        "the directory of the sandboxes `{}` lies on an overlay, as the root of most containers does, and the kernel takes no layer \
         from there; give a state directory on another file system, such as a volume", path.display()
    )]
    OnOverlay { path: PathBuf },
    /// Its layer was made by an engine with other privileges, whose marks in it this one would not find.
    #[error("the sandbox was made by an engine {}, and can be used by such a one alone; start the engine as before", privileges(*was_privileged))]
    OtherPrivileges { was_privileged: bool },
    /// The host has no namespaces.
    #[error("a sandbox needs a mount namespace, and {0}")]
    NoNamespaces(String),
    /// Processes of an engine that has ended still use it.
    #[error("the sandbox is in use by another engine, or by processes of one that was killed; try again")]
    Locked,
    /// Its processes do not end.
    #[error("the sandbox `{0}` still has processes that have not ended; try again")]
    Busy(String),
    /// It has runs, and what was asked for needs that it has none.
    #[error(
        "the sandbox `{id}` has {}; a snapshot or a fork needs that nothing runs in it: wait for the end of its runs, or end them",
        runs_text(runs)
    )]
    HasRuns { id: String, runs: Vec<String> },
    /// It cannot have another layer.
    #[error(
        "the sandbox `{id}` is stacked from {most} layers, the most there can be; make a new sandbox from its template, and copy what          has changed into it"
    )]
    TooDeep { id: String, most: usize },
    /// A template cannot have this name.
    #[error("name: `{name}` {problem}")]
    TemplateName { name: String, problem: String },
    /// The owner has one of this name.
    #[error("name: there is a template `{0}` already; delete it first, or give another name")]
    TemplateExists(String),
    /// There is none, or it was deleted.
    #[error("there is no template `{0}`")]
    NoTemplate(String),
    /// A number of forks that cannot be made at once.
    #[error("count: `{count}` is not a number of sandboxes from 1 to {most}")]
    ForkCount { count: usize, most: usize },
    /// Something was asked of a run in a sandbox that it cannot have.
    #[error("{field}: a run in a sandbox cannot have it; {remedy}")]
    Conflict { field: &'static str, remedy: &'static str },
    /// The disk, or the directory of the sandboxes.
    #[error("{doing}: {source}{}", storage_remedy(source))]
    Storage { doing: &'static str, source: io::Error },
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

fn runs_text(runs: &[String]) -> String {
    /// Runs that a message names.
    const MAX_NAMED: usize = 10;
    match runs {
        [] => "runs that are being started or ended".to_owned(),
        [one] => format!("the run {one}"),
        _ if runs.len() <= MAX_NAMED => format!("the runs {}", runs.join(", ")),
        _ => format!("{} runs, such as {}", runs.len(), runs[..MAX_NAMED].join(", ")),
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
