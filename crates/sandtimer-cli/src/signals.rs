//! The signals that end, stop and continue a run, read from a descriptor.
//!
//! Must be set up before the engine starts: a signal is kept from a thread only if it was blocked
//! before that thread began, and one that hits an engine's thread would end the process without its
//! verdict.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::process::Signal;
use sandtimer_os::thread::signal_descriptor;

const WATCHED: [Signal; 5] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::WINCH];
/// By which a shell stops and continues its jobs.
const JOB_CONTROL: [Signal; 2] = [Signal::TSTP, Signal::CONT];

/// The code of signals that the kernel sends by itself, as for keys on a terminal; sigaction(2).
const SI_KERNEL: i32 = 0x80;

/// Which processes Ctrl-C has interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InterruptTarget {
    /// This process and all of its process group, from their terminal.
    Group,
    /// Only the command, on a terminal of its own: this process has passed the key on.
    Command,
}

/// Set if this process is to end by SIGINT.
static END_AS: OnceLock<InterruptTarget> = OnceLock::new();

/// Has this process end by SIGINT once all else is done. A shell ends its loop or script with a
/// command that Ctrl-C has ended, and detects that by the signals that reach both, not by exit code
/// 130.
pub(crate) fn end_as_interrupted(interrupted: InterruptTarget) {
    let _ = END_AS.set(interrupted);
}

/// Ends this process by SIGINT if that was requested. The last thing that it does.
pub(crate) fn end_if_interrupted() {
    let Some(interrupted) = END_AS.get() else { return };
    sandtimer_os::thread::unblock_signal(Signal::INT.as_raw());
    // If the signal is refused or ignored, the exit code shows the interrupt.
    let _ = match interrupted {
        InterruptTarget::Group => sandtimer_os::thread::raise(Signal::INT.as_raw()),
        // As their terminal does if nothing passes the key on.
        InterruptTarget::Command => {
            rustix::process::kill_current_process_group(Signal::INT).map_err(Into::into)
        }
    };
}

/// Stops this process as its shell expects it, until that continues it. Does nothing where no shell
/// could.
pub(crate) fn stop() {
    // Fails only for what is not a signal.
    let _ = sandtimer_os::thread::take_default_action(Signal::TSTP.as_raw());
}

/// What arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceivedSignal {
    /// A signal that asks for an end.
    End(EndRequest),
    /// The terminal has another size.
    Resized,
    /// A shell wants this process and its run stopped: Ctrl-Z.
    Stopped,
    /// This process was continued.
    Continued,
}

/// A signal that asks for an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EndRequest {
    signal: Signal,
    /// A key on a terminal sent it, and no process.
    by_terminal: bool,
}

impl EndRequest {
    /// The user pressed Ctrl-C, which also interrupts the shell that waits for this process.
    pub(crate) fn is_interactive_interrupt(self) -> bool {
        self.signal == Signal::INT && self.by_terminal
    }

    /// 128 and the signal's number.
    pub(crate) fn exit_code(self) -> u8 {
        u8::try_from(128 + self.signal.as_raw()).unwrap_or(125)
    }

    /// For the verdict.
    pub(crate) fn reason(self) -> &'static str {
        match self.signal {
            Signal::INT => "interrupted by Ctrl-C (SIGINT)",
            Signal::HUP => "its terminal was closed (SIGHUP)",
            Signal::QUIT => "sandtimer received SIGQUIT",
            _ => "sandtimer received SIGTERM",
        }
    }
}

/// The descriptor signals are read from.
#[derive(Debug)]
pub(crate) struct Signals(OwnedFd);

impl Signals {
    /// Watches the signals that request an end, and that of the terminal's size.
    pub(crate) fn watch() -> io::Result<Self> {
        signal_descriptor(&WATCHED.map(Signal::as_raw)).map(Signals)
    }

    /// Also those by which a shell stops and continues its jobs.
    pub(crate) fn watch_all() -> io::Result<Self> {
        let all = WATCHED.into_iter().chain(JOB_CONTROL).map(Signal::as_raw);
        signal_descriptor(&all.collect::<Vec<_>>()).map(Signals)
    }

    /// The next signal that is not ignored; `None` when there is none.
    pub(crate) fn next(&self) -> Option<ReceivedSignal> {
        // signalfd_siginfo: the number, an error number, and the code that names the sender, of
        // four bytes each.
        let mut information = [0; 128];
        loop {
            if !matches!(rustix::io::read(&self.0, &mut information), Ok(128)) {
                return None;
            }
            let read_i32 = |at: usize| {
                let bytes = [information[at], information[at + 1], information[at + 2], information[at + 3]];
                i32::from_ne_bytes(bytes)
            };
            let mut known = WATCHED.into_iter().chain(JOB_CONTROL);
            let Some(signal) = known.find(|signal| signal.as_raw() == read_i32(0)) else {
                continue;
            };
            match signal {
                Signal::WINCH => return Some(ReceivedSignal::Resized),
                Signal::CONT => return Some(ReceivedSignal::Continued),
                _ => {}
            }
            // A descriptor gets ignored signals too, and nohup(1) and shells mean what they ignore.
            if !is_ignored(signal) {
                if signal == Signal::TSTP {
                    return Some(ReceivedSignal::Stopped);
                }
                return Some(ReceivedSignal::End(EndRequest {
                    signal,
                    by_terminal: read_i32(8) == SI_KERNEL,
                }));
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
        let codes = [Signal::INT, Signal::TERM, Signal::HUP]
            .map(|signal| EndRequest { signal, by_terminal: false }.exit_code());
        assert_eq!(codes, [130, 143, 129]);
    }
}
