//! Terminals of runs. Each is of its sandbox's own /dev/pts, so it has a name inside.
//!
//! The job's process opens it while it is still the helper program, and sends the master over its
//! standard input, which is a socket until then. It continues when the terminal is set up, and has
//! closed the socket when it becomes the command: the only descriptor that is ever received from
//! there is that one.

use std::os::fd::{AsFd, OwnedFd};

use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer};
use rustix::termios::{InputModes, OptionalActions, Termios, Winsize, tcgetattr, tcsetattr, tcsetwinsize};
use sandtimer_os::{process, socket};

use super::error::Error;

/// How long a sandbox may take to open its terminal. Infrastructure: always finite.
const OPENING_LIMIT_MILLISECONDS: u64 = 60_000;

/// A terminal for stdin and outputs, which the session of the command belongs to.
#[derive(Debug)]
pub struct Terminal {
    /// The width in characters.
    pub columns: u16,
    /// The height in lines.
    pub rows: u16,
    /// Another terminal whose settings it has from the start; else those of a new one, for text in
    /// UTF-8.
    pub like: Option<OwnedFd>,
    /// The outputs that are the terminal, too.
    pub outputs: TerminalOutputs,
}

/// Which outputs are the same terminal as stdin. The other one is as in the Spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TerminalOutputs {
    /// Both stdout and stderr.
    Both,
    /// Stdout alone.
    Stdout,
    /// Stderr alone.
    Stderr,
}

impl TerminalOutputs {
    /// Whether stdout is, and whether stderr is.
    pub(crate) fn is(self) -> [bool; 2] {
        [self != TerminalOutputs::Stderr, self != TerminalOutputs::Stdout]
    }
}

impl Terminal {
    /// One for all three.
    pub fn new(columns: u16, rows: u16) -> Self {
        Terminal { columns, rows, like: None, outputs: TerminalOutputs::Both }
    }
}

/// A terminal that the sandbox is to open.
pub(super) struct PendingTerminal {
    socket: OwnedFd,
    size: Winsize,
    settings: Option<Termios>,
}

/// Both ends of a terminal that is open.
pub(super) struct TerminalEnds {
    pub master: OwnedFd,
    pub slave: OwnedFd,
}

impl PendingTerminal {
    /// Returns it with what the sandbox gets for its standard descriptors.
    pub fn new(terminal: &Terminal) -> Result<(Self, OwnedFd), Error> {
        let settings = terminal.like.as_ref().map(tcgetattr).transpose();
        let settings = settings.map_err(|errno| failed("cannot read a terminal's settings", errno))?;
        let (socket, inside) = socket::pair().map_err(Error::system("cannot make a socket pair"))?;
        Ok((PendingTerminal { socket, size: size(terminal.columns, terminal.rows), settings }, inside))
    }

    /// Waits until it is open, and sets it up. `None` if the sandbox has failed before, as its run
    /// reports.
    pub fn open(self) -> Result<Option<TerminalEnds>, Error> {
        #[cfg(test)]
        if tests::FAILS.get() {
            return Err(failed("cannot set the sandbox's terminal up", rustix::io::Errno::MFILE));
        }
        if !process::wait_readable(self.socket.as_fd(), OPENING_LIMIT_MILLISECONDS) {
            return Err(failed("the sandbox has not opened its terminal", rustix::io::Errno::TIMEDOUT));
        }
        let (_, master) = socket::receive(&self.socket, &mut [0; 1], false)
            .map_err(Error::system("cannot receive the sandbox's terminal"))?;
        let Some(master) = master else { return Ok(None) };
        let set_up = || -> rustix::io::Result<OwnedFd> {
            tcsetwinsize(&master, self.size)?;
            let settings = match self.settings {
                Some(settings) => settings,
                None => {
                    let mut default = tcgetattr(&master)?;
                    default.input_modes |= InputModes::IUTF8;
                    default
                }
            };
            tcsetattr(&master, OptionalActions::Now, &settings)?;
            // By descriptor: its path is the sandbox's.
            ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
        };
        let slave = set_up().map_err(|errno| failed("cannot set the sandbox's terminal up", errno))?;
        // A process that is not there any more has failed, as its run reports.
        let _ = socket::send(&self.socket, &[1], &[], false);
        Ok(Some(TerminalEnds { master, slave }))
    }
}

/// Resizes a terminal. The kernel notifies the job.
pub(super) fn resize(master: &OwnedFd, columns: u16, rows: u16) -> Result<(), Error> {
    tcsetwinsize(master, size(columns, rows)).map_err(|errno| failed("cannot resize the terminal", errno))
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

fn failed(doing: &'static str, errno: rustix::io::Errno) -> Error {
    Error::System { doing, source: errno.into() }
}

#[cfg(test)]
#[path = "../../tests/processes/mod.rs"]
mod processes;

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::Terminal;
    use super::processes::{children, children_named};
    use crate::engine::{Engine, Spec};
    use crate::limits::Limits;

    thread_local! {
        /// No terminal can be set up by this thread.
        pub(super) static FAILS: Cell<bool> = const { Cell::new(false) };
    }

    /// Whether something holds within 2 s.
    fn soon(holds: impl Fn() -> bool) -> bool {
        (0..100).any(|_| {
            let holds_now = holds();
            if !holds_now {
                std::thread::park_timeout(Duration::from_millis(20));
            }
            holds_now
        })
    }

    /// Whether a child of this process is dead and not reaped, whatever its name.
    fn has_zombie() -> bool {
        children().iter().any(|child| child.is_zombie)
    }

    #[test]
    fn failed_terminal_leaves_no_zombie() {
        let engine = Engine::new().expect("an engine");
        let spec = || {
            let terminal = Terminal::new(80, 24);
            let limits = Limits::new().wall(Duration::from_secs(60));
            Spec { terminal: Some(terminal), ..Spec::command(["sleep", "1000"]).limits(limits) }
        };
        FAILS.set(true);
        let failure = engine.start(spec()).expect_err("it has no terminal").to_string();
        assert!(failure.contains("terminal up"), "{failure}");
        FAILS.set(false);
        // Waits for a process that is being reaped.
        let is_gone = soon(|| !has_zombie() && children_named("st-init").is_empty());
        assert!(is_gone, "{:?}", children());
        // The controls: the first process of a run is found, and a child that nothing reaps.
        let run = engine.start(spec()).expect("it starts");
        run.started_blocking();
        assert_eq!(children_named("st-init").len(), 1);
        run.cancel("the test has finished");
        run.settled_blocking();
        #[allow(clippy::disallowed_methods)] // a child that is no run's
        let mut child = std::process::Command::new("true").spawn().expect("it starts");
        assert!(soon(has_zombie), "a zombie is not seen");
        child.wait().expect("its end");
    }
}
