//! The control groups of one slot: its limits, its counters, and how what is in it is killed.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, openat};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use sandtimer_os::process;

use super::files::{keyed, write_file};
use super::kept::{CounterFiles, SmallFile};
use super::outer::{OuterBounds, OuterHits};

/// The total of a group's `full` pressure in microseconds: tasks of the group were ready, and none
/// of them ran. While one waits for another one of the group, only `some` grows; a run could
/// produce that by itself.
fn full_pressure(text: &str) -> Option<u64> {
    let full = text.lines().find(|line| line.starts_with("full "))?;
    full.split(' ').find_map(|field| field.strip_prefix("total=")?.parse().ok())
}

#[cfg(test)]
#[test]
fn full_pressure_leaves_out_own_waits() {
    let text =
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=900\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
    assert_eq!(full_pressure(text), Some(7));
    assert_eq!(full_pressure(""), None);
}

/// Counters of a slot; they only grow, so that a run's share is a difference.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counters {
    /// Processor time in user mode, in microseconds.
    pub user_microseconds: u64,
    /// Processor time in the kernel, in microseconds.
    pub system_microseconds: u64,
    /// Processor time in all, in microseconds.
    pub cpu_microseconds: u64,
    /// Processes that the kernel killed because memory ran out.
    pub out_of_memory_kills: u64,
    /// How often the group's own memory limit left the kernel nothing but a kill; 0 where only a v1
    /// group counts.
    pub memory_limit_hits: u64,
    /// Forks that the limit of processes refused.
    pub process_limit_hits: u64,
}

impl Counters {
    /// What was counted since `start`.
    pub fn since(&self, start: &Counters) -> Self {
        Counters {
            user_microseconds: self.user_microseconds.saturating_sub(start.user_microseconds),
            system_microseconds: self.system_microseconds.saturating_sub(start.system_microseconds),
            cpu_microseconds: self.cpu_microseconds.saturating_sub(start.cpu_microseconds),
            out_of_memory_kills: self.out_of_memory_kills.saturating_sub(start.out_of_memory_kills),
            memory_limit_hits: self.memory_limit_hits.saturating_sub(start.memory_limit_hits),
            process_limit_hits: self.process_limit_hits.saturating_sub(start.process_limit_hits),
        }
    }

    /// With the processor time of a cpu.stat.
    fn timed(self, cpu: &str) -> Self {
        let of = |key| keyed(cpu, key).unwrap_or(0);
        Counters {
            user_microseconds: of("user_usec"),
            system_microseconds: of("system_usec"),
            cpu_microseconds: of("usage_usec"),
            ..self
        }
    }
}

/// What a slot's groups limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotLimits {
    /// Bytes of memory; `None` for no limit of its own.
    pub memory_bytes: Option<u64>,
    /// Init is not counted.
    pub processes: Option<u64>,
}

/// The groups of one slot.
#[derive(Debug)]
pub struct Slot {
    /// The slot's number in its engine, from 0.
    pub index: usize,
    pub(super) unified: Option<Arc<OwnedFd>>,
    pub(super) kill: Option<Arc<OwnedFd>>,
    pub(super) memory: Option<Arc<OwnedFd>>,
    pub(super) pids: Option<Arc<OwnedFd>>,
    /// `tasks` of each v1 group, opened ahead of need.
    pub(super) tasks: Vec<OwnedFd>,
    pub(super) kept: Arc<CounterFiles>,
    pub(super) v2_limits: bool,
    /// No limit was put on its groups since they were made.
    pub(super) is_new: bool,
    /// What is in force, if it is known.
    pub(super) limits: Option<SlotLimits>,
    /// `memory.peak`, where it counts from when it was last written to through this descriptor
    /// (Linux 6.12).
    pub(super) peak: Option<OwnedFd>,
    pub(super) start: Counters,
    /// What [`Slot::run_queue_microseconds`] does not count.
    pub(super) start_run_queue: u64,
    /// What bounds it together with other slots.
    pub(super) outer: OuterBounds,
    /// How often limits of these had been reached when the run began.
    pub(super) outer_hits_at_start: OuterHits,
}

