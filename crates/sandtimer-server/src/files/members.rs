//! The members of a tar archive, each checked before it is used: no name leaves the directory that
//! the archive is unpacked into, and nothing is in memory but the current name.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use tar::{Archive, Entry, EntryType, PaxExtensions};

use super::listing::MAX_LISTING_DEPTH;
use super::paths::shown;
use crate::error::{ApiRejection, Code, storage};

/// Members of an archive.
pub(crate) const MAX_MEMBERS: u64 = 200_000;
/// Bytes of a path, and of one name.
const MAX_PATH_BYTES: usize = 4_095;
const MAX_NAME_BYTES: usize = 255;
/// Bytes of an extended header.
const MAX_EXTENSION_BYTES: u64 = 64 << 10;
const BUFFER_BYTES: usize = 256 << 10;
/// How compressed files begin, and what unpacks them.
const COMPRESSED: [(&[u8], &str); 5] = [
    (b"\x1f\x8b", "gzip -d"),
    (b"\x28\xb5\x2f\xfd", "zstd -d"),
    (b"\xfd7zXZ", "xz -d"),
    (b"BZh", "bzip2 -d"),
    (b"PK\x03\x04", "unzip"),
];

/// A file, directory or link of an archive.
#[derive(Debug)]
pub(super) struct Member {
    /// Relative, of plain names, not empty.
    pub path: PathBuf,
    pub content: MemberContent,
    /// Permission bits.
    pub mode: u32,
    /// Seconds since 1970.
    pub modified_at: u64,
}

#[derive(Debug)]
pub(super) enum MemberContent {
    /// The bytes of a regular file follow.
    File {
        size: u64,
    },
    Directory,
    Symlink(PathBuf),
    /// Another name of an earlier member.
    HardLink(PathBuf),
    /// A device or a FIFO.
    Special,
}

/// Reads all members of an archive in order; returns how many there are.
///
/// # Errors
/// What `visit` returns, and when the archive is broken, has more than [`MAX_MEMBERS`] members, or
/// one that cannot be unpacked.
pub(super) fn read(
    archive: &OwnedFd,
    visit: &mut dyn FnMut(&Member, &mut dyn Read) -> Result<(), ApiRejection>,
) -> Result<u64, ApiRejection> {
    let unreadable = |error: std::io::Error| storage("the archive cannot be read", &error);
    let mut file = File::from(archive.try_clone().map_err(unreadable)?);
    let length = file.seek(SeekFrom::End(0)).map_err(unreadable)?;
    file.rewind().map_err(unreadable)?;
    check_beginning(&mut file, length)?;
    let mut archive = Archive::new(BufReader::with_capacity(BUFFER_BYTES, file));
    let (mut names, mut headers, mut members) = (LongNames::default(), 0, 0);
    // Raw: the library would read extended headers into memory whatever their length.
    for entry in archive.entries_with_seek().map_err(|error| broken(&error.to_string()))?.raw(true) {
        let mut entry = entry.map_err(|error| broken(&error.to_string()))?;
        headers += 1;
        if entry.raw_file_position().checked_add(entry.size()).is_none_or(|end| end > length) {
            return Err(broken("it ends in the middle of a member"));
        }
        if names.take(&mut entry)? {
            continue;
        }
        // Each member has at most a long name, a long target and an extended header.
        if members == MAX_MEMBERS || headers > 4 * MAX_MEMBERS {
            let message = format!("the archive has more than {MAX_MEMBERS} members");
            return Err(ApiRejection::new(Code::FileTooLarge, message).with("max_members", MAX_MEMBERS));
        }
        members += 1;
        if let Some(member) = member(&entry, std::mem::take(&mut names))? {
            visit(&member, &mut entry)?;
        }
    }
    Ok(members)
}

/// Refuses what is not an archive, with a message of what would work.
fn check_beginning(file: &mut File, length: u64) -> Result<(), ApiRejection> {
    let mut beginning = Vec::new();
    let read = file.by_ref().take(8).read_to_end(&mut beginning).and_then(|_| file.rewind());
    read.map_err(|error| storage("the archive cannot be read", &error))?;
    if let Some((_, program)) = COMPRESSED.iter().find(|(magic, _)| beginning.starts_with(magic)) {
        return Err(broken(&format!("it is compressed: unpack it first (`{program}`)")));
    }
    if length < 512 { Err(broken("it has less than one block of 512 bytes")) } else { Ok(()) }
}

