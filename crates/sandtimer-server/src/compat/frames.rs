//! The events of a run as the package reads them: `data:` and JSON, nothing else.
//!
//! Each stream reports how it ended: `complete` and `exit` always carry the exit code, an end that
//! is not the command's own is explained before it, and if no end is known there is an `error`.
//! Text is ASCII, because the package decodes code's streams piece by piece.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use sandtimer::model::Outcome;
use serde_json::{Value, json};

use super::answer::now;
use super::{cell_frames, outcome};
use crate::connection::Connection;
use crate::events::{self, EventSource, StreamEvent};
use crate::runs::{CLIENT_GONE, LiveRun, RunEvents};

/// What the frames are of.
#[derive(Debug)]
enum FrameSource {
    Command { command: String, has_session: bool },
    Process { id: String, command: String },
    Code,
}

/// The frames of one run for one reader.
#[derive(Debug)]
pub(super) struct CommandFrames {
    kind: FrameSource,
    run: Arc<LiveRun>,
    events: RunEvents,
    /// The reader's connection, whose end is the end of the run.
    foreground: Option<Arc<Connection>>,
    ready: VecDeque<Value>,
    /// What was sent of stderr ends in the middle of a line.
    is_in_line: bool,
    /// The events have ended: only how the run ended remains to be sent.
    ending: bool,
    done: bool,
}

impl CommandFrames {
    fn new(kind: FrameSource, run: Arc<LiveRun>, foreground: Option<Arc<Connection>>) -> Self {
        let events = RunEvents::with_replacement(run.clone());
        let (ready, is_in_line, ending, done) = (VecDeque::new(), false, false, false);
        CommandFrames { kind, run, events, foreground, ready, is_in_line, ending, done }
    }

    /// A command that its reader waits for.
    pub fn foreground(
        run: Arc<LiveRun>,
        connection: Arc<Connection>,
        command: String,
        has_session: bool,
    ) -> Self {
        Self::new(FrameSource::Command { command, has_session }, run, Some(connection))
    }

    /// Code that its reader waits for.
    pub fn code(run: Arc<LiveRun>, connection: Arc<Connection>) -> Self {
        Self::new(FrameSource::Code, run, Some(connection))
    }

    /// A process, which continues without readers.
    pub fn process(run: Arc<LiveRun>, id: String, command: String) -> Self {
        Self::new(FrameSource::Process { id, command }, run, None)
    }

    /// The frame of an event, where it has one.
    fn frame(&self, event: &StreamEvent) -> Option<Value> {
        let data = &event.data["data"];
        Some(match (event.name, &self.kind) {
            ("started", FrameSource::Command { command, .. }) => {
                json!({"type": "start", "command": command, "timestamp": now()})
            }
            ("started", FrameSource::Process { id, command }) => {
                let status = outcome::status(&self.run);
                json!({"type": "process_info", "processId": id, "command": command, "status": status, "timestamp": now()})
            }
            (name @ ("stdout" | "stderr"), FrameSource::Command { .. }) => {
                json!({"type": name, "data": data, "timestamp": now()})
            }
            (name @ ("stdout" | "stderr"), FrameSource::Process { id, .. }) => {
                json!({"type": name, "data": data, "processId": id, "timestamp": now()})
            }
            (name @ ("stdout" | "stderr"), FrameSource::Code) => json!({"type": name, "text": data}),
            ("lagged", FrameSource::Code) => json!({"type": "stderr", "text": gap(event)}),
            ("lagged", _) => json!({"type": "stderr", "data": gap(event), "timestamp": now()}),
            _ => return None,
        })
    }

    /// How it ended, in frames.
    fn end(&self, outcome: &Outcome) -> Vec<Value> {
        let exit_code = outcome::code(outcome);
        let on_stderr = |note: String| {
            let note = if self.is_in_line { format!("\n{note}") } else { note };
            json!({"type": "stderr", "data": note, "timestamp": now()})
        };
        match &self.kind {
            FrameSource::Code => cell_frames::end(outcome),
            FrameSource::Command { has_session, .. } => {
                let note = match has_session {
                    true => outcome::note(outcome).map(|note| note + "\n"),
                    false => outcome::note_without_session(outcome),
                };
                let note = note.map(on_stderr);
                let end = json!({"type": "complete", "exitCode": exit_code, "timestamp": now(), "verdict": outcome.verdict});
                note.into_iter().chain([end]).collect()
            }
            FrameSource::Process { id, .. } => {
                let timeout_frame = outcome::timed_out(outcome).map(|note| {
                    let mut frame = on_stderr(note);
                    frame["processId"] = id.as_str().into();
                    frame
                });
                let how = outcome::note(outcome)
                    .unwrap_or_else(|| format!("Process completed with exit code {exit_code}"));
                let end = json!({"type": "exit", "processId": id, "exitCode": exit_code, "data": how, "timestamp": now()});
                timeout_frame.into_iter().chain([end]).collect()
            }
        }
    }

    /// The next frame. The future may be dropped: it changes the state only after its waits.
    async fn find_next(&mut self) -> Option<Value> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            if self.done {
                return None;
            }
            if self.ending {
                let frames = match self.run.outcome().await {
                    Ok(Some(outcome)) => self.end(&outcome),
                    _ => vec![
                        json!({"type": "error", "data": "the run's record cannot be read", "timestamp": now()}),
                    ],
                };
                self.ready.extend(frames);
                self.done = true;
                continue;
            }
            match self.events.next().await {
                Some(event) if event.name != "ended" => {
                    if event.name == "stderr" {
                        self.is_in_line =
                            event.data["data"].as_str().is_some_and(|text| !text.ends_with('\n'));
                    }
                    self.ready.extend(self.frame(&event));
                }
                _ => self.ending = true,
            }
        }
    }
}

/// The notice on output that was dropped before the reader came to it.
fn gap(event: &StreamEvent) -> String {
    format!(
        "[{} bytes of {} were dropped at the output limit]\n",
        event.data["dropped"], event.data["stream"]
    )
}

impl EventSource for CommandFrames {
    async fn next(&mut self) -> Option<StreamEvent> {
        let data = match self.foreground.clone() {
            None => self.find_next().await?,
            Some(connection) => tokio::select! {
                frame = self.find_next() => frame?,
                () = connection.closed() => return None,
            },
        };
        Some(StreamEvent { id: String::new(), name: "", data })
    }
}

impl Drop for CommandFrames {
    fn drop(&mut self) {
        if self.foreground.is_some() && !self.done {
            self.run.cancel(CLIENT_GONE);
        }
    }
}

/// An answer of frames.
pub(super) fn respond(source: impl EventSource, heartbeat: Duration) -> Response {
    events::respond_as(source, heartbeat, written)
}

fn written(event: &StreamEvent) -> String {
    let mut text = "data: ".to_owned();
    for letter in event.data.to_string().chars() {
        if letter.is_ascii() {
            text.push(letter);
        } else {
            let mut units = [0; 2];
            for unit in letter.encode_utf16(&mut units) {
                // Writing to a String cannot fail.
                let _ = write!(text, "\\u{unit:04x}");
            }
        }
    }
    text.push_str("\n\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_ascii_and_keep_the_value() {
        let data = json!({"type": "stdout", "data": "ä😀\n\"\u{7f}"});
        let text = written(&StreamEvent { id: String::new(), name: "", data: data.clone() });
        assert!(text.is_ascii() && text.ends_with("\n\n"), "{text}");
        let read: Value = serde_json::from_str(text.trim_start_matches("data: ")).expect("JSON");
        assert_eq!(read, data);
    }
}
