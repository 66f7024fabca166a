//! An interpreter in its sandbox, between runs: its channel, the cell that is sent to it, and what
//! becomes of it.

mod checkpoints;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::stdout::UnwrittenOutput;
use sandtimer_os::wire::{Notice, channel};
use sandtimer_os::{process, socket, zygote as os};

use super::super::children::{InterpreterParts, hard_end};
use super::super::error::Error;
use super::super::inner::Inner;
use super::super::jail::{JailHandle, JailResources};
use super::super::opened::{self, OpenedRun};
use super::super::parts;
use super::super::pre_warmer::ChildPool;
use super::super::sandboxes::SandboxUse;
use super::super::streams::RunStreams;
use super::super::zygotes::Zygote;
use super::channel::Channel;
use super::displays::CellDisplays;
use super::images::Images;
use super::shell_handle::ShellHandle;
use super::spec::{ContextSpec, run_of, variables};
use crate::context::{
    Frame, Nonce, ScriptMessage, ScriptNonce, cell_request, script_message, script_request,
};
use crate::limits::{Key, check_at_least};
use crate::model::LimitKind;
use crate::supervise::at_once;
use crate::supervise::deliveries::{Attachment, ToCollector};
use crate::supervise::run::{IdleContents, Job, LiveJob, SharedRun, SlotUsage};
use crate::zygote::{CallAnswer, Language};

/// How long init may take to answer, where no run's enforcer waits for it.
const INIT_LIMIT: u64 = 2_000_000_000;
/// How soon a wait for an interpreter or its init detects that their jail is paused.
const PAUSE_CHECK_NANOSECONDS: u64 = 100_000_000;
/// The least memory limit under which an interpreter begins: it writes to this much of its
/// inherited memory.
const MIN_MEMORY_BYTES: u64 = 8 << 20;
/// Nanoseconds from the end of one cell to the next within which they come back to back.
const BACK_TO_BACK_NANOSECONDS: u64 = 1_000_000;
/// Nanoseconds. Of the next one after a longer one nothing is known.
const SHORT_CELL_NANOSECONDS: u64 = 2_000_000;
/// The longest source that is sent in a packet.
const INLINE_SOURCE: usize = 32 * 1024;

/// An interpreter that is this context's. Dropping it ends it.
#[derive(Debug)]
pub(super) struct LiveInterpreter {
    inner: Arc<Inner>,
    pub jail_handle: JailHandle,
    jail_resources: JailResources,
    channel: Channel,
    /// What the packets about the execution that is on, or comes next, begin with.
    nonce: Nonce,
    /// It was a checkpoint once, and is a child of init.
    is_inits: bool,
    /// A checkpoint was asked for.
    awaited: Option<Nonce>,
    /// Oldest first.
    checkpoints: Vec<i32>,
    why_none: Option<String>,
    /// Tasks besides init and the interpreter when a checkpoint was refused.
    tasks_at_rejection: u64,
    /// The last run was interrupted, perhaps after its end.
    pub(super) was_interrupted: bool,
    /// The checkpoint that was asked for takes the place of the newest, which is of the same state.
    replaces_last: bool,
    /// Why it does not begin, as it has reported.
    pub(super) rejection: Option<String>,
    pub(super) shell: Option<ShellHandle>,
    /// Of a JavaScript interpreter: the nonce of the active cell, or of the next one.
    script: Option<ScriptNonce>,
    /// Processes that earlier cells have left, when they were last counted.
    left_over: u64,
    /// The directory that was made for it, until it is the context's.
    pub own_workspace: Option<PathBuf>,
    /// What it was forked from, for what is to have its memory.
    pub zygote: Option<Arc<Zygote>>,
    pub images: Images,
    /// A checkpoint is to be asked for.
    is_due: bool,
    /// When the last cell ended.
    over_at: u64,
    /// When the last cell was sent, and whether it was requested right after the one before.
    sent_at: u64,
    is_burst: bool,
    /// A checkpoint was forgotten that may not be dead yet.
    is_one_dying: bool,
    /// Init has no deadline: it was removed, or the last run has ended.
    is_endless: bool,
    /// The counters of the jail when it was last idle, until something runs in it.
    at_rest: Option<SlotUsage>,
    /// The streams of the last run, until the next one has taken their place in the interpreter.
    held: Option<Box<Attachment>>,
    /// What Python's cells write to before it is in their pipes.
    unwritten: Option<Arc<UnwrittenOutput>>,
}

