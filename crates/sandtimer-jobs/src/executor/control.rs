//! Ends an active job from outside: the first request counts, and reaches whatever the job does at
//! that moment.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandtimer_os::clock::monotonic_nanoseconds;

use sandtimer::engine::Run;
use sandtimer::time::Moment;

/// Why a job is to end before it has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Halt {
    /// It was cancelled, for this reason.
    Cancel(String),
    /// Its lease was lost.
    Lost,
    /// Its worker ends and returns it.
    GiveBack,
}

impl Halt {
    fn reason(&self) -> String {
        match self {
            Halt::Cancel(reason) => reason.clone(),
            Halt::Lost => "its worker lost the lease".to_owned(),
            Halt::GiveBack => "its worker ends".to_owned(),
        }
    }
}

/// The request to end a job, and the runs that it has now: several with steps in parallel.
#[derive(Debug, Default)]
pub struct JobControl {
    state: Mutex<JobControlState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct JobControlState {
    halt: Option<Halt>,
    runs: Vec<Arc<Run>>,
}

impl JobControl {
    /// Requests the end. Only the first request counts.
    pub fn halt(&self, halt: Halt) {
        let mut state = self.state();
        if state.halt.is_none() {
            state.runs.iter().for_each(|run| run.cancel(halt.reason()));
            state.halt = Some(halt);
            self.changed.notify_all();
        }
    }

    /// The request, if there was one.
    pub fn halted(&self) -> Option<Halt> {
        self.state().halt.clone()
    }

    /// Adds a run, which an earlier or later request cancels.
    pub(super) fn began(&self, run: &Arc<Run>) {
        let mut state = self.state();
        if let Some(halt) = &state.halt {
            run.cancel(halt.reason());
        }
        state.runs.push(Arc::clone(run));
    }

    /// Removes a run that has ended.
    pub(super) fn ended(&self, run: &Arc<Run>) {
        self.state().runs.retain(|other| !Arc::ptr_eq(other, run));
    }

    /// Waits until a moment, or until the end is requested.
    pub(super) fn wait(&self, until: Moment) {
        let mut state = self.state();
        while state.halt.is_none() {
            let left = until.since(Moment::from_nanos(monotonic_nanoseconds()));
            if left == Duration::ZERO {
                return;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn state(&self) -> MutexGuard<'_, JobControlState> {
        // An option and a list; each change is one call.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
