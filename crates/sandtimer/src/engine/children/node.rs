//! Interpreters that are started, not forked: Node.js, which has threads before it runs a line.
//!
//! ```text
//! init ─▶ its child sealed ─▶ node ─▶ add-on loaded, paths walked once ─▶ (its pre-warm script) ─▶ READY: from here on as a zygote's child
//! ```

use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use sandtimer_os::launcher::SpawnedProcess;
use sandtimer_os::wire::{channel, notice};
use sandtimer_os::zygote as os;
use sandtimer_os::{probe, process, socket};

use super::super::error::Error;
use super::super::memory_file::MemoryFile;
use super::super::named_directories::NamedDirectories;
use super::super::opened;
use super::super::spawn::{self, Descriptors, Jail, PreparedJail};
use super::super::start::{self, HeldSlot, PlanContext};
use super::super::zygotes::NotServing;
use super::super::{Inner, Spec, zygotes};
use super::{Child, ChildProcess};
use crate::context::{NODE_BOOT, node_program};
use crate::isolate::files::FilesError;
use crate::isolate::plan::{self, InitClock, Plan};
use crate::limits::EffectiveLimits;
use crate::model::Path;
use crate::zygote::{Prewarm, Profile};

/// Of what an interpreter that does not begin has written.
const MAX_STDERR_BYTES: usize = 2000;
/// Of why a pre-warm script has failed.
const MAX_MESSAGE_BYTES: usize = 16 << 10;

/// What an interpreter of this profile is started as.
fn spec_of(profile: &Profile, directories: &NamedDirectories) -> Spec {
    let mut spec = Spec::command([&profile.interpreter]);
    // The jail's limit bounds the memory; node's own default would be a limit that no scope chose.
    let most = probe::total_memory_bytes() >> 20;
    spec.command
        .extend([format!("--max-old-space-size={most}"), "-e".into(), NODE_BOOT.into()].map(Into::into));
    spec.private_workspace = true;
    spec.network = profile.network;
    spec.is_live = true;
    spec.owner = profile.owner.clone();
    spec.is_pooled = true;
    directories.of(spec)
}

/// The engine's ends of an interpreter that is being started.
struct StartedInterpreter {
    spawned: SpawnedProcess,
    prepared: PreparedJail,
    control: OwnedFd,
    channel: OwnedFd,
    stderr_file: OwnedFd,
}

impl Child {
    /// Starts one, and waits until it is ready or `stop` is readable.
    pub fn start(
        inner: &Arc<Inner>,
        profile: &Profile,
        directories: &NamedDirectories,
        stop: BorrowedFd<'_>,
    ) -> Result<Self, NotServing> {
        let spec = spec_of(profile, directories);
        let opened = opened::open(inner, &spec)?;
        opened::close(inner, opened.scope);
        let mut held = HeldSlot::take(inner, &spec, "cannot make the interpreter's control groups")?;
        let slot_index = held.slot.index;
        let begun = begin(inner, profile, &spec, &opened.effective, &mut held);
        let StartedInterpreter { spawned, prepared, control, channel, stderr_file } = begun
            .inspect_err(|_| inner.pool.give_back(slot_index, None))
            .map_err(|error| missing(profile, error))?;
        let jail = prepared.started(held.slot, control, spawned.pidfd, Path::Parked).show(inner);
        let mut child = Child::without_process(inner, jail);
        child.meet_node(channel, stderr_file, profile.prewarm.as_ref(), stop)?;
        Ok(child)
    }

    /// Waits until the interpreter is ready, and receives its PID.
    fn meet_node(
        &mut self,
        channel: OwnedFd,
        stderr_file: OwnedFd,
        prewarm: Option<&Prewarm>,
        stop: BorrowedFd<'_>,
    ) -> Result<(), NotServing> {
        let Some(jail) = self.jail.as_mut() else { return Ok(()) };
        let refused = |reason: &str| Err(Error::Interpreter(reason.to_owned()).into());
        let limit = self.inner.spawn_limit();
        let most = zygotes::milliseconds(limit);
        let doing = "cannot receive from the interpreter";
        let mut message = receive_message(&channel, limit, stop)?.ok_or(Error::SpawnLimit(limit))?;
        if let Some(prewarm) = prewarm.filter(|_| message.starts_with(b"P")) {
            let late =
                || NotServing::Prewarm(format!("it did not end within its limit of {:?}", prewarm.limit));
            message = receive_message(&channel, prewarm.limit, stop)?.ok_or_else(late)?;
            match message.split_first() {
                Some((b'W', reason)) => {
                    return Err(NotServing::Prewarm(String::from_utf8_lossy(reason).into_owned()));
                }
                None => {
                    return Err(NotServing::Prewarm(format!(
                        "it ended its interpreter; {}",
                        describe_stderr(stderr_file)
                    )));
                }
                Some(_) => {}
            }
        }
        if message.first() != Some(&channel::READY) {
            return refused(&why_not_ready(jail, stderr_file));
        }
        os::stand(jail.control.as_fd()).map_err(Error::system(doing))?;
        let process = loop {
            if !zygotes::wait_unless(Some(stop), jail.control.as_fd(), most)? {
                return Err(Error::SpawnLimit(limit).into());
            }
            match process::notice(&jail.control).map_err(Error::system(doing))? {
                Some((notice, Some(pidfd))) if notice.kind == notice::INTERPRETER => {
                    break SpawnedProcess { pid: notice.a as i32, pidfd };
                }
                Some((notice, Some(file))) if notice.kind == notice::MEMORY_FILE => {
                    jail.memory_file = Some(Arc::new(MemoryFile::new(file)));
                }
                Some((_, namespace @ Some(_))) => jail.namespace = jail.namespace.take().or(namespace),
                Some(_) => {}
                None => return refused(&why_not_ready(jail, stderr_file)),
            }
        };
        let copy = stderr_file.try_clone().map_err(Error::system("cannot copy a descriptor"))?;
        self.born = Some(ChildProcess {
            process,
            number: None,
            channel,
            outputs: [stderr_file, copy],
            unwritten: None,
        });
        // What making it ready cost is not on the job's bill.
        jail.slot.start_counting();
        Ok(())
    }
}

