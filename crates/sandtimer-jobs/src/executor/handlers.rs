//! Handlers: functions of the worker's own program that jobs name.
//!
//! A handler executes nothing in the worker itself: it starts runs in the scope of the attempt and
//! reports each of them. So the enforcer keeps its deadlines as those of a command, a cancel ends
//! its runs, and their output is the job's log.

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
    /// The argument, from the job's spec or, in a loop, from the driver.
    pub input: Value,
    /// The limits of each run, from the job's spec.
    pub limits: Limits,
    /// The scope of the attempt, which has to be the parent of every run.
    pub scope: ScopeHandle,
}

/// What a handler reports to its worker.
#[derive(Debug)]
pub enum HandlerMessage {
    /// A run has started; the one before it, if there was one, has ended.
    Started(Run),
    /// The handler has finished. This is its last message.
    Over(HandlerResult),
}

/// How a call of a handler ended.
#[derive(Debug)]
pub enum HandlerResult {
    /// It returned a value, which becomes the `value` of the Outcome. A run must have started.
    Returned(Value),
    /// It failed by the job's fault: it raised an exception, or its run was ended.
    Failed {
        /// One line for the job's result.
        message: String,
        /// Further text for the job's log, such as a traceback; empty if there is none.
        detail: String,
        /// The name of the exception's class, if it raised one.
        exception: Option<String>,
    },
    /// No run can start here, for this reason: the job is handed out again.
    Unavailable(String),
}

/// A function of the worker's program that jobs name.
///
/// ```
/// use std::sync::mpsc::Sender;
/// use sandtimer::{Engine, Spec};
/// use sandtimer_jobs::executor::{Handler, HandlerCall, HandlerMessage, HandlerResult};
/// use serde_json::Value;
///
/// /// Executes its argument with `sh`, and returns what it printed.
/// #[derive(Debug)]
/// struct Shell(Engine);
///
/// impl Handler for Shell {
///     fn call(&self, call: HandlerCall, sender: &Sender<HandlerMessage>) {
///         let program = call.input.as_str().unwrap_or_default();
///         let mut spec = Spec::command(["sh", "-c", program]).limits(call.limits);
///         spec.parent = Some(call.scope.id());
///         let result = match self.0.start(spec) {
///             Err(error) => HandlerResult::Unavailable(error.to_string()),
///             Ok(run) => {
///                 // A message cannot be sent only if the worker has ended.
///                 let _ = sender.send(HandlerMessage::Started(run.another()));
///                 let outcome = run.wait_blocking();
///                 if outcome.ok {
///                     HandlerResult::Returned(Value::String(outcome.stdout.clone()))
///                 } else {
///                     let message = format!("the program ended with {:?}", outcome.ending);
///                     HandlerResult::Failed { message, detail: String::new(), exception: None }
///                 }
///             }
///         };
///         let _ = sender.send(HandlerMessage::Over(result));
///     }
/// }
/// ```
pub trait Handler: Send + Sync + Debug {
    /// Executes one call, and returns after it has sent [`HandlerMessage::Over`]. It is called on a
    /// thread of its own.
    fn call(&self, call: HandlerCall, sender: &Sender<HandlerMessage>);
}

/// The handlers of a worker, by name.
#[derive(Debug, Clone, Default)]
pub struct Handlers(pub BTreeMap<String, Arc<dyn Handler>>);

impl Handlers {
    /// The names of all of them, sorted.
    pub(super) fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    fn find(&self, name: &str) -> Result<&Arc<dyn Handler>, StopCause> {
        self.0.get(name).ok_or_else(|| {
            let known = if self.0.is_empty() { "none".to_owned() } else { self.names().join(", ") };
            StopCause::Infrastructure(format!(
                "this worker has no handler `{name}` (it has: {known}); leave the job to a worker that has it"
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
