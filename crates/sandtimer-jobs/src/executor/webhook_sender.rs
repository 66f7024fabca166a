//! What sends the requests by which the ends of jobs are delivered.

use std::fmt::Debug;

use crate::job::Delivery;

/// Sends the requests by which the ends of jobs are delivered.
pub trait WebhookSender: Send + Sync + Debug {
    /// Sends `body`, which is JSON, to the webhook of `delivery`: once, and within a minute.
    fn send(&self, delivery: &Delivery, body: &[u8]) -> SendResult;
}

/// The result of sending a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendResult {
    /// The receiver answered with a 2xx status.
    Accepted,
    /// It failed for this reason, and is tried again.
    Failed(String),
    /// The policy of this worker forbids the destination, for this reason; another worker may send
    /// it.
    Forbidden(String),
    /// It cannot succeed, for this reason, and is not tried again.
    Refused(String),
}
