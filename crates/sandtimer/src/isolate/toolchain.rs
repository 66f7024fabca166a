//! Which installation a directory of programs belongs to, and which of its parts a run needs to
//! see.
//!
//! Decides nothing about mounting, and never names more than the program parts of an installation:
//! `bin`, `lib` and their like. Next to those lie caches, settings and credentials. A place counts
//! as an installation by the landmark its own programs look for (`pyvenv.cfg`,
//! `lib/python3.11/os.py`, …), so a moved or unusually named one is known too, and a project file
//! cannot make one out of a directory of secrets.

pub(crate) mod elf;
pub(crate) mod lookup;
pub(crate) mod rustup;
pub(crate) mod shims;

use lookup::HostFiles;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The parts of an installation that are shown, where they exist.
const PARTS: [&str; 6] = ["bin", "include", "lib", "lib64", "libexec", "share"];
const VENV_PARTS: [&str; 6] = ["bin", "include", "lib", "lib64", "share", "pyvenv.cfg"];
/// `ssl` holds conda's certificate bundle, `condabin` nothing but the conda command.
const CONDA_PARTS: [&str; 8] = ["bin", "condabin", "include", "lib", "lib64", "libexec", "share", "ssl"];

/// Where the question is asked from: it decides which version a manager would choose.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LookupContext<'a> {
    pub(crate) host: &'a HostFiles,
    /// The caller's environment.
    pub(crate) variables: &'a [(OsString, OsString)],
    /// The directory the run starts in, as the host names it.
    pub(crate) directory: &'a Path,
}

impl LookupContext<'_> {
    /// A variable of the caller's environment; an empty one counts as absent, as it does for the
    /// managers.
    pub(crate) fn variable(&self, name: &str) -> Option<&OsStr> {
        let found = self.variables.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_os_str()).filter(|value| !value.is_empty())
    }
}

/// A recognised installation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Installation {
    /// Its directory, canonical.
    pub(crate) prefix: PathBuf,
    /// Names below `prefix` to show; not all exist.
    pub(crate) parts: &'static [&'static str],
    /// The `bin` directory of the installation this one cannot work without.
    pub(crate) base: Option<PathBuf>,
}

/// The installation that `directory` holds the programs of. `None`: system directories and unknown
/// layouts.
///
/// Of an installation that is `shown` as a whole, only its base matters: the search is for that,
/// and for no other landmarks than a venv's.
pub(crate) fn recognise(
    context: &LookupContext<'_>,
    directory: &Path,
    shown: impl Fn(&Path) -> bool,
) -> Option<Installation> {
    let host = context.host;
    let bin = host.canonical(directory)?;
    let prefix = bin.parent()?.to_path_buf();
    let name = bin.file_name()?;
    if name == "condabin" || name == "bin" {
        if host.is_directory(&prefix.join("conda-meta")) {
            return Some(Installation { prefix, parts: &CONDA_PARTS, base: None });
        }
        if name == "condabin" {
            return None;
        }
    } else {
        return None;
    }
    if let Some(settings) = host.text(&prefix.join("pyvenv.cfg")) {
        return Some(Installation { prefix, parts: &VENV_PARTS, base: venv_home(&settings) });
    }
    if shown(&prefix) {
        return None;
    }
    if is_cargo_home(context, &prefix) {
        return Some(Installation { prefix, parts: &["bin"], base: None });
    }
    is_toolchain(host, &prefix).then_some(Installation { prefix, parts: &PARTS, base: None })
}

/// The `home` of a `pyvenv.cfg`: the directory of the interpreter it was made with.
fn venv_home(settings: &str) -> Option<PathBuf> {
    let mut pairs = settings.lines().filter_map(|line| line.split_once('='));
    let home = pairs.find(|(key, _)| key.trim() == "home").map(|(_, value)| PathBuf::from(value.trim()));
    home.filter(|home| home.is_absolute())
}

fn is_cargo_home(context: &LookupContext<'_>, prefix: &Path) -> bool {
    let chosen = context.variable("CARGO_HOME").map(Path::new);
    prefix.file_name().is_some_and(|name| name == ".cargo")
        || chosen.is_some_and(|home| context.host.canonical(home).as_deref() == Some(prefix))
}

/// Python, Rust, Node and Ruby, by what their programs look for at start.
fn is_toolchain(host: &HostFiles, prefix: &Path) -> bool {
    let python = || {
        let versions = host.names(&prefix.join("lib"), &["python"]);
        versions.iter().any(|name| host.is_file(&prefix.join("lib").join(name).join("os.py")))
    };
    let node =
        || host.is_file(&prefix.join("bin/node")) && host.is_directory(&prefix.join("lib/node_modules"));
    let ruby = || host.is_file(&prefix.join("bin/ruby")) && host.is_directory(&prefix.join("lib/ruby"));
    host.is_directory(&prefix.join("lib/rustlib")) || python() || node() || ruby()
}
