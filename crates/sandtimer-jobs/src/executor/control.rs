//! How an active job is ended from outside: a halt that is sent once, to all its present runs.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandtimer_os::clock::monotonic_nanoseconds;

use sandtimer::engine::Run;
use sandtimer::time::Moment;

/// Why a job is to end before it has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Halt {
    /// A caller cancelled the job, for this reason.
    Cancel(String),
    /// The worker no longer has the lease.
    Lost,
    /// Its worker ends: it is given back.
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

/// The halt, and the active runs: several with steps in parallel.
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
    /// Halts the job. The first halt stays.
    pub fn halt(&self, halt: Halt) {
        let mut state = self.state();
        if state.halt.is_none() {
            state.runs.iter().for_each(|run| run.cancel(halt.reason()));
            state.halt = Some(halt);
            self.changed.notify_all();
        }
    }

    /// The halt that was sent, if any.
    pub fn halted(&self) -> Option<Halt> {
        self.state().halt.clone()
    }

    /// Registers a run that has begun: a halt cancels it, even an earlier one.
    pub(super) fn began(&self, run: &Arc<Run>) {
        let mut state = self.state();
        if let Some(halt) = &state.halt {
            run.cancel(halt.reason());
        }
        state.runs.push(Arc::clone(run));
    }

    /// It has ended.
    pub(super) fn ended(&self, run: &Arc<Run>) {
        self.state().runs.retain(|other| !Arc::ptr_eq(other, run));
    }

    /// Waits until `until`, or until the job is halted.
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
