//! `sandtimer logs`: what a run has written, and, with `--follow`, writes.
//!
//! Following reads the run's events. Each has an id, and a broken connection is made again after
//! the last event that was printed, so nothing is lost or printed twice.

use std::io::{BufRead, BufReader, Read};
use std::process::ExitCode;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::event::{Timespec, poll};
use sandtimer_os::clock::monotonic_nanoseconds;
use serde_json::{Value, json};

use super::super::CommandFailure;
use super::client::{Client, RequestRejection, checked_id, printable};
use crate::args::LogsArguments;
use crate::render::{self, To};

/// How long a server that was there may be away.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// How long until the next try.
const RECONNECT_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// The longest line of a stream of events.
const MAX_LINE_BYTES: u64 = 4 << 20;

pub(crate) fn main(given: &LogsArguments) -> Result<ExitCode, CommandFailure> {
    let id = checked_id(&given.id)?;
    let client = Client::having(&given.server, id)?;
    if given.follow {
        follow(&client, id, given.server.json)?;
    } else {
        // Standard output first; how the two were mixed is not known.
        for stream in ["stdout", "stderr"] {
            if !print_stream(&client, id, stream, given.server.json)? {
                break;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what a stream has by now. Returns false if the reader of stdout has gone.
fn print_stream(client: &Client, id: &str, stream: &str, as_json: bool) -> Result<bool, CommandFailure> {
    let mut cursor = 0;
    loop {
        let answer =
            client.get(&format!("/v1/runs/{id}/output?stream={stream}&cursor={cursor}&max_bytes=1048576"))?;
        let next = answer["next_cursor"].as_u64().unwrap_or(cursor);
        let data = answer["data"].as_str().unwrap_or_default();
        if answer["dropped_before"].as_u64().is_some_and(|dropped| dropped > 0) && !as_json {
            note_dropped(stream, &answer["dropped_before"]);
        }
        if !data.is_empty() {
            let is_written = if as_json {
                render::write(To::Stdout, line(&answer).as_bytes())
            } else {
                show(stream, &answer)?
            };
            if !is_written {
                return Ok(false);
            }
        }
        if next <= cursor || answer["ended"].as_bool() == Some(true) {
            return Ok(true);
        }
        cursor = next;
    }
}

/// Prints events until the run has ended, or the reader of stdout has gone.
fn follow(client: &Client, id: &str, as_json: bool) -> Result<(), CommandFailure> {
    let mut last_event_id: Option<String> = None;
    let mut last_received = None;
    loop {
        match client.events(id, last_event_id.as_deref()) {
            Ok(None) => return Ok(()),
            Ok(Some(body)) => {
                last_received = Some(monotonic_nanoseconds());
                if print_events(body, &mut last_event_id, as_json)? {
                    return Ok(());
                }
            }
            // A server that has never answered is not waited for, nor is one that has answered with
            // a rejection.
            Err(refused @ RequestRejection::Unreachable { .. }) => match last_received {
                Some(at) if monotonic_nanoseconds() - at < RECONNECT_TIMEOUT.as_nanos() as u64 => {}
                _ => return Err(refused.into()),
            },
            Err(refused) if refused.is("shutting_down") && last_received.is_some() => {}
            Err(refused) => return Err(refused.into()),
        }
        // Interrupted is early, and no harm.
        let _ = poll(&mut [], Some(&RECONNECT_INTERVAL));
    }
}

/// Prints events as they come, and notes the id of each. Returns true when there is nothing more to
/// print.
fn print_events(
    body: impl Read,
    last_event_id: &mut Option<String>,
    as_json: bool,
) -> Result<bool, CommandFailure> {
    let mut reader = BufReader::new(body);
    let mut event = ServerSentEvent::default();
    loop {
        let mut line = Vec::new();
        match reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line) {
            // The connection broke, or its time ended: the next one continues at the noted id.
            Ok(0) | Err(_) => return Ok(false),
            Ok(_) if !line.ends_with(b"\n") => return Ok(false),
            Ok(_) => {}
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches(['\r', '\n']);
        if !line.is_empty() {
            event.take(line);
            continue;
        }
        let ServerSentEvent { id, name, data } = std::mem::take(&mut event);
        if name.is_empty() {
            continue;
        }
        let data: Value = serde_json::from_str(&data).unwrap_or_default();
        let continues = print_event(&name, &data, as_json)?;
        *last_event_id = Some(id);
        if !continues || name == "ended" {
            return Ok(true);
        }
    }
}

#[derive(Debug, Default)]
struct ServerSentEvent {
    id: String,
    name: String,
    data: String,
}

impl ServerSentEvent {
    /// One line of it; what is no field of ours, as a heartbeat, is passed over.
    fn take(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => self.id = value.to_owned(),
            "event" => self.name = value.to_owned(),
            "data" => self.data.push_str(value),
            _ => {}
        }
    }
}

/// Returns false if the reader of stdout has gone.
fn print_event(name: &str, data: &Value, as_json: bool) -> Result<bool, CommandFailure> {
    if as_json {
        return Ok(render::write(To::Stdout, line(&json!({"event": name, "data": data})).as_bytes()));
    }
    match name {
        "stdout" | "stderr" => show(name, data),
        "lagged" => {
            note_dropped(data["stream"].as_str().unwrap_or("output"), &data["dropped"]);
            Ok(true)
        }
        "warning" => {
            render::note(&printable(data["message"].as_str().unwrap_or_default()));
            Ok(true)
        }
        "ended" => {
            if let Some(sentence) = data["outcome"]["verdict"]["sentence"].as_str() {
                render::note(sentence);
            }
            Ok(true)
        }
        _ => Ok(true),
    }
}

fn line(value: &Value) -> String {
    format!("{value}\n")
}

fn note_dropped(stream: &str, bytes: &Value) {
    render::note(&format!("{bytes} bytes of {stream} before this were dropped at the output limit"));
}

/// Writes a piece of output where it belongs.
fn show(stream: &str, piece: &Value) -> Result<bool, CommandFailure> {
    let data = piece["data"].as_str().unwrap_or_default();
    let to = if stream == "stderr" { To::Stderr } else { To::Stdout };
    if piece["encoding"].as_str() != Some("base64") {
        return Ok(render::write(to, data.as_bytes()));
    }
    let bytes =
        STANDARD.decode(data).map_err(CommandFailure::system("the server's answer cannot be read"))?;
    Ok(render::write(to, &bytes))
}
