//! `sandtimer sandbox copy`: files and directories into a sandbox, and out of one.
//!
//! ```text
//! file       its bytes, as they are read          PUT, GET /v1/files
//! directory  a tar archive, as it is written      PUT, GET /v1/files/tar
//! ```
//! Nothing is replaced by a part: the server puts a file in its place once all of it has arrived,
//! and so does this side.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use rustix::fs::{Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;
use sandtimer_os::clock::monotonic_nanoseconds;
use serde_json::{Value, json};
use tar::{Archive, Builder};

use super::super::CommandFailure;
use super::arguments::checked_sandbox_id;
use super::client::{Client, printable};
use super::reply::print_reply;
use crate::args::sandbox::SandboxCopy;
use crate::render::{self, To};

/// How often the progress is shown.
const PROGRESS_INTERVAL_NANOSECONDS: u64 = 100_000_000;
/// Letters of the bar.
const BAR_WIDTH: u64 = 24;
const BUFFER_BYTES: usize = 64 << 10;

/// One end of a copy.
#[derive(Debug, PartialEq, Eq)]
enum CopyEnd {
    Local(PathBuf),
    InSandbox { id: String, path: String },
}

impl CopyEnd {
    /// `ID:PATH` is in a sandbox; a local path with a colon is written as `./a:b`.
    fn parse(text: &OsString) -> Result<Self, CommandFailure> {
        let parts = text.to_str().and_then(|text| text.split_once(':'));
        let is_id = |id: &str| !id.is_empty() && id.chars().all(|letter| letter.is_ascii_alphanumeric());
        match parts.filter(|(id, _)| is_id(id)) {
            Some((_, "")) => Err(CommandFailure::usage(
                "copy: give a path after the id of the sandbox, such as ID:/tmp/file",
            )),
            Some((id, path)) => {
                Ok(CopyEnd::InSandbox { id: checked_sandbox_id(id)?.to_owned(), path: path.to_owned() })
            }
            None => Ok(CopyEnd::Local(PathBuf::from(text))),
        }
    }
}

pub(super) fn main(given: &SandboxCopy) -> Result<ExitCode, CommandFailure> {
    let client = Client::new(&given.server)?;
    let done = match (CopyEnd::parse(&given.source)?, CopyEnd::parse(&given.target)?) {
        (CopyEnd::Local(source), CopyEnd::InSandbox { id, path }) => {
            let sandbox_path = SandboxPath { client: &client, id, path };
            copy_in(&source, sandbox_path, Progress::new(given.server.json))?
        }
        (CopyEnd::InSandbox { id, path }, CopyEnd::Local(target)) => {
            let sandbox_path = SandboxPath { client: &client, id, path };
            copy_out(&sandbox_path, &target, Progress::new(given.server.json))?
        }
        _ => {
            let message = "copy: one of the two is a local path, and the other a path in a sandbox, such as ID:/tmp/file";
            return Err(CommandFailure::usage(message));
        }
    };
    let text = format!("{} bytes to {}", done["bytes"], done["path"].as_str().unwrap_or_default());
    Ok(print_reply(given.server.json, &done, &text))
}

/// A path in a sandbox.
struct SandboxPath<'a> {
    client: &'a Client,
    id: String,
    path: String,
}

impl SandboxPath<'_> {
    fn request(&self, what: &str, more: &str) -> String {
        format!("/v1/files{what}?sandbox={}&path={}{more}", self.id, encoded(&self.path))
    }

    /// What is there; `None` if nothing is.
    fn entry(&self) -> Result<Option<Value>, CommandFailure> {
        match self.client.get(&self.request("/stat", "")) {
            Ok(entry) => Ok(Some(entry)),
            Err(refused) if refused.is("file_not_found") => Ok(None),
            Err(refused) => Err(refused.into()),
        }
    }

    /// Below the directory that it is, under this name, if it is one or is written as one.
    fn or_below(mut self, name: &str) -> Result<Self, CommandFailure> {
        if self.path.ends_with('/') || self.entry()?.is_some_and(|entry| entry["type"] == "directory") {
            self.path = format!("{}/{name}", self.path.trim_end_matches('/'));
        }
        Ok(self)
    }
}

