//! All runs of a server and their records: finding them, and removing the oldest.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use sandtimer_os::clock::calendar_milliseconds;
use sandtimer_records::{RunStore, StoredRun};
use tokio::sync::{Mutex, Notify};

use super::input::RunInput;
use super::live::{LiveRun, RunPhase};
use super::record::Record;
use crate::auth::OwnerId;
use crate::error::{ApiRejection, Code, storage};
use crate::registry::{OwnedResource, Registry};
use crate::settings::Retention;

/// All owners together keep as many records as this many owners with the maximum each.
const MAX_OWNERS_KEPT: usize = 8;

/// How many records each owner keeps, if they have `counts`: `most`, and fewer if all owners
/// together would keep more than [`MAX_OWNERS_KEPT`] times that. Then those with most of them lose
/// theirs first.
fn share(counts: &[usize], most: usize) -> usize {
    let (mut left, mut owners) = (most.saturating_mul(MAX_OWNERS_KEPT), counts.len());
    let mut counts = counts.to_vec();
    counts.sort_unstable();
    for count in counts {
        if count.min(most) > left / owners {
            return left / owners;
        }
        left -= count.min(most);
        owners -= 1;
    }
    most
}

/// All runs and their records.
#[derive(Debug)]
pub(crate) struct Runs {
    pub(super) registry: Registry<LiveRun>,
    pub(super) store: Arc<RunStore>,
    retention: Retention,
    /// Runs that have ended since records were last thinned out.
    ended: AtomicUsize,
    /// One at a time thins records out.
    thinning: Mutex<()>,
    /// A record was written that is not on the disk yet.
    pub(super) written: Notify,
    /// There may be fewer files for records to come than are kept.
    pub(super) unprepared: Notify,
    /// Records are on their way to the disk: a thread that writes one may have to wait.
    pub(super) is_syncing: AtomicBool,
}

impl Runs {
    pub fn new(store: RunStore, stored: Vec<StoredRun>, retention: Retention) -> Self {
        let registry = Registry::default();
        for run in stored {
            let begun = run.ended().begun.clone();
            registry.add(Arc::new(LiveRun::new(
                begun,
                RunPhase::Ended(Record::Disk(run)),
                RunInput::closed(),
            )));
        }
        let runs = Runs {
            registry,
            store: Arc::new(store),
            retention,
            ended: AtomicUsize::new(0),
            thinning: Mutex::default(),
            written: Notify::new(),
            unprepared: Notify::new(),
            is_syncing: AtomicBool::new(false),
        };
        runs.thin_out();
        runs
    }

    /// Whether a record is usually written without waiting for the disk.
    pub fn is_quick(&self) -> bool {
        !self.is_syncing.load(Ordering::Relaxed)
    }

    pub fn find(&self, id: &str, owner: &OwnerId) -> Option<Arc<LiveRun>> {
        self.registry.find(id, owner)
    }

    pub fn of(&self, owner: &OwnerId) -> Vec<Arc<LiveRun>> {
        self.registry.of(owner)
    }

    /// The numbers of active and of ended runs.
    pub fn counts(&self) -> (usize, usize) {
        let all = self.registry.all();
        let running = all.iter().filter(|run| run.status() == "running").count();
        let ended = all.iter().filter(|run| run.status() == "ended").count();
        (running, ended)
    }

    /// Forgets a run that has ended.
    pub async fn purge(&self, run: &Arc<LiveRun>) -> Result<(), ApiRejection> {
        let RunPhase::Ended(record) = run.phase() else {
            return Err(ApiRejection::new(Code::RunRunning, format!("the run `{}` is running", run.id())));
        };
        if let Record::Disk(stored) = record {
            let store = self.store.clone();
            let removed = tokio::task::spawn_blocking(move || store.remove(&stored)).await;
            let removed =
                removed.map_err(|_| ApiRejection::new(Code::Internal, "the record cannot be removed"))?;
            removed.map_err(|error| storage("the record cannot be removed", &error))?;
        }
        self.registry.remove(run.id());
        Ok(())
    }

    /// Removes each owner's oldest records beyond what is to be kept. Waits for the disk.
    pub(super) fn thin_out(&self) {
        // The thread that holds the lock finds what has ended by now, or the next call does.
        let Ok(_one) = self.thinning.try_lock() else { return };
        self.ended.store(0, Ordering::Relaxed);
        let mut owners: HashMap<OwnerId, Vec<_>> = HashMap::new();
        for run in self.registry.all() {
            if let RunPhase::Ended(record) = run.phase() {
                owners.entry(run.owner().clone()).or_default().push((record.ended_at_ms(), run, record));
            }
        }
        let counts: Vec<usize> = owners.values().map(Vec::len).collect();
        let most = self
            .retention
            .runs
            .map_or(usize::MAX, |runs| share(&counts, usize::try_from(runs).unwrap_or(usize::MAX)));
        let age =
            self.retention.age.map_or(u64::MAX, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        let oldest = calendar_milliseconds().saturating_sub(age);
        for ended in owners.values_mut() {
            ended.sort_by_key(|(at, ..)| std::cmp::Reverse(*at));
            for (index, (at, run, record)) in ended.iter().enumerate() {
                if index >= most || *at < oldest {
                    if let Record::Disk(stored) = record {
                        // A record that cannot be removed is found again at the next start.
                        let _ = self.store.remove(stored);
                    }
                    self.registry.remove(run.id());
                }
            }
        }
    }

    /// Counts an ended run. Returns whether records are to be thinned out: that reads all there
    /// are, so it waits until there are a sixteenth more than are to be kept.
    pub(super) fn count_ended(&self) -> bool {
        let ended = self.ended.fetch_add(1, Ordering::Relaxed) as u64 + 1;
        self.retention.runs.is_some_and(|most| ended > most / 16)
    }

    /// Cancels all runs and waits until they are recorded: first with the grace they have, then
    /// without.
    pub async fn end_all(&self, gentle: Duration, last: Duration) {
        let all = || self.registry.all().into_iter().filter(|run| run.status() == "running");
        let wait = |most| join_all(all().map(|run| async move { run.wait_ended(Some(most)).await }));
        for most in [gentle, last] {
            all().for_each(|run| run.cancel("the server was asked to end"));
            wait(most).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn retention_takes_from_the_largest_owner() {
        assert_eq!(share(&[], 100), 100);
        assert_eq!(share(&[5, 140], 100), 100);
        assert_eq!(share(&[100; 8], 100), 100);
        assert_eq!(share(&[100; 16], 100), 50);
        // What those with few leave is the others'.
        assert_eq!(share(&[&[10; 4][..], &[100; 10]].concat(), 100), 76);
        assert_eq!(share(&[1, 2], 0), 0);
    }
}
