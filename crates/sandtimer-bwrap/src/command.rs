//! The end of the setup: it becomes the command, or the init that waits for it.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::CapabilitySet;
use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::fork::{CloneRequest, Executable, clone_process, reap_next};
use sandtimer_os::own_namespaces::add_filter;
use sandtimer_os::{descriptors, process};

use crate::capabilities;
use crate::failure::BwrapFailure;
use crate::message::{Message, kind};
use crate::options::{self, BwrapOptions};
use crate::rlimits::ProcessRlimit;

/// The command, ready to be executed.
#[derive(Debug)]
pub(crate) struct CommandExecution<'a> {
    pub options: &'a BwrapOptions,
    pub filters: Vec<Vec<u8>>,
    pub environment: Vec<(OsString, OsString)>,
    pub limits: Vec<(ProcessRlimit, u64)>,
    /// To the guard.
    pub guard: &'a OwnedFd,
}

impl CommandExecution<'_> {
    /// Becomes the command, in this process or in a child of it. Returns what this process exits
    /// with.
    pub fn begin(self) -> Result<i32, BwrapFailure> {
        if !self.options.has_init() {
            return self.execute();
        }
        let own = || self.execute().unwrap_or_else(|failure| self.report(&failure));
        let child = clone_process(CloneRequest::default(), own)
            .map_err(|error| BwrapFailure::because("Can't fork for pid 1", error))?;
        // Closed by number with all others.
        std::mem::forget(child.pidfd);
        self.serve(child.pid)
    }

    fn report(&self, failure: &BwrapFailure) -> i32 {
        self.options.messages.error(failure);
        1
    }

    /// Waits for the command as the first process of its namespace, and reaps all others. What is
    /// left when it has ended dies with this process, or is the guard's to end.
    fn serve(&self, command: i32) -> Result<i32, BwrapFailure> {
        capabilities::keep(CapabilitySet::empty())?;
        let sync = self.options.descriptors.sync;
        descriptors::close_others(
            &[Some(self.guard.as_raw_fd()), sync].into_iter().flatten().collect::<Vec<_>>(),
        );
        let _locks = self.lock_files()?;
        // Cleared by the change of capabilities.
        die_with_guard()?;
        self.filter()?;
        while let Some((pid, end)) = reap_next() {
            if pid == command {
                let values = [
                    u64::from(end.status.cast_unsigned()),
                    end.user_microseconds,
                    end.system_microseconds,
                    end.resident_peak_kib,
                ];
                // Where that is refused, the exit code has to do.
                let _ = Message::with(kind::EXITED, &values).send(self.guard, None);
                return Ok(end.exit_code());
            }
        }
        Ok(1)
    }

    fn lock_files(&self) -> Result<Vec<File>, BwrapFailure> {
        let lock = |path: &std::path::PathBuf| {
            let shown = path.display();
            let opened = File::open(path);
            let file = opened
                .map_err(|error| BwrapFailure::because(format!("Unable to open lock file {shown}"), error))?;
            descriptors::lock_for_reading(&file)
                .map_err(|error| BwrapFailure::because(format!("Unable to lock file {shown}"), error))?;
            Ok(file)
        };
        self.options.lock_files.iter().map(lock).collect()
    }

    /// Puts the command's own limits on this process. What is below them already stays.
    fn limit(&self) {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        for (which, most) in &self.limits {
            let resource = match which {
                ProcessRlimit::CpuSeconds => Resource::Cpu,
                ProcessRlimit::FileBytes => Resource::Fsize,
                ProcessRlimit::OpenFiles => Resource::Nofile,
                ProcessRlimit::DataBytes => Resource::Data,
                ProcessRlimit::Processes => Resource::Nproc,
            };
            let before = getrlimit(resource);
            let least = |before: Option<u64>| Some(before.map_or(*most, |before| before.min(*most)));
            let limit = Rlimit { current: least(before.current), maximum: least(before.maximum) };
            // Lowering is always allowed.
            let _ = setrlimit(resource, limit);
        }
    }

    fn filter(&self) -> Result<(), BwrapFailure> {
        for filter in &self.filters {
            add_filter(filter).map_err(|error| match error.raw_os_error() {
                Some(code) if code == rustix::io::Errno::INVAL.raw_os_error() => BwrapFailure::new(
                    "Unable to set up system call filtering as requested: prctl(PR_SET_SECCOMP) reported EINVAL. \
                     (The data is not a filter, or the kernel lacks CONFIG_SECCOMP_FILTER.)",
                ),
                _ => BwrapFailure::because("prctl(PR_SET_SECCOMP)", error),
            })?;
        }
        Ok(())
    }

    fn execute(&self) -> Result<i32, BwrapFailure> {
        if !self.options.as_pid_1 {
            options::close(self.options.descriptors.sync);
        }
        let Some((program, arguments)) = self.options.command.split_first() else { return Ok(0) };
        let name = self.options.name.as_ref().unwrap_or(program);
        let arguments = std::iter::once(name).chain(arguments).cloned();
        let pair = |(name, value): &(OsString, OsString)| {
            let mut pair = name.clone();
            pair.push("=");
            pair.push(value);
            pair
        };
        let executable = Executable::new(program, arguments, self.environment.iter().map(pair))
            .map_err(|error| BwrapFailure::because(format!("execvp {}", program.display()), error))?;
        self.limit();
        die_with_guard()?;
        let kept = capabilities::pass_on(self.options.capabilities());
        kept.map_err(|error| BwrapFailure::because("Adding ambient capability", error))?;
        // A guard that is gone has ended this process.
        let _ = Message::with(kind::STARTED, &[monotonic_nanoseconds()]).send(self.guard, None);
        self.filter()?;
        let error = executable.execute();
        let _ = Message::of(kind::NOT_EXECUTED).send(self.guard, None);
        Err(BwrapFailure::because(format!("execvp {}", program.display()), error))
    }
}

/// Has the kernel kill this process with the guard, whose child it is, or with the init.
pub(crate) fn die_with_guard() -> Result<(), BwrapFailure> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| BwrapFailure::because("prctl", error))
}

/// Waits until a descriptor gives something, or is at its end.
pub(crate) fn wait_for(number: Option<i32>) {
    let Some(number) = number else { return };
    let read = |fd: OwnedFd| -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| rustix::io::read(&fd, &mut [0; 1]))?)
    };
    // A descriptor that cannot be read does not block.
    let _ = process::inherited(number).and_then(read);
    options::close(Some(number));
}
