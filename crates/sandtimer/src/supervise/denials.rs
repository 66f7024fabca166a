//! Connections that a sandbox's proxy refused. The proxy does not know which run a connection is
//! from: each run that is in the sandbox at that moment has the denial among its remarks.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sandtimer_os::clock::monotonic_nanoseconds;

/// Hosts that are kept; a host that is refused again becomes the last.
const MAX_HOSTS: usize = 200;
/// Hosts that the remarks of a run have.
pub const MAX_REMARKED: usize = 20;

/// The last refused connection to each host.
#[derive(Debug, Default)]
pub struct NetworkDenials(Mutex<VecDeque<Denied>>);

#[derive(Debug)]
struct Denied {
    host: String,
    message: String,
    /// Monotonic nanoseconds.
    at: u64,
}

impl NetworkDenials {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Denied>> {
        // Poisoning is harmless: an entry is complete before it is inserted.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a connection to a host was refused, with what would allow it.
    pub fn record(&self, host: &str, message: String) {
        let denied = Denied { host: host.to_owned(), message, at: monotonic_nanoseconds() };
        let mut all = self.lock();
        all.retain(|other| other.host != host);
        if all.len() == MAX_HOSTS {
            all.pop_front();
        }
        all.push_back(denied);
    }

    /// What was refused since a moment, once for each host: the last [`MAX_REMARKED`], and how many
    /// more there were.
    pub fn since(&self, moment: u64) -> (Vec<String>, usize) {
        let all = self.lock();
        let recent: Vec<&Denied> = all.iter().filter(|denied| denied.at >= moment).collect();
        let more = recent.len().saturating_sub(MAX_REMARKED);
        (recent[more..].iter().map(|denied| denied.message.clone()).collect(), more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_is_remarked_once_within_bounds() {
        let denials = NetworkDenials::default();
        denials.record("before.example", "before".to_owned());
        let moment = monotonic_nanoseconds() + 1;
        while monotonic_nanoseconds() < moment {}
        for number in 0..MAX_HOSTS + 10 {
            denials.record(&format!("{number}.example"), format!("message {number}"));
        }
        denials.record("209.example", "again".to_owned());
        let (messages, more) = denials.since(moment);
        assert_eq!((messages.len(), more), (MAX_REMARKED, MAX_HOSTS - MAX_REMARKED));
        assert_eq!(messages.last().map(String::as_str), Some("again"));
        assert_eq!(denials.since(u64::MAX), (Vec::new(), 0));
    }
}
