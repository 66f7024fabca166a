//! A terminal of the job's own, and the caller's in raw mode meanwhile.
//!
//! The job never gets the caller's terminal: with it, a program can type into the shell that comes after (TIOCSTI).
//! The caller's settings come back when the guard is dropped, however that comes about.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::stdio::{stdin, stdout};
use rustix::termios::{
    OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr, tcsetwinsize,
};

/// What stdin means where terminals are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// stdin is no terminal.
    None,
    /// stdin is a terminal whose foreground is somebody else's: reading it would stop this process (SIGTTIN).
    Background,
    /// stdin is our terminal, and stdout is not one.
    InputOnly,
    /// Both are: the job can have a terminal.
    Both,
}

/// Looks at stdin and stdout.
pub(crate) fn place() -> Place {
    if !isatty(stdin()) {
        return Place::None;
    }
    let ours = tcgetpgrp(stdin()).is_ok_and(|group| group == rustix::process::getpgrp());
    match (ours, isatty(stdout())) {
        (false, _) => Place::Background,
        (true, false) => Place::InputOnly,
        (true, true) => Place::Both,
    }
}

/// The two ends of a new pseudo-terminal.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) master: OwnedFd,
    pub(crate) slave: OwnedFd,
}

/// Opens a pseudo-terminal with the size and the settings of the caller's.
pub(crate) fn open() -> io::Result<Pair> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    unlockpt(&master)?;
    // By descriptor: a path under /dev/pts may name another instance's terminal in a container.
    let slave = ioctl_tiocgptpeer(&master, flags)?;
    tcsetattr(&slave, OptionalActions::Now, &tcgetattr(stdin())?)?;
    copy_size(&master);
    Ok(Pair { master, slave })
}

/// Gives the pseudo-terminal the caller's size. The kernel tells the job.
pub(crate) fn copy_size(master: impl AsFd) {
    // A terminal without a size is used as one of 80 columns.
    if let Ok(size) = tcgetwinsize(stdin()) {
        let _ = tcsetwinsize(master, size);
    }
}

/// The caller's terminal in raw mode, until this is dropped.
#[derive(Debug)]
pub(crate) struct Raw {
    before: Termios,
}

impl Raw {
    pub(crate) fn enter() -> io::Result<Self> {
        let before = tcgetattr(stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        let guard = Raw { before };
        tcsetattr(stdin(), OptionalActions::Now, &raw)?;
        Ok(guard)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // Fails only when the terminal is gone. Drain would wait for a reader that has stopped the output.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }
}