impl LiveInterpreter {
    /// Takes a warm interpreter, or has one made if the workspace is given, for this context.
    pub fn take(
        source: &Arc<ChildPool>,
        spec: &ContextSpec,
        is_cancelled: &mut dyn FnMut() -> bool,
    ) -> Result<Self, Error> {
        let run = run_of(source, spec);
        let opened = opened::open(&source.inner, &run)?;
        let scope = opened.scope;
        check_at_least(&opened.effective, Key::Kind(LimitKind::Memory), MIN_MEMORY_BYTES)
            .inspect_err(|_| opened::close(&source.inner, scope))?;
        let begun = variables(spec, false).to_string();
        let taken = loop {
            let directories = spec.directories();
            let is_named = directories.is_some();
            let child = match directories {
                Some(directories) => source.make_in(directories, is_cancelled),
                None => source.take(is_cancelled).map(|(child, _)| child),
            };
            let mut child = match child.and_then(|child| child.check(&run).map(|()| child)) {
                Ok(taken) => taken,
                Err(error) => break Err(error),
            };
            match child.become_context(&opened, begun.as_bytes(), &[], false) {
                Ok(()) => break child.into_parts().ok_or(Error::Closed),
                // It died while it waited: the next one.
                Err(Error::System { .. }) if !is_named => source.lock().stats.lost += 1,
                Err(error) => break Err(error),
            }
        };
        opened::close(&source.inner, scope);
        let parts = taken?;
        let mut interpreter = Self::new(source.inner.clone(), parts, None);
        if source.profile.language == Language::JavaScript {
            (interpreter.script, interpreter.is_inits) = (Some(ScriptNonce::default()), true);
        }
        interpreter.ask_for_checkpoint();
        Ok(interpreter)
    }

    pub(super) fn new(inner: Arc<Inner>, parts: InterpreterParts, shell: Option<ShellHandle>) -> Self {
        if let Some(sandbox) = &parts.jail_resources.sandbox {
            sandbox.note_jail(&parts.jail_handle);
        }
        LiveInterpreter {
            inner,
            jail_handle: parts.jail_handle,
            jail_resources: parts.jail_resources,
            channel: Channel::new(parts.channel, parts.process.pidfd, parts.number),
            nonce: Nonce::default(),
            is_inits: shell.is_some(),
            awaited: None,
            checkpoints: Vec::new(),
            why_none: None,
            tasks_at_rejection: 0,
            was_interrupted: false,
            replaces_last: false,
            rejection: None,
            shell,
            script: None,
            left_over: 0,
            own_workspace: parts.own_workspace,
            zygote: parts.zygote,
            images: Images::default(),
            is_due: false,
            over_at: 0,
            sent_at: 0,
            is_burst: false,
            is_one_dying: false,
            is_endless: false,
            at_rest: None,
            held: None,
            unwritten: None,
        }
    }

    /// How long its interpreter may take to start.
    pub(super) fn spawn_limit(&self) -> Duration {
        self.inner.spawn_limit()
    }

    /// It is this process.
    pub(super) fn is_process(&mut self, process: OwnedFd) {
        self.channel.is_now_of(process);
    }

    pub fn is_shell(&self) -> bool {
        self.shell.is_some()
    }

