//! A zygote process: started through the launcher, in a slot of its own, asked for children one at
//! a time.
//!
//! It is not a run: no limit of time ends it, and its memory is bounded by its slot. It dies with
//! the engine (death signal of the starting thread, end of its socket, sweep of its group), and
//! with its owner here.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use sandtimer_os::process;
use sandtimer_os::socket;
use sandtimer_os::wire::notice;
use sandtimer_os::zygote as os;

use super::error::Error;
use super::opened;
use super::spawn::{self, Descriptors};
use super::start::{self, HeldSlot, PlanContext};
use super::{Inner, Spec};
use crate::isolate::cgroup::Slot;
use crate::isolate::filter::inherited_filter;
use crate::isolate::plan::{self, Plan};
use crate::zygote::{BOOT, Prewarm, Profile};

/// Bytes of what an interpreter that failed wrote to stderr that are repeated.
const MAX_STDERR_BYTES: usize = 2000;
/// Environment that keeps numeric libraries from starting threads: a process with threads cannot be
/// forked safely. Arrow, which pandas imports, has an allocator that starts one.
const ONE_THREAD: [(&str, &str); 7] = [
    ("OMP_NUM_THREADS", "1"),
    ("OPENBLAS_NUM_THREADS", "1"),
    ("MKL_NUM_THREADS", "1"),
    ("BLIS_NUM_THREADS", "1"),
    ("VECLIB_MAXIMUM_THREADS", "1"),
    ("NUMEXPR_NUM_THREADS", "1"),
    ("JE_ARROW_MALLOC_CONF", "background_thread:false"),
];
/// Has the loader find all functions at the start (ld.so(8)): what a zygote has not called yet each
/// of its children would look for. The zygote's program takes it out of the environment.
const BIND_NOW: &str = "LD_BIND_NOW";

/// Why a zygote does not serve.
#[derive(Debug)]
pub(super) enum NotServing {
    Error(Error),
    /// What its pre-warm script did; without it, it may.
    Prewarm(String),
}

impl From<Error> for NotServing {
    fn from(error: Error) -> Self {
        NotServing::Error(error)
    }
}

impl From<NotServing> for Error {
    fn from(why: NotServing) -> Self {
        match why {
            NotServing::Error(error) => error,
            NotServing::Prewarm(reason) => Error::Interpreter(reason),
        }
    }
}

/// For waits that count in them. At least one.
pub(super) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX).max(1)
}

/// A serving zygote. Dropping it ends it; its children continue.
#[derive(Debug)]
pub(super) struct Zygote {
    inner: Arc<Inner>,
    slot: Option<Slot>,
    pidfd: OwnedFd,
    request_socket: OwnedFd,
    /// Held open: once it closes, a zygote that is still starting ends, since no thread waits for
    /// it.
    _control: OwnedFd,
    /// Held by the thread that requests a child, until the answer; true once an answer did not
    /// come.
    pub turn: Mutex<bool>,
    /// The interpreter's version.
    pub version: String,
}

/// What a job of this profile is planned by.
pub(super) fn spec_of(profile: &Profile) -> Spec {
    let mut spec = Spec::command([&profile.interpreter]);
    spec.read_only = profile.paths.iter().flatten().map(Into::into).collect();
    spec.follows_package_links = true;
    spec.world_readable = profile.shown.iter().map(Into::into).collect();
    spec.private_workspace = true;
    spec.network = profile.network;
    spec.gpu = profile.gpu;
    spec.supervised = profile.live && !profile.unsupervised;
    spec.is_live = profile.live;
    spec.owner = profile.owner.clone();
    spec.is_pooled = true;
    // Functions are called for their values, and in no time.
    spec.without_ptys = !profile.live && !profile.programs;
    for (name, value) in ONE_THREAD {
        spec = spec.env(name, value);
    }
    spec
}