/// As part of a query.
fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => encoded.push(byte.into()),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

fn local(path: &Path, error: &io::Error) -> CommandFailure {
    CommandFailure::usage(format!("`{}`: {error}", printable(&path.to_string_lossy())))
}

/// The last name of a local path, as the other side has it.
fn name_of(path: &Path) -> Result<String, CommandFailure> {
    let path = path.canonicalize().map_err(|error| local(path, &error))?;
    let name = path.file_name().and_then(|name| name.to_str());
    name.map(str::to_owned).ok_or_else(|| {
        CommandFailure::usage(format!("`{}` has no name that is UTF-8", printable(&path.to_string_lossy())))
    })
}

fn copy_in(
    source: &Path,
    sandbox_path: SandboxPath<'_>,
    progress: Progress,
) -> Result<Value, CommandFailure> {
    let metadata = fs::metadata(source).map_err(|error| local(source, &error))?;
    let name = name_of(source)?;
    if metadata.is_dir() {
        let sandbox_path =
            if sandbox_path.path.ends_with('/') { sandbox_path.or_below(&name)? } else { sandbox_path };
        return directory_in(source, &sandbox_path, progress);
    }
    if !metadata.is_file() {
        return Err(CommandFailure::usage(format!(
            "`{}` is neither a file nor a directory",
            printable(&source.to_string_lossy())
        )));
    }
    let sandbox_path = sandbox_path.or_below(&name)?;
    let file = File::open(source).map_err(|error| local(source, &error))?;
    let mode = metadata.mode() & 0o777;
    let mut counted =
        CountingReader { inner: file, progress: Progress { total: Some(metadata.len()), ..progress } };
    let request = sandbox_path.request("", &format!("&mode={mode:04o}&parents=true"));
    let answer = sandbox_path.client.put(&request, &mut counted);
    counted.progress.finish();
    let answer = answer?;
    Ok(
        json!({"path": format!("{}:{}", sandbox_path.id, answer["path"].as_str().unwrap_or_default()), "bytes": answer["size"]}),
    )
}

fn directory_in(
    source: &Path,
    sandbox_path: &SandboxPath<'_>,
    progress: Progress,
) -> Result<Value, CommandFailure> {
    let (reader, writer) = UnixStream::pair().map_err(|error| local(source, &error))?;
    let mut counted = CountingReader { inner: reader, progress };
    let request = sandbox_path.request("/tar", "&parents=true&links=keep");
    let (answer, packed) = std::thread::scope(|scope| {
        let packing = scope.spawn(move || pack(source, writer));
        let answer = sandbox_path.client.put(&request, &mut counted);
        counted.progress.finish();
        // A writer that still writes gets an error.
        let _ = counted.inner.shutdown(std::net::Shutdown::Both);
        (answer, packing.join())
    });
    let packed = packed.unwrap_or_else(|_| Err(io::Error::other("the thread that packs it has failed")));
    match (answer, packed) {
        (Ok(answer), Ok(())) => Ok(
            json!({"path": format!("{}:{}", sandbox_path.id, sandbox_path.path), "bytes": answer["bytes"], "members": answer["members"]}),
        ),
        // What the server misses is what could not be read here.
        (_, Err(error)) if error.kind() != io::ErrorKind::BrokenPipe => Err(local(source, &error)),
        (Err(refused), _) => Err(refused.into()),
        (Ok(_), Err(error)) => Err(local(source, &error)),
    }
}

