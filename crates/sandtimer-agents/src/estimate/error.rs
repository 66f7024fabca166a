//! Why there is no estimate.

/// The most data that a question is about, in megabytes: an exabyte. A size above that is a
/// mistake.
pub const MAX_MEGABYTES: f64 = 1e12;

/// Why there is no estimate, or a run cannot be recorded.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EstimateError {
    #[error("task_type: there is no `{given}`; the nearest are {}", .nearest.join(", "))]
    UnknownTask { given: String, nearest: Vec<&'static str> },
    #[error("complexity: `{0}` is not one of simple, moderate, complex")]
    UnknownComplexity(String),
    #[error("data_size_mb: `{0:?}` is not a number of megabytes from 0 to {MAX_MEGABYTES:?}")]
    BadSize(f64),
    #[error("task_type is missing; give it, or a command, or both")]
    NothingAsked,
    #[error("seconds: `{0}` is not a duration")]
    BadDuration(f64),
}
