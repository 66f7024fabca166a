//! Terminals of runs. Each is of its sandbox's own /dev/pts, so it has a name inside.
//!
//! The job's process opens it while it is still the helper program, and sends the master over its standard input, which is a
//! socket until then. It goes on when the terminal is set up, and has closed the socket when it becomes the command: the
//! only descriptor that is ever taken from there is that one.

use std::os::fd::{AsFd, OwnedFd};

use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer};
use rustix::termios::{InputModes, OptionalActions, Termios, Winsize, tcgetattr, tcsetattr, tcsetwinsize};
use sandtimer_os::{process, socket};

use super::error::Error;

/// How long a sandbox may take to open its terminal. Infrastructure: always finite.
const OPENING_LIMIT_MILLISECONDS: u64 = 60_000;

/// A terminal for stdin, stdout and stderr, which the session of the command belongs to.
#[derive(Debug)]
pub struct Terminal {
    pub columns: u16,
    pub rows: u16,
    /// Another terminal whose settings it has from the start; else those of a new one, for text in UTF-8.
    pub like: Option<OwnedFd>,
}

/// One that the sandbox is to open.
pub(super) struct Coming {
    socket: OwnedFd,
    size: Winsize,
    settings: Option<Termios>,
}

/// Both ends of one that is open.
pub(super) struct Ends {
    pub master: OwnedFd,
    pub slave: OwnedFd,
}

impl Coming {
    /// With what the sandbox gets for its standard descriptors.
    pub fn new(terminal: &Terminal) -> Result<(Self, OwnedFd), Error> {
        let settings = terminal.like.as_ref().map(tcgetattr).transpose();
        let settings = settings.map_err(|errno| failed("cannot read a terminal's settings", errno))?;
        let (socket, inside) = socket::pair().map_err(Error::system("cannot make a socket pair"))?;
        Ok((Coming { socket, size: size(terminal.columns, terminal.rows), settings }, inside))
    }

    /// Waits until it is open, and sets it up. `None` where the sandbox has failed before, as its run will say.
    pub fn arrive(self) -> Result<Option<Ends>, Error> {
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
                    let mut usual = tcgetattr(&master)?;
                    usual.input_modes |= InputModes::IUTF8;
                    usual
                }
            };
            tcsetattr(&master, OptionalActions::Now, &settings)?;
            // By descriptor: its path is the sandbox's.
            ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
        };
        let slave = set_up().map_err(|errno| failed("cannot set the sandbox's terminal up", errno))?;
        // One that is not there any more to hear it has failed, as its run will say.
        let _ = socket::send(&self.socket, &[1], &[], false);
        Ok(Some(Ends { master, slave }))
    }
}

/// Gives a terminal another size. The kernel tells the job.
pub(super) fn resize(master: &OwnedFd, columns: u16, rows: u16) -> Result<(), Error> {
    tcsetwinsize(master, size(columns, rows)).map_err(|errno| failed("cannot resize the terminal", errno))
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

fn failed(doing: &'static str, errno: rustix::io::Errno) -> Error {
    Error::System { doing, source: errno.into() }
}
