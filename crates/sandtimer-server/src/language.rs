//! The languages of code.

/// Their names, as requests have them.
pub(crate) const LANGUAGES: [&str; 4] = ["python", "javascript", "typescript", "bash"];