impl Zygote {
    /// Starts one and waits until it serves, or until `stop` is readable.
    pub fn start(
        inner: &Arc<Inner>,
        profile: &Profile,
        stop: Option<BorrowedFd<'_>>,
    ) -> Result<Self, NotServing> {
        let mut spec = spec_of(profile);
        spec.host_proc = true;
        spec.command.extend(["-I", "-B", "-u", "-c", BOOT].map(Into::into));
        let opened = opened::open(inner, &spec)?;
        opened::close(inner, opened.scope);
        let mut held = HeldSlot::take(inner, &spec, "cannot make the zygote's control groups")?;
        let slot_index = held.slot.index;
        let started = begin(inner, profile, &spec, &opened.effective, &mut held);
        let (pidfd, request_socket, control, stderr_file) =
            started.inspect_err(|_| inner.pool.give_back(slot_index, None))?;
        let mut zygote = Zygote {
            inner: inner.clone(),
            slot: Some(held.slot),
            pidfd,
            request_socket,
            _control: control,
            turn: Mutex::default(),
            version: String::new(),
        };
        zygote.version = zygote.wait(stderr_file, profile.prewarm.as_ref(), stop)?;
        Ok(zygote)
    }

    /// Waits for its message that it serves, or for the reason why it does not.
    fn wait(
        &self,
        stderr_file: OwnedFd,
        prewarm: Option<&Prewarm>,
        stop: Option<BorrowedFd<'_>>,
    ) -> Result<String, NotServing> {
        let refused = |reason: String| Err(Error::Interpreter(reason).into());
        let limit = self.inner.spawn_limit();
        let mut message = self.receive_message(limit, stop)?.ok_or(Error::SpawnLimit(limit))?;
        let prewarm = prewarm.filter(|_| message.starts_with('P'));
        if let Some(prewarm) = prewarm {
            let late =
                || NotServing::Prewarm(format!("it did not end within its limit of {:?}", prewarm.limit));
            message = self.receive_message(prewarm.limit, stop)?.ok_or_else(late)?;
        }
        match message.chars().next() {
            Some('R') => Ok(message[1..].to_owned()),
            Some('W') => Err(NotServing::Prewarm(message[1..].to_owned())),
            Some('E') => refused(message[1..].to_owned()),
            _ if prewarm.is_some() => {
                Err(NotServing::Prewarm(self.describe_end(stderr_file, "and its interpreter with it")))
            }
            _ => refused(self.describe_end(stderr_file, "so it is not a Python that can be used here")),
        }
    }

    /// Receives its message within that time; `None` at its end.
    fn receive_message(
        &self,
        limit: Duration,
        stop: Option<BorrowedFd<'_>>,
    ) -> Result<Option<String>, Error> {
        if !wait_unless(stop, self.request_socket.as_fd(), milliseconds(limit))? {
            return Ok(None);
        }
        let mut packet = vec![0u8; 32 << 10];
        let length = os::packet(self.request_socket.as_fd(), &mut packet, true)
            .map_err(Error::system("cannot receive from the interpreter"))?;
        Ok(Some(String::from_utf8_lossy(&packet[..length.min(packet.len())]).into_owned()))
    }

    fn describe_end(&self, stderr_file: OwnedFd, so: &str) -> String {
        if let Ok(Some((notice, _))) = process::notice(&self._control)
            && notice.kind == notice::STEP_FAILED
        {
            let error = std::io::Error::from_raw_os_error(notice.b as i32);
            return format!("could not be started (step {}): {error}", notice.a);
        }
        process::wait_readable(self.pidfd.as_fd(), 1000);
        let end = process::end_of(self.pidfd.as_fd()).map_or(0, |end| end.status);
        let ended = match end & 0x7f {
            0 => format!("exit code {}", end >> 8 & 0xff),
            signal => crate::supervise::sentence::signal_name(signal),
        };
        let mut stderr_file = File::from(stderr_file);
        let mut text = Vec::new();
        // A file in memory: reading it back does not fail; without it the last output is missing.
        let _ = stderr_file.rewind().and_then(|()| stderr_file.read_to_end(&mut text));
        let text =
            String::from_utf8_lossy(&text[text.len().saturating_sub(MAX_STDERR_BYTES)..]).trim().to_owned();
        let message =
            if text.is_empty() { "it printed nothing".to_owned() } else { format!("it printed: {text}") };
        format!("ended before it was ready ({ended}), {so}; {message}")
    }

