//! `sandtimer template import`, and `sandtimer sandbox diff` and `export`.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use super::super::CommandFailure;
use super::arguments::{checked_sandbox_id, checked_template_name};
use super::client::{Client, printable};
use super::reply::print_reply;
use crate::args::template::{SandboxDiff, SandboxExport, TemplateImport};
use crate::render::{self, To};

const BUFFER_BYTES: usize = 256 << 10;

pub(super) fn import(given: &TemplateImport) -> Result<ExitCode, CommandFailure> {
    let name = checked_template_name(&given.name)?;
    let client = Client::new(&given.server)?;
    let source = given.source.as_path();
    let unreadable =
        |error: io::Error| CommandFailure::usage(format!("`{}` cannot be read: {error}", source.display()));
    // The server would not read the whole archive, and a client that still sends may not get its
    // answer.
    let known = client.get("/v1/templates")?;
    if known["templates"].as_array().into_iter().flatten().any(|template| template["name"] == *name) {
        return Err(CommandFailure::usage(format!(
            "there is a template `{name}` already; delete it first (`sandtimer template delete {name}`), or give another name"
        )));
    }
    let at = format!("/v1/templates?name={name}");
    let made = if source == Path::new("-") {
        client.upload(&at, io::stdin().lock())?
    } else if source.is_dir() {
        upload_directory(&client, &at, source, &unreadable)?
    } else {
        client.upload(&at, File::open(source).map_err(unreadable)?)?
    };
    Ok(print_reply(given.server.json, &made, made["name"].as_str().unwrap_or_default()))
}

/// An archive that is packed while it is read. It has no end if packing it failed: what is sent of
/// it is not whole.
struct PackedArchive<'a> {
    reader: &'a UnixStream,
    has_failed: &'a AtomicBool,
}

impl Read for PackedArchive<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.reader.read(buffer)?;
        match length == 0 && self.has_failed.load(Ordering::Acquire) {
            true => Err(io::Error::other("the directory cannot be packed")),
            false => Ok(length),
        }
    }
}

/// Packs a directory while it is sent.
fn upload_directory(
    client: &Client,
    at: &str,
    directory: &Path,
    unreadable: &dyn Fn(io::Error) -> CommandFailure,
) -> Result<Value, CommandFailure> {
    let (reader, writer) = UnixStream::pair().map_err(unreadable)?;
    let has_failed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let failing = &has_failed;
        let packing = scope.spawn(move || {
            let mut archive = tar::Builder::new(io::BufWriter::with_capacity(BUFFER_BYTES, writer));
            archive.follow_symlinks(false);
            let packed = archive.append_dir_all("", directory).and_then(|()| archive.finish());
            // Dropping it writes an end.
            failing.store(packed.is_err(), Ordering::Release);
            packed
        });
        let sent = client.upload(at, PackedArchive { reader: &reader, has_failed: &has_failed });
        // A server that refuses does not read the rest; what still packs ends with the connection.
        let _ = reader.shutdown(Shutdown::Both);
        let packed =
            packing.join().unwrap_or_else(|_| Err(io::Error::other("the thread that packs it failed")));
        match (sent, packed) {
            (Err(refused), Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => Err(refused.into()),
            (_, Err(error)) => Err(unreadable(error)),
            (sent, Ok(())) => Ok(sent?),
        }
    })
}

pub(super) fn diff(given: &SandboxDiff) -> Result<ExitCode, CommandFailure> {
    let id = checked_sandbox_id(&given.id)?;
    let listed =
        Client::new(&given.server)?.get(&format!("/v1/sandboxes/{id}/diff?limit={}", given.limit))?;
    if given.server.json {
        render::print(&format!("{listed}\n"));
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    for change in listed["changes"].as_array().into_iter().flatten() {
        let letter = match change["change"].as_str() {
            Some("added") => 'A',
            Some("deleted") => 'D',
            _ => 'C',
        };
        let end = if change["kind"] == "directory" { "/" } else { "" };
        let path = printable(change["path"].as_str().unwrap_or_default());
        text.push_str(&format!("{letter} {path}{end}\n"));
    }
    render::print(&text);
    if listed["truncated"] == true {
        render::report_error(&format!("there are more than {} changes; give a higher --limit", given.limit));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn export(given: &SandboxExport) -> Result<ExitCode, CommandFailure> {
    let id = checked_sandbox_id(&given.id)?;
    let what = if given.changes { "changes" } else { "all" };
    if io::stdout().is_terminal() {
        return Err(CommandFailure::usage(
            "the archive would be written to the terminal; redirect it to a file: >files.tar",
        ));
    }
    let client = Client::new(&given.server)?;
    let (_, mut archive) = client.stream(&format!("/v1/sandboxes/{id}/export?what={what}"))?;
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let length = archive.read(&mut buffer);
        let length =
            length.map_err(CommandFailure::system("the archive is not whole: its stream has ended early"))?;
        // A reader that is gone misses nothing.
        if length == 0 || !render::write(To::Stdout, &buffer[..length]) {
            return Ok(ExitCode::SUCCESS);
        }
    }
}
