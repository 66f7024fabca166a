//! Tells of jobs' ends: a thread of a worker that claims what is due in the store, has it sent, and writes down what came of it.
//!
//! A claim runs out with a worker that dies, so an end is told at least once. The sending is somebody else's, who knows how:
//! a worker that was given nobody leaves it to the others on its store.
//!
//! A place that gets free is filled at once, by the owners in turn. No owner and no host has more than a few of the places, and
//! where an owner's webhooks to a host fail, its others to that host wait for longer and longer: a host that never answers
//! delays nothing but what is sent to it.
//!
//! A destination that this worker's policy forbids may be open to another worker: the claim is returned without counting as an
//! attempt, and this worker claims nothing for that destination for a minute.

mod sending;

use std::fmt::Debug;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use sandtimer_agents::resilience::{Backoff, Retry};

use self::sending::{Sending, SendingPlace};
use super::clock::now;
use super::worker::{Concern, Worker};
use crate::job::{Delivered, Delivery, StoreError, webhook_body};

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
/// How long a worker claims nothing for a destination that its policy forbids.
const FORBIDDEN_PAUSE: Duration = Duration::from_secs(60);

/// Sends what jobs' ends are told with.
pub trait Courier: Send + Sync + Debug {
    /// Sends `body`, JSON on the job of `delivery`, to its webhook, once and within a minute.
    fn send(&self, delivery: &Delivery, body: &[u8]) -> Sent;
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sent {
    Taken,
    /// It may be taken another time.
    Failed(String),
    /// This worker may not send it there, and another one may.
    Forbidden(String),
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
                self.is_well_again(Concern::Telling, "webhooks can be sent again");
                claimed
            }
            Err(error) => {
                self.complain_once(
                    Concern::Telling,
                    format!("webhooks cannot be sent; the worker tries again: {error}"),
                );
                Vec::new()
            }
        }
    }

    fn tell(&self, courier: &dyn Courier, (place, delivery): &(SendingPlace<'_>, Delivery)) {
        let came = match self.body(delivery) {
            Ok(Some(body)) => {
                let sent = courier.send(delivery, &body);
                place.note(&sent);
                came(sent, delivery)
            }
            // Its record was removed after the claim: the next claim has the body.
            Ok(None) => {
                Delivered::Returned { after: Duration::ZERO, error: "its job was removed".to_owned() }
            }
            Err(error) => came(Sent::Failed(error.to_string()), delivery),
        };
        if let Err(error) = self.store().settle_webhook(delivery, &came) {
            // Its claim runs out, and it is told again.
            self.complain(&format!(
                "the result of the webhook of job {} cannot be recorded: {error}",
                delivery.id
            ));
        }
    }

    /// What is to be sent; `None` where the job's record is gone and the claim was made before that.
    fn body(&self, delivery: &Delivery) -> Result<Option<Vec<u8>>, StoreError> {
        if let Some(body) = &delivery.body {
            return Ok(Some(body.clone()));
        }
        let record = self.store().get(&delivery.id)?;
        Ok(record.map(|record| webhook_body(&record.line, record.result.as_ref())))
    }
}

fn came(sent: Sent, delivery: &Delivery) -> Delivered {
    let backoff = Backoff::FullJitter { base: FIRST_PAUSE, most: LONGEST_PAUSE };
    let retry = Retry { attempts: ATTEMPTS, backoff, useful: Duration::ZERO };
    match sent {
        Sent::Taken => Delivered::Taken,
        Sent::Refused(error) => Delivered::Never { error },
        Sent::Forbidden(error) => returned(&error, delivery),
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

/// Leaves a delivery to workers whose policy permits it, until its time has passed and it was offered often enough: a store whose
/// workers were all away for hours still has the delivery tried.
fn returned(error: &str, delivery: &Delivery) -> Delivered {
    let after = (delivery.age / 4).min(FORBIDDEN_PAUSE);
    match delivery.returns + 1 < ATTEMPTS || delivery.age + after < LONGEST {
        true => Delivered::Returned {
            after,
            error: format!("{error}; this delivery waits for a worker that may send it"),
        },
        false => Delivered::Never {
            error: format!(
                "{error}; no worker of this store that may send it did so within {} h",
                LONGEST.as_secs() / 3600
            ),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Webhook;

    fn delivery(returns: u32, age: Duration) -> Delivery {
        let url = "http://host/".to_owned();
        let webhook = Webhook { url, headers: Vec::new(), secret: None, events: Vec::new() };
        let (id, owner) = ("j".to_owned(), "a".to_owned());
        Delivery { id, owner, claim: 1, webhook, attempts: 1, returns, age, ended_ms: 0, body: None }
    }

    #[test]
    fn forbidden_delivery_is_returned_until_its_time_is_up() {
        let forbidden = |returns, age| came(Sent::Forbidden("no".to_owned()), &delivery(returns, age));
        for (returns, age, pause) in [
            (0, Duration::ZERO, Duration::ZERO),
            (500, Duration::from_secs(8), Duration::from_secs(2)),
            (3, LONGEST * 2, FORBIDDEN_PAUSE),
        ] {
            match forbidden(returns, age) {
                Delivered::Returned { after, error } => {
                    assert_eq!(after, pause);
                    assert!(error.starts_with("no; ") && error.contains("waits for a worker"), "{error}");
                }
                other => panic!("{returns} returns after {age:?}: {other:?}"),
            }
        }
        match forbidden(ATTEMPTS - 1, LONGEST) {
            Delivered::Never { error } => assert!(error.contains("no worker of this store"), "{error}"),
            other => panic!("{other:?}"),
        }
    }
}
