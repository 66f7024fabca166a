//! A session's shell: an unmodified bash that reads its script line by line from the engine, on its
//! stdin.
//!
//! ```text
//! engine ── packet: the command's streams and text ─▶ library in bash (helper/shell.rs)
//!        ── script: take it, execute it, say how it ended ─▶ bash, at its top level
//! ```
//! Commands are executed where no loop or function of ours is around them, so `break`, `declare`,
//! `return` and options mean what they mean in a script. Each has streams of its own: what earlier
//! ones left running writes to theirs.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};
use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::process;
use sandtimer_os::socket;
use sandtimer_os::wire::{Notice, notice, shell};
use sandtimer_os::zygote::{self as os, ChildMessage};

use super::super::children::InterpreterParts;
use super::super::error::Error;
use super::super::jail::JailHandle;
use super::super::opened::{self, MIN_DISK_BYTES};
use super::super::spawn::{self, Descriptors};
use super::super::start::{self, HeldSlot, PlanContext as Planned};
use super::super::{Inner, Spec};
use super::interpreter::LiveInterpreter;
use super::shell_handle::{ShellHandle, state_at_exit};
use super::spec::ContextSpec;
use crate::isolate::plan::{self, InitClock, Plan};
use crate::limits::{EffectiveLimits, Key, check_at_least};
use crate::model::{LimitKind, Path};
use crate::supervise::proc_files::number_of;

/// What no shell works under: it makes processes to begin with, and each command's streams have the
/// numbers from [`shell::FIRST`] on.
const MIN_LIMITS: [(LimitKind, u64); 3] =
    [(LimitKind::Processes, 2), (LimitKind::OpenFiles, 256), (LimitKind::Disk, MIN_DISK_BYTES)];

/// What a shell does before its first command, after [`state_at_exit`].
const BEGIN: &str = r#"\unset LD_PRELOAD
\shopt -s expand_aliases
__sandtimer_options=$(\shopt -p; \set +o)
__sandtimer_status=0
"#;

/// How long init may take to report why a shell has ended.
const LAST_NOTICE_MILLISECONDS: u64 = 2_000;
/// What SHELL names in a sandbox, where it is found along PATH.
const SHELL_IN_SANDBOX: &str = "/bin/bash";

impl LiveInterpreter {
    /// Starts a shell, and waits until it is there.
    pub fn shell(inner: &Arc<Inner>, spec: &ContextSpec) -> Result<Self, Error> {
        let mut run = Spec::command(["bash", "--norc", "--noprofile", "-s"]);
        run.sandbox = spec.sandbox.clone();
        run.private_workspace = run.sandbox.is_none();
        run.workspace = spec.workspace.clone();
        run.temporary = spec.temporary.clone();
        run.supervised = true;
        run.is_live = true;
        run.network = spec.network;
        run.limits = spec.limits.clone();
        run.defaults = spec.defaults.clone();
        run.parent = spec.parent;
        run.owner = spec.owner.clone();
        run.require = spec.require;
        for (name, value) in &spec.environment {
            run = run.env(name, value);
        }
        run = run.env("LD_PRELOAD", "/proc/self/fd/4");
        let opened = opened::open(inner, &run)?;
        opened::close(inner, opened.scope);
        for (kind, least) in MIN_LIMITS {
            check_at_least(&opened.effective, Key::Kind(kind), least)?;
        }
        let mut held = HeldSlot::take(inner, &run, "cannot make the session's control groups")?;
        let slot_index = held.slot.index;
        let built = build(inner, &run, &opened.effective, &mut held);
        let (spawned, prepared, control, channel, script) =
            built.inspect_err(|_| inner.pool.give_back(slot_index, None))?;
        // Until the shell's pidfd is known, init's stands in for it: it is what would be ended.
        let pidfd = match spawned.pidfd.try_clone() {
            Ok(pidfd) => pidfd,
            Err(error) => {
                drop(control);
                spawn::abandon(&held.slot, spawned.pidfd.as_fd());
                inner.pool.give_back(slot_index, None);
                return Err(Error::system("cannot copy a descriptor")(error));
            }
        };
        let jail = prepared.started(held.slot, control, spawned.pidfd, Path::Exec).show(inner);
        let (jail_handle, jail_resources) = JailHandle::of(jail);
        let number = number_of(pidfd.as_fd());
        let process = sandtimer_os::launcher::SpawnedProcess { pid: 0, pidfd };
        let shell = ShellHandle { script, exit_state: None };
        let parts = InterpreterParts {
            jail_handle,
            jail_resources,
            process,
            number,
            channel,
            own_workspace: None,
            zygote: None,
        };
        let mut interpreter = LiveInterpreter::new(inner.clone(), parts, Some(shell));
        interpreter.meet_shell(spec)?;
        Ok(interpreter)
    }

