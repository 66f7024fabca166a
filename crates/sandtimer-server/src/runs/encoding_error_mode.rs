//! What becomes of output that is not UTF-8.

use crate::body::RequestFields;
use crate::error::ApiRejection;

/// What becomes of output that is not UTF-8.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum EncodingErrorMode {
    /// The stream, or the piece of it, is base64.
    #[default]
    Strict,
    /// Each sequence of bytes that is not UTF-8 becomes U+FFFD.
    Replace,
}

impl EncodingErrorMode {
    /// `errors`, by the names that Python has.
    pub fn parse(fields: &mut RequestFields) -> Result<Self, ApiRejection> {
        let given = fields.enumeration("errors", &["strict", "replace"])?;
        Ok(if given == Some("replace") { EncodingErrorMode::Replace } else { EncodingErrorMode::Strict })
    }
}
