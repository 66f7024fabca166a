//! A script that a session's shell has run before its first command.
//!
//! ```text
//! shell begun ─▶ script, as a run with a limit of its own ─▶ reached its end ─▶ first checkpoint
//!                    └─▶ limit, `exit`, cannot be read ─▶ killed; another shell, without it
//! ```
//! The script is trusted as much as the operator of the engine, and so are the messages that it
//! sends.

use sandtimer_os::clock::monotonic_nanoseconds;

use super::super::error::Error;
use super::cell::CellSpec;
use super::context::{Context, begun};
use super::heard::CellReader;
use super::interpreter::LiveInterpreter;
use super::prewarm_script::ShellPrewarm;
use crate::limits::Limits;
use crate::model::{Ending, Outcome, RemainingState};

/// Bytes of its output that are kept, to report why it cannot be read.
const KEPT_OUTPUT: u64 = 16 << 10;
/// The longest reason.
const MAX_REASON_CHARS: usize = 300;
/// How soon to look again whether its shell is still wanted.
const WITHDRAWAL_CHECK_NANOSECONDS: u64 = 100_000_000;
const UNWANTED: &str = "no caller waits for the session any more";

impl Context {
    /// A new shell that has run the session's script, or one without it where that has failed.
    pub(super) fn shell(&self, is_withdrawn: &dyn Fn() -> bool) -> Result<LiveInterpreter, Error> {
        let new = || {
            let mut interpreter = LiveInterpreter::shell(&self.inner, &self.spec)?;
            begun(&mut interpreter, &self.spec).map(|()| interpreter)
        };
        let mut interpreter = new()?;
        if let Some(prewarm) = self.spec.prewarm.as_ref().filter(|prewarm| prewarm.failure().is_none())
            && let Err(failed) = self.prewarm(&mut interpreter, prewarm, is_withdrawn)?
        {
            match failed {
                // Of several at the same time one counts.
                PrewarmFailure::Always(reason) => drop(prewarm.failure.set(reason)),
                PrewarmFailure::Here(reason) => drop(self.not_prewarmed.set(reason)),
            }
            drop(interpreter);
            interpreter = new()?;
        }
        Ok(interpreter)
    }

    /// Runs the script; or why it has failed.
    fn prewarm(
        &self,
        interpreter: &mut LiveInterpreter,
        prewarm: &ShellPrewarm,
        is_withdrawn: &dyn Fn() -> bool,
    ) -> Result<Result<(), PrewarmFailure>, Error> {
        if prewarm.script.source.contains('\0') {
            return Ok(Err(PrewarmFailure::Always("it cannot be read: it has a NUL byte".to_owned())));
        }
        let cell = CellSpec {
            source: prewarm.command(self.spec.directory.is_some()),
            limits: Limits::new().wall(prewarm.script.limit).output(KEPT_OUTPUT),
            ..CellSpec::default()
        };
        let (run, handoff, mut read_state) = self.begin(interpreter, cell, monotonic_nanoseconds())?;
        while !run.has_finished() {
            if self.check_wanted(is_withdrawn).is_err() {
                run.cancel(UNWANTED);
            }
            match interpreter
                .wait_for_packet(monotonic_nanoseconds().saturating_add(WITHDRAWAL_CHECK_NANOSECONDS))
            {
                Ok(false) => {}
                // It has answered, or ended.
                _ => break,
            }
        }
        let reader = CellReader::new(&self.inner, &run.running, interpreter, &mut read_state, &handoff);
        if let Some(mut reader) = reader {
            reader.read(None, &mut |_| {});
        }
        let outcome = run.running.waiting.wait_outcome(false);
        read_state.close(&mut |_| {});
        self.check_wanted(is_withdrawn)?;
        if let Some(reason) = failed(&outcome, prewarm) {
            return Ok(Err(reason));
        }
        // The context never returns to a state before the script.
        interpreter.forget_all();
        interpreter.ask_for_checkpoint();
        let ready = interpreter.ready_within(crate::limits::nanoseconds(interpreter.spawn_limit()));
        Ok(ready
            .map(drop)
            .map_err(|reason| PrewarmFailure::Always(format!("it left a shell of no use: {reason}"))))
    }
}

/// Why a script has not run.
enum PrewarmFailure {
    /// Because of what it is: it is not run again.
    Always(String),
    /// Because of this session, for example its limits.
    Here(String),
}

fn failed(outcome: &Outcome, prewarm: &ShellPrewarm) -> Option<PrewarmFailure> {
    let is_its_own = matches!(outcome.ending, Ending::Exited | Ending::Timeout);
    let reason = match (outcome.ending, outcome.state, outcome.exit_code) {
        (Ending::Exited, RemainingState::Kept, Some(0)) => return None,
        (Ending::Exited, RemainingState::Kept, _) => {
            let last_line = outcome.stderr.trim_end().lines().last().unwrap_or("its end was not reached");
            format!("it cannot be read: {last_line}")
        }
        (Ending::Exited, _, code) => {
            let code = code.map_or_else(String::new, |code| format!(" (exit code {code})"));
            format!("it ended its shell{code}")
        }
        (Ending::Timeout, ..) => format!("it did not end within its limit of {:?}", prewarm.script.limit),
        (ending, ..) => match &outcome.verdict {
            Some(verdict) => verdict.sentence.clone(),
            None => format!("it ended as {ending:?}"),
        },
    };
    let reason = reason.chars().take(MAX_REASON_CHARS).collect();
    Some(if is_its_own { PrewarmFailure::Always(reason) } else { PrewarmFailure::Here(reason) })
}
