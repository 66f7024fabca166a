//! What the owner of a run may not expect of its ending.

use serde::{Deserialize, Serialize};

/// Something about a run that its owner may not expect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remark {
    /// The kind, for programs.
    pub kind: RemarkKind,
    /// For a person or a model: what happened, and what to do for another result.
    pub message: String,
}

/// What a [`Remark`] is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RemarkKind {
    /// The command, call or program ended, and processes that it had started were killed with it.
    KilledLeftovers,
    /// The run has no network, and its output says that it looked for one.
    NoNetwork,
    /// The network of the sandbox that the run is in refused a connection while it ran, of this run
    /// or of another one in the sandbox.
    NetworkDenied,
    /// The grace that was asked for did not fit into the limits around the run, and was cut.
    ShortenedGrace,
    /// Of its output less is kept than its output limit allows: the disk did not take it.
    OutputNotStored,
    /// The answer has less of its output than there is.
    Shortened,
}
