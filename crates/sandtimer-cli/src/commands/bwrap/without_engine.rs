//! A command in a place where no engine can start: inside a sandbox that shows no writable
//! directory for it. The guard ends it as completely, at its wall-clock limit too, and each process
//! has its own limits. Others are only those of the surrounding sandbox.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sandtimer::limits::{Key, Limits};
use sandtimer::model::LimitKind;
use sandtimer_bwrap::{BwrapFailure, GuardEvent, ProcessRlimit, StartRequest};
use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::process::{self, End};
use sandtimer_os::wire::{notice, order};

use super::request::{BwrapRequest, CommandHandles, ExitDisposition};
use crate::config::{NAMES, Uses, written};
use crate::render;
use crate::signals::{self, ReceivedSignal};

/// Runs it to its end.
pub(super) fn run(
    request: &BwrapRequest,
    handles: CommandHandles,
    reason: &sandtimer::Error,
) -> Result<ExitDisposition, BwrapFailure> {
    let limits = OwnLimits::of(request);
    limits.report(request, reason);
    let (wall, grace) = (limits.wall.unwrap_or(u64::MAX), limits.grace);
    let of_processes = &limits.of_processes;
    let begin =
        StartRequest { cgroup: None, tasks: &[], outputs: [None, None], wall, grace, limits: of_processes };
    // The guard has reported what failed.
    let child = handles.guard.begin(&begin).map_err(|_| BwrapFailure::new(""))?;
    handles.status.report_start(child)?;
    request.wait_for_maps();
    let _ = handles.guard.proceed();
    let deadlines = Deadlines { wall, grace, ..Deadlines::default() };
    let mut waiting =
        CommandWait { request, handles, deadlines, end: None, killed_by: None, is_interrupted: false };
    while waiting.wait() {}
    let CommandWait { handles, deadlines, end, killed_by, is_interrupted, .. } = waiting;
    let events = handles.guard.events();
    let is_executed = events.contains(&GuardEvent::Started) && !events.contains(&GuardEvent::NotExecuted);
    let own = end.map(|end| u8::try_from(end.exit_code()).unwrap_or(1));
    let code = own.or(killed_by.map(|signal| 128 + signal)).unwrap_or(1);
    let is_late = deadlines.stage != DeadlineStage::Before && killed_by.is_none();
    if is_late {
        render::note(&format!(
            "stopped by the wall-clock limit of {}",
            written(LimitKind::Wall.into(), Some(wall))
        ));
    }
    let code = if is_late { AT_LIMIT } else { code };
    handles.status.report_end(code, is_executed, None);
    // A shell that waits for this process ends its loop only if the interrupt has ended both.
    let is_interrupted = is_interrupted && end.is_some_and(|end| end.status & 0x7f == i32::from(SIGINT));
    let signal = if is_interrupted && !is_late { Some(SIGINT) } else { killed_by.filter(|_| own.is_none()) };
    Ok(ExitDisposition { code, signal })
}

const SIGINT: u8 = 2;
const SIGTERM: i32 = 15;
/// The exit code of a command that a limit has ended.
const AT_LIMIT: u8 = 124;

/// The limits that hold without an engine.
#[derive(Debug)]
struct OwnLimits {
    wall: Option<u64>,
    grace: u64,
    of_processes: Vec<(ProcessRlimit, u64)>,
}

impl OwnLimits {
    fn of(request: &BwrapRequest) -> Self {
        let effective = request.config.effective(Uses::Commands, &Limits::new(), false);
        let value = |key: Key| effective.get(key).map(|effect| effect.value);
        let of = |kind: LimitKind| value(kind.into());
        // The kernel counts processes by user, and those of this user are not all the command's.
        let processes = of(LimitKind::Processes).filter(|_| request.has_user_namespace);
        let list = [
            (
                ProcessRlimit::CpuSeconds,
                of(LimitKind::Cpu).map(|nanoseconds| nanoseconds.div_ceil(1_000_000_000)),
            ),
            (ProcessRlimit::FileBytes, of(LimitKind::Disk)),
            (ProcessRlimit::OpenFiles, of(LimitKind::OpenFiles)),
            (ProcessRlimit::DataBytes, of(LimitKind::Memory)),
            (ProcessRlimit::Processes, processes),
        ];
        OwnLimits {
            wall: of(LimitKind::Wall),
            grace: value(Key::Grace).unwrap_or(0),
            of_processes: list.into_iter().filter_map(|(which, most)| Some((which, most?))).collect(),
        }
    }

