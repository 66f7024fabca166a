//! Handlers: functions of the worker's own program that jobs name.
//!
//! A handler executes nothing in the worker itself: it starts runs in the scope of the attempt and
//! reports each of them. So the enforcer keeps its deadlines as those of a command, a cancel ends
//! its runs, and their output is the job's log.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use sandtimer::engine::{Run, ScopeHandle};
use sandtimer::limits::Limits;
use serde_json::Value;

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
}