    /// Where children are asked for.
    pub fn request_socket(&self) -> BorrowedFd<'_> {
        self.request_socket.as_fd()
    }

    pub fn is_dead(&self) -> bool {
        process::is_dead(self.pidfd.as_fd())
    }
}

/// Whether a descriptor is readable within that time.
///
/// # Errors
/// `Closed` when `stop` is readable: the pool no longer wants the child.
pub(super) fn wait_unless(
    stop: Option<BorrowedFd<'_>>,
    fd: BorrowedFd<'_>,
    milliseconds: u64,
) -> Result<bool, Error> {
    let Some(stop) = stop else { return Ok(process::wait_readable(fd, milliseconds)) };
    let readable = process::wait_readable_unless(fd, stop, milliseconds);
    if !readable && process::wait_readable(stop, 0) {
        return Err(Error::Closed);
    }
    Ok(readable)
}

type ZygoteParts = (OwnedFd, OwnedFd, OwnedFd, OwnedFd);

/// Starts the process; its pidfd, its sockets and what it writes to stderr.
fn begin(
    inner: &Inner,
    profile: &Profile,
    spec: &Spec,
    effective: &crate::limits::EffectiveLimits,
    held: &mut HeldSlot,
) -> Result<ZygoteParts, Error> {
    let library = os::python_library().map_err(Error::system("cannot write the zygote's library"))?;
    let pair = || socket::pair().map_err(Error::system("cannot make a socket"));
    let (request_socket, their_request_socket) = pair()?;
    let (control, their_control) = pair()?;
    let stderr_file = memfd_create("sandtimer-words", MemfdFlags::CLOEXEC)
        .map_err(|error| Error::System { doing: "cannot make a file", source: error.into() })?;
    let finish = |plan: &mut Plan, context: &PlanContext<'_>| {
        let first = (context.tasks + plan.idmapped.len()) as u64;
        let descriptors = [first, first + 1, first + 2];
        let files = context.policy.files;
        let executable = files.executable.as_ref()?;
        let mut environment = start::environment(spec, files, None);
        environment.push((BIND_NOW.into(), "1".into()));
        let filter = inherited_filter(context.host, context.policy, plan.flags);
        plan::zygote(plan, context.policy, &spec.command, &executable.path, &environment, &descriptors);
        filter
    };
    let (prepared, filter) = start::prepare_to(inner, spec, effective, held, finish)?;
    if !inner.host()?.has_namespaces() {
        return Err(Error::Interpreter("zygotes need namespaces, which this host does not give".to_owned()));
    }
    if !sandtimer_os::probe::has_clone3() {
        return Err(Error::Interpreter(
            "zygotes need clone3(2), which a filter of this host refuses".to_owned(),
        ));
    }
    let program = os::sealed_file("sandtimer-child", profile.program(filter).as_bytes())
        .map_err(Error::system("cannot write the zygote's program"))?;
    let given = [program.as_fd(), library, their_request_socket.as_fd()];
    let null = spawn::null()?;
    let descriptors = Descriptors {
        slot: &held.slot,
        stdio: [null.as_fd(), stderr_file.as_fd(), stderr_file.as_fd()],
        control: their_control.as_fd(),
        given: &given,
    };
    let spawned =
        spawn::spawn_by(inner, spec, &prepared, &descriptors, |launcher, request| launcher.zygote(request))?;
    Ok((spawned.pidfd, request_socket, control, stderr_file))
}

impl Drop for Zygote {
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else { return };
        if self.inner.is_a_copy() {
            // It is another process's.
            std::mem::forget((slot, self.inner.clone()));
            return;
        }
        let slot_index = slot.index;
        if !slot.kill_all() {
            // Gone already is as good.
            let _ = process::kill(self.pidfd.as_fd());
        }
        process::wait_readable(self.pidfd.as_fd(), 1000);
        process::reap(self.pidfd.as_fd());
        let limits = slot.limits();
        drop(slot);
        self.inner.pool.give_back(slot_index, limits);
    }
}