    /// Reports the chosen limits that do not hold, and those that hold for each process only.
    fn report(&self, request: &BwrapRequest, reason: &sandtimer::Error) {
        let chosen = |kinds: &[LimitKind]| -> Vec<&str> {
            let is_meant = |key: Key| kinds.iter().any(|kind| key == (*kind).into());
            let list = NAMES.iter().filter(|name| is_meant(name.key) && request.config.is_chosen(name.key));
            list.map(|name| name.file).collect()
        };
        let mut missing = vec![LimitKind::Stall, LimitKind::Output];
        if !request.has_user_namespace {
            missing.push(LimitKind::Processes);
        }
        let missing = chosen(&missing);
        let single = chosen(&[LimitKind::Cpu, LimitKind::Memory, LimitKind::Disk]);
        if !missing.is_empty() {
            render::note(&format!(
                "no engine can start ({reason}): only the limits of a surrounding sandbox apply to {}",
                missing.join(", ")
            ));
        }
        if !single.is_empty() {
            render::note(&format!(
                "no engine can start ({reason}): each process is limited by itself in {}",
                single.join(", ")
            ));
        }
    }
}

/// When the command is asked to end, and when it is killed. The guard has the second by itself as
/// well.
#[derive(Debug, Default)]
struct Deadlines {
    wall: u64,
    grace: u64,
    started: Option<u64>,
    stage: DeadlineStage,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum DeadlineStage {
    #[default]
    Before,
    /// The wall-clock limit has passed, and the command may end by itself.
    Grace,
    Killed,
}

impl Deadlines {
    /// The next one, if there is one.
    fn next(&self) -> Option<u64> {
        let wall = self.started?.checked_add(self.wall)?;
        match self.stage {
            DeadlineStage::Before => Some(wall),
            DeadlineStage::Grace => wall.checked_add(self.grace),
            DeadlineStage::Killed => None,
        }
    }
}

struct CommandWait<'a> {
    request: &'a BwrapRequest,
    handles: CommandHandles,
    deadlines: Deadlines,
    end: Option<End>,
    /// The signal for which this process has ended the command.
    killed_by: Option<u8>,
    is_interrupted: bool,
}

impl CommandWait<'_> {
    /// Waits for the next event; false when the guard has ended, and with it everything.
    fn wait(&mut self) -> bool {
        let is_parent_gone = {
            let parent = self.handles.parent.as_ref().filter(|_| self.killed_by.is_none());
            let mut fds = vec![
                PollFd::new(&self.handles.guard.control, PollFlags::IN),
                PollFd::new(&self.handles.signals, PollFlags::IN),
            ];
            fds.extend(parent.map(|parent| PollFd::new(parent, PollFlags::IN)));
            let timeout = self.deadlines.next().map(|at| {
                let left = at.saturating_sub(monotonic_nanoseconds());
                Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 }
            });
            // An interrupted wait ends early, and everything is inspected again.
            let _ = poll(&mut fds, timeout.as_ref());
            fds.get(2).is_some_and(|parent| !parent.revents().is_empty())
        };
        if is_parent_gone {
            const SIGKILL: u8 = 9;
            self.end(SIGKILL);
        }
        while let Some(arrived) = self.handles.signals.next() {
            match arrived {
                ReceivedSignal::End(ending)
                    if ending.is_interactive_interrupt() && !self.request.new_session =>
                {
                    self.is_interrupted = true;
                }
                ReceivedSignal::End(ending) => self.end(ending.exit_code() - 128),
                ReceivedSignal::Stopped => signals::stop(),
                ReceivedSignal::Resized | ReceivedSignal::Continued => {}
            }
        }
        let is_served = self.read();
        if is_served {
            self.keep_deadline();
        }
        is_served
    }

    /// At the wall-clock limit, asks the command to end; kills it after the grace period.
    fn keep_deadline(&mut self) {
        if self.deadlines.next().is_none_or(|at| monotonic_nanoseconds() < at) {
            return;
        }
        let has_grace = self.deadlines.stage == DeadlineStage::Before && self.deadlines.grace > 0;
        let (stage, kind, signal) = match has_grace {
            true => (DeadlineStage::Grace, order::SIGNAL_ALL, SIGTERM),
            false => (DeadlineStage::Killed, order::END, 0),
        };
        self.deadlines.stage = stage;
        // A guard that is gone has ended everything.
        let _ = process::send_command(&self.handles.guard.control, kind, signal, 0);
    }

    fn end(&mut self, signal: u8) {
        self.killed_by.get_or_insert(signal);
        // A guard that is gone has ended everything.
        let _ = process::send_command(&self.handles.guard.control, order::END, 0, 0);
    }

    fn read(&mut self) -> bool {
        loop {
            match process::notice(&self.handles.guard.control) {
                Ok(Some((notice, _))) if notice.kind == notice::EXITED => {
                    self.end = Some(End {
                        status: (notice.a as u32).cast_signed(),
                        user_microseconds: notice.b,
                        system_microseconds: notice.c,
                        resident_peak_kib: notice.d,
                    });
                }
                Ok(Some((notice, _))) if notice.kind == notice::STARTED => {
                    self.deadlines.started = Some(notice.a);
                }
                Ok(Some((notice, _))) if notice.kind == notice::FIRED => {
                    self.deadlines.stage = DeadlineStage::Killed;
                }
                Ok(Some(_)) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return true,
                // Its last notice precedes its end.
                Ok(None) | Err(_) => return false,
            }
        }
    }
}
