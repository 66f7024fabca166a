//! The webhooks that a worker sends at the moment, and the destinations that it leaves alone
//! because they failed.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandtimer::time::Moment;

use super::super::clock::now;
use super::super::webhook_sender::SendResult;
use crate::job::{Delivery, Destination, WebhookShares};

/// Ends that are delivered at a time, and those of them of one owner, or to one host.
const MAX_DELIVERIES: usize = 8;
const MAX_DELIVERIES_PER_DESTINATION: usize = 2;
/// The pauses after failures in a row: a second, two, … a minute.
const MAX_DESTINATION_PAUSE: Duration = Duration::from_secs(60);
/// Destinations that are known to fail; with more, those that have failed for the shortest time are
/// forgotten.
const MAX_FAILING: usize = 1_000;
/// The first pause after a failure.
pub(super) const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// How long a worker claims nothing for a destination that its policy forbids.
pub(super) const FORBIDDEN_PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct DeliverySlots {
    table: Mutex<DeliveryTable>,
    /// One has been sent.
    freed: Condvar,
}

#[derive(Debug, Default)]
struct DeliveryTable {
    under_way: Vec<Destination>,
    failing: HashMap<Destination, FailingDestination>,
}

#[derive(Debug, Clone, Copy)]
struct FailingDestination {
    /// Failures in a row.
    times: u32,
    until: Moment,
}

/// A delivery that is being sent. Dropping it frees its place for another.
#[derive(Debug)]
pub(super) struct DeliveryPermit<'a> {
    sending: &'a DeliverySlots,
    destination: Destination,
}

impl DeliverySlots {
    fn table(&self) -> MutexGuard<'_, DeliveryTable> {
        // Whole between any two changes.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_idle(&self) -> bool {
        self.table().under_way.is_empty()
    }

    /// How many more may be sent, and where.
    pub fn room(&self) -> (usize, WebhookShares) {
        let table = self.table();
        let is_paused = |(destination, failing): (&Destination, &FailingDestination)| {
            (now() < failing.until).then(|| destination.clone())
        };
        let paused = table.failing.iter().filter_map(is_paused).collect();
        let shares = WebhookShares {
            each: MAX_DELIVERIES_PER_DESTINATION,
            under_way: table.under_way.clone(),
            paused,
        };
        (MAX_DELIVERIES.saturating_sub(table.under_way.len()), shares)
    }

    pub fn begin(&self, delivery: &Delivery) -> DeliveryPermit<'_> {
        let destination = delivery.destination();
        self.table().under_way.push(destination.clone());
        DeliveryPermit { sending: self, destination }
    }

    /// Waits until one has been sent, at most `most`.
    pub fn wait(&self, most: Duration) {
        let table = self.table();
        let count = table.under_way.len();
        drop(self.freed.wait_timeout_while(table, most, |table| table.under_way.len() >= count));
    }
}

impl DeliveryPermit<'_> {
    /// Notes the result, which decides when the next delivery goes to the destination.
    pub fn note(&self, sent: &SendResult) {
        let mut table = self.sending.table();
        let times = table.failing.get(&self.destination).map_or(0, |failing| failing.times);
        let (times, pause) = match sent {
            SendResult::Accepted | SendResult::Refused(_) => {
                table.failing.remove(&self.destination);
                return;
            }
            SendResult::Failed(_) => {
                let pause = FIRST_PAUSE.saturating_mul(1 << times.min(16));
                (times + 1, pause.min(MAX_DESTINATION_PAUSE))
            }
            SendResult::Forbidden(_) => (times, FORBIDDEN_PAUSE),
        };
        table
            .failing
            .insert(self.destination.clone(), FailingDestination { times, until: now().after(pause) });
        if table.failing.len() > MAX_FAILING {
            let least = table.failing.iter().min_by_key(|(_, failing)| failing.times);
            if let Some(destination) = least.map(|(destination, _)| destination.clone()) {
                table.failing.remove(&destination);
            }
        }
    }
}

impl Drop for DeliveryPermit<'_> {
    fn drop(&mut self) {
        let mut table = self.sending.table();
        if let Some(index) = table.under_way.iter().position(|other| *other == self.destination) {
            table.under_way.swap_remove(index);
        }
        drop(table);
        self.sending.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Webhook;

    fn delivery(owner: &str, url: &str) -> Delivery {
        let url = url.to_owned();
        let webhook = Webhook { url, headers: Vec::new(), secret: None, events: Vec::new() };
        Delivery {
            id: "j".to_owned(),
            owner: owner.to_owned(),
            claim: 1,
            webhook,
            attempts: 1,
            returns: 0,
            age: Duration::ZERO,
            ended_ms: 0,
            body: None,
        }
    }

    #[test]
    fn a_failing_destination_pauses_its_owner_only() {
        let sending = DeliverySlots::default();
        let to = delivery("a", "https://Host:8443/hook?x");
        let admits = |delivery: &Delivery| sending.room().1.admit(&delivery.destination());
        sending.begin(&to).note(&SendResult::Failed(String::new()));
        assert!(!admits(&to) && !admits(&delivery("a", "https://host:8443/other")));
        assert!(
            admits(&delivery("b", "https://host:8443/hook")) && admits(&delivery("a", "https://host/hook"))
        );
        sending.begin(&to).note(&SendResult::Accepted);
        assert!(admits(&to) && sending.is_idle());
        sending.begin(&to).note(&SendResult::Forbidden(String::new()));
        assert!(!admits(&to), "it is left to other workers");
    }

    #[test]
    fn owner_and_host_have_a_share_of_slots() {
        let sending = DeliverySlots::default();
        let permits =
            [sending.begin(&delivery("a", "http://one")), sending.begin(&delivery("a", "http://two"))];
        let (free, shares) = sending.room();
        assert_eq!(free, MAX_DELIVERIES - 2);
        assert!(!shares.admit(&delivery("a", "http://three").destination()));
        assert!(shares.admit(&delivery("b", "http://one").destination()));
        let other = sending.begin(&delivery("b", "http://one/x"));
        assert!(!sending.room().1.admit(&delivery("c", "http://one/").destination()));
        drop((permits, other));
        assert_eq!(sending.room().0, MAX_DELIVERIES);
    }
}
