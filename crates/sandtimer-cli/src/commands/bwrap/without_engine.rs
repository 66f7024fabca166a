//! A command in a place where no engine can start: inside a sandbox that shows no writable directory for it. The guard ends it as
//! completely; limits are those around the sandbox.

use rustix::event::{PollFd, PollFlags, poll};
use sandtimer_bwrap::{Begin, Event, Failure};
use sandtimer_os::process::{self, End};
use sandtimer_os::wire::{notice, order};

use super::{Asked, Ended, Watched};
use crate::config::NAMES;
use crate::render;
use crate::signals::{self, Arrived};

/// Runs it to its end.
pub(super) fn run(asked: &Asked, watched: Watched, reason: &sandtimer::Error) -> Result<Ended, Failure> {
    if NAMES.iter().any(|name| asked.config.is_chosen(name.key)) {
        render::note(&format!("the limits here are those around this sandbox: {reason}"));
    }
    let begin =
        Begin { cgroup: None, tasks: &[], outputs: [None, None], wall: u64::MAX, grace: 0, limits: &[] };
    // The guard has said what it could not do.
    let child = watched.guard.begin(&begin).map_err(|_| Failure::new(""))?;
    watched.status.born(child)?;
    asked.wait_for_maps();
    let _ = watched.guard.proceed();
    let mut waiting = Waiting { asked, watched, end: None, killed_by: None, is_interrupted: false };
    while waiting.wait() {}
    let Waiting { watched, end, killed_by, is_interrupted, .. } = waiting;
    let events = watched.guard.events();
    let is_executed = events.contains(&Event::Started) && !events.contains(&Event::NotExecuted);
    let own = end.map(|end| u8::try_from(end.exit_code()).unwrap_or(1));
    let code = own.or(killed_by.map(|signal| 128 + signal)).unwrap_or(1);
    watched.status.ended(code, is_executed, None);
    // A shell that waits for this process ends its loop only if the interrupt has ended both.
    let is_interrupted = is_interrupted && end.is_some_and(|end| end.status & 0x7f == i32::from(SIGINT));
    let signal = if is_interrupted { Some(SIGINT) } else { killed_by.filter(|_| own.is_none()) };
    Ok(Ended { code, signal })
}

const SIGINT: u8 = 2;

struct Waiting<'a> {
    asked: &'a Asked,
    watched: Watched,
    end: Option<End>,
    /// The signal for which this process has ended the command.
    killed_by: Option<u8>,
    is_interrupted: bool,
}

impl Waiting<'_> {
    /// Waits for the next event; false when the guard has ended, and with it everything.
    fn wait(&mut self) -> bool {
        let is_parent_gone = {
            let parent = self.watched.parent.as_ref().filter(|_| self.killed_by.is_none());
            let mut fds = vec![
                PollFd::new(&self.watched.guard.control, PollFlags::IN),
                PollFd::new(&self.watched.signals, PollFlags::IN),
            ];
            fds.extend(parent.map(|parent| PollFd::new(parent, PollFlags::IN)));
            // An interrupted wait ends early, and everything is inspected again.
            let _ = poll(&mut fds, None);
            fds.get(2).is_some_and(|parent| !parent.revents().is_empty())
        };
        if is_parent_gone {
            const SIGKILL: u8 = 9;
            self.end(SIGKILL);
        }
        while let Some(arrived) = self.watched.signals.next() {
            match arrived {
                Arrived::End(ending) if ending.is_interactive_interrupt() && !self.asked.new_session => {
                    self.is_interrupted = true;
                }
                Arrived::End(ending) => self.end(ending.exit_code() - 128),
                Arrived::Stopped => signals::stop(),
                Arrived::Resized | Arrived::Continued => {}
            }
        }
        self.read()
    }

    fn end(&mut self, signal: u8) {
        self.killed_by.get_or_insert(signal);
        // A guard that is gone has ended everything.
        let _ = process::order(&self.watched.guard.control, order::END, 0, 0);
    }

    fn read(&mut self) -> bool {
        loop {
            match process::notice(&self.watched.guard.control) {
                Ok(Some((notice, _))) if notice.kind == notice::EXITED => {
                    self.end = Some(End {
                        status: (notice.a as u32).cast_signed(),
                        user_microseconds: notice.b,
                        system_microseconds: notice.c,
                        resident_peak_kib: notice.d,
                    });
                }
                Ok(Some(_)) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return true,
                // Its last notice precedes its end.
                Ok(None) | Err(_) => return false,
            }
        }
    }
}