    /// What the cell that was sent last writes to before it is in its pipe.
    pub fn unwritten(&self) -> Option<Arc<UnwrittenOutput>> {
        self.unwritten.clone()
    }

    fn is_python(&self) -> bool {
        !self.is_shell() && !self.is_script()
    }

    pub fn is_script(&self) -> bool {
        self.script.is_some()
    }

    /// Parses a message of a JavaScript cell; `None` for a packet of other code, which does not
    /// know the nonce.
    pub fn parse_message<'a>(&self, packet: &'a [u8]) -> Option<ScriptMessage<'a>> {
        script_message(packet, self.script.as_ref()?)
    }

    pub fn channel(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    /// Keeps the streams of a run that has ended: what the interpreter has not flushed goes there,
    /// before the next one begins.
    pub fn hold(&mut self, rest: Box<Attachment>) {
        if let Some(before) = self.held.replace(rest)
            && !at_once::is_fully_drained(&before)
        {
            // A descriptor of it was kept, and continues to be read.
            self.inner.collector.send(ToCollector::Late(before));
        }
    }

    /// Hands the streams of the last run to the collector: what is executed may write to them, or
    /// may have done so.
    pub fn let_streams_go(&mut self) {
        if let Some(held) = self.held.take() {
            self.inner.collector.send(ToCollector::Late(held));
        }
    }

    /// Waits at most `limit` nanoseconds until the interpreter has begun in its directory; Python's
    /// need not have made its checkpoint.
    pub fn begun_within(&mut self, limit: u64) -> Result<(), String> {
        if self.is_shell() || self.is_script() {
            return self.ready_within(limit).map(drop);
        }
        let end = monotonic_nanoseconds().saturating_add(limit);
        loop {
            let Some(packet) = self.next_packet(end)? else {
                if monotonic_nanoseconds() < end {
                    return Err("its sandbox was paused while it began".to_owned());
                }
                return Err(format!(
                    "the interpreter did not begin within {:?}",
                    Duration::from_nanos(limit)
                ));
            };
            match Frame::parse(&packet) {
                Frame::Started => return Ok(()),
                _ => self.note_rejection(&packet),
            }
        }
    }

    /// The next packet that it sends before `end`.
    pub(super) fn next_packet(&self, end: u64) -> Result<Option<Vec<u8>>, String> {
        while self.wait_for_packet(end)? {
            match self.channel.receive() {
                Ok(packet) if !packet.is_empty() => return Ok(Some(packet)),
                // No reply to a request of the engine.
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {}
                // An interpreter that ended with unread input causes one error, before its
                // messages.
                Err(error)
                    if matches!(
                        Errno::from_io_error(&error),
                        Some(Errno::AGAIN | Errno::INTR | Errno::CONNRESET)
                    ) => {}
                _ => return Err("the interpreter has closed its channel".to_owned()),
            }
        }
        Ok(None)
    }

    /// Keeps the reason from an interpreter that cannot begin in its directory. No caller reads it
    /// once the interpreter has begun.
    fn note_rejection(&mut self, packet: &[u8]) {
        let reason = match (self.parse_message(packet), packet.split_first()) {
            (Some(ScriptMessage::Answer { bytes, .. }), _) => bytes,
            (None, Some((b'R', reason))) if !self.is_script() => reason,
            _ => return,
        };
        self.rejection = Some(String::from_utf8_lossy(reason).into_owned());
    }

    /// Whether its sandbox is paused: the interpreter is stopped, and will continue.
    fn is_paused(&self) -> bool {
        self.jail_resources.sandbox.as_ref().is_some_and(SandboxUse::is_paused)
    }

    /// Whether its channel is readable before `end`, and before its sandbox is paused.
    pub(super) fn wait_for_packet(&self, end: u64) -> Result<bool, String> {
        let check = self.jail_resources.sandbox.as_ref().map_or(u64::MAX, |_| PAUSE_CHECK_NANOSECONDS);
        loop {
            let now = monotonic_nanoseconds();
            if now >= end {
                return Ok(false);
            }
            let left = (end - now).min(check);
            let timeout =
                Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 };
            let mut fds = [
                PollFd::new(&self.channel, PollFlags::IN),
                PollFd::new(&*self.channel.interpreter, PollFlags::IN),
                PollFd::new(&*self.jail_handle.pidfd, PollFlags::IN),
            ];
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) if self.is_paused() => return Ok(false),
                Err(Errno::INTR) | Ok(0) => {}
                Err(error) => return Err(error.to_string()),
                Ok(_) if fds[0].revents().contains(PollFlags::IN) => return Ok(true),
                Ok(_) => return Err("the interpreter ended while nothing was executed in it".to_owned()),
            }
        }
    }

    /// Sends a cell that began then; when all of it must be dead.
    pub fn send_cell(
        &mut self,
        source: &str,
        begun_at: u64,
        has_stdin: bool,
        streams: &RunStreams,
        opened: &OpenedRun,
    ) -> Result<u64, Error> {
        let doing = "cannot use the context's interpreter";
        let inline = source.len() <= INLINE_SOURCE && !self.is_script();
        let file = match inline {
            true => None,
            false => {
                Some(os::sealed_file("sandtimer-cell", source.as_bytes()).map_err(Error::system(doing))?)
            }
        };
        if self.is_python() && self.unwritten.is_none() {
            self.unwritten = Some(Arc::new(UnwrittenOutput::new().map_err(Error::system(doing))?));
        }
        let [stdin, stdout, stderr] = streams.inside();
        let mut files = vec![stdout, stderr];
        files.extend(self.unwritten.as_ref().map(|memory| memory.as_fd()));
        files.extend(has_stdin.then_some(stdin));
        files.extend(file.as_ref().map(AsFd::as_fd));
        let until = hard_end(opened, &opened.effective, begun_at);
        // Before the job: were the engine stopped between the two, init would not know when to end
        // it.
        if until != u64::MAX || !self.is_endless {
            self.jail_handle.control.end_by(until).map_err(Error::system(doing))?;
        }
        self.is_endless = false;
        self.at_rest = None;
        let request = match (&mut self.shell, &self.script) {
            (Some(shell), _) => {
                shell.send(self.channel.as_fd(), self.nonce, source, streams.inside())?;
                return Ok(until);
            }
            (None, Some(nonce)) => script_request(*nonce, source.len() as u64),
            (None, None) => cell_request(self.nonce, inline.then_some(source), has_stdin),
        };
        os::dispatch(self.channel.as_fd(), &os::ProcessSetup::default(), &request, &files)
            .map_err(Error::system(doing))?;
        Ok(until)
    }

    /// Notes that a cell was sent, which the caller requested at `asked_at`.
    pub fn was_sent(&mut self, asked_at: u64) {
        self.is_burst = asked_at.saturating_sub(self.over_at) < BACK_TO_BACK_NANOSECONDS;
        self.sent_at = monotonic_nanoseconds();
    }

    /// Whether its jail may use `bytes` more of memory.
    pub fn has_room_for(&self, bytes: u64) -> bool {
        let slot = &self.jail_handle.slot;
        match slot.limits().and_then(|limits| limits.memory_bytes) {
            Some(limit) => slot.memory_now().is_some_and(|now| now.saturating_add(bytes) <= limit),
            None => true,
        }
    }

    /// Makes the displays of the next cell, which shows no more than `limit` bytes.
    pub fn next_displays(&mut self, limit: u64) -> Arc<CellDisplays> {
        match &mut self.script {
            Some(nonce) => renew(nonce),
            None => renew(&mut self.nonce),
        }
        let displays = CellDisplays::new(self.channel.clone(), self.nonce, self.script, limit);
        if self.is_shell() {
            // It displays nothing, and what earlier commands have left may write to its channel.
            displays.close();
        }
        Arc::new(displays)
    }

    /// What a job with these displays finds in the jail. Sampled before the job is sent, so that it
    /// has started nothing yet.
    pub fn live(&self, displays: Arc<CellDisplays>) -> Result<LiveJob, Error> {
        // Init, the interpreter and its checkpoints.
        let idle = match self.is_listed() {
            true => IdleContents::Processes(self.jail_handle.slot.process_ids()),
            false => IdleContents::Tasks(2 + self.checkpoints.len() as u64),
        };
        let over = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| Error::System { doing: "cannot make a descriptor", source: error.into() })?;
        Ok(LiveJob {
            checkpoint: self.checkpoints.last().copied(),
            is_inits: self.is_inits,
            over,
            before: self.at_rest.unwrap_or_else(|| SlotUsage::of(&self.jail_handle.slot)),
            displays,
            reply: Mutex::default(),
            resumed: Mutex::default(),
            was_interrupted: AtomicBool::new(false),
            idle,
            is_shell: self.is_shell(),
        })
    }

    /// The interpreter as the job of a run, which was sent to it.
    pub fn job(&self, live: LiveJob, begun_at: u64, until: u64) -> Job {
        Job {
            pid: self.channel.number().unwrap_or(0) as i32,
            pidfd: self.channel.interpreter.clone(),
            channel: self.channel.socket.clone(),
            begun_at,
            until,
            // A command need not answer: it may end the shell.
            program: self.is_shell(),
            answered: AtomicU8::new(0),
            killed: AtomicU64::new(0),
            leftovers: AtomicU64::new(0),
            live: Some(live),
            reusable_jail: Mutex::default(),
            one_of_many: None,
        }
    }

    /// Reads a whole answer. Returns `None` if it is longer than `limit`, and then sends the
    /// interpreter a refusal. Stops waiting once there is a verdict.
    pub fn read(&self, answer: &CallAnswer, limit: u64, live: &LiveJob) -> std::io::Result<Option<Vec<u8>>> {
        if answer.parts.is_empty() {
            return Ok(Some(answer.inline.clone()));
        }
        if answer.size() > limit {
            socket::send(&self.channel, b"N", &[], false)?;
            return Ok(None);
        }
        socket::send(&self.channel, &[channel::SEND], &[], false)?;
        let mut data = Vec::new();
        for part in &answer.parts {
            self.receive(part.length, &mut data, live)?;
        }
        Ok(Some(data))
    }

    /// Appends a part of an answer, which comes in packets of a length that is agreed on. Memory is
    /// taken for what has come, not for the length that the interpreter names.
    fn receive(&self, mut length: u64, data: &mut Vec<u8>, live: &LiveJob) -> std::io::Result<()> {
        while length > 0 {
            let (start, next) = (data.len(), length.min(parts::SENT_AT_A_TIME as u64));
            length -= next;
            data.resize(start + next as usize, 0);
            let chunk = &mut data[start..];
            loop {
                let mut fds =
                    [PollFd::new(&self.channel, PollFlags::IN), PollFd::new(&live.over, PollFlags::IN)];
                while matches!(poll(&mut fds, None), Err(Errno::INTR)) {}
                if !fds[1].revents().is_empty() {
                    return Err(std::io::ErrorKind::TimedOut.into());
                }
                match self.channel.receive_to(chunk) {
                    Ok(length) if length == chunk.len() => break,
                    Ok(_) => return Err(Errno::PROTO.into()),
                    // Another process sent it.
                    Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Notes that a run has ended, and that init knows.
    pub fn is_kept(&mut self) {
        self.is_endless = true;
    }

    /// Notes that a run has ended and a checkpoint is due. Requests it at once if the caller wants
    /// that (`prepare`), or if the next cell will come soon and the checkpoint can be made on
    /// another processor; `is_alone`: no other context's cell is executed.
    pub fn finish_cell(&mut self, prepare: bool, is_alone: bool) {
        self.over_at = monotonic_nanoseconds();
        self.is_due = true;
        let is_short = self.over_at.saturating_sub(self.sent_at) < SHORT_CELL_NANOSECONDS;
        let elsewhere = (self.is_burst && is_short && is_alone).then(|| self.bind_elsewhere()).flatten();
        if prepare || elsewhere.is_some() {
            self.ask_for(elsewhere);
        }
    }

    /// A checkpoint has become the interpreter.
    pub fn resumed(&mut self, running: &SharedRun) {
        let Some(live) = running.live() else { return };
        // On this thread, which has the priority of what it may have to wait for; see
        // `RunEnding::job_ended`.
        process::reap(self.channel.interpreter.as_fd());
        let process = live.resumed.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.become_checkpoint(live.checkpoint.unwrap_or(0), process);
    }

    /// A shell has ended by itself, and a checkpoint has taken its place, which is to be a new
    /// shell where the old one was.
    pub fn restart_shell(&mut self, running: &SharedRun) -> bool {
        if running
            .live()
            .is_none_or(|live| live.resumed.lock().unwrap_or_else(PoisonError::into_inner).is_none())
        {
            return false;
        }
        self.resumed(running);
        // What comes before that is not for it.
        self.ask_for_checkpoint();
        if self.ready().is_err() {
            return false;
        }
        renew(&mut self.nonce);
        self.shell.as_mut().is_some_and(|shell| shell.restore_state(&self.channel, self.nonce))
    }

    /// The next notice of this kind from init, where no run is on; others are of what has ended.
    /// None if it does not come in time.
    fn wait_for_notice(&self, kind: u32) -> Option<(Notice, Option<OwnedFd>)> {
        let mut end = monotonic_nanoseconds() + INIT_LIMIT;
        loop {
            let now = monotonic_nanoseconds();
            let left = end.saturating_sub(now).min(PAUSE_CHECK_NANOSECONDS) / 1_000_000;
            if left == 0 {
                return None;
            }
            if !process::wait_readable(self.jail_handle.control.as_fd(), left) {
                if self.is_paused() {
                    // Init is stopped, too. The wait ends after the resume, or the deletion, of the
                    // sandbox; a context has one such wait at a time.
                    end += monotonic_nanoseconds() - now;
                }
                continue;
            }
            match process::notice(&*self.jail_handle.control) {
                Ok(Some((notice, fd))) if notice.kind == kind => return Some((notice, fd)),
                Ok(Some(_)) => {}
                _ => return None,
            }
        }
    }
}

/// Draws it again.
pub(super) fn renew(nonce: &mut [u8]) {
    // The kernel's generator does not fail for so few bytes once the machine is up.
    let _ = rustix::rand::getrandom(nonce, rustix::rand::GetRandomFlags::empty());
}

impl Drop for LiveInterpreter {
    fn drop(&mut self) {
        if self.inner.is_a_copy() {
            // It is another process's.
            std::mem::forget(self.inner.clone());
            return;
        }
        let jail_handle = &self.jail_handle;
        if !jail_handle.slot.kill_all() {
            // Gone already is as good.
            let _ = process::kill(jail_handle.pidfd.as_fd());
        }
        if self.jail_resources.sandbox.is_some() {
            // It may be paused, and the next one in the slot is not.
            jail_handle.slot.freeze(false);
        }
        // Init's end waits for it to be reaped, and that is for its parent to do.
        process::wait_readable(self.channel.interpreter.as_fd(), 1000);
        process::reap(self.channel.interpreter.as_fd());
        process::wait_readable(jail_handle.pidfd.as_fd(), 1000);
        process::reap(jail_handle.pidfd.as_fd());
        let limits = jail_handle.slot.limits();
        self.inner.pool.give_back(jail_handle.slot.index, limits);
    }
}
