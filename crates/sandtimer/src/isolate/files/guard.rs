//! Which directories are never shown to a run, whatever the caller requests.
//!
//! A rule about names, not about what exists: a credentials directory that appears later is covered
//! too.

use crate::isolate::toolchain::lookup::HostFiles;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Below a home. Nothing inside these is shown, nor any directory that holds one of them.
pub(super) const PRIVATE: [&str; 27] = [
    ".aws",
    ".azure",
    ".bash_history",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".claude",
    ".config/containers",
    ".config/gcloud",
    ".config/gh",
    ".config/git",
    ".config/pip",
    ".config/sandtimer",
    ".docker",
    ".git-credentials",
    ".gnupg",
    ".kube",
    ".local/share/keyrings",
    ".local/state/sandtimer",
    ".mozilla",
    ".netrc",
    ".npmrc",
    ".password-store",
    ".pki",
    ".pypirc",
    ".ssh",
    ".terraform.d",
    ".vault-token",
];

/// Not shown, nor anything below.
const SYSTEM_TREES: [&str; 6] = ["/boot", "/dev", "/etc", "/proc", "/run", "/sys"];
/// Not shown as a whole.
const SYSTEM_ROOTS: [&str; 4] = ["/home", "/opt", "/usr", "/var"];
/// The run has its own.
const TEMPORARY: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];
/// Programs that every user runs: never writable, even if a run may see them.
const PROGRAM_TREES: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// Places below those where people keep projects.
const PROJECT_TREES: [&str; 2] = ["/usr/src", "/usr/local/src"];

/// Why a path is not shown. Displays as the end of a sentence about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathRejection {
    Root,
    Home,
    HoldsHome(PathBuf),
    Credentials(PathBuf),
    System(&'static str),
    Temporary,
    Unreachable,
}

impl PathRejection {
    pub(super) fn remedy(&self) -> &'static str {
        match self {
            Self::Root | Self::System(_) => "give a directory of the project's own, such as /srv/project",
            Self::Home | Self::HoldsHome(_) => "give a project's directory below the home",
            Self::Credentials(_) => "give a directory that neither holds nor lies in such a place",
            Self::Temporary => "give a directory below it",
            Self::Unreachable => "give a directory that exists",
        }
    }
}

impl fmt::Display for PathRejection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => formatter.write_str("is the root of the file system"),
            Self::Home => formatter.write_str("is a home directory"),
            Self::HoldsHome(home) => write!(formatter, "holds the home directory {}", home.display()),
            Self::Credentials(private) => {
                write!(formatter, "may hold credentials or private data ({})", private.display())
            }
            Self::System(tree) => write!(formatter, "belongs to the host's system ({tree})"),
            Self::Temporary => formatter.write_str("is a temporary directory of which every run has its own"),
            Self::Unreachable => formatter.write_str("cannot be reached any more"),
        }
    }
}

/// The homes of the machine.
#[derive(Debug)]
pub(super) struct PathGuard {
    /// Without `.` and doubled slashes, so that they compare bytewise.
    homes: Vec<PathBuf>,
    show_credentials: bool,
}

/// Every place below a home that may hold credentials, whether it exists or not.
pub(super) fn private(home: &Path) -> impl Iterator<Item = PathBuf> + use<'_> {
    PRIVATE.iter().map(|name| home.join(name))
}

impl PathGuard {
    pub(super) fn new(host: &HostFiles, homes: &[PathBuf]) -> Self {
        let typed = homes.iter().map(|home| home.components().collect());
        let canonical = homes.iter().filter_map(|home| host.canonical(home));
        let always = std::iter::once(PathBuf::from("/root"));
        let mut guard = Self { homes: Vec::new(), show_credentials: false };
        for home in typed.chain(canonical).chain(always) {
            guard.homes.extend((!guard.is_home(&home)).then_some(home));
        }
        guard
    }

    /// Whether places are shown although they may hold credentials.
    pub(super) fn showing_credentials(self, show_credentials: bool) -> Self {
        Self { show_credentials, ..self }
    }

    pub(super) fn homes(&self) -> impl Iterator<Item = &Path> {
        self.homes.iter().map(PathBuf::as_path)
    }

    pub(super) fn is_home(&self, path: &Path) -> bool {
        self.homes.iter().any(|home| home.as_os_str() == path.as_os_str())
    }

    /// Why `path` (canonical) is not shown; `None` if it may be.
    pub(super) fn rejection(&self, path: &Path) -> Option<PathRejection> {
        if path.as_os_str() == "/" {
            return Some(PathRejection::Root);
        }
        if self.is_home(path) {
            return Some(PathRejection::Home);
        }
        if TEMPORARY.iter().any(|tree| path.as_os_str() == *tree) {
            return Some(PathRejection::Temporary);
        }
        if let Some(tree) = SYSTEM_TREES.iter().find(|tree| below(path, Path::new(tree)).is_some()) {
            return Some(PathRejection::System(tree));
        }
        if let Some(tree) = SYSTEM_ROOTS.iter().find(|tree| path.as_os_str() == **tree) {
            return Some(PathRejection::System(tree));
        }
        if let Some(home) = self.homes.iter().find(|home| below(home, path).is_some()) {
            return Some(PathRejection::HoldsHome(home.clone()));
        }
        if self.show_credentials {
            return None;
        }
        // A place is a name below a home, so it has to do with paths below that home only.
        self.homes().find_map(|home| {
            let inside = below(path, home)?;
            let name = PRIVATE.iter().find(|name| {
                below(inside, Path::new(name)).is_some() || below(Path::new(name), inside).is_some()
            });
            name.map(|name| PathRejection::Credentials(home.join(name)))
        })
    }
}

/// What of `path` lies below `tree`, both without `.`, `..` and doubled slashes. Bytewise, because
/// every path is compared to every home and every private name.
pub(super) fn below<'p>(path: &'p Path, tree: &Path) -> Option<&'p Path> {
    let rest = path.as_os_str().as_bytes().strip_prefix(tree.as_os_str().as_bytes())?;
    let rest = if rest.is_empty() { rest } else { rest.strip_prefix(b"/")? };
    Some(Path::new(OsStr::from_bytes(rest)))
}

/// Why `path` (canonical) is not shown writable, although it may be shown.
pub(super) fn refuse_writing(path: &Path) -> Option<PathRejection> {
    let project = PROJECT_TREES.iter().any(|tree| path.starts_with(tree) && path != Path::new(tree));
    let tree = PROGRAM_TREES.iter().find(|tree| path.starts_with(tree))?;
    (!project).then_some(PathRejection::System(tree))
}
