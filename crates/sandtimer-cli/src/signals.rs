//! The signals that end a run, read from a descriptor.
//!
//! Must be set up before the engine starts: a signal is kept from a thread only if it was blocked before that thread
//! began, and one that hits an engine's thread would end the process without its verdict.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::Signal;
use sandtimer_os::thread::signal_descriptor;

const WATCHED: [Signal; 5] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::WINCH];

/// What arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// A signal that asks for an end.
    End(Ending),
    /// The terminal has another size.
    Resized,
}

/// A signal that asks for an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ending(Signal);

impl Ending {
    /// 128 and the signal's number.
    pub(crate) fn exit_code(self) -> u8 {
        u8::try_from(128 + self.0.as_raw()).unwrap_or(125)
    }

    /// For the verdict.
    pub(crate) fn reason(self) -> &'static str {
        match self.0 {
            Signal::INT => "interrupted by Ctrl-C (SIGINT)",
            Signal::HUP => "its terminal was closed (SIGHUP)",
            Signal::QUIT => "sandtimer was told to quit (SIGQUIT)",
            _ => "sandtimer was told to end (SIGTERM)",
        }
    }
}

/// The descriptor signals are read from.
#[derive(Debug)]
pub(crate) struct Signals(OwnedFd);

impl Signals {
    pub(crate) fn watch() -> io::Result<Self> {
        signal_descriptor(&WATCHED.map(Signal::as_raw)).map(Signals)
    }

    /// The next signal that is not ignored; `None` when there is none.
    pub(crate) fn next(&self) -> Option<Arrived> {
        // signalfd_siginfo, of which the first four bytes are the number.
        let mut information = [0; 128];
        loop {
            if !matches!(rustix::io::read(&self.0, &mut information), Ok(128)) {
                return None;
            }
            let number = u32::from_ne_bytes([information[0], information[1], information[2], information[3]]);
            let Some(signal) = WATCHED.into_iter().find(|signal| signal.as_raw() as u32 == number) else {
                continue;
            };
            if signal == Signal::WINCH {
                return Some(Arrived::Resized);
            }
            // A descriptor gets ignored signals too, and nohup(1) and shells mean what they ignore.
            if !is_ignored(signal) {
                return Some(Arrived::End(Ending(signal)));
            }
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    is_ignored_in(&status, signal)
}

fn is_ignored_in(status: &str, signal: Signal) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal.as_raw() - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        let status = "Name:\tx\nSigBlk:\t0000000000004002\nSigIgn:\t0000000000001001\n";
        assert!(is_ignored_in(status, Signal::HUP));
        assert!(is_ignored_in(status, Signal::PIPE));
        assert!(!is_ignored_in(status, Signal::INT));
        assert!(!is_ignored_in("", Signal::HUP));
    }

    #[test]
    fn exit_codes_are_128_and_the_number() {
        let codes = [Signal::INT, Signal::TERM, Signal::HUP].map(|signal| Ending(signal).exit_code());
        assert_eq!(codes, [130, 143, 129]);
    }
}
