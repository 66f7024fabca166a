//! One call of a tool: waiting with progress messages, and cancellation.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::ProgressNotificationParam;
use rmcp::service::RequestContext;
use sandtimer::model::Warning;
use tokio::sync::watch;
use tokio::time::Instant;

use super::conversation::Conversation;
use super::render::how_far;
use super::service::AgentService;
use crate::auth::OwnerId;
use crate::body::RequestFields;
use crate::error::{ApiRejection, Code};
use crate::runs::LiveRun;

/// No call takes longer, whatever it waits for: clients time out after a minute.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(45);
/// How often a client that gave a token is sent progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(15);

/// How a wait went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitResult {
    Completed,
    /// The time ended first.
    TimedOut,
    /// The client cancelled the call, or went away.
    Cancelled,
}

pub(super) struct ToolCall {
    pub conversation: Conversation,
    context: RequestContext<RoleServer>,
    /// When it is to be answered, whatever it has waited for until then.
    until: Instant,
    /// What the answer is to say besides.
    notes: Mutex<Vec<String>>,
}

impl ToolCall {
    pub fn new(conversation: Conversation, context: RequestContext<RoleServer>) -> Self {
        ToolCall { conversation, context, until: Instant::now() + MAX_WAIT, notes: Mutex::default() }
    }

    /// `wait_ms`, cut to [`MAX_WAIT`], which the answer then notes.
    pub fn wait_of(&self, fields: &mut RequestFields, usual: Duration) -> Result<Duration, ApiRejection> {
        let wait = fields.milliseconds("wait_ms")?.unwrap_or(usual);
        if wait > MAX_WAIT {
            let (given, most) = (wait.as_millis(), MAX_WAIT.as_millis());
            self.lock_notes().push(format!(
                "wait_ms was {given} and is taken as {most}: no call waits longer. What is running then continues; when it is to be ended is timeout_ms"
            ));
        }
        Ok(wait.min(MAX_WAIT))
    }

    /// What the answer is to say besides.
    pub fn notes(&self) -> Vec<String> {
        std::mem::take(&mut self.lock_notes())
    }

    fn lock_notes(&self) -> MutexGuard<'_, Vec<String>> {
        // Poisoning is harmless: every update is a single push.
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `wait`, or the rest of the call if that is shorter.
    pub fn bounded_wait(&self, wait: Duration) -> Duration {
        wait.min(self.until.saturating_duration_since(Instant::now()))
    }

    /// What `work` gives, where the call lasts that long. What is dropped in the middle must not be
    /// lost.
    pub async fn within<T>(
        &self,
        what: &str,
        work: impl Future<Output = Result<T, ApiRejection>>,
    ) -> Result<T, ApiRejection> {
        let late = |_| {
            let most = MAX_WAIT.as_secs();
            ApiRejection::new(
                Code::SpawnTimeout,
                format!("{what} takes longer than a call, which is {most} s"),
            )
        };
        tokio::time::timeout_at(self.until, work).await.map_err(late)?
    }

    /// When it is to be answered.
    pub fn end(&self) -> Instant {
        self.until
    }

    /// What `work` gives, which is dropped when the client cancels the call or goes away.
    pub async fn unless_cancelled<T>(
        &self,
        work: impl Future<Output = Result<T, ApiRejection>>,
    ) -> Result<T, ApiRejection> {
        tokio::select! {
            biased;
            () = self.context.ct.cancelled() => {
                Err(ApiRejection::new(Code::RequestTimeout, "the client cancelled the call"))
            }
            done = work => done,
        }
    }

    pub fn service(&self) -> &AgentService {
        &self.conversation.owner.service
    }

    pub fn owner(&self) -> &OwnerId {
        &self.conversation.owner.owner
    }

    /// The run that `run_id` names.
    pub fn run(&self, fields: &mut RequestFields, name: &'static str) -> Result<Arc<LiveRun>, ApiRejection> {
        let id = required(fields, name)?;
        self.service().contexts.runs.get(&id, self.owner())
    }

    /// Waits for `done`, at most this long and as the call lasts. During the wait it sends progress
    /// messages: that these runs continue, and, of a single run, its progress and that a limit is
    /// near.
    pub async fn wait(
        &self,
        most: Duration,
        done: impl Future<Output = ()>,
        runs: &[&LiveRun],
    ) -> WaitResult {
        let (mut done, began) = (std::pin::pin!(done), Instant::now());
        let mut over = std::pin::pin!(tokio::time::sleep(self.bounded_wait(most)));
        let mut ticks = tokio::time::interval_at(began + PROGRESS_INTERVAL, PROGRESS_INTERVAL);
        let mut warnings = match runs {
            [run] => Some(run.watch_warnings()),
            _ => None,
        };
        loop {
            tokio::select! {
                biased;
                () = &mut done => return WaitResult::Completed,
                () = self.context.ct.cancelled() => return WaitResult::Cancelled,
                () = &mut over => return WaitResult::TimedOut,
                warning = next(&mut warnings) => self.notify_progress(began.elapsed(), runs, Some(warning)).await,
                _ = ticks.tick() => self.notify_progress(began.elapsed(), runs, None).await,
            }
        }
    }

    async fn notify_progress(&self, waited: Duration, runs: &[&LiveRun], warning: Option<Warning>) {
        let Some(token) = self.context.meta.get_progress_token() else { return };
        let seconds = waited.as_secs();
        let mut message = match runs {
            [run] => format!("run {}: still running after {seconds} s.{}", run.id_str(), how_far(run)),
            several => format!("{} runs: still running after {seconds} s.", several.len()),
        };
        if let Some(warning) = warning {
            message += &format!(" Warning: {warning}.");
        }
        let notification = ProgressNotificationParam::new(token, waited.as_secs_f64()).with_message(message);
        // The send fails only if the client went away, which is detected otherwise.
        let _ = self.context.peer.notify_progress(notification).await;
    }
}

/// The next warning of a run; never comes where there is none to listen to.
async fn next(warnings: &mut Option<watch::Receiver<Vec<Warning>>>) -> Warning {
    while let Some(receiver) = warnings {
        if receiver.changed().await.is_err() {
            *warnings = None;
        } else if let Some(last) = receiver.borrow_and_update().last() {
            return *last;
        }
    }
    std::future::pending().await
}

/// A text that must be there.
pub(super) fn required(fields: &mut RequestFields, name: &'static str) -> Result<String, ApiRejection> {
    let missing = || {
        ApiRejection::new(Code::BadField, format!("{name} is missing; give it as a string")).with("key", name)
    };
    fields.string(name)?.ok_or_else(missing)
}