impl Slot {
    /// The v2 group, for CLONE_INTO_CGROUP.
    pub fn unified(&self) -> Option<BorrowedFd<'_>> {
        self.unified.as_ref().map(AsFd::as_fd)
    }

    /// The cgroup.kill file.
    pub fn kill_file(&self) -> Option<BorrowedFd<'_>> {
        self.kill.as_ref().map(AsFd::as_fd)
    }

    /// `tasks` of each v1 group, for a sandbox's processes to write themselves into; once.
    pub fn take_task_files(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.tasks)
    }

    pub(super) fn open_task_files(&self) -> io::Result<Vec<OwnedFd>> {
        [&self.memory, &self.pids]
            .into_iter()
            .flatten()
            .map(|directory| Ok(openat(directory, "tasks", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?))
            .collect()
    }

    /// Kills everything in the slot at once, but for processes whose first thread has ended while
    /// others run: the kernel sends the signal to the first thread of each. A pid namespace ends
    /// those with its init; elsewhere [`Slot::kill_each`] does.
    pub fn kill_all(&self) -> bool {
        self.kill.as_ref().is_some_and(|file| rustix::io::write(file, b"1").is_ok())
    }

    /// Kills the processes in the slot one by one, in a single pass: processes that remain, and
    /// those forked during it, are left to the next pass.
    pub fn kill_each(&self) {
        kill_each(|| self.process_ids());
    }

    pub(super) fn write(&self, directory: &Option<Arc<OwnedFd>>, name: &str, value: &str) -> bool {
        directory.as_ref().is_some_and(|fd| write_file(fd.as_fd(), name, value).is_ok())
    }

    pub(super) fn read(&self, directory: &Option<Arc<OwnedFd>>, name: &'static str) -> SmallFile {
        directory.as_ref().and_then(|fd| self.kept.read(fd.as_fd(), name).ok()).unwrap_or_default()
    }

    /// Whether it can limit memory and processes.
    pub fn has_controllers(&self) -> bool {
        self.v2_limits || (self.memory.is_some() && self.pids.is_some())
    }

    /// What [`Slot::limit`] put in force.
    pub fn limits(&self) -> Option<SlotLimits> {
        self.limits
    }

    /// Puts limits on the next run and starts its counters. Returns what was refused.
    pub fn limit(&mut self, limits: SlotLimits) -> Vec<&'static str> {
        self.begin_run();
        if self.limits == Some(limits) {
            return Vec::new();
        }
        let refused = self.put(limits);
        self.start = self.counters();
        refused
    }

    pub(super) fn put(&mut self, limits: SlotLimits) -> Vec<&'static str> {
        let SlotLimits { memory_bytes: memory, processes } = limits;
        let mut refused = Vec::new();
        let bytes = memory.map_or_else(|| "max".to_owned(), |bytes| bytes.to_string());
        let count = processes.map_or_else(|| "max".to_owned(), |count| count.saturating_add(1).to_string());
        if self.v2_limits {
            if !self.write(&self.unified, "memory.max", &bytes) {
                refused.push("memory");
            }
            // Absent where swap accounting is off; then there is nothing to limit.
            self.write(&self.unified, "memory.swap.max", "0");
            self.write(&self.unified, "memory.peak", "0");
            if !self.write(&self.unified, "pids.max", &count) {
                refused.push("processes");
            }
        } else if self.memory.is_some() || self.pids.is_some() {
            let bytes = memory.map_or_else(|| "-1".to_owned(), |bytes| bytes.to_string());
            // Lowering needs memory before memory+swap, raising the other order: open both first.
            if !self.is_new {
                self.write(&self.memory, "memory.memsw.limit_in_bytes", "-1");
            }
            if !self.write(&self.memory, "memory.limit_in_bytes", &bytes) {
                refused.push("memory");
            }
            self.write(&self.memory, "memory.memsw.limit_in_bytes", &bytes);
            if !self.is_new {
                self.write(&self.memory, "memory.max_usage_in_bytes", "0");
            }
            if !self.write(&self.pids, "pids.max", &count) {
                refused.push("processes");
            }
        }
        self.is_new = false;
        self.limits = refused.is_empty().then_some(limits);
        refused
    }

    /// The same groups once more, for the next job in the same sandbox.
    pub fn again(&self) -> Self {
        Slot {
            index: self.index,
            unified: self.unified.clone(),
            kill: self.kill.clone(),
            memory: self.memory.clone(),
            pids: self.pids.clone(),
            tasks: Vec::new(),
            kept: self.kept.clone(),
            v2_limits: self.v2_limits,
            is_new: false,
            limits: self.limits,
            peak: None,
            start: Counters::default(),
            start_run_queue: 0,
            outer: self.outer.clone(),
            outer_hits_at_start: self.outer.hits(),
        }
    }

    /// Starts all counters again but those of [`Slot::start_counting`]. False if one cannot be:
    /// most processes at once, if there was more than one or the kernel does not count them, and on
    /// a v2 group before Linux 6.12 most memory at once.
    pub fn reset(&mut self) -> bool {
        if self.processes_peak().is_none_or(|most| most > 1) {
            return false;
        }
        self.start = self.events();
        self.begin_run();
        if !self.v2_limits {
            return self.memory.is_none() || self.write(&self.memory, "memory.max_usage_in_bytes", "0");
        }
        let Some(group) = &self.unified else { return false };
        let peak = openat(group, "memory.peak", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        self.peak = peak.ok().filter(|peak| rustix::io::write(peak, b"reset").is_ok());
        self.peak.is_some()
    }

    /// Starts the counters of time again, without touching the limits.
    pub fn start_counting(&mut self) {
        self.start = self.start.timed(&self.read(&self.unified, "cpu.stat"));
        self.start_run_queue = self.pressure().unwrap_or(0);
    }

    /// Microseconds in which the run had something ready and no processor; `None` where the kernel
    /// does not count it (PSI). The group is new with each run, so that nothing has to be read at
    /// its start.
    pub fn run_queue_microseconds(&self) -> Option<u64> {
        self.pressure().map(|total| total.saturating_sub(self.start_run_queue))
    }

    fn pressure(&self) -> Option<u64> {
        full_pressure(&self.read(&self.unified, "cpu.pressure"))
    }

    pub(super) fn counters(&self) -> Counters {
        self.events().timed(&self.read(&self.unified, "cpu.stat"))
    }

    fn events(&self) -> Counters {
        let (oom, pids) = if self.v2_limits {
            (self.read(&self.unified, "memory.events"), self.read(&self.unified, "pids.events"))
        } else {
            (self.read(&self.memory, "memory.oom_control"), self.read(&self.pids, "pids.events"))
        };
        Counters {
            out_of_memory_kills: keyed(&oom, "oom_kill").unwrap_or(0),
            memory_limit_hits: keyed(&oom, "oom").unwrap_or(0),
            process_limit_hits: keyed(&pids, "max").unwrap_or(0),
            ..Counters::default()
        }
    }

    /// What the run in this slot has counted since [`Slot::limit`].
    pub fn used(&self) -> Counters {
        self.counters().since(&self.start)
    }

    /// Whether processor time is counted for the whole group.
    pub fn counts_cpu(&self) -> bool {
        self.unified.is_some()
    }

    /// Processor time of the run so far in microseconds: one small read, for the enforcer.
    pub fn cpu_microseconds(&self) -> u64 {
        let text = self.read(&self.unified, "cpu.stat");
        keyed(&text, "usage_usec").unwrap_or(0).saturating_sub(self.start.cpu_microseconds)
    }

    /// Out-of-memory kills in the run so far.
    pub fn out_of_memory_kills(&self) -> u64 {
        let (directory, file) = if self.v2_limits {
            (&self.unified, "memory.events")
        } else {
            (&self.memory, "memory.oom_control")
        };
        let text = self.read(directory, file);
        keyed(&text, "oom_kill").unwrap_or(0).saturating_sub(self.start.out_of_memory_kills)
    }

    /// Memory in use now, in bytes, what was read from files included; `None` where nothing counts
    /// it.
    pub fn memory_now(&self) -> Option<u64> {
        let (directory, file) = if self.v2_limits {
            (&self.unified, "memory.current")
        } else {
            (&self.memory, "memory.usage_in_bytes")
        };
        self.read(directory, file).trim().parse().ok()
    }

    /// Most memory used at once, in bytes; `None` where nothing counts it.
    pub fn memory_peak(&self) -> Option<u64> {
        if let Some(peak) = &self.peak {
            let mut text = [0u8; 32];
            let length = rustix::io::pread(peak, &mut text, 0).ok()?;
            return std::str::from_utf8(&text[..length]).ok()?.trim().parse().ok();
        }
        let (directory, file) = if self.v2_limits {
            (&self.unified, "memory.peak")
        } else {
            (&self.memory, "memory.max_usage_in_bytes")
        };
        self.read(directory, file).trim().parse().ok()
    }

    /// Most processes at once since the slot was renewed, init not counted.
    pub fn processes_peak(&self) -> Option<u64> {
        let directory = if self.v2_limits { &self.unified } else { &self.pids };
        self.read(directory, "pids.peak").trim().parse::<u64>().ok().map(|count| count.saturating_sub(1))
    }

    /// Tasks in the slot now, init among them.
    pub fn processes_now(&self) -> Option<u64> {
        let directory = if self.v2_limits { &self.unified } else { &self.pids };
        self.read(directory, "pids.current").trim().parse().ok()
    }

    /// The processes that are alive in the slot; `None` where they cannot be listed.
    pub fn process_ids(&self) -> Option<BTreeSet<u32>> {
        let directory = self.unified.as_ref().or(self.pids.as_ref()).or(self.memory.as_ref())?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = openat(directory, "cgroup.procs", flags, Mode::empty()).ok()?;
        let list = io::read_to_string(std::fs::File::from(file)).ok()?;
        Some(parse_process_ids(&list))
    }

    /// Whether nothing is alive in the slot: the proof of death where there is a v2 group.
    pub fn is_empty(&self) -> bool {
        keyed(&self.read(&self.unified, "cgroup.events"), "populated") == Some(0)
    }

    /// Stops or continues everything in the slot (v2 freezer: a frozen task can still be killed).
    pub fn freeze(&self, frozen: bool) -> bool {
        self.write(&self.unified, "cgroup.freeze", if frozen { "1" } else { "0" })
    }
}

pub(super) fn parse_process_ids(list: &str) -> BTreeSet<u32> {
    list.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Processes that one pass of [`Slot::kill_each`] kills: each holds a descriptor during the pass.
const MAX_KILLED_AT_A_TIME: usize = 64;

/// Kills the first of the processes that `list` lists.
pub(super) fn kill_each(list: impl Fn() -> Option<BTreeSet<u32>>) {
    let open = |pid: u32| {
        let pidfd = pidfd_open(Pid::from_raw(pid.try_into().ok()?)?, PidfdFlags::empty()).ok()?;
        Some((pid, pidfd))
    };
    let listed = list().into_iter().flatten();
    let opened: Vec<_> = listed.filter_map(open).take(MAX_KILLED_AT_A_TIME).collect();
    // A PID that was another process's when it was opened is not listed any more, or it is again
    // and harmless.
    let still = list().unwrap_or_default();
    for (_, pidfd) in opened.iter().filter(|(pid, _)| still.contains(pid)) {
        let _ = process::kill(pidfd.as_fd());
    }
}
