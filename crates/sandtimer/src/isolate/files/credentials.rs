//! Looks for credentials in the caller's directories that a run is shown, so that they are covered.
//!
//! A bounded walk, nearest directories first: what it did not reach is reported, not guessed.
//! Follows no link, opens no file but the three that stay visible.

use super::guard::PRIVATE;
use super::mounts::FileKind;
use super::notes::NoteKind;
use super::planner::{Planner, SearchedDirectory};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Entries of directories that are searched for one plan: some milliseconds.
const MAX_ENTRIES: usize = 20_000;
/// Places that are covered for one plan. Each is a mount.
const MAX_COVERED: usize = 128;
/// What is read of a file that stays visible.
const MAX_FILE_BYTES: usize = 64 << 10;

/// Made by package managers and version control, often with most of a project's files in them: not
/// walked, and in a directory that runs can write, where one could move credentials below such a
/// name, walked last.
const NOT_WALKED: [&str; 6] =
    [".git", ".hg", "node_modules", "site-packages", "dist-packages", "__pycache__"];
/// A project's own, where it does not lie in a home: shown, and named where it seems to hold a
/// secret.
const STAYS: [&str; 3] = [".npmrc", ".env", ".git/config"];
/// What of a private place is hidden outside a home, where the rest of it is part of a project.
const NARROWED: [(&str, &str); 1] = [(".docker", ".docker/config.json")];

/// Whether a directory holds installed packages, or the interpreter's own modules.
pub(super) fn is_of_packages(path: &Path) -> bool {
    let is_library = |name: &OsStr| {
        name.as_bytes().starts_with(b"python3") || NOT_WALKED.iter().any(|skipped| name == *skipped)
    };
    path.iter().any(is_library)
}

/// What is hidden wherever it lies.
fn hidden() -> impl Iterator<Item = &'static str> {
    PRIVATE
        .iter()
        .filter(|name| !STAYS.contains(name))
        .map(|name| NARROWED.iter().find(|(wide, _)| wide == name).map_or(*name, |(_, narrow)| narrow))
}

/// The first name of a path.
fn first(path: &str) -> &str {
    path.split('/').next().unwrap_or(path)
}

/// The result of the walk.
#[derive(Debug, Default)]
struct CredentialScan {
    entries: usize,
    covered: usize,
    queue: VecDeque<SearchedDirectory>,
    /// Walked when `queue` is empty.
    last: VecDeque<SearchedDirectory>,
    /// Those shown at another path than their own.
    moved: Vec<SearchedDirectory>,
    /// Directories that were not looked into, or whose finds were not covered.
    left: Vec<PathBuf>,
    /// Visible files that seem to hold a secret.
    visible: Vec<PathBuf>,
}

