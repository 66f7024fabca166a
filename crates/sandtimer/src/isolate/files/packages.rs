//! Packages that are symbolic links into a store, as uv, Nix and Bazel install them: where the
//! links lead is shown, too.
//!
//! Links in the caller's own `sys.path` are followed everywhere: what can write there has the
//! caller execute its code, so a link there shows nothing that it could not read. Links in
//! directories and interpreters that the caller names, which a run may have written, are followed
//! to what every user may read, by its mode and by those of the directories above it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::credentials;
use super::mounts::FileKind;
use super::notes::NoteKind;
use super::planner::{Planner, SearchedDirectory};
use crate::isolate::toolchain::lookup::{HostFiles, ResolvedPath};

/// Entries inspected for the packages of one plan, and places outside of their directories that are
/// shown.
const MAX_ENTRIES: usize = 20_000;
const MAX_LINK_TARGETS: usize = 256;
/// How many packages without a link are inspected: an installer links the files of all packages or
/// of none.
const MAX_UNLINKED_PACKAGES: usize = 16;
/// Levels of directories below a package.
const MAX_DEPTH: usize = 32;
/// Files in a directory of packages that name further directories, and directories that one of them
/// names.
const MAX_PATH_FILES: usize = 64;
const MAX_NAMED: usize = 64;
/// Directories of packages of one plan.
const MAX_DIRECTORIES: usize = 64;
/// Where an interpreter's packages are, below its prefix and a directory that is named after its
/// version.
const LIBRARIES: [&str; 3] = ["lib", "lib64", "local/lib"];
const PACKAGES: [&str; 2] = ["site-packages", "dist-packages"];

/// What of the place that a link leads to is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShownPart {
    Whole,
    WorldReadable,
}

impl Planner<'_> {
    /// Shows where the links of a directory of packages lead, as far as that may be shown.
    pub(super) fn add_linked_packages(&mut self, directory: &Path, part: ShownPart) {
        if !self.packages.directories.insert(directory.to_path_buf()) {
            return;
        }
        let (entries, max_targets) =
            (self.packages.entries, MAX_LINK_TARGETS.saturating_sub(self.packages.targets));
        let mut links =
            PackageLinks { host: self.host, directory, found: Vec::new(), entries, max_targets, depth: 0 };
        links.scan_packages(directory);
        self.packages.entries = links.entries;
        self.packages.targets += links.found.len();
        for link in links.found {
            let Ok(found) = self.host.resolve(&link) else { continue };
            let target = shown_target(&link, &found);
            if !self.tree.shows(target)
                && let Err(reason) = self.show_packages(target, part)
            {
                let text = format!(
                    "{}, where {} leads, is not shown because it {reason}",
                    target.display(),
                    link.display()
                );
                self.note(NoteKind::Extra, text);
                continue;
            }
            self.tree.link_all(&found.links);
        }
    }

    /// Shows a file or a directory (canonical). Fails with the end of a sentence about it.
    fn show_packages(&mut self, target: &Path, part: ShownPart) -> Result<(), String> {
        let kind = if self.host.is_directory(target) { FileKind::Directory } else { FileKind::File };
        match part {
            ShownPart::WorldReadable => match self.private_directory_above(target) {
                Some(directory) => {
                    return Err(format!(
                        "is below {}, which other users may not search; name it in `paths` to show it",
                        directory.display()
                    ));
                }
                None => self.show_world_readable(target)?,
            },
            ShownPart::Whole => match self.guard.rejection(target) {
                Some(rejection) => return Err(rejection.to_string()),
                None => self.tree.bind(target, kind, false),
            },
        }
        if kind == FileKind::Directory && !credentials::is_of_packages(target) {
            self.searched.push(SearchedDirectory::at_own_path(target, false));
        }
        Ok(())
    }

    /// The directory above a path (canonical) that keeps other users from it. A bind mount does
    /// not, and a run may have made the link.
    fn private_directory_above(&self, path: &Path) -> Option<PathBuf> {
        let may_search = |directory: &&Path| {
            self.host.resolve(directory).is_ok_and(|found| found.metadata.permissions().mode() & 0o001 != 0)
        };
        path.ancestors().skip(1).find(|directory| !may_search(directory)).map(Path::to_path_buf)
    }

    /// Shows what the packages of an interpreter are that lie outside of its prefix: where links
    /// lead, and the directories that its `.pth` files name.
    pub(super) fn add_packages_of(&mut self, prefix: &Path) {
        for library in LIBRARIES.map(|library| prefix.join(library)) {
            for version in self.host.names(&library, &["python"]) {
                for packages in PACKAGES.map(|packages| library.join(&version).join(packages)) {
                    let Some(packages) = self.host.canonical(&packages) else { continue };
                    self.add_linked_packages(&packages, ShownPart::WorldReadable);
                    self.add_named_directories(&packages);
                }
            }
        }
    }

    /// Shows the directories that the `.pth` files of a directory of packages name.
    fn add_named_directories(&mut self, packages: &Path) {
        let entries = std::fs::read_dir(self.host.on_disk(packages)).into_iter().flatten().flatten();
        let files = entries.take(MAX_ENTRIES).map(|entry| packages.join(entry.file_name()));
        let mut files: Vec<PathBuf> =
            files.filter(|path| path.extension().is_some_and(|extension| extension == "pth")).collect();
        files.sort();
        for file in files.iter().take(MAX_PATH_FILES) {
            if self.packages.directories.len() > MAX_DIRECTORIES {
                return;
            }
            let text = self.host.text(file).unwrap_or_default();
            // Other lines are code, or a comment.
            let is_path = |line: &&str| {
                !line.trim().is_empty()
                    && !["#", "import ", "import\t"].iter().any(|start| line.starts_with(start))
            };
            for line in text.lines().filter(is_path).take(MAX_NAMED) {
                self.add_named_directory(&packages.join(line.trim_end()), file);
            }
        }
    }

    fn add_named_directory(&mut self, directory: &Path, file: &Path) {
        let Ok(found) = self.host.resolve(directory) else { return };
        if !found.metadata.is_dir() {
            return;
        }
        if !self.tree.shows(&found.path)
            && let Err(reason) = self.show_packages(&found.path, ShownPart::WorldReadable)
        {
            let text = format!(
                "{}, which {} names, is not shown because it {reason}",
                found.path.display(),
                file.display()
            );
            self.note(NoteKind::Extra, text);
            return;
        }
        self.tree.link_all(&found.links);
        self.add_linked_packages(&found.path, ShownPart::WorldReadable);
    }
}

