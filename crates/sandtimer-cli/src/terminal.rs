//! A terminal for the job alone, and the caller's terminal in raw mode while the job runs.
//!
//! The job never gets the caller's terminal: with it, a program can type into the shell that comes
//! after (TIOCSTI). The caller's settings come back when the guard is dropped, however that comes
//! about.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{FileType, fstat, major, minor};
use rustix::stdio::{stderr, stdin, stdout};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, isatty, tcgetattr, tcgetpgrp, tcgetsid,
    tcgetwinsize, tcsetattr, tcsetwinsize,
};
use sandtimer::engine::{Terminal, TerminalOutputs};

/// What stdin means where terminals are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StdinTerminal {
    /// stdin is not a terminal.
    None,
    /// stdin is a terminal whose foreground is another job's: reading it would stop this process
    /// (SIGTTIN).
    Background,
    /// stdin is our terminal, and the job cannot have one.
    InputOnly,
    /// The job can have a terminal in place of stdin and these.
    Own(TerminalOutputs),
}

/// Decides which of the standard descriptors the job's own terminal replaces: stdin, and those that
/// are the same terminal. Where stdout is a pipe the job has none: what reads there may be a pager,
/// which uses the terminal itself.
pub(crate) fn stdin_terminal() -> StdinTerminal {
    if !isatty(stdin()) {
        return StdinTerminal::None;
    }
    if !is_foreground() {
        return StdinTerminal::Background;
    }
    let is_read_elsewhere = fstat(stdout()).is_ok_and(|status| {
        matches!(FileType::from_raw_mode(status.st_mode), FileType::Fifo | FileType::Socket)
    });
    match (is_same_terminal(stdout()), is_same_terminal(stderr())) {
        (true, true) => StdinTerminal::Own(TerminalOutputs::Both),
        (true, false) => StdinTerminal::Own(TerminalOutputs::Stdout),
        (false, true) if !is_read_elsewhere => StdinTerminal::Own(TerminalOutputs::Stderr),
        (false, _) => StdinTerminal::InputOnly,
    }
}

/// Whether a descriptor is the terminal that stdin is, by its own name or by that of the
/// controlling terminal. Any other one is written to as a file is.
fn is_same_terminal(other: BorrowedFd<'_>) -> bool {
    /// /dev/tty, major 5 and minor 0.
    const CONTROLLING: (u32, u32) = (5, 0);
    let number = |fd: BorrowedFd<'_>| fstat(fd).map(|status| (major(status.st_rdev), minor(status.st_rdev)));
    let (Ok(own), Ok(number)) = (number(stdin()), number(other)) else { return false };
    isatty(other) && (number == own || number == CONTROLLING || own == CONTROLLING)
}

/// Whether the terminal that is stdin is this process's to read and to set.
pub(crate) fn is_foreground() -> bool {
    tcgetpgrp(stdin()).is_ok_and(|group| group == rustix::process::getpgrp())
}

/// One with the size and the settings of the caller's.
pub(crate) fn like_ours(outputs: TerminalOutputs) -> io::Result<Terminal> {
    // A terminal without a size is used as one of 80 columns.
    let (columns, height) = tcgetwinsize(stdin()).map_or((0, 0), |size| (size.ws_col, size.ws_row));
    Ok(Terminal { columns, rows: height, like: Some(rustix::io::fcntl_dupfd_cloexec(stdin(), 3)?), outputs })
}

/// Gives the job's terminal the caller's size. The kernel notifies the job.
pub(crate) fn copy_size(master: impl AsFd) {
    if let Ok(size) = tcgetwinsize(stdin()) {
        let _ = tcsetwinsize(master, size);
    }
}

/// The caller's terminal in raw mode, until this is dropped.
#[derive(Debug)]
pub(crate) struct RawMode {
    before: Termios,
    is_raw: Arc<AtomicBool>,
}

impl RawMode {
    /// Sets the terminal to raw mode. `is_raw` is true as long as the guard exists.
    pub(crate) fn enter(is_raw: Arc<AtomicBool>) -> io::Result<Self> {
        let before = tcgetattr(stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        let guard = RawMode { before, is_raw };
        tcsetattr(stdin(), OptionalActions::Now, &raw)?;
        guard.is_raw.store(true, Ordering::Relaxed);
        Ok(guard)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        self.is_raw.store(false, Ordering::Relaxed);
        // In the background it is another's by now, and setting it would stop this process
        // (SIGTTOU).
        if is_foreground() {
            // Fails only when the terminal is gone. Drain would wait for a reader that has stopped
            // the output.
            let _ = tcsetattr(stdin(), OptionalActions::Now, &self.before);
        }
    }
}

/// What was asked for by keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct KeyRequests {
    /// How often the end of the run.
    pub ends: usize,
    /// That the run is stopped (Ctrl-Z).
    pub stops: bool,
}

