//! The output of a run as text.

use base64::prelude::{BASE64_STANDARD, Engine as _};

use super::{Encoding, Outcome};

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
