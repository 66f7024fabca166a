//! What a bench found.

/// What a bench found, for people and for programs.
#[derive(Debug)]
pub(super) struct Findings {
    pub(super) text: String,
    pub(super) json: serde_json::Value,
}
