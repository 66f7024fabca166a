//! Version managers of the pyenv family: which installations a `shims` directory leads to.
//!
//! A shim is a shell script that starts the manager on every call; inside, the installation it
//! would choose takes its place. The choice may come from a file that an earlier run wrote
//! (`.python-version`), so a version is one plain name below `versions/`, never a path.

use super::LookupContext;
use std::path::{Path, PathBuf};

#[derive(Debug)]
struct Manager {
    command: &'static str,
    variable: &'static str,
    file: &'static str,
    /// What people may write in front of a version.
    prefixes: &'static [&'static str],
}

const MANAGERS: [Manager; 3] = [
    Manager { command: "pyenv", variable: "PYENV_VERSION", file: ".python-version", prefixes: &["python-"] },
    Manager { command: "rbenv", variable: "RBENV_VERSION", file: ".ruby-version", prefixes: &["ruby-"] },
    Manager {
        command: "nodenv",
        variable: "NODENV_VERSION",
        file: ".node-version",
        prefixes: &["node-v", "node-", "v"],
    },
];

/// What a manager would choose here.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    /// The `bin` directories of the chosen versions, in order. Empty when `system` is chosen.
    pub(crate) bins: Vec<PathBuf>,
    /// Chosen versions that are not installed, each with where the choice came from.
    pub(crate) missing: Vec<String>,
}

/// The versions to which `directory` leads, if it is the shims directory of a known manager.
pub(crate) fn selection(context: &LookupContext<'_>, directory: &Path) -> Option<Selection> {
    let root = directory.parent().filter(|_| directory.file_name().is_some_and(|name| name == "shims"))?;
    let manager = manager(context, root)?;
    let (wanted, source) = wanted(context, manager, root);
    let mut selection = Selection::default();
    for version in wanted.iter().filter(|version| *version != "system") {
        match installed(context, manager, root, version) {
            Some(name) => selection.bins.push(root.join("versions").join(name).join("bin")),
            None => selection.missing.push(format!("{} {version} (chosen by {source})", manager.command)),
        }
    }
    Some(selection)
}

/// Whether `directory` belongs to a manager itself: its own command and its plugins, of no use
/// inside.
pub(crate) fn is_manager_part(context: &LookupContext<'_>, directory: &Path) -> bool {
    directory.ancestors().skip(1).take(3).any(|root| manager(context, root).is_some())
}

fn manager(context: &LookupContext<'_>, root: &Path) -> Option<&'static Manager> {
    let host = context.host;
    if !host.is_directory(&root.join("versions")) || !host.is_directory(&root.join("shims")) {
        return None;
    }
    let named = root.file_name().map(|name| name.to_string_lossy().trim_start_matches('.').to_owned());
    MANAGERS.iter().find(|manager| {
        named.as_deref() == Some(manager.command)
            || host.is_file(&root.join("libexec").join(manager.command))
            || host.is_file(&root.join("bin").join(manager.command))
    })
}

/// The versions asked for, and by what: the variable, the nearest version file, the manager's own
/// file.
fn wanted(context: &LookupContext<'_>, manager: &Manager, root: &Path) -> (Vec<String>, String) {
    if let Some(value) = context.variable(manager.variable) {
        let value = value.to_string_lossy();
        let versions = value.split(':').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        return (versions, manager.variable.to_owned());
    }
    let nearest = context.directory.ancestors().map(|directory| directory.join(manager.file));
    for file in nearest.chain([root.join("version")]) {
        let Some(text) = context.host.text(&file) else { continue };
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        let versions: Vec<String> = lines.flat_map(str::split_whitespace).map(str::to_owned).collect();
        if !versions.is_empty() {
            return (versions, file.display().to_string());
        }
    }
    (Vec::new(), String::new())
}

/// The directory name of an installed version: the name itself, or the newest that it is a prefix
/// of.
fn installed(context: &LookupContext<'_>, manager: &Manager, root: &Path, version: &str) -> Option<String> {
    let versions = root.join("versions");
    let stripped = manager.prefixes.iter().find_map(|prefix| version.strip_prefix(prefix));
    for name in std::iter::once(version).chain(stripped) {
        if name.contains('/') || name.starts_with('.') {
            continue;
        }
        if context.host.is_directory(&versions.join(name).join("bin")) {
            return Some(name.to_owned());
        }
        let numbers = |candidate: &str| -> Option<Vec<u64>> {
            candidate
                .strip_prefix(name)?
                .strip_prefix('.')?
                .split('.')
                .map(|part| part.parse().ok())
                .collect()
        };
        let names = context.host.names(&versions, &[name]);
        let newest = names.iter().filter_map(|name| name.to_str()).filter(|name| numbers(name).is_some());
        if let Some(newest) = newest.max_by_key(|name| numbers(name)) {
            return Some(newest.to_owned());
        }
    }
    None
}
