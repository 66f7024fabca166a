//! Why there is no estimate.

/// The largest size of data in a question, in megabytes: an exabyte. A larger size is a mistake.
pub const MAX_MEGABYTES: f64 = 1e12;

/// Why there is no estimate, or a run cannot be recorded.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EstimateError {
    /// There is no type of this name.
    #[error("task_type: there is no `{given}`; the nearest are {}", .nearest.join(", "))]
    UnknownTask {
        /// The name that was given, of which 60 characters are kept.
        given: String,
        /// The known names that are most like it, the nearest first.
        nearest: Vec<&'static str>,
    },
    /// There is no complexity of this name.
    #[error("complexity: `{0}` is not one of simple, moderate, complex")]
    UnknownComplexity(String),
    /// A size of data is negative, above [`MAX_MEGABYTES`], or not a number.
    #[error("data_size_mb: `{0:?}` is not a number of megabytes from 0 to {MAX_MEGABYTES:?}")]
    BadSize(f64),
    /// The question has neither a type nor a command.
    #[error("task_type is missing; give it, or a command, or both")]
    NothingAsked,
    /// The duration of a run, in seconds, is negative or not finite.
    #[error("seconds: `{0}` is not a duration")]
    BadDuration(f64),
}
