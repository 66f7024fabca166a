//! Delivers the ends of jobs to webhooks: a thread of a worker that claims what is due in the
//! store, has it sent, and records the result.
//!
//! The claim of a worker that dies runs out, so an end is delivered at least once. A
//! [`WebhookSender`] does the sending: a worker without one leaves it to the others on its store.
//!
//! A free place is filled at once, by the owners in turn. No owner and no host has more than a few
//! of the places, and where an owner's webhooks to a host fail, its others to that host wait for
//! longer and longer: a host that never answers delays nothing but what is sent to it.
//!
//! A destination that this worker's policy forbids may be open to another worker: the claim is
//! returned without counting as an attempt, and this worker claims nothing for that destination for
//! a minute.

mod sending;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use sandtimer_agents::resilience::{Backoff, Retry};

use self::sending::{DeliveryPermit, DeliverySlots, FIRST_PAUSE, FORBIDDEN_PAUSE};
use super::clock::now;
use super::webhook_sender::{SendResult, WebhookSender};
use super::worker::{Concern, Worker};
use crate::job::{Delivery, DeliveryResult, StoreError, webhook_body};

/// How long a claim holds: longer than any sending.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(120);
/// How often it is tried, and for how long after the job's end.
const ATTEMPTS: u32 = 12;
const MAX_DELIVERY_AGE: Duration = Duration::from_secs(6 * 3600);
/// The pauses between attempts: at random up to a second, two, … ten minutes.
const MAX_ATTEMPT_PAUSE: Duration = Duration::from_secs(600);
/// How often the store is asked.
const STORE_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How long a worker that ends still delivers what is due.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

impl Worker {
    /// Delivers ends until the worker has ended.
    pub(super) fn deliver(&self, sender: &dyn WebhookSender) {
        let sending = &DeliverySlots::default();
        thread::scope(|scope| {
            let mut last = None;
            loop {
                let ended = self.has_ended();
                let until = *last.get_or_insert_with(|| now().after(DRAIN_TIMEOUT));
                if !ended {
                    last = None;
                } else if now() >= until {
                    return;
                }
                let claimed = self.claim(sending);
                if claimed.is_empty() && !sending.is_idle() {
                    sending.wait(STORE_POLL_INTERVAL);
                } else if claimed.is_empty() && ended {
                    return;
                } else if claimed.is_empty() {
                    self.pause(STORE_POLL_INTERVAL);
                }
                for delivery in claimed {
                    let permitted = Arc::new((sending.begin(&delivery), delivery));
                    let of_thread = Arc::clone(&permitted);
                    let send = move || self.send_webhook(sender, &of_thread.0, &of_thread.1);
                    // Without a thread of its own it is sent on this one.
                    if thread::Builder::new().spawn_scoped(scope, send).is_err() {
                        self.send_webhook(sender, &permitted.0, &permitted.1);
                    }
                }
            }
        });
    }

    fn claim(&self, sending: &DeliverySlots) -> Vec<Delivery> {
        let (free, shares) = sending.room();
        if free == 0 {
            return Vec::new();
        }
        match self.store().claim_webhooks(free, CLAIM_TIMEOUT, &shares) {
            Ok(claimed) => {
                self.is_well_again(Concern::Webhooks, "webhooks can be sent again");
                claimed
            }
            Err(error) => {
                self.report_once(
                    Concern::Webhooks,
                    format!("webhooks cannot be sent; the worker tries again: {error}"),
                );
                Vec::new()
            }
        }
    }

    fn send_webhook(&self, sender: &dyn WebhookSender, permit: &DeliveryPermit<'_>, delivery: &Delivery) {
        let came = match self.body(delivery) {
            Ok(Some(body)) => {
                let sent = sender.send(delivery, &body);
                permit.note(&sent);
                came(sent, delivery)
            }
            // Its record was removed after the claim: the next claim has the body.
            Ok(None) => {
                DeliveryResult::Returned { after: Duration::ZERO, error: "its job was removed".to_owned() }
            }
            Err(error) => came(SendResult::Failed(error.to_string()), delivery),
        };
        if let Err(error) = self.store().settle_webhook(delivery, &came) {
            // Its claim expires, and the end is delivered again.
            self.report(&format!(
                "the result of the webhook of job {} cannot be recorded: {error}",
                delivery.id
            ));
        }
    }

    /// What is to be sent; `None` where the job's record is gone and the claim was made before
    /// that.
    fn body(&self, delivery: &Delivery) -> Result<Option<Vec<u8>>, StoreError> {
        if let Some(body) = &delivery.body {
            return Ok(Some(body.clone()));
        }
        let record = self.store().get(&delivery.id)?;
        Ok(record.map(|record| webhook_body(&record.line, record.result.as_ref())))
    }
}

fn came(sent: SendResult, delivery: &Delivery) -> DeliveryResult {
    let backoff = Backoff::FullJitter { base: FIRST_PAUSE, most: MAX_ATTEMPT_PAUSE };
    let retry = Retry { attempts: ATTEMPTS, backoff, useful: Duration::ZERO };
    match sent {
        SendResult::Accepted => DeliveryResult::Taken,
        SendResult::Refused(error) => DeliveryResult::Never { error },
        SendResult::Forbidden(error) => returned(&error, delivery),
        SendResult::Failed(error) => {
            let after =
                retry.backoff.after(delivery.attempts, &mut fastrand::Rng::with_seed(now().as_nanos()));
            match delivery.attempts < retry.attempts && delivery.age + after < MAX_DELIVERY_AGE {
                true => DeliveryResult::Again { after, error },
                false => DeliveryResult::Never {
                    error: format!("{error}; it was the last of {} attempts", delivery.attempts),
                },
            }
        }
    }
}

/// Leaves a delivery to workers whose policy permits it, until its time has passed and it was
/// offered often enough: a store whose workers were all away for hours still has the delivery
/// tried.
fn returned(error: &str, delivery: &Delivery) -> DeliveryResult {
    let after = (delivery.age / 4).min(FORBIDDEN_PAUSE);
    match delivery.returns + 1 < ATTEMPTS || delivery.age + after < MAX_DELIVERY_AGE {
        true => DeliveryResult::Returned {
            after,
            error: format!("{error}; this delivery waits for a worker that may send it"),
        },
        false => DeliveryResult::Never {
            error: format!(
                "{error}; no worker of this store that may send it did so within {} h",
                MAX_DELIVERY_AGE.as_secs() / 3600
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
        let forbidden = |returns, age| came(SendResult::Forbidden("no".to_owned()), &delivery(returns, age));
        for (returns, age, pause) in [
            (0, Duration::ZERO, Duration::ZERO),
            (500, Duration::from_secs(8), Duration::from_secs(2)),
            (3, MAX_DELIVERY_AGE * 2, FORBIDDEN_PAUSE),
        ] {
            match forbidden(returns, age) {
                DeliveryResult::Returned { after, error } => {
                    assert_eq!(after, pause);
                    assert!(error.starts_with("no; ") && error.contains("waits for a worker"), "{error}");
                }
                other => panic!("{returns} returns after {age:?}: {other:?}"),
            }
        }
        match forbidden(ATTEMPTS - 1, MAX_DELIVERY_AGE) {
            DeliveryResult::Never { error } => assert!(error.contains("no worker of this store"), "{error}"),
            other => panic!("{other:?}"),
        }
    }
}
