//! A cell on its way through a context: on the thread that received its request, if it ends soon,
//! or on a thread that may wait.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sandtimer::Run;
use sandtimer::engine::{CellEvent, CellSpec, ExecutionAttempt};
use sandtimer::model::{Outcome, RemainingState};
use tokio::sync::oneshot;

use crate::contexts::context::LiveContext;
use crate::contexts::service::{ContextService, blocking};
use crate::error::ApiRejection;
use crate::intake::Reservation;
use crate::metrics::QueueWait as Waiting;
use crate::quota::Share;
use crate::runs::{UnbegunGuard, drive};

/// A cell that takes no longer is executed on the thread that received its request. A context is
/// also left alone this long before it is settled.
pub(super) const MAX_INLINE_DURATION: Duration = Duration::from_millis(2);

/// Whether it may have left processes running.
fn left_something(outcome: &Outcome) -> bool {
    outcome.state == RemainingState::Kept && outcome.tree.survivors.is_none()
}

/// Something that was sent to a context, on its way through it.
pub(super) struct SentCell {
    pub service: Arc<ContextService>,
    /// What a panic on the way leaves unbegun is ended by this.
    pub live: UnbegunGuard,
    pub context: Arc<LiveContext>,
    /// Receives that it has begun, or why not.
    pub reply_sender: Option<oneshot::Sender<Result<(), ApiRejection>>>,
    pub waits: Option<Waiting>,
    pub begun: Option<Arc<Run>>,
    pub notes: Arc<Mutex<Vec<String>>>,
    pub unsaved: Arc<Mutex<Option<String>>>,
    pub has_stdin: bool,
    /// Memory for its source and stdin: until it has begun, with stdin until it has finished.
    pub input: Option<Reservation>,
    pub share: Share,
}

impl SentCell {
    /// Executes it on this thread, as far as it does not keep that from others: each thread that
    /// wakes instead costs as much as a short cell does. One at a time, so that there are threads
    /// for the others.
    pub fn here(mut self, cell: CellSpec) {
        let service = self.service.clone();
        let Some(_here) = InlineExecution::enter(&service.is_one_here) else {
            return self.on_a_thread(cell);
        };
        let context = self.context.clone();
        context.touch();
        let tried = context
            .context
            .try_execute(cell, MAX_INLINE_DURATION, &mut |event| self.handle_event(event, false));
        match tried {
            Ok(ExecutionAttempt::NotReady(cell)) => self.on_a_thread(*cell),
            Ok(ExecutionAttempt::Continues(execution)) => {
                if let Some(run) = &self.begun {
                    drive::drive_queued(&self.service.runs, &self.live, run);
                }
                tokio::task::spawn_blocking(move || {
                    let outcome = context
                        .context
                        .continue_execution(*execution, &mut |event| self.handle_event(event, true));
                    let _share = self.over(Ok(outcome));
                    context.context.rest();
                });
            }
            Ok(ExecutionAttempt::Finished(outcome)) => {
                if let Some(run) = &self.begun {
                    drive::end_queued(&self.service.runs, &self.live, run, &outcome);
                }
                drop(self.over(Ok(outcome)));
                settle_soon(&context);
            }
            Err(error) => drop(self.over(Err(error))),
        }
    }

    /// Executes it when its turn comes, on a thread that may wait.
    pub fn on_a_thread(mut self, cell: CellSpec) {
        tokio::task::spawn_blocking(move || {
            let context = self.context.clone();
            context.touch();
            let executed = context.context.execute(cell, &mut |event| self.handle_event(event, true));
            let _share = self.over(executed);
            // An interpreter that has answered and continues computing has no checkpoint to show,
            // and is ended.
            context.context.rest();
        });
    }

    /// Handles an event of the cell. `drive`: a task drives the run once it has begun.
    fn handle_event(&mut self, handle_event: CellEvent, drive: bool) {
        match handle_event {
            CellEvent::Started(run) => {
                if !self.has_stdin {
                    self.input = None;
                }
                if let Some(waits) = self.waits.take() {
                    waits.begun();
                }
                *self.unsaved.lock().unwrap_or_else(PoisonError::into_inner) =
                    self.context.context.info().checkpoint.err();
                let begun = drive::begin_queued(&self.service.runs, &self.live, &run);
                if begun.is_ok() && drive {
                    drive::drive_queued(&self.service.runs, &self.live, &run);
                }
                self.begun = begun.is_ok().then_some(run);
                if let Some(reply_sender) = self.reply_sender.take() {
                    // Without a receiver it is dropped.
                    let _ = reply_sender.send(begun);
                }
            }
            CellEvent::Lost(state, reason) => {
                let state = if state == RemainingState::RolledBack {
                    "went back to its last checkpoint"
                } else {
                    "started again"
                };
                self.notes
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(format!("the context {state}: {reason}"));
            }
            CellEvent::Displayed(_) | CellEvent::Raised(_) => {}
        }
    }

    /// It has finished, or could not begin. Its share is returned: this thread is kept for as long
    /// as the context rests.
    fn over(self, executed: Result<Arc<Outcome>, sandtimer::Error>) -> Share {
        let SentCell { service, live, context, reply_sender, waits, begun, share, .. } = self;
        // Of what did not begin.
        drop(waits);
        if let (Ok(outcome), Some(run)) = (&executed, begun)
            && left_something(outcome)
        {
            context.keep_left(&live, &run);
        }
        context.touch();
        if let (Err(error), Some(reply_sender)) = (executed, reply_sender) {
            let rejection = ApiRejection::from(error);
            let reason = rejection.message.clone();
            let is_delivered = reply_sender.send(Err(rejection)).is_ok();
            drive::drop_queued(&service.runs, &live, &reason, is_delivered);
        }
        share
    }
}

/// The one place for what is executed on a thread of the runtime's own.
struct InlineExecution<'a>(&'a AtomicBool);

impl<'a> InlineExecution<'a> {
    fn enter(is_taken: &'a AtomicBool) -> Option<Self> {
        (!is_taken.swap(true, Ordering::AcqRel)).then_some(InlineExecution(is_taken))
    }
}

impl Drop for InlineExecution<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Settles a context: its checkpoint once the answer is written, the rest once it has been unused
/// for a moment.
fn settle_soon(context: &Arc<LiveContext>) {
    let context = context.clone();
    // A task of this thread, which runs it after it has written the answer.
    tokio::spawn(async move {
        context.context.prepare();
        if context.is_to_rest.swap(true, Ordering::AcqRel) {
            return;
        }
        while {
            tokio::time::sleep(MAX_INLINE_DURATION).await;
            context.unused() < MAX_INLINE_DURATION
        } {}
        context.is_to_rest.store(false, Ordering::Release);
        // A panic there was reported by itself.
        let _ = blocking(move || context.context.rest()).await;
    });
}