/// Writes a directory as an archive; what is neither file, directory nor link is left out, and
/// reported.
fn pack(directory: &Path, to: impl Write) -> io::Result<()> {
    let mut archive = Builder::new(BufWriter::with_capacity(BUFFER_BYTES, to));
    archive.follow_symlinks(false);
    let mut pending = vec![PathBuf::new()];
    while let Some(below) = pending.pop() {
        let mut entries = fs::read_dir(directory.join(&below))?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let (path, name, kind) = (entry.path(), below.join(entry.file_name()), entry.file_type()?);
            if kind.is_dir() {
                archive.append_dir(&name, &path)?;
                pending.push(name);
            } else if kind.is_file() || kind.is_symlink() {
                archive.append_path_with_name(&path, &name)?;
            } else {
                render::note(&format!(
                    "`{}` is left out: it is not a file, directory or link",
                    printable(&path.to_string_lossy())
                ));
            }
        }
    }
    archive.into_inner()?.flush()
}

fn copy_out(
    sandbox_path: &SandboxPath<'_>,
    target: &Path,
    progress: Progress,
) -> Result<Value, CommandFailure> {
    let name = sandbox_path.path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let is_written_as_directory = target.as_os_str().as_bytes().ends_with(b"/");
    let goal = |is_file: bool| match target.is_dir() && (is_file || is_written_as_directory) {
        true if name.is_empty() => target.to_owned(),
        true => target.join(name),
        false => target.to_owned(),
    };
    let entry = sandbox_path.entry()?.unwrap_or_default();
    let goal = goal(entry["type"] != "directory");
    let bytes = match entry["type"] == "directory" {
        true => directory_out(sandbox_path, &goal, progress)?,
        false => file_out(sandbox_path, &entry, &goal, progress)?,
    };
    Ok(json!({"path": goal.to_string_lossy(), "bytes": bytes}))
}

fn file_out(
    sandbox_path: &SandboxPath<'_>,
    entry: &Value,
    goal: &Path,
    progress: Progress,
) -> Result<u64, CommandFailure> {
    // What a link leads to is followed by the server, and its mode is not known here.
    let mode = entry["mode"].as_str().filter(|_| entry["type"] == "file");
    let mode = mode.and_then(|mode| u32::from_str_radix(mode, 8).ok()).map(|mode| mode & 0o777);
    let (length, body) = sandbox_path.client.stream(&sandbox_path.request("", ""))?;
    let mut counted = CountingReader { inner: body, progress: Progress { total: length, ..progress } };
    let mut aside = goal.as_os_str().to_owned();
    aside.push(format!(".sandtimer-{}", std::process::id()));
    let aside = PathBuf::from(aside);
    let mut copy = || {
        let mut file = File::create_new(&aside)?;
        io::copy(&mut counted, &mut file)?;
        if length.is_some_and(|length| length != counted.progress.bytes) {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server broke off"));
        }
        if let Some(mode) = mode {
            file.set_permissions(fs::Permissions::from_mode(mode))?;
        }
        fs::rename(&aside, goal)
    };
    let copied = copy();
    counted.progress.finish();
    if copied.is_err() {
        // The file may never have been made.
        let _ = fs::remove_file(&aside);
    }
    copied.map(|()| counted.progress.bytes).map_err(|error| local(goal, &error))
}

fn directory_out(
    sandbox_path: &SandboxPath<'_>,
    goal: &Path,
    progress: Progress,
) -> Result<u64, CommandFailure> {
    let (_, body) = sandbox_path.client.stream(&sandbox_path.request("/tar", ""))?;
    let mut counted = CountingReader { inner: body, progress };
    let unpacked = fs::create_dir_all(goal).and_then(|()| unpack(&mut counted, goal));
    counted.progress.finish();
    unpacked.map(|()| counted.progress.bytes).map_err(|error| local(goal, &error))
}

