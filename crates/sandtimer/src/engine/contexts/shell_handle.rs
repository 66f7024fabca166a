//! The engine's ends of a shell: how commands are sent to it, and how a new one continues.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::SendFlags;
use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::wire::shell;
use sandtimer_os::zygote as os;

use super::super::error::Error;
use super::super::spawn;
use super::channel::Channel;
use crate::context::{Nonce, command_request};

/// How long a new shell may take to take over from one that ended.
const RESET_LIMIT_MILLISECONDS: u64 = 5_000;

/// Variables that a shell has of itself.
pub(super) const OWN: &str = "BASH*|COMP_WORDBREAKS|DIRSTACK|EPOCH*|EUID|FUNCNAME|GROUPS|HOST*|IFS|LINENO|MACHTYPE|OPT*|OSTYPE|PATH|\
    PIPESTATUS|PPID|PS4|PWD|RANDOM|SECONDS|SHELL*|SHLVL|SRANDOM|TERM|UID|_|__sandtimer*";

/// Has a shell that exits write down what it leaves to the next one: the library does, and a trap
/// where bash does not show the library what it exports.
pub(super) fn state_at_exit() -> String {
    let trap =
        r#"{ \builtin export -p; \builtin printf "\\\\builtin cd -- %q\\n" "$PWD"; } >&245 2>/dev/null"#;
    format!("\\builtin kill -0 {} 2>/dev/null || \\builtin trap '{trap}' EXIT\n", shell::LEAVES_STATE)
}

/// Forgets everything but the environment and the directory. Variables that are not exported are
/// then as the pre-warm script has left them.
const RESET: &str = r#"\builtin trap - EXIT DEBUG ERR RETURN {1..64} 2>/dev/null
for __sandtimer in $(\compgen -A function); do \unset -f "$__sandtimer"; done
\unalias -a
\eval "$__sandtimer_options" 2>/dev/null
for __sandtimer in $(\compgen -v); do
case $__sandtimer in
SANDTIMER_OWN) ;;
*) \unset -v "$__sandtimer" 2>/dev/null ;;
esac
done
\eval "$__sandtimer_variables" 2>/dev/null
"#;

/// After what the shell before has left: what else that script has left. Its options come last, as
/// they may end a shell.
const PREWARMED: &str = "\\eval \"$__sandtimer_prewarmed\" 2>/dev/null\n";

/// Keeps the environment of before.
const KEPT: &str = "__sandtimer_environment=$(\\builtin export -p)\n";

/// The engine's ends of a shell.
#[derive(Debug)]
pub(super) struct ShellHandle {
    pub script: OwnedFd,
    /// What the shell writes at its end.
    pub exit_state: Option<OwnedFd>,
}

impl ShellHandle {
    /// Sends a command and its streams.
    pub fn send(
        &mut self,
        channel: BorrowedFd<'_>,
        nonce: Nonce,
        source: &str,
        streams: [BorrowedFd<'_>; 3],
    ) -> Result<(), Error> {
        if source.contains('\0') {
            return Err(Error::Nul { what: "command", value: source.replace('\0', "\\0") });
        }
        let doing = "cannot use the session's shell";
        let text = os::sealed_file("sandtimer-command", format!("{source}\0").as_bytes())
            .map_err(Error::system(doing))?;
        let exit_state = memfd_create("sandtimer-end", MemfdFlags::CLOEXEC)
            .map_err(|error| Error::System { doing, source: error.into() })?;
        let [stdin, stdout, stderr] = streams;
        let files = [stdout, stderr, stdin, text.as_fd(), exit_state.as_fd()];
        os::dispatch(channel, &os::ProcessSetup::default(), &command_request(nonce), &files)
            .map_err(Error::system(doing))?;
        let first = shell::FIRST;
        // One line, so that a checkpoint that takes this shell's place reads nothing of it. A shell
        // that was told to end after one line would end with the next command taken and not
        // executed. The command finds the exit code of the one before in `$?`: a function that
        // removes itself returns it, in a list where errexit does not end the shell. After an
        // interrupt, which has the rest of a line dropped, it is there at the beginning. Only the
        // command's own text is executed with its streams: the library lets interrupts in once the
        // last one is in place.
        let execute = format!("\\builtin eval \"$__sandtimer\" >&{first} 2>&{} <&{}", first + 1, first + 2);
        let line = format!(
            "case $? in 130) __sandtimer_status=130;; esac; \
             IFS= \\builtin read -r -d '' -u {} __sandtimer || \\builtin kill -0 {}; \
             \\builtin kill -0 {}; case $__sandtimer_status in 0) {execute};; *) \
             __sandtimer_return() {{ \\unset -f __sandtimer_return; \\builtin return \"$__sandtimer_status\"; }}; \
             __sandtimer_return || {execute};; esac; \
             __sandtimer_status=$?; \\builtin kill -0 $(({} + __sandtimer_status)); \
             \\builtin set +t; \\builtin kill -0 {}\n",
            first + 3,
            shell::UNREAD,
            shell::BEGINS,
            shell::ENDED,
            shell::NEXT
        );
        self.write(&line).map_err(Error::system(doing))?;
        self.exit_state = Some(exit_state);
        Ok(())
    }

    pub fn write(&self, mut text: &str) -> std::io::Result<()> {
        while !text.is_empty() {
            let send = || rustix::net::send(&self.script, text.as_bytes(), SendFlags::NOSIGNAL);
            let written = rustix::io::retry_on_intr(send)?;
            text = &text[written..];
        }
        Ok(())
    }

    /// Has a shell that was a checkpoint drop its own state and continue with the state in which
    /// the shell before it ended. Returns false if it does not.
    pub fn restore_state(&mut self, channel: &Channel, nonce: Nonce) -> bool {
        let mut state = vec![0; shell::MOST_STATE];
        let length =
            self.exit_state.take().and_then(|file| rustix::io::pread(&file, &mut state, 0).ok()).unwrap_or(0);
        state.truncate(length);
        let state = String::from_utf8_lossy(&state).replace('\0', "");
        let Ok(null) = spawn::null() else { return false };
        let reset = RESET.replace("SANDTIMER_OWN", OWN);
        let state_at_exit = state_at_exit();
        let source = match state.as_str() {
            // The shell could not write its state: the state that it began with, then.
            "" => {
                format!(
                    "{KEPT}{reset}{state_at_exit}\\builtin eval \"$__sandtimer_environment\"\n{PREWARMED}"
                )
            }
            state => format!("{reset}{state_at_exit}{state}{PREWARMED}"),
        };
        if self.send(channel.as_fd(), nonce, &source, [null.as_fd(); 3]).is_err() {
            return false;
        }
        let end = monotonic_nanoseconds() + RESET_LIMIT_MILLISECONDS * 1_000_000;
        while wait_for_packet(channel.as_fd(), channel.interpreter.as_fd(), end) {
            match channel.receive() {
                // Anything else is of the one before.
                Ok(packet) if packet.len() == shell::ANSWER && packet.starts_with(&nonce) => return true,
                Ok(packet) if packet.is_empty() => return false,
                _ => {}
            }
        }
        false
    }
}

/// Whether a shell sends a packet before `end`, or has left one when it ended.
fn wait_for_packet(channel: BorrowedFd<'_>, process: BorrowedFd<'_>, end: u64) -> bool {
    loop {
        let left = end.saturating_sub(monotonic_nanoseconds());
        let timeout =
            Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 };
        let mut fds = [channel, process].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        match poll(&mut fds, Some(&timeout)) {
            Err(Errno::INTR) => {}
            polled => return polled.is_ok() && !fds[0].revents().is_empty(),
        }
    }
}
