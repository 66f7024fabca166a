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
use sandtimer_os::launcher::Spawned;
use sandtimer_os::wire::{channel, notice};
use sandtimer_os::zygote as os;
use sandtimer_os::{probe, process, socket};

use super::super::error::Error;
use super::super::opened;
use super::super::start::{self, Context, Descriptors, MemoryFile, Prepared, Sandbox};
use super::super::workspace::NamedDirectories;
use super::super::zygotes::NotServing;
use super::super::{Inner, Spec, park, zygotes};
use super::{Born, Child};
use crate::context::{NODE_BOOT, node_program};
use crate::isolate::cgroup::Slot;
use crate::isolate::files::FilesError;
use crate::isolate::plan::{self, InitClock, Plan};
use crate::limits::Effective;
use crate::model::Path;
use crate::zygote::{Prewarm, Profile};

/// Of what an interpreter that does not begin has written.
const LAST_WORDS: usize = 2000;
/// Of why a pre-warm script has failed.
const LONGEST_WORD: usize = 16 << 10;

/// What an interpreter of this profile is started as.
fn spec_of(profile: &Profile, directories: &NamedDirectories) -> Spec {
    let mut spec = Spec::command([&profile.interpreter]);
    // What bounds its memory is the sandbox's limit; its own guess would be one that nobody chose.
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
struct Begun {
    spawned: Spawned,
    prepared: Prepared,
    control: OwnedFd,
    channel: OwnedFd,
    words: OwnedFd,
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
        let slot =
            inner.pool.take().map_err(Error::system("cannot make the interpreter's control groups"))?;
        let mut slot = slot.ok_or(Error::Full(super::super::CAPACITY))?;
        let row = slot.row;
        let begun = begin(inner, profile, &spec, &opened.effective, &mut slot);
        let Begun { spawned, prepared, control, channel, words } = begun
            .inspect_err(|_| inner.pool.give_back(row, None))
            .map_err(|error| missing(profile, error))?;
        let sandbox = prepared.started(slot, control, spawned.pidfd, Path::Parked).show(inner);
        let mut child = Child::without_process(inner, sandbox);
        child.meet_node(channel, words, profile.prewarm.as_ref(), stop)?;
        Ok(child)
    }

    /// Waits until it is ready, and hears which process it is.
    fn meet_node(
        &mut self,
        channel: OwnedFd,
        words: OwnedFd,
        prewarm: Option<&Prewarm>,
        stop: BorrowedFd<'_>,
    ) -> Result<(), NotServing> {
        let Some(sandbox) = self.sandbox.as_mut() else { return Ok(()) };
        let refused = |reason: &str| Err(Error::Interpreter(reason.to_owned()).into());
        let limit = self.inner.spawn_limit();
        let most = zygotes::milliseconds(limit);
        let doing = "cannot receive from the interpreter";
        let mut said = hear(&channel, limit, stop)?.ok_or(Error::SpawnLimit(limit))?;
        if let Some(prewarm) = prewarm.filter(|_| said.starts_with(b"P")) {
            let late =
                || NotServing::Prewarm(format!("it did not end within its limit of {:?}", prewarm.limit));
            said = hear(&channel, prewarm.limit, stop)?.ok_or_else(late)?;
            match said.split_first() {
                Some((b'W', reason)) => {
                    return Err(NotServing::Prewarm(String::from_utf8_lossy(reason).into_owned()));
                }
                None => {
                    return Err(NotServing::Prewarm(format!(
                        "it ended its interpreter; {}",
                        last_words(words)
                    )));
                }
                Some(_) => {}
            }
        }
        if said.first() != Some(&channel::READY) {
            return refused(&why_not_ready(sandbox, words));
        }
        os::stand(sandbox.control.as_fd()).map_err(Error::system(doing))?;
        let process = loop {
            if !zygotes::wait_unless(Some(stop), sandbox.control.as_fd(), most)? {
                return Err(Error::SpawnLimit(limit).into());
            }
            match process::notice(&sandbox.control).map_err(Error::system(doing))? {
                Some((notice, Some(pidfd))) if notice.kind == notice::INTERPRETER => {
                    break Spawned { pid: notice.a as i32, pidfd };
                }
                Some((notice, Some(file))) if notice.kind == notice::MEMORY_FILE => {
                    sandbox.memory_file = Some(Arc::new(MemoryFile::new(file)));
                }
                Some((_, namespace @ Some(_))) => sandbox.namespace = sandbox.namespace.take().or(namespace),
                Some(_) => {}
                None => return refused(&why_not_ready(sandbox, words)),
            }
        };
        let copy = words.try_clone().map_err(Error::system("cannot copy a descriptor"))?;
        self.born = Some(Born { process, channel, outputs: [words, copy], unwritten: None });
        // What making it ready cost is not on the job's bill.
        sandbox.slot.start_counting();
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

/// What it says within that time; nothing at its end.
fn hear(channel: &OwnedFd, limit: Duration, stop: BorrowedFd<'_>) -> Result<Option<Vec<u8>>, Error> {
    if !zygotes::wait_unless(Some(stop), channel.as_fd(), zygotes::milliseconds(limit))? {
        return Ok(None);
    }
    let mut packet = vec![0; LONGEST_WORD];
    let length = os::packet(channel.as_fd(), &mut packet, true)
        .map_err(Error::system("cannot receive from the interpreter"))?;
    packet.truncate(length);
    Ok(Some(packet))
}

/// The error of an interpreter that is not there, with what is to be done about it.
fn missing(profile: &Profile, error: Error) -> Error {
    match error {
        Error::Files(error @ (FilesError::NotFound { .. } | FilesError::NotExecutable { .. })) => {
            let name = profile.interpreter.display();
            let remedy =
                "install Node.js 20 or newer (Debian and Ubuntu: `apt install nodejs`) where PATH finds it";
            Error::Interpreter(format!("`{name}` cannot be used for JavaScript: {error}; {remedy}"))
        }
        other => other,
    }
}

/// What init and the interpreter have said of a start that failed.
fn why_not_ready(sandbox: &Sandbox, words: OwnedFd) -> String {
    while process::wait_readable(sandbox.control.as_fd(), 0)
        && let Ok(Some((notice, _))) = process::notice(&sandbox.control)
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
        last_words(words)
    )
}

fn last_words(words: OwnedFd) -> String {
    let (mut words, mut text) = (File::from(words), Vec::new());
    // A file in memory: reading it back does not fail; without it there are no last words.
    let _ = words.rewind().and_then(|()| words.read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text[text.len().saturating_sub(LAST_WORDS)..]).trim().to_owned();
    if text.is_empty() { "it printed nothing".to_owned() } else { format!("it printed: {text}") }
}

fn begin(
    inner: &Inner,
    profile: &Profile,
    spec: &Spec,
    effective: &Effective,
    slot: &mut Slot,
) -> Result<Begun, Error> {
    let pair = || socket::pair().map_err(Error::system("cannot make a socket"));
    let (control, their_control) = pair()?;
    let (channel, their_channel) = pair()?;
    let _ = os::refuse_descriptors(channel.as_fd());
    let library = os::node_library().map_err(Error::system("cannot write the interpreter's library"))?;
    let prewarm = profile.prewarm.as_ref().map(|prewarm| cell(&prewarm.source));
    let program = os::sealed_text("sandtimer-node", node_program(prewarm.as_deref()).as_bytes())
        .map_err(Error::system("cannot write the interpreter's program"))?;
    let words = memfd_create("sandtimer-words", MemfdFlags::CLOEXEC)
        .map_err(|error| Error::System { doing: "cannot make a file", source: error.into() })?;
    let clock = InitClock { wall: u64::MAX, grace: 0 };
    let finish = |plan: &mut Plan, context: &Context<'_>| {
        plan::seal(plan, context.host, context.policy, context.tasks, clock);
        let environment = start::environment(spec, context.policy.files, None);
        start::push_interpreter(plan, context, spec, (&environment, 3));
    };
    let (prepared, ()) = start::prepare_to(inner, spec, effective, slot, finish)?;
    if !inner.host()?.has_namespaces() {
        return Err(Error::Interpreter("needs namespaces, which this host does not give".to_owned()));
    }
    let null = park::null()?;
    let descriptors = Descriptors {
        slot,
        stdio: [null.as_fd(), words.as_fd(), words.as_fd()],
        control: their_control.as_fd(),
        given: &[their_channel.as_fd(), library.as_fd(), program.as_fd()],
    };
    let spawned = start::spawn(inner, spec, &prepared, &descriptors)?;
    Ok(Begun { spawned, prepared, control, channel, words })
}