/// What is shown for a link: where it leads; of a file in a package, the directory of the store
/// that has the package's name.
fn shown_target<'found>(link: &Path, found: &'found ResolvedPath) -> &'found Path {
    let package = link.parent().and_then(Path::file_name);
    match found.path.parent() {
        Some(parent) if !found.metadata.is_dir() && package.is_some() && parent.file_name() == package => {
            parent
        }
        _ => &found.path,
    }
}

/// Links that lead out of a directory of packages.
struct PackageLinks<'a> {
    host: &'a HostFiles,
    directory: &'a Path,
    found: Vec<PathBuf>,
    entries: usize,
    max_targets: usize,
    depth: usize,
}

impl PackageLinks<'_> {
    /// Scans a directory of packages: links, and packages whose files are links. Others are not
    /// searched: there may be tens of thousands of files.
    fn scan_packages(&mut self, packages: &Path) {
        let mut plain = 0;
        self.each(packages, |links, path, is_directory| {
            if is_directory && plain < MAX_UNLINKED_PACKAGES {
                match links.host.on_disk(&path.join("__init__.py")).is_symlink() {
                    true => links.scan_below(path),
                    false => plain += 1,
                }
            }
        });
    }

    /// Scans all links below a directory.
    fn scan_below(&mut self, directory: &Path) {
        if self.depth == MAX_DEPTH {
            return;
        }
        self.depth += 1;
        self.each(directory, |links, path, is_directory| {
            if is_directory {
                links.scan_below(path);
            }
        });
        self.depth -= 1;
    }

    /// Follows the links in a directory, and has something done with what else it holds.
    fn each(&mut self, directory: &Path, mut other: impl FnMut(&mut Self, &Path, bool)) {
        for entry in std::fs::read_dir(self.host.on_disk(directory)).into_iter().flatten().flatten() {
            self.entries += 1;
            if self.entries > MAX_ENTRIES || self.found.len() >= self.max_targets {
                return;
            }
            let path = directory.join(entry.file_name());
            match entry.file_type() {
                Ok(kind) if kind.is_symlink() => self.follow(&path),
                Ok(kind) => other(self, &path, kind.is_dir()),
                Err(_) => {}
            }
        }
    }

    fn follow(&mut self, link: &Path) {
        let Ok(target) = self.host.resolve(link) else { return };
        let is_known =
            |found: &PathBuf| self.host.resolve(found).is_ok_and(|found| found.path == target.path);
        if target.path.starts_with(self.directory) || self.found.iter().any(is_known) {
            return;
        }
        self.found.push(link.to_path_buf());
        if target.metadata.is_dir() {
            self.scan_below(&target.path);
        }
    }
}
