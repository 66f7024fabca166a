//! Why code cannot be read.

/// Why code cannot be read, and where: line and column from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct SyntaxError {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What the parser expected or found.
    pub message: String,
}

impl SyntaxError {
    /// As a reader process replies it: an `e`, the place, and on the next line the error.
    pub(crate) fn text(&self) -> String {
        format!("e{}:{}\n{}", self.line, self.column, self.message)
    }

    /// Parses the reply of a reader process.
    pub(super) fn from_reply(text: &str) -> Self {
        let (position, message) = text.split_once('\n').unwrap_or_default();
        let (line, column) =
            position.strip_prefix('e').and_then(|position| position.split_once(':')).unwrap_or_default();
        let number = |text: &str| text.parse().unwrap_or(1);
        SyntaxError { line: number(line), column: number(column), message: message.to_owned() }
    }
}
