//! TypeScript, read in a sandbox of its own, where reading can be ended.
//!
//! ```text
//! code ─▶ the options' reader, a run like any other: its limits are here ─▶ JavaScript, or why not
//! ```
//! Where the options name no reader it is read in this process, as far as that is safe; see
//! `script`.

use std::sync::Arc;
use std::time::Duration;

use super::error::Error;
use super::{Engine, Inner, Require, Spec, Stdin, start};
use crate::limits::Limits;
use crate::model::{Ending, LimitKind, Outcome, Tier};
use crate::scope::ScopeId;
use crate::script::{
    JavaScriptProgram, MAX_CODE_BYTES_APART, ReadTarget, SyntaxError, check_length, unreadable,
};

/// Longer than code written by a person takes, even on a busy machine.
const WALL: Duration = Duration::from_secs(10);
const CPU: Duration = Duration::from_secs(5);
const MEMORY: u64 = 1 << 30;
const PROCESSES: u64 = 16;
/// Of JavaScript that code becomes.
const OUTPUT: u64 = 16 << 20;

impl Engine {
    /// The JavaScript of a TypeScript program, read within this time or the engine's own limit, and
    /// within the limits of the scope `parent`.
    ///
    /// # Errors
    /// Where and why it cannot be read ([`Error::Script`]); what stops Sandtimer before it is read.
    pub fn typescript(
        &self,
        source: &str,
        within: Option<Duration>,
        parent: Option<ScopeId>,
    ) -> Result<JavaScriptProgram, Error> {
        Ok(JavaScriptProgram::from_reply(&read(&self.inner, ReadTarget::Program, source, within, parent)?)?)
    }
}

/// What TypeScript has become; see [`ReadTarget::read`].
pub(super) fn read(
    inner: &Arc<Inner>,
    wanted: ReadTarget,
    source: &str,
    within: Option<Duration>,
    parent: Option<ScopeId>,
) -> Result<String, Error> {
    let Some(reader) = &inner.options.reader else { return Ok(wanted.read(source)) };
    if let Err(error) = check_length(source, MAX_CODE_BYTES_APART) {
        return Ok(error.text());
    }
    let wall = within.map_or(WALL, |within| within.min(WALL));
    let spec = Spec {
        command: reader.iter().cloned().chain([wanted.name().into()]).collect(),
        private_workspace: true,
        without_ptys: true,
        // What it takes counts as its owner's.
        parent,
        stdin: Stdin::Bytes(source.into()),
        limits: Limits::new().wall(wall).cpu(CPU).memory(MEMORY).processes(PROCESSES).output(OUTPUT),
        // Whatever there is of walls is more than there is around this process.
        require: Require { tier: Some(Tier::T0), kill: None },
        ..Spec::default()
    };
    let outcome = start::start(inner, spec)?.wait_blocking();
    match parse_outcome(&outcome) {
        Ok(text) => Ok(text),
        Err(Some(error)) => Ok(error.text()),
        Err(None) => Err(Error::System {
            doing: "cannot read the code",
            source: std::io::Error::other(format!(
                "its reader ended as {:?}: {}",
                outcome.ending, outcome.stderr
            )),
        }),
    }
}

/// Returns the reader's reply; else why there is none, or `None` if that is not the code's fault.
fn parse_outcome(outcome: &Outcome) -> Result<String, Option<SyntaxError>> {
    let limit = |kind| outcome.verdict.as_ref().filter(|verdict| verdict.kind == Some(kind));
    let simply =
        |text: String| Err(Some(unreadable(format!("reading the code {text}; write it more simply"))));
    match outcome.ending {
        Ending::Exited if outcome.ok && !outcome.stdout_truncated => Ok(outcome.stdout.clone()),
        Ending::Exited if outcome.ok => {
            Err(Some(unreadable(format!("the code becomes more than {OUTPUT} bytes"))))
        }
        Ending::Timeout => {
            let (kind, limit) = match limit(LimitKind::Cpu) {
                Some(verdict) => (" of processor time", verdict.limit_ms),
                None => ("", limit(LimitKind::Wall).and_then(|verdict| verdict.limit_ms)),
            };
            simply(format!("took longer than {:?}{kind}", Duration::from_millis(limit.unwrap_or(0))))
        }
        Ending::OutOfMemory => {
            let bytes = limit(LimitKind::Memory).and_then(|verdict| verdict.limit).unwrap_or(MEMORY);
            simply(format!("took more than {} MiB of memory", bytes >> 20))
        }
        // By its own stack's end.
        Ending::Signaled => {
            simply(format!("goes deeper than its reader can ({})", outcome.signal.as_deref().unwrap_or("")))
        }
        _ => Err(None),
    }
}
