//! How much of an Outcome is in the answer. The record of the run has more, as long as it is kept.

use sandtimer::model::{Encoding, Outcome, Remark, RemarkKind};

/// A copy of an Outcome with at most `most` bytes of each stream, its head and its tail, and a
/// remark.
pub(super) fn shortened(outcome: &Outcome, most: usize) -> Outcome {
    let is_short = outcome.stdout.len() <= most && outcome.stderr.len() <= most;
    if is_short {
        return outcome.clone();
    }
    let streams = [
        ("stdout", &outcome.stdout, outcome.stdout_encoding),
        ("stderr", &outcome.stderr, outcome.stderr_encoding),
    ];
    let [stdout, stderr] = streams.map(|(_, text, encoding)| cut(text, encoding, most));
    let mut remarks = outcome.remarks.clone();
    for (name, text, _) in streams {
        if text.len() > most {
            let message = format!(
                "The answer has the first and the last {} bytes of {name}; GET /v1/runs/{}/output?stream={name} has what was kept of it.",
                most / 2,
                outcome.run_id
            );
            remarks.push(Remark { kind: RemarkKind::Shortened, message });
        }
    }
    Outcome {
        stdout_truncated: outcome.stdout_truncated || outcome.stdout.len() > most,
        stderr_truncated: outcome.stderr_truncated || outcome.stderr.len() > most,
        stdout,
        stderr,
        remarks,
        ..outcome.clone()
    }
}

/// The first and the last bytes of a stream as it is written. Base64 is cut between groups of four
/// digits, each of which encodes whole bytes.
fn cut(text: &str, encoding: Encoding, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let (first, last) = (most / 2, text.len() - most / 2);
    let (first, last) = match encoding {
        Encoding::Base64 => (first / 4 * 4, last.div_ceil(4) * 4),
        _ => (start_of_character(text, first), end_of_character(text, last)),
    };
    format!("{}{}", &text[..first], &text[last..])
}

/// The start of the character that has the byte at `index`.
pub(super) fn start_of_character(text: &str, index: usize) -> usize {
    (0..=index.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

fn end_of_character(text: &str, index: usize) -> usize {
    (index..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use base64::prelude::{BASE64_STANDARD, Engine as _};

    use super::*;

    #[test]
    fn first_and_last_bytes_are_kept_whole() {
        assert_eq!(cut("abcdefgh", Encoding::Utf8, 4), "abgh");
        assert_eq!(cut("abc", Encoding::Utf8, 4), "abc");
        assert_eq!(cut("ää-ää", Encoding::Utf8, 6), "ää");
        let bytes: Vec<u8> = (0..100).collect();
        let short = cut(&BASE64_STANDARD.encode(&bytes), Encoding::Base64, 40);
        let decoded = BASE64_STANDARD.decode(short).expect("base64");
        assert!(bytes.starts_with(&decoded[..10]) && bytes.ends_with(&decoded[decoded.len() - 10..]));
    }
}