/// The operator's script as its interpreter is sent it.
#[cfg(feature = "javascript")]
fn cell(source: &str) -> String {
    crate::script::cell(source, false)
}

/// Interpreters of this language are refused before they are started.
#[cfg(not(feature = "javascript"))]
fn cell(source: &str) -> String {
    format!("x{source}")
}

/// Receives its message within that time; `None` at its end.
fn receive_message(
    channel: &OwnedFd,
    limit: Duration,
    stop: BorrowedFd<'_>,
) -> Result<Option<Vec<u8>>, Error> {
    if !zygotes::wait_unless(Some(stop), channel.as_fd(), zygotes::milliseconds(limit))? {
        return Ok(None);
    }
    let mut packet = vec![0; MAX_MESSAGE_BYTES];
    let length = os::packet(channel.as_fd(), &mut packet, true)
        .map_err(Error::system("cannot receive from the interpreter"))?;
    packet.truncate(length);
    Ok(Some(packet))
}

/// The error of an interpreter that is not there, with what is to be done about it.
fn missing(profile: &Profile, error: Error) -> Error {
    match error {
        Error::Files(error @ (FilesError::Missing { .. } | FilesError::NotExecutable { .. })) => {
            let name = profile.interpreter.display();
            let remedy =
                "install Node.js 20 or newer (Debian and Ubuntu: `apt install nodejs`) where PATH finds it";
            Error::Interpreter(format!("`{name}` cannot be used for JavaScript: {error}; {remedy}"))
        }
        other => other,
    }
}

/// The messages of init and the interpreter about a failed start.
fn why_not_ready(jail: &Jail, stderr_file: OwnedFd) -> String {
    while process::wait_readable(jail.control.as_fd(), 0)
        && let Ok(Some((notice, _))) = process::notice(&jail.control)
    {
        let error = |number: u64| std::io::Error::from_raw_os_error(number as i32);
        if notice.kind == notice::STEP_FAILED && notice.c == 1 {
            return format!("could not be started (step {}): {}", notice.a, error(notice.b));
        }
        if notice.kind == notice::EXECUTE_FAILED {
            return format!("could not be executed: {}", error(notice.a));
        }
    }
    format!(
        "ended before it was ready, so it is not a Node.js that can be used here (20 or newer is); {}",
        describe_stderr(stderr_file)
    )
}

fn describe_stderr(stderr_file: OwnedFd) -> String {
    let (mut stderr_file, mut text) = (File::from(stderr_file), Vec::new());
    // A file in memory: reading it back does not fail; without it the last output is missing.
    let _ = stderr_file.rewind().and_then(|()| stderr_file.read_to_end(&mut text));
    let text =
        String::from_utf8_lossy(&text[text.len().saturating_sub(MAX_STDERR_BYTES)..]).trim().to_owned();
    if text.is_empty() { "it printed nothing".to_owned() } else { format!("it printed: {text}") }
}

fn begin(
    inner: &Inner,
    profile: &Profile,
    spec: &Spec,
    effective: &EffectiveLimits,
    held: &mut HeldSlot,
) -> Result<StartedInterpreter, Error> {
    let pair = || socket::pair().map_err(Error::system("cannot make a socket"));
    let (control, their_control) = pair()?;
    let (channel, their_channel) = pair()?;
    let _ = os::refuse_descriptors(channel.as_fd());
    let library = os::node_library().map_err(Error::system("cannot write the interpreter's library"))?;
    let prewarm = profile.prewarm.as_ref().map(|prewarm| cell(&prewarm.source));
    let program = os::sealed_file("sandtimer-node", node_program(prewarm.as_deref()).as_bytes())
        .map_err(Error::system("cannot write the interpreter's program"))?;
    let stderr_file = memfd_create("sandtimer-words", MemfdFlags::CLOEXEC)
        .map_err(|error| Error::System { doing: "cannot make a file", source: error.into() })?;
    let clock = InitClock { wall: u64::MAX, grace: 0 };
    let finish = |plan: &mut Plan, context: &PlanContext<'_>| {
        plan::seal(plan, context.host, context.policy, context.tasks, clock);
        let environment = start::environment(spec, context.policy.files, None);
        start::push_interpreter(plan, context, &spec.command, &environment, 3);
    };
    let (prepared, ()) = start::prepare_to(inner, spec, effective, held, finish)?;
    if !inner.host()?.has_namespaces() {
        return Err(Error::Interpreter("needs namespaces, which this host does not give".to_owned()));
    }
    let null = spawn::null()?;
    let descriptors = Descriptors {
        slot: &held.slot,
        stdio: [null.as_fd(), stderr_file.as_fd(), stderr_file.as_fd()],
        control: their_control.as_fd(),
        given: &[their_channel.as_fd(), library.as_fd(), program.as_fd()],
    };
    let spawned = spawn::spawn(inner, spec, &prepared, &descriptors)?;
    Ok(StartedInterpreter { spawned, prepared, control, channel, stderr_file })
}
