//! What the owner of a run may not expect of its ending, and the text of its output.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::{Deserialize, Serialize};

use super::{Encoding, Outcome};

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

impl Outcome {
    /// Sets what was written, each stream with how it is written.
    pub fn set_output(&mut self, stdout: (String, Encoding), stderr: (String, Encoding)) {
        (self.stdout, self.stdout_encoding) = stdout;
        (self.stderr, self.stderr_encoding) = stderr;
        let is_utf8 = [self.stdout_encoding, self.stderr_encoding] == [Encoding::Utf8; 2];
        self.encoding = if is_utf8 { Encoding::Utf8 } else { Encoding::Base64 };
    }

    /// Makes both streams text: each sequence of bytes that is not UTF-8 becomes U+FFFD.
    pub fn replace_invalid_utf8(&mut self) {
        let text = |stream: &mut String, encoding| {
            let text = std::mem::take(stream);
            match encoding {
                // What is not base64 is shown as it is.
                Encoding::Base64 => BASE64_STANDARD
                    .decode(&text)
                    .map_or(text, |bytes| String::from_utf8_lossy(&bytes).into_owned()),
                Encoding::Utf8 => text,
            }
        };
        let stdout = text(&mut self.stdout, self.stdout_encoding);
        let stderr = text(&mut self.stderr, self.stderr_encoding);
        self.set_output((stdout, Encoding::Utf8), (stderr, Encoding::Utf8));
    }
}