/// How often Ctrl-C has to be typed within [`END_REQUEST_WINDOW_NS`] to be meant for this process
/// too.
const END_REQUEST_PRESSES: usize = 3;
const END_REQUEST_WINDOW_NS: u64 = 1_000_000_000;

/// Counts Ctrl-C typed to a command that ignores it, and detects Ctrl-Z typed to one that has no
/// job control.
///
/// It is the command's, and only typed again and again also a wish to end the run. Counted only
/// where the terminal makes it a signal and reads whole lines: programs that edit the line
/// themselves, as editors and the prompts of shells and interpreters do, handle it, and often get
/// it twice.
#[derive(Debug, Default)]
pub(crate) struct Interrupts {
    typed: Vec<u64>,
    asked: bool,
    /// When the key was typed last where the terminal makes it a signal, in monotonic nanoseconds;
    /// 0 is never.
    typed_at: Arc<AtomicU64>,
}

impl Interrupts {
    /// When the key was typed last where the terminal makes it a signal, in monotonic nanoseconds;
    /// 0 is never.
    pub(crate) fn typed_at(&self) -> Arc<AtomicU64> {
        self.typed_at.clone()
    }

    /// What `bytes`, which are about to be typed on this pseudo-terminal, ask of this process.
    pub(crate) fn inspect_typed(&mut self, master: impl AsFd, bytes: &[u8], now: u64) -> KeyRequests {
        let Ok(settings) = tcgetattr(&master) else { return KeyRequests::default() };
        // 0 means that there is no such key.
        let typed = |code| {
            let key = settings.special_codes[code];
            bytes.iter().filter(|byte| key != 0 && **byte == key).count()
        };
        let count = typed(SpecialCodeIndex::VINTR);
        if count > 0 && settings.local_modes.contains(LocalModes::ISIG) {
            self.typed_at.store(now, Ordering::Relaxed);
        }
        let by_lines = settings.local_modes.contains(LocalModes::ISIG | LocalModes::ICANON);
        // What a shell inside has in the foreground is that shell's to stop.
        let is_alone = || matches!((tcgetpgrp(&master), tcgetsid(&master)), (Ok(group), Ok(session)) if group == session);
        let stops = by_lines && typed(SpecialCodeIndex::VSUSP) > 0 && is_alone();
        KeyRequests { ends: self.count(by_lines, count, now), stops }
    }

    fn count(&mut self, by_lines: bool, count: usize, now: u64) -> usize {
        if self.asked {
            return count;
        }
        if !by_lines {
            self.typed.clear();
            return 0;
        }
        self.typed.retain(|time| now - time < END_REQUEST_WINDOW_NS);
        self.typed.extend(std::iter::repeat_n(now, count));
        self.asked = self.typed.len() >= END_REQUEST_PRESSES;
        (self.typed.len() + 1).saturating_sub(END_REQUEST_PRESSES)
    }
}

#[cfg(test)]
mod tests {
    use super::{END_REQUEST_WINDOW_NS, Interrupts};

    #[test]
    fn only_who_insists_ends_the_run() {
        let mut slow = Interrupts::default();
        for second in 1..10 {
            assert_eq!(slow.count(true, 1, second * END_REQUEST_WINDOW_NS / 2), 0);
        }
        let mut quick = Interrupts::default();
        assert_eq!([1, 2, 3, 4].map(|at| quick.count(true, 1, at)), [0, 0, 1, 1]);
        // By then the command may have changed the terminal, or taken its time.
        assert_eq!(quick.count(false, 1, 100 * END_REQUEST_WINDOW_NS), 1);
        let mut pasted = Interrupts::default();
        assert_eq!(pasted.count(true, 4, 1), 2);
    }

    #[test]
    fn a_prompt_gets_as_many_as_are_typed() {
        let mut prompt = Interrupts::default();
        assert_eq!([1, 2, 3, 4].map(|at| prompt.count(false, 1, at)), [0; 4]);
        // The first went to what ran under it, and brought the prompt back.
        assert_eq!(
            [(true, 5), (false, 6), (true, 7), (true, 8)].map(|(by_lines, at)| prompt.count(by_lines, 1, at)),
            [0; 4]
        );
    }
}