/// Unpacks an archive of which nothing is trusted: no member leaves the directory, over a link or
/// by its name, and none is a device.
fn unpack(archive: &mut impl Read, goal: &Path) -> io::Result<()> {
    let root = File::open(goal)?;
    let mut archive = Archive::new(archive);
    for member in archive.entries()? {
        let mut member = member?;
        let kind = member.header().entry_type();
        let path = member.path()?.into_owned();
        let rejected = |problem: &str| {
            let path = printable(&path.to_string_lossy());
            io::Error::other(format!("`{path}` in the archive {problem}"))
        };
        if !(kind.is_file() || kind.is_dir() || kind.is_symlink()) {
            return Err(rejected("is not a file, directory or link"));
        }
        // `unpack_in` unpacks `/a` as `a`.
        if !path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
            return Err(rejected("leads out of the directory"));
        }
        member.set_preserve_mtime(true);
        if !member.unpack_in(goal)? {
            return Err(rejected("leads out of the directory"));
        }
        if kind.is_dir() {
            let directory = open_directory(&root, &path).map_err(|error| match error {
                Errno::LOOP | Errno::NOTDIR => rejected("leads over a link"),
                error => error.into(),
            })?;
            let mode = fstat(&directory)?.st_mode;
            // What comes below it has to be made. A descriptor of a path is changed by its name
            // only.
            let descriptor = format!("/proc/self/fd/{}", directory.as_raw_fd());
            fs::set_permissions(descriptor, fs::Permissions::from_mode(mode | 0o700))?;
        }
    }
    Ok(())
}

/// Opens a directory below another one; it need not be readable. Fails with `LOOP` or `NOTDIR` if a
/// link is on the way or at its end.
fn open_directory(root: &File, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(root, Path::new(".").join(path), flags, Mode::empty(), resolve)
}

/// What a transfer has moved, shown on terminals.
struct Progress {
    bytes: u64,
    total: Option<u64>,
    is_shown: bool,
    shown_at: u64,
}

impl Progress {
    fn new(is_json: bool) -> Self {
        let is_shown = !is_json && io::stderr().is_terminal();
        Progress { bytes: 0, total: None, is_shown, shown_at: monotonic_nanoseconds() }
    }

    fn add(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        let now = monotonic_nanoseconds();
        if self.is_shown && now.saturating_sub(self.shown_at) >= PROGRESS_INTERVAL_NANOSECONDS {
            self.shown_at = now;
            render::write(To::Stderr, format!("\r\x1b[K{}", self.line()).as_bytes());
        }
    }

    fn line(&self) -> String {
        let mebibytes = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
        match self.total.filter(|total| *total > 0) {
            Some(total) => {
                let share = self.bytes.min(total) * BAR_WIDTH / total;
                let bar: String = (0..BAR_WIDTH).map(|at| if at < share { '#' } else { '.' }).collect();
                format!("[{bar}] {} of {}", mebibytes(self.bytes), mebibytes(total))
            }
            None => mebibytes(self.bytes),
        }
    }

    /// Removes the line.
    fn finish(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            render::write(To::Stderr, b"\r\x1b[K");
        }
    }
}

/// A source that counts what is read from it.
struct CountingReader<R> {
    inner: R,
    progress: Progress,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.progress.add(length);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_local_or_in_a_sandbox() {
        let parse = |text: &str| CopyEnd::parse(&OsString::from(text)).expect(text);
        let inside = |id: &str, path: &str| CopyEnd::InSandbox { id: id.to_owned(), path: path.to_owned() };
        assert_eq!(parse("c731329c7bb9:/tmp/a"), inside("c731329c7bb9", "/tmp/a"));
        assert_eq!(parse("c731329c7bb9:a:b"), inside("c731329c7bb9", "a:b"));
        for path in ["./a:b", "/tmp/a:b", "a", ":a", "a b:c"] {
            assert_eq!(parse(path), CopyEnd::Local(path.into()), "{path}");
        }
        assert!(CopyEnd::parse(&OsString::from("abc:")).is_err());
        assert_eq!(encoded("/a b&c=ä"), "/a%20b%26c%3D%C3%A4");
    }

