//! Attempts that are calls of handlers.

use std::sync::Arc;
use std::sync::mpsc::channel;

use sandtimer::engine::ScopeHandle;
use sandtimer::limits::Limits;
use sandtimer::model::Outcome;
use serde_json::{Value, json};

use super::execution::{JobCall, JobExecution, StopCause};
use super::following::LoggedStreams;
use super::handlers::{Handler, HandlerCall, HandlerMessage, HandlerResult};
use crate::job::JobPhase;
use crate::job::sentences::JobActivity;

impl JobExecution<'_> {
    /// One attempt of the handler that the call names, until everything it has begun is dead.
    pub(super) fn handle(
        &self,
        call: JobCall<'_>,
        scope: ScopeHandle,
        input: Value,
        limits: Limits,
        logged: LoggedStreams,
    ) -> Result<Arc<Outcome>, StopCause> {
        let handler = Arc::clone(self.handler(call.name)?);
        let handler_call = HandlerCall { job: self.held.id.clone(), input, limits, scope };
        let (sender, messages) = channel();
        std::thread::scope(|threads| {
            let calling = std::thread::Builder::new()
                .spawn_scoped(threads, move || handler.call(handler_call, &sender));
            let no_thread = |error| StopCause::Infrastructure(format!("no thread for the handler: {error}"));
            calling.map_err(no_thread)?;
            let mut outcome = None;
            for message in messages {
                match message {
                    HandlerMessage::Started(run) => {
                        let run = Arc::new(run);
                        self.control.began(&run);
                        outcome = Some(self.follow(&run, logged));
                        self.control.ended(&run);
                    }
                    HandlerMessage::Over(handled) => return self.handled(call, handled, outcome),
                }
            }
            Err(StopCause::Infrastructure(format!("the handler `{}` ended without a word", call.name)))
        })
    }

    fn handler(&self, name: &str) -> Result<&Arc<dyn Handler>, StopCause> {
        self.handlers.0.get(name).ok_or_else(|| {
            let known =
                if self.handlers.0.is_empty() { "none".to_owned() } else { self.handlers.names().join(", ") };
            StopCause::Infrastructure(format!(
                "this worker has no handler `{name}` (it has: {known}); add it to the worker's handlers, or submit the job to a worker that has it"
            ))
        })
    }

    /// The Outcome of the last run, with the result of the handler.
    fn handled(
        &self,
        call: JobCall<'_>,
        handled: HandlerResult,
        outcome: Option<Arc<Outcome>>,
    ) -> Result<Arc<Outcome>, StopCause> {
        let JobCall { name, level } = call;
        match (handled, outcome) {
            (HandlerResult::Returned(value), Some(outcome)) => {
                Ok(Arc::new(Outcome { value: Some(value), ..(*outcome).clone() }))
            }
            // It was ended, and its Outcome has the reason.
            (HandlerResult::Failed { .. }, Some(outcome)) if outcome.verdict.is_some() => Ok(outcome),
            (HandlerResult::Failed { message, detail, exception }, Some(outcome)) => {
                self.log(detail.as_bytes());
                let error =
                    Some(json!({"code": "handler_failed", "message": message, "exception": exception}));
                Ok(Arc::new(Outcome { ok: false, error, ..(*outcome).clone() }))
            }
            (HandlerResult::Unavailable(message), _) => Err(StopCause::Infrastructure(message)),
            (HandlerResult::Failed { message, .. }, None) => {
                // If the job's or the loop's time ended before a run, that is the cause.
                self.check(level, JobPhase::Running, JobActivity::BeforeAttempt(name))?;
                Err(StopCause::failed(message))
            }
            (HandlerResult::Returned(_), None) => {
                Err(StopCause::Infrastructure(format!("the handler `{name}` answered without a run")))
            }
        }
    }
}
