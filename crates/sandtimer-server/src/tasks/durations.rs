//! What is known of durations: in memory for answers, in a file for the next server.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sandtimer::model::{Ending, Outcome};
use sandtimer_agents::estimate::{
    Conditions, EstimateAnswer, EstimateRequest, Estimator, FinishedRun, History, HistoryError, Question,
};
use sandtimer_os::clock::calendar_milliseconds;
use sandtimer_records::{DurationStore, StoreError};

use crate::auth::OwnerId;
use crate::error::ApiRejection;

/// What fails within this, in milliseconds, has not begun its work: a module that is missing, an
/// option that there is not.
const MAX_UNSTARTED_MS: u64 = 100;

/// Durations of runs, and what they foretell.
#[derive(Debug)]
pub(crate) struct Durations {
    estimator: Mutex<Estimator>,
    /// `None`: what there is belongs to a newer version.
    store: Option<DurationStore>,
    /// Why earlier runs are not known.
    without: Option<String>,
}

impl Durations {
    /// Reads what earlier servers kept. What a newer version keeps is left alone, and estimates do
    /// without.
    pub fn open(state_directory: &Path, log_error: &dyn Fn(&str)) -> Result<Self, StoreError> {
        let opened = match DurationStore::open(state_directory, calendar_milliseconds()) {
            Err(error @ StoreError::Newer { .. }) => {
                let without = format!("the durations of earlier runs are left out: {error}");
                log_error(&without);
                return Ok(Durations { estimator: Mutex::default(), store: None, without: Some(without) });
            }
            opened => opened?,
        };
        if let Some(path) = opened.moved_aside {
            let path = path.display();
            log_error(&format!("the durations of runs were damaged and start empty; the old file is {path}"));
        }
        let runs = opened.durations.newest(DurationStore::MAX_DURATIONS).unwrap_or_else(|error| {
            log_error(&format!("the durations of earlier runs cannot be read: {error}"));
            Vec::new()
        });
        let estimator = Mutex::new(Estimator::from_runs(&runs));
        Ok(Durations { estimator, store: Some(opened.durations), without: None })
    }

    /// Why earlier runs are not known, where they are not.
    pub fn without(&self) -> Option<&str> {
        self.without.as_deref()
    }

    fn lock(&self) -> MutexGuard<'_, Estimator> {
        // A panic in between may leave out a run, and nothing else.
        self.estimator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long this is likely to take here and now, from this owner's runs.
    pub fn answer(&self, asked: EstimateRequest, owner: &OwnerId) -> Result<EstimateAnswer, ApiRejection> {
        let answer = self.lock().answer(asked, owner.as_str(), Conditions::here())?;
        Ok(EstimateAnswer { without: self.without.clone(), ..answer })
    }

    /// Learns how long a run took. What is returned is still to be kept.
    pub fn learn(&self, question: Question, outcome: &Outcome) -> Option<FinishedRun> {
        let failed_at_once = outcome.usage.wall_ms < MAX_UNSTARTED_MS;
        let stopped = match outcome.ending {
            Ending::InfraError => return None,
            Ending::Exited if outcome.exit_code == Some(0) => false,
            Ending::Exited | Ending::Signaled | Ending::Raised if failed_at_once => return None,
            _ => true,
        };
        let seconds = outcome.usage.wall_ms as f64 / 1000.0;
        self.learned(FinishedRun { question, seconds, stopped, ended_at_ms: calendar_milliseconds() })
    }

    /// Learns from something else that has ended.
    pub fn learned(&self, finished: FinishedRun) -> Option<FinishedRun> {
        self.lock().record(&finished).ok()?;
        Some(finished)
    }

    /// Keeps it for the next server. Waits for the disk.
    pub fn keep(&self, finished: &FinishedRun) -> Result<(), HistoryError> {
        self.store.as_ref().map_or(Ok(()), |store| store.append(finished))
    }
}