impl Planner<'_> {
    /// Covers the credentials below the caller's directories, and notes what could not be.
    pub(super) fn hide_credentials(&mut self) {
        let searched = std::mem::take(&mut self.searched);
        let moved = searched.iter().filter(|candidate| candidate.host != candidate.shown).cloned().collect();
        let mut walk = CredentialScan { queue: searched.into(), moved, ..CredentialScan::default() };
        while let Some(directory) = walk.queue.pop_front().or_else(|| walk.last.pop_front()) {
            if walk.entries >= MAX_ENTRIES || walk.covered >= MAX_COVERED {
                walk.left.push(directory.shown);
                continue;
            }
            self.scan_directory(&directory, &mut walk);
        }
        for file in &walk.visible {
            let text = format!("{} is shown, and seems to hold a secret", file.display());
            self.note(NoteKind::Credentials, text);
        }
        if let Some(first) = walk.left.first() {
            let text = format!(
                "credentials are not looked for in {} directories, {} among them: more than {MAX_ENTRIES} files or \
                 {MAX_COVERED} places with credentials are shown; show a smaller directory",
                walk.left.len(),
                first.display()
            );
            self.note(NoteKind::Credentials, text);
        }
    }

    fn scan_directory(&mut self, parent: &SearchedDirectory, walk: &mut CredentialScan) {
        let flags =
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let on_disk = self.host.on_disk(&parent.host);
        let opened = rustix::fs::open(&*on_disk, flags, Mode::empty());
        let Ok(mut entries) = opened.and_then(Dir::new) else { return };
        while let Some(Ok(entry)) = entries.read() {
            let Ok(directory) = entries.fd() else { return };
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            walk.entries += 1;
            if name.as_bytes().starts_with(b".") {
                self.cover_named(parent, name, walk);
                self.name_secrets(directory, &parent.shown, name, walk);
            }
            let is_directory = match entry.file_type() {
                FileType::Unknown => statat(directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
                    .is_ok_and(|status| FileType::from_raw_mode(status.st_mode).is_dir()),
                kind => kind.is_dir(),
            };
            if is_directory && !NOT_WALKED.iter().any(|skipped| name == *skipped) {
                walk.queue.push_back(parent.child(name));
            } else if is_directory && parent.writable {
                walk.last.push_back(parent.child(name));
            }
        }
    }

    /// Covers what is private among `name` in `directory` and what lies below it.
    fn cover_named(&mut self, directory: &SearchedDirectory, name: &OsStr, walk: &mut CredentialScan) {
        for private in hidden().filter(|place| name == first(place)) {
            // A link is followed: what it names is covered where that is shown.
            let Ok(found) = self.host.resolve(&directory.host.join(private)) else { continue };
            let Some(shown) = self.shown_path(&found.path, &walk.moved) else { continue };
            if walk.covered >= MAX_COVERED {
                walk.left.push(directory.shown.join(private));
                continue;
            }
            walk.covered += 1;
            let kind = if found.metadata.is_dir() { FileKind::Directory } else { FileKind::File };
            self.tree.hide(shown, kind);
        }
    }

    /// Where the host's `path` (canonical) is shown inside.
    fn shown_path(&self, path: &Path, moved: &[SearchedDirectory]) -> Option<PathBuf> {
        let below =
            |parent: &SearchedDirectory| Some(parent.shown.join(path.strip_prefix(&parent.host).ok()?));
        moved.iter().find_map(below).or_else(|| self.tree.shows(path).then(|| path.to_owned()))
    }

    /// Notes a project's own file that seems to hold a secret.
    fn name_secrets(
        &mut self,
        directory: BorrowedFd<'_>,
        path: &Path,
        name: &OsStr,
        walk: &mut CredentialScan,
    ) {
        for stays in STAYS.iter().filter(|stays| name == first(stays)) {
            let flags =
                OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            let Ok(file) = openat(directory, *stays, flags, Mode::empty()) else { continue };
            let is_file = rustix::fs::fstat(&file)
                .is_ok_and(|status| FileType::from_raw_mode(status.st_mode).is_file());
            let mut bytes = vec![0; MAX_FILE_BYTES];
            let read = if is_file { rustix::io::read(&file, &mut bytes[..]) } else { Ok(0) };
            if read.is_ok_and(|length| holds_secret(&bytes[..length])) {
                walk.visible.push(path.join(stays));
            }
        }
    }
}

/// Whether a line gives a value to something that is named as secrets are, or has a password in a
/// URL.
fn holds_secret(bytes: &[u8]) -> bool {
    const NAMES: [&str; 9] =
        ["token", "secret", "password", "passwd", "_auth", "api_key", "apikey", "private_key", "access_key"];
    let text = String::from_utf8_lossy(bytes);
    text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])).any(|line| {
        let names_value = line.split_once('=').is_some_and(|(name, value)| {
            let (name, value) = (name.to_ascii_lowercase(), value.trim().trim_matches(['"', '\'']));
            NAMES.iter().any(|secret| name.contains(secret)) && !value.is_empty() && !value.starts_with("${")
        });
        let login =
            line.split_once("://").and_then(|(_, rest)| rest.split(['/', ' ']).next()?.rsplit_once('@'));
        names_value || login.is_some_and(|(login, _)| login.contains(':'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_recognised_by_name_or_url() {
        for secret in [
            "//registry.npmjs.org/:_authToken=npm_abc",
            "API_KEY=\"x\"",
            "export DB_PASSWORD=x",
            "\turl = https://user:pass@example.org/x.git",
        ] {
            assert!(holds_secret(secret.as_bytes()), "{secret}");
        }
        for harmless in [
            "registry=https://registry.npmjs.org/",
            "# TOKEN=x",
            "PASSWORD=",
            "TOKEN=${TOKEN}",
            "url = git@host:x.git",
        ] {
            assert!(!holds_secret(harmless.as_bytes()), "{harmless}");
        }
    }

    #[test]
    fn project_docker_directory_stays_and_login_is_hidden() {
        let names: Vec<&str> = hidden().collect();
        assert!(names.contains(&".docker/config.json") && !names.contains(&".docker"), "{names:?}");
        assert!(names.contains(&".ssh") && !names.contains(&".npmrc"), "{names:?}");
    }
}
