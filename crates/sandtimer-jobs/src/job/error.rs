//! Why a job's spec is rejected.

/// A field of a spec that is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{path}`: {problem}")]
pub struct SpecError {
    /// The path of the field, such as `steps[2].attempts`; of text that cannot be parsed, the line.
    pub path: String,
    /// What is wrong with the value, and what would work.
    pub problem: String,
}

/// Rejects a spec without the field at `path`.
pub(super) fn missing(path: &str, what: &str) -> SpecError {
    SpecError { path: path.to_owned(), problem: format!("is missing; use {what}") }
}