    #[test]
    fn progress_has_a_bar_if_the_length_is_known() {
        let mut progress = Progress { bytes: 1 << 19, total: Some(1 << 20), is_shown: false, shown_at: 0 };
        assert_eq!(progress.line(), "[############............] 0.5 MiB of 1.0 MiB");
        progress.total = None;
        assert_eq!(progress.line(), "0.5 MiB");
    }

    /// Members below a link that an earlier one has made, absolute names and names with `..`, and
    /// devices.
    #[test]
    fn hostile_archives_stay_inside() {
        let sandbox_path = tempfile::tempdir().expect("a directory");
        let [outside, shut, goal] = ["outside", "shut", "goal"].map(|name| sandbox_path.path().join(name));
        fs::create_dir(&outside).expect("made");
        fs::create_dir(&shut).expect("made");
        fs::set_permissions(&shut, fs::Permissions::from_mode(0o500)).expect("set");
        let archive = |make: &dyn Fn(&mut Builder<Vec<u8>>)| {
            let mut builder = Builder::new(Vec::new());
            make(&mut builder);
            builder.into_inner().expect("written")
        };
        let file = |builder: &mut Builder<Vec<u8>>, name: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.set_size(1);
            header.set_mode(0o644);
            header.as_old_mut().name[..name.len()].copy_from_slice(name);
            header.set_cksum();
            builder.append(&header, &b"x"[..]).expect("written");
        };
        let directory = |builder: &mut Builder<Vec<u8>>, name: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Directory);
            header.set_size(0);
            header.set_mode(0o500);
            header.as_old_mut().name[..name.len()].copy_from_slice(name);
            header.set_cksum();
            builder.append(&header, io::empty()).expect("written");
        };
        let link = |builder: &mut Builder<Vec<u8>>, target: &Path| {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_size(0);
            builder.append_link(&mut header, "link", target).expect("written");
        };
        let over_link = archive(&|builder| {
            link(builder, &outside);
            file(builder, b"link/forged");
        });
        let absolute = archive(&|builder| directory(builder, shut.as_os_str().as_bytes()));
        let absolute_file = archive(&|builder| file(builder, outside.join("forged").as_os_str().as_bytes()));
        let below_link = archive(&|builder| {
            link(builder, sandbox_path.path());
            directory(builder, b"link/shut");
        });
        let at_link = archive(&|builder| {
            link(builder, &shut);
            directory(builder, b"link");
        });
        let below_link_inside = archive(&|builder| {
            directory(builder, b"inside");
            link(builder, Path::new("inside"));
            directory(builder, b"link/deep");
        });
        let upwards = archive(&|builder| file(builder, b"../outside/forged"));
        let device = archive(&|builder| {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Char);
            header.set_size(0);
            builder.append_data(&mut header, "device", io::empty()).expect("written");
        });
        let hostile =
            [over_link, absolute, absolute_file, below_link, at_link, below_link_inside, upwards, device];
        for (number, hostile) in hostile.iter().enumerate() {
            fs::create_dir_all(&goal).expect("made");
            let unpacked = unpack(&mut &hostile[..], &goal);
            assert!(unpacked.is_err(), "archive {number}");
            assert_eq!(fs::read_dir(&outside).expect("there").count(), 0, "archive {number}");
            let mode = fs::metadata(&shut).expect("there").permissions().mode();
            assert_eq!(mode & 0o777, 0o500, "archive {number}");
            fs::remove_dir_all(&goal).expect("removed");
        }
        let honest = archive(&|builder| {
            directory(builder, b"./directory/");
            file(builder, b"directory/file");
        });
        fs::create_dir_all(&goal).expect("made");
        unpack(&mut &honest[..], &goal).expect("the control: it is unpacked");
        assert_eq!(fs::read(goal.join("directory/file")).expect("there"), b"x");
        let mode = fs::metadata(goal.join("directory")).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}
