//! What a payload found, in the one line a test reads.
//!
//! Must not panic on a closed or full stdout: some payloads run with none.

use std::fmt::Write as _;
use std::io::Write as _;

use crate::system::errno_name;

pub(crate) enum Finding {
    /// The wall held: the error number.
    Denied(i32),
    /// The wall held by a signal, such as SIGSYS from a seccomp filter.
    Killed(i32),
    /// The wall did not hold: what was reached.
    Succeeded(String),
    /// The payload had nothing to probe and is done.
    Completed,
    /// The payload is done and has facts for the test: JSON members such as `"count":3`.
    Facts(String),
    /// The payload could not be tried: why.
    Untried(String),
}

impl Finding {
    /// Denied or succeeded, from what a system call returned.
    pub(crate) fn of(result: Result<i64, i32>) -> Self {
        result.map_or_else(Finding::Denied, |value| Finding::Succeeded(format!("returned {value}")))
    }

    /// As [`Finding::of`], for calls made harmless by an argument the kernel refuses only after its
    /// permission check: any of `passed` means the check was passed.
    pub(crate) fn past_permission(result: Result<i64, i32>, passed: &[i32]) -> Self {
        match result {
            Err(errno) if passed.contains(&errno) => {
                Finding::Succeeded(format!("passed the permission check ({})", errno_name(errno)))
            }
            other => Finding::of(other),
        }
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Finding::Succeeded(_) => 42,
            Finding::Untried(_) => 3,
            Finding::Denied(_) | Finding::Killed(_) | Finding::Completed | Finding::Facts(_) => 0,
        }
    }

    pub(crate) fn as_json(&self, attack: &str, name: &str) -> Option<String> {
        let head = format!("{{\"attack\":\"{attack}-{name}\"");
        Some(match self {
            Finding::Denied(errno) => {
                format!("{head},\"result\":\"denied\",\"errno\":\"{}\"}}", errno_name(*errno))
            }
            Finding::Killed(signal) => {
                let name = if *signal == libc::SIGSYS { "SIGSYS".into() } else { format!("signal {signal}") };
                format!("{head},\"result\":\"denied\",\"errno\":\"{name}\"}}")
            }
            Finding::Succeeded(what) => {
                format!("{head},\"result\":\"succeeded\",\"detail\":{}}}", quoted(what))
            }
            Finding::Untried(why) => format!("{head},\"result\":\"untried\",\"detail\":{}}}", quoted(why)),
            Finding::Facts(members) => format!("{head},\"result\":\"done\",{members}}}"),
            Finding::Completed => return None,
        })
    }
}

impl From<std::io::Error> for Finding {
    fn from(error: std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(errno) => Finding::Denied(errno),
            None => Finding::Untried(error.to_string()),
        }
    }
}

/// `text` as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            '\u{0}'..='\u{1f}' => drop(write!(out, "\\u{:04x}", character as u32)),
            _ => out.push(character),
        }
    }
    out.push('"');
    out
}

/// Writes one line to stdout in one write and flushes it.
pub(crate) fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    drop(out.write_all(format!("{text}\n").as_bytes()).and_then(|()| out.flush()));
}

/// Writes one line to stderr.
pub(crate) fn report_error(text: &str) {
    drop(writeln!(std::io::stderr(), "hostile: {text}"));
}
