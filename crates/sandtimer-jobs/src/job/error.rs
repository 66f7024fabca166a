//! Why a job's spec is rejected.

/// A field that is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{path}`: {problem}")]
pub struct SpecError {
    /// The way to the field, such as `steps[2].attempts`.
    pub path: String,
    /// What is wrong with the value, and what would work.
    pub problem: String,
}

/// Rejects a spec without the field at `path`.
pub(super) fn missing(path: &str, what: &str) -> SpecError {
    SpecError { path: path.to_owned(), problem: format!("is missing; use {what}") }
}
