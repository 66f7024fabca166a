//! Tells of jobs' ends: a thread of a worker that claims what is due in the store, has it sent, and writes down what came of it.
//!
//! A claim runs out with a worker that dies, so an end is told at least once. The sending is somebody else's, who knows how:
//! a worker that was given nobody leaves it to the others on its store.
//!
//! A place that gets free is filled at once, by the owners in turn. No owner and no host has more than a few of the places, and
//! where an owner's webhooks to a host fail, its others to that host wait for longer and longer: a host that never answers
//! delays nothing but what is sent to it.

mod sending;

use std::fmt::Debug;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use self::sending::{Sending, SendingPlace};
use super::level::now;
use super::worker::{Concern, Worker};
use crate::job::{Delivered, Delivery, JobRecord, JobResult, Webhook};
use crate::resilience::{Backoff, Retry};

/// Ends that are told at a time, and those of them of one owner, or to one host.
const AT_ONCE: usize = 8;
const EACH: usize = 2;
/// The pauses after failures in a row: a second, two, … a minute.
const MAX_DESTINATION_PAUSE: Duration = Duration::from_secs(60);
/// Destinations that are known to fail; with more, those that fail shortest are forgotten.
const MAX_FAILING: usize = 1_000;
/// How long a claim holds: longer than any sending.
const CLAIM: Duration = Duration::from_secs(120);
/// How often it is tried, and for how long after the job's end.
const ATTEMPTS: u32 = 12;
const LONGEST: Duration = Duration::from_secs(6 * 3600);
/// The pauses between attempts: at random up to a second, two, … ten minutes.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// How often the store is asked.
const LOOK: Duration = Duration::from_millis(500);
/// How long a worker that ends still tells of what is due.
const LAST: Duration = Duration::from_secs(5);
/// The longest body; of a longer result only how it ended is told.
const MOST_BODY: usize = 1 << 20;

/// Sends what jobs' ends are told with.
pub trait Courier: Send + Sync + Debug {
    /// Sends `body`, JSON on the job `id`, once and within a minute.
    fn send(&self, to: &Webhook, id: &str, body: &[u8]) -> Sent;
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sent {
    Taken,
    /// It may be taken another time.
    Failed(String),
    /// It never will be.
    Refused(String),
}

impl Worker {
    /// Tells of ends until the worker is over.
    pub(super) fn deliver(&self, courier: &dyn Courier) {
        let sending = &Sending::default();
        thread::scope(|scope| {
            let mut last = None;
            loop {
                let ended = self.has_ended();
                let until = *last.get_or_insert_with(|| now().after(LAST));
                if !ended {
                    last = None;
                } else if now() >= until {
                    return;
                }
                let claimed = self.claim(sending);
                if claimed.is_empty() && !sending.is_idle() {
                    sending.wait(LOOK);
                } else if claimed.is_empty() && ended {
                    return;
                } else if claimed.is_empty() {
                    self.pause(LOOK);
                }
                for delivery in claimed {
                    let place = Arc::new((sending.begin(&delivery), delivery));
                    let of_thread = Arc::clone(&place);
                    let tell = move || self.tell(courier, &of_thread);
                    // Without a thread of its own it is sent on this one.
                    if thread::Builder::new().spawn_scoped(scope, tell).is_err() {
                        self.tell(courier, &place);
                    }
                }
            }
        });
    }

    fn claim(&self, sending: &Sending) -> Vec<Delivery> {
        let (free, shares) = sending.room();
        if free == 0 {
            return Vec::new();
        }
        match self.store().claim_webhooks(free, CLAIM, &shares) {
            Ok(claimed) => {
                self.is_well_again(Concern::Telling, "ends of jobs can be told again");
                claimed
            }
            Err(error) => {
                self.complain_once(
                    Concern::Telling,
                    format!("ends of jobs cannot be told, which is tried again: {error}"),
                );
                Vec::new()
            }
        }
    }

    fn tell(&self, courier: &dyn Courier, (place, delivery): &(SendingPlace<'_>, Delivery)) {
        let came = match self.store().get(&delivery.id) {
            // It was forgotten, and whom to tell with it.
            Ok(None) => return,
            Ok(Some(record)) => {
                let sent = courier.send(&delivery.webhook, &delivery.id, &body(&record));
                place.note(matches!(sent, Sent::Failed(_)));
                came(sent, delivery)
            }
            Err(error) => came(Sent::Failed(error.to_string()), delivery),
        };
        if let Err(error) = self.store().settle_webhook(delivery, &came) {
            // Its claim runs out, and it is told again.
            self.complain(&format!(
                "what came of telling of the end of job {} cannot be written down: {error}",
                delivery.id
            ));
        }
    }
}

fn came(sent: Sent, delivery: &Delivery) -> Delivered {
    let backoff = Backoff::FullJitter { base: FIRST_PAUSE, most: LONGEST_PAUSE };
    let retry = Retry { attempts: ATTEMPTS, backoff, useful: Duration::ZERO };
    match sent {
        Sent::Taken => Delivered::Taken,
        Sent::Refused(error) => Delivered::Never { error },
        Sent::Failed(error) => {
            let after =
                retry.backoff.after(delivery.attempts, &mut fastrand::Rng::with_seed(now().as_nanos()));
            match delivery.attempts < retry.attempts && delivery.age + after < LONGEST {
                true => Delivered::Again { after, error },
                false => Delivered::Never {
                    error: format!("{error}; it was the last of {} attempts", delivery.attempts),
                },
            }
        }
    }
}

/// What is told: the job's end and its result, without the output, which the log has.
fn body(record: &JobRecord) -> Vec<u8> {
    let whole = told(record, record.result.as_ref());
    if whole.len() <= MOST_BODY {
        return whole;
    }
    let bare = |result: &JobResult| JobResult {
        verdict: result.verdict.clone(),
        files: result.files.clone(),
        ..JobResult::bare(result.status, result.error.clone())
    };
    told(record, record.result.as_ref().map(bare).as_ref())
}

fn told(record: &JobRecord, result: Option<&JobResult>) -> Vec<u8> {
    let line = &record.line;
    // Plain data with text keys always serialises.
    let mut result = serde_json::to_value(result).unwrap_or_default();
    if let Some(outcome) = result.get_mut("outcome").and_then(Value::as_object_mut) {
        outcome.remove("stdout");
        outcome.remove("stderr");
    }
    let body = json!({
        "id": line.id,
        "name": line.name,
        "state": line.state,
        "ok": line.ok,
        "error": line.error,
        "submitted_ms": line.submitted_ms,
        "ended_ms": line.ended_ms,
        "deliveries": line.deliveries,
        "result": result,
    });
    body.to_string().into_bytes()
}