pub(super) fn broken(why: &str) -> ApiRejection {
    ApiRejection::new(Code::BadArchive, format!("the body is not a tar archive that can be unpacked: {why}"))
}

/// A member that cannot be unpacked, by its name.
fn refused(code: Code, path: &[u8], why: &str) -> ApiRejection {
    let name = String::from_utf8_lossy(path);
    ApiRejection::new(code, format!("the archive's member `{}` {why}", shown(&name)))
        .with("member", shown(&name))
}

/// What separate headers contain about the next member.
#[derive(Debug, Default)]
struct LongNames {
    path: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    size: Option<Vec<u8>>,
}

impl LongNames {
    /// Reads an entry that only describes the next one; false where it does not.
    fn take(&mut self, entry: &mut Entry<'_, impl Read>) -> Result<bool, ApiRejection> {
        let kind = entry.header().entry_type();
        match kind {
            EntryType::GNULongName => self.path = Some(terminated(extension(entry)?)),
            EntryType::GNULongLink => self.target = Some(terminated(extension(entry)?)),
            EntryType::XHeader => {
                let bytes = extension(entry)?;
                for record in PaxExtensions::new(&bytes) {
                    let record = record.map_err(|error| broken(&error.to_string()))?;
                    let value = Some(record.value_bytes().to_vec());
                    match record.key_bytes() {
                        b"path" => self.path = value,
                        b"linkpath" => self.target = value,
                        b"size" => self.size = value,
                        key if key.starts_with(b"GNU.sparse.") => {
                            return Err(broken("it has sparse files; make it without --sparse"));
                        }
                        _ => {}
                    }
                }
            }
            // Comments, such as git's.
            EntryType::XGlobalHeader => {}
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn extension(entry: &mut Entry<'_, impl Read>) -> Result<Vec<u8>, ApiRejection> {
    if entry.size() > MAX_EXTENSION_BYTES {
        return Err(broken(&format!("it has an extended header of more than {MAX_EXTENSION_BYTES} bytes")));
    }
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes).map_err(|error| broken(&error.to_string()))?;
    Ok(bytes)
}

/// Without the NUL byte that ends it, and what is after it.
fn terminated(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    bytes.truncate(end);
    bytes
}

/// The member of an entry; `None` for the directory that holds all of them.
fn member(entry: &Entry<'_, impl Read>, names: LongNames) -> Result<Option<Member>, ApiRejection> {
    let header = entry.header();
    let name = names.path.unwrap_or_else(|| header.path_bytes().into_owned());
    let target = || {
        names
            .target
            .or_else(|| header.link_name_bytes().map(|target| target.into_owned()))
            .unwrap_or_default()
    };
    if names.size.is_some_and(|size| size != entry.size().to_string().as_bytes()) {
        return Err(refused(Code::BadArchive, &name, "has two lengths"));
    }
    let path = plain_path(&name)?;
    let content = match header.entry_type() {
        // Archives of before 1988 have no type for directories.
        EntryType::Regular if name.ends_with(b"/") => MemberContent::Directory,
        EntryType::Regular | EntryType::Continuous => MemberContent::File { size: entry.size() },
        EntryType::Directory => MemberContent::Directory,
        EntryType::Symlink => MemberContent::Symlink(PathBuf::from(OsString::from_vec(target()))),
        EntryType::Link => MemberContent::HardLink(plain_path(&target())?),
        EntryType::Char | EntryType::Block | EntryType::Fifo => MemberContent::Special,
        EntryType::GNUSparse => {
            return Err(refused(
                Code::BadArchive,
                &name,
                "is a sparse file; make the archive without --sparse",
            ));
        }
        _ => {
            return Err(refused(
                Code::WrongFileType,
                &name,
                "is not a file, directory or link; leave it out",
            ));
        }
    };
    if path.as_os_str().is_empty() {
        return match content {
            MemberContent::Directory => Ok(None),
            _ => Err(refused(Code::BadArchive, &name, "has no name")),
        };
    }
    let number = |value: std::io::Result<u64>| value.map_err(|error| broken(&error.to_string()));
    let mode = number(header.mode().map(u64::from))?;
    let modified_at = number(header.mtime())?;
    Ok(Some(Member { path, content, mode: (mode & 0o777) as u32, modified_at }))
}

/// A name of an archive as a relative path of plain names.
fn plain_path(name: &[u8]) -> Result<PathBuf, ApiRejection> {
    if name.len() > MAX_PATH_BYTES || name.contains(&0) {
        return Err(refused(
            Code::TooLong,
            name,
            &format!("has a path of more than {MAX_PATH_BYTES} bytes, or a NUL byte"),
        ));
    }
    let given = PathBuf::from(OsString::from_vec(name.to_vec()));
    let mut path = PathBuf::new();
    for component in given.components() {
        match component {
            Component::CurDir => {}
            Component::Normal(part) if part.len() > MAX_NAME_BYTES => {
                return Err(refused(
                    Code::TooLong,
                    name,
                    &format!("has a name of more than {MAX_NAME_BYTES} bytes"),
                ));
            }
            Component::Normal(part) => path.push(part),
            _ => {
                return Err(refused(
                    Code::PathOutside,
                    name,
                    "leaves the directory: its name is absolute or has a `..`",
                ));
            }
        }
    }
    if path.components().count() > MAX_LISTING_DEPTH {
        return Err(refused(
            Code::TooLong,
            name,
            &format!("is more than {MAX_LISTING_DEPTH} directories deep"),
        ));
    }
    Ok(path)
}

/// Whether a link in an unpacked directory leads to a place in it. `..` counts only at the
/// beginning of a target: after a name, which may be a link, it may lead anywhere.
pub(super) fn is_inside(link: &Path, target: &Path, below: impl FnOnce(&Path) -> Option<PathBuf>) -> bool {
    let is_plain = |component: Component<'_>| matches!(component, Component::Normal(_) | Component::CurDir);
    if target.as_os_str().is_empty() {
        return false;
    }
    if target.is_absolute() {
        return below(target).is_some_and(|target| target.components().all(is_plain));
    }
    let depth = link.components().count() - 1;
    let up = target.components().take_while(|component| *component == Component::ParentDir).count();
    up <= depth && target.components().skip(up).all(is_plain)
}

/// A device or a FIFO where none can be.
pub(super) fn special(member: &Member) -> ApiRejection {
    refused(Code::WrongFileType, member.path.as_os_str().as_bytes(), "is a device or a FIFO; leave it out")
}

/// A link that leads out of the directory that the archive is unpacked into.
pub(super) fn leads_out(member: &Member, target: &Path) -> ApiRejection {
    let name = member.path.to_string_lossy();
    let message = format!(
        "the archive's member `{}` is a link to `{}`, outside of the directory; leave it out, or make it as it is by links=keep",
        shown(&name),
        shown(&target.to_string_lossy())
    );
    ApiRejection::new(Code::PathOutside, message).with("member", shown(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_leave_the_directory_are_refused() {
        for (name, path) in [("./a/b/", "a/b"), ("a//b", "a/b"), (".", ""), ("./", "")] {
            assert_eq!(plain_path(name.as_bytes()).expect(name), Path::new(path));
        }
        for name in ["/etc/passwd", "..", "a/../../b", "a/..", "//x"] {
            assert_eq!(plain_path(name.as_bytes()).expect_err(name).code, Code::PathOutside, "{name}");
        }
        let (deep, long) = ("d/".repeat(65), "x".repeat(256));
        for name in [deep.as_str(), long.as_str(), &"x/".repeat(3_000), "a\0b"] {
            assert_eq!(plain_path(name.as_bytes()).expect_err(name).code, Code::TooLong);
        }
    }

    #[test]
    fn links_are_inside_only_by_leading_parents_and_names() {
        let below = |path: &Path| path.strip_prefix("/workspace/d").ok().map(Path::to_owned);
        for (link, target, expected) in [
            ("l", "f", true),
            ("a/l", "../f", true),
            ("a/l", "./f/g", true),
            ("l", "/workspace/d/f", true),
            ("l", "", false),
            ("l", "../f", false),
            ("a/l", "../../f", false),
            ("a/l", "f/../g", false),
            ("l", "/workspace/e", false),
            ("l", "/workspace/d/../e", false),
            ("l", "/etc/passwd", false),
        ] {
            assert_eq!(is_inside(Path::new(link), Path::new(target), below), expected, "{link} {target}");
        }
    }
}