    /// Has init supervise the shell, and receives the shell's PID.
    fn meet_shell(&mut self, spec: &ContextSpec) -> Result<(), Error> {
        let doing = "cannot start the session's shell";
        let failed = |reason: String| Error::System { doing, source: std::io::Error::other(reason) };
        let limit = self.spawn_limit();
        let end = monotonic_nanoseconds().saturating_add(crate::limits::nanoseconds(limit));
        let left = || end.saturating_sub(monotonic_nanoseconds()).div_ceil(1_000_000);
        if !process::wait_readable(self.channel(), left()) {
            return Err(Error::SpawnLimit(limit));
        }
        match os::receive_message(self.channel()).map_err(Error::system(doing))? {
            Some(ChildMessage::Listener(listener)) => {
                os::supervise(self.jail_handle.control.as_fd(), listener.as_fd(), true)
                    .map_err(|error| self.why_ended(doing, error))?;
            }
            _ => return Err(failed(self.why_not_started())),
        }
        let _ = os::refuse_descriptors(self.channel());
        // After the listener, and before the shell has read anything that could make it send.
        os::name_senders(self.channel()).map_err(|error| self.why_ended(doing, error))?;
        loop {
            if !process::wait_readable(self.jail_handle.control.as_fd(), left()) {
                return Err(Error::SpawnLimit(limit));
            }
            match process::notice(&*self.jail_handle.control).map_err(Error::system(doing))? {
                Some((notice, Some(process))) if notice.kind == notice::INTERPRETER => {
                    self.is_process(process);
                    break;
                }
                Some((notice, _)) => {
                    if let Some(reason) = execute_failure(&notice) {
                        return Err(failed(reason));
                    }
                }
                None => return Err(failed("its sandbox ended".to_owned())),
            }
        }
        if let Some(shell) = &self.shell {
            let directory = spec.directory.as_ref().map_or_else(String::new, |directory| {
                let quoted = format!("'{}'", directory.replace('\'', "'\\''"));
                format!("\\mkdir -p -- {quoted} && \\builtin cd -- {quoted} || \\builtin exit\n")
            });
            shell
                .write(&format!("{}{BEGIN}{directory}\\builtin kill -0 {}\n", state_at_exit(), shell::NEXT))
                .map_err(|error| self.why_ended(doing, error))?;
        }
        self.ask_for_checkpoint();
        Ok(())
    }

    /// The error of something that the shell or its init has not taken: why the shell was not
    /// executed, if that is the reason.
    fn why_ended(&self, doing: &'static str, source: std::io::Error) -> Error {
        let source = self.not_executed().map_or(source, std::io::Error::other);
        Error::System { doing, source }
    }

    /// Why a shell that has ended was not executed, if that is the reason.
    pub(super) fn not_executed(&self) -> Option<String> {
        let control = &*self.jail_handle.control;
        while process::wait_readable(control.as_fd(), LAST_NOTICE_MILLISECONDS)
            && let Ok(Some((notice, _))) = process::notice(control)
        {
            if let Some(reason) = execute_failure(&notice) {
                return Some(reason);
            }
        }
        None
    }

    /// Init's report of a failed start.
    fn why_not_started(&self) -> String {
        while let Ok(Some((notice, _))) = process::notice(&*self.jail_handle.control) {
            let error = std::io::Error::from_raw_os_error(notice.b as i32);
            if notice.kind == notice::STEP_FAILED && notice.c == 1 {
                return format!("step {} of its sandbox: {error}", notice.a);
            }
        }
        "its filter could not be loaded with a listener".to_owned()
    }
}

/// Why bash was not executed, if init has sent that.
fn execute_failure(notice: &Notice) -> Option<String> {
    let error = std::io::Error::from_raw_os_error(notice.a as i32);
    (notice.kind == notice::EXECUTE_FAILED).then(|| format!("bash cannot be executed in it: {error}"))
}

type ShellParts = (sandtimer_os::launcher::SpawnedProcess, spawn::PreparedJail, OwnedFd, OwnedFd, OwnedFd);

fn build(
    inner: &Inner,
    spec: &Spec,
    effective: &EffectiveLimits,
    held: &mut HeldSlot,
) -> Result<ShellParts, Error> {
    let pair = || socket::pair().map_err(Error::system("cannot make a socket"));
    let (control, their_control) = pair()?;
    let (channel, their_channel) = pair()?;
    // Not a pipe: without root, a process that a command has left could open that by its name in
    // /proc, and write to it.
    let (script, their_script) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .and_then(|(script, theirs)| shutdown(&script, Shutdown::Read).map(|()| (script, theirs)))
            .map_err(|error| Error::System { doing: "cannot make a socket", source: error.into() })?;
    let library = os::shell_library().map_err(Error::system("cannot write the shell's library"))?;
    let clock = InitClock { wall: u64::MAX, grace: 0 };
    let finish = |plan: &mut Plan, context: &Planned<'_>| {
        plan::seal(plan, context.host, context.policy, context.tasks, clock);
        let files = context.policy.files;
        let path = match &files.executable {
            Some(executable) => executable.path.clone(),
            None => SHELL_IN_SANDBOX.into(),
        };
        let mut environment = start::environment(spec, files, None);
        let is_chosen = spec.environment.iter().any(|(name, _)| name == "SHELL");
        for (_, value) in environment.iter_mut().filter(|(name, _)| !is_chosen && name == "SHELL") {
            *value = path.clone().into_os_string();
        }
        start::push_interpreter(plan, context, &spec.command, &environment, 2);
    };
    let (prepared, ()) = start::prepare_to(inner, spec, effective, held, finish)?;
    if !inner.host()?.has_namespaces() {
        return Err(Error::Interpreter("sessions need namespaces, which this host does not give".to_owned()));
    }
    let null = spawn::null()?;
    let descriptors = Descriptors {
        slot: &held.slot,
        stdio: [their_script.as_fd(), null.as_fd(), null.as_fd()],
        control: their_control.as_fd(),
        given: &[their_channel.as_fd(), library.as_fd()],
    };
    let spawned = spawn::spawn(inner, spec, &prepared, &descriptors)?;
    Ok((spawned, prepared, control, channel, script))
}
