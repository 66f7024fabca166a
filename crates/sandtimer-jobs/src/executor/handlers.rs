//! Handlers: functions of the worker's own program that jobs name.
//!
//! A handler executes nothing in the worker itself: it begins runs inside the attempt's scope and
//! reports each once. So the enforcer keeps its deadlines as a command's, a cancel reaches what it
//! has begun, and its output is the job's log.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use sandtimer::engine::{Run, ScopeHandle};
use sandtimer::limits::Limits;
use sandtimer::model::Outcome;
use serde_json::{Value, json};

use super::calls::{JobCall, LoggedStreams};
use super::{JobExecution, StopCause};
use crate::job::JobPhase;
use crate::job::sentences::JobActivity;

/// One call of a handler.
#[derive(Debug)]
pub struct HandlerCall {
    /// The job's id.
    pub job: String,
    /// The input from the job's spec, or in a loop from the driver.
    pub input: Value,
    /// Of each run, as the job's spec has them.
    pub limits: Limits,
    /// What every run is begun inside of.
    pub scope: ScopeHandle,
}

/// A message of an active handler.
#[derive(Debug)]
pub enum HandlerMessage {
    /// A run continues from now; the one before it, if there was one, has ended.
    Started(Run),
    /// The last message.
    Over(HandlerResult),
}

/// The result of a handler's call.
#[derive(Debug)]
pub enum HandlerResult {
    Returned(Value),
    /// The job's fault: it raised, or was ended. Everything besides the one-line message is for the
    /// job's log.
    Failed {
        message: String,
        detail: String,
        /// The name of the exception's class, where it raised one.
        exception: Option<String>,
    },
    /// No run can be begun here: the job is handed out again.
    Unavailable(String),
}

/// A function that jobs name.
pub trait Handler: Send + Sync + Debug {
    /// Executes one call, and returns once the last message is sent.
    fn call(&self, call: HandlerCall, sender: &Sender<HandlerMessage>);
}

/// The handlers of a worker, by name.
#[derive(Debug, Clone, Default)]
pub struct Handlers(pub BTreeMap<String, Arc<dyn Handler>>);

impl Handlers {
    fn find(&self, name: &str) -> Result<&Arc<dyn Handler>, StopCause> {
        self.0.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.0.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            StopCause::Infrastructure(format!(
                "this worker has no handler `{name}` (it has: {known}); give jobs with handlers a queue of their own"
            ))
        })
    }
}

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
        let handler = Arc::clone(self.handlers.find(call.name)?);
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

    /// The Outcome of the last run, with the handler's result.
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
