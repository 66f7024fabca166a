//! What a run reads in /proc and /sys of the machine that it is on: the processors that it may use,
//! and its own memory limit.
//!
//! The kernel has no version of these files for a part of the machine. They are written when a root
//! is planned, and constant: what a run has used is in its Outcome, not here. Numbers of processors
//! are the host's, as in sched_getaffinity(2).

use std::borrow::Cow;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use sandtimer_os::clock::{boot_milliseconds, calendar_milliseconds};
use sandtimer_os::probe::read_string;
use sandtimer_os::processors::Processors;

/// The contents of a file.
pub type Contents = Cow<'static, [u8]>;

/// The name of the file with the size of the memory.
pub const MEMORY: &str = "meminfo";
/// Seconds by which the calendar's clock may be set before the files are written again.
const CLOCK_TOLERANCE: u64 = 10;
/// In a longer text only the first processor has all its lines; the others have these.
const MAX_CPUINFO_BYTES: usize = 64 << 10;
const SHORT_LINES: [&str; 10] = [
    "processor",
    "vendor_id",
    "cpu family",
    "model",
    "model name",
    "cpu MHz",
    "physical id",
    "siblings",
    "core id",
    "cpu cores",
];
/// Processors of which it is shown which share a core: each takes two files.
const MAX_TOPOLOGY: usize = 32;
/// Lines of /proc/meminfo besides those of what is total, free and available; all are 0.
const UNUSED_MEMORY: [&str; 25] = [
    "Buffers",
    "Cached",
    "SwapCached",
    "Active",
    "Inactive",
    "Active(anon)",
    "Inactive(anon)",
    "Active(file)",
    "Inactive(file)",
    "Unevictable",
    "Mlocked",
    "SwapTotal",
    "SwapFree",
    "Dirty",
    "Writeback",
    "AnonPages",
    "Mapped",
    "Shmem",
    "KReclaimable",
    "Slab",
    "SReclaimable",
    "SUnreclaim",
    "KernelStack",
    "PageTables",
    "Committed_AS",
];

/// The files of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachineFiles {
    /// Those of /proc, by name.
    pub proc: Vec<(&'static str, Contents)>,
    /// Those of /sys, by path.
    pub sys: Vec<(PathBuf, Contents)>,
}

/// The machine that was last asked for.
struct CachedMachine {
    processors: Option<Processors>,
    memory: u64,
    booted_at: u64,
    machine: Arc<MachineFiles>,
}

impl MachineFiles {
    /// This machine, as far as the calling thread may use it, with `memory` bytes.
    pub fn here(memory: u64) -> Arc<Self> {
        static CACHED: Mutex<Option<CachedMachine>> = Mutex::new(None);
        let processors = Processors::of(0).ok();
        let booted_at = calendar_milliseconds().saturating_sub(boot_milliseconds()) / 1_000;
        // Each change is one assignment.
        let mut last = CACHED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = &*last
            && (last.processors, last.memory) == (processors, memory)
            && last.booted_at.abs_diff(booted_at) <= CLOCK_TOLERANCE
        {
            return last.machine.clone();
        }
        // Once: some of its numbers change from one reading to the next, and roots are compared by
        // what they hold.
        static HOST: OnceLock<[String; 2]> = OnceLock::new();
        let [cpuinfo, possible] = HOST.get_or_init(|| {
            ["/proc/cpuinfo", "/sys/devices/system/cpu/possible"]
                .map(|file| read_string(file).unwrap_or_default())
        });
        let numbers: Vec<usize> = match &processors {
            Some(processors) => processors.numbers().collect(),
            None => blocks(cpuinfo).filter_map(number_of).collect(),
        };
        let mut machine = MachineFiles::of(cpuinfo, possible, &numbers, booted_at);
        machine.proc.push((MEMORY, Cow::Owned(format_meminfo(memory).into_bytes())));
        let machine = Arc::new(machine);
        *last = Some(CachedMachine { processors, memory, booted_at, machine: machine.clone() });
        machine
    }

    /// A machine of these processors. `cpuinfo` and `possible` are the host's; `booted_at` is in
    /// seconds since 1970.
    fn of(cpuinfo: &str, possible: &str, numbers: &[usize], booted_at: u64) -> Self {
        let contents = |text: String| Cow::Owned(text.into_bytes());
        let usable = format!("{}\n", ranges(numbers));
        // A processor's number may be any of these, and programs size their tables by the largest.
        let possible = if possible.is_empty() { usable.clone() } else { possible.to_owned() };
        let sys = [
            ("online", usable.clone()),
            ("possible", possible),
            ("present", usable),
            ("kernel_max", "1023\n".to_owned()),
        ];
        let system = |(name, text)| (PathBuf::from("/sys/devices/system/cpu").join(name), contents(text));
        MachineFiles {
            proc: vec![
                ("cpuinfo", contents(format_cpuinfo(cpuinfo, numbers))),
                ("loadavg", contents("0.00 0.00 0.00 1/1 1\n".to_owned())),
                ("stat", contents(format_stat(numbers, booted_at))),
            ],
            sys: sys.map(system).into_iter().chain(topology(cpuinfo, numbers)).collect(),
        }
    }
}

/// Which of these processors are of one core and of one package, for each, unless they are many.
fn topology(cpuinfo: &str, numbers: &[usize]) -> Vec<(PathBuf, Contents)> {
    let shown = blocks_of(cpuinfo, numbers);
    if numbers.len() > MAX_TOPOLOGY || shown.len() != numbers.len() {
        return Vec::new();
    }
    let ids = |block: &&str| ["physical id", "core id"].map(|name| value_of(block, name).map(str::to_owned));
    let ids: Vec<_> = shown.iter().map(ids).collect();
    let mask = |is_like: &dyn Fn(&[Option<String>; 2]) -> bool| -> Contents {
        let like = numbers.iter().zip(&ids).filter(|(_, ids)| is_like(ids)).map(|(number, _)| *number);
        Cow::Owned(format!("{}\n", format_mask(like)).into_bytes())
    };
    let mut files = Vec::new();
    for (number, own) in numbers.iter().zip(&ids) {
        let directory = PathBuf::from(format!("/sys/devices/system/cpu/cpu{number}/topology"));
        files.push((directory.join("thread_siblings"), mask(&|ids| ids == own)));
        files.push((directory.join("core_siblings"), mask(&|ids| ids[0] == own[0])));
    }
    files
}

/// A set of processors as the kernel writes a mask: words of 32 bits, the highest first.
fn format_mask(numbers: impl Iterator<Item = usize>) -> String {
    let mut groups = vec![0u32; 1];
    for number in numbers {
        groups.resize(groups.len().max(number / 32 + 1), 0);
        groups[number / 32] |= 1 << (number % 32);
    }
    groups.iter().rev().map(|group| format!("{group:08x}")).collect::<Vec<_>>().join(",")
}

/// The text of /proc/meminfo for this much memory. Texts for different sizes are of one length.
pub fn format_meminfo(bytes: u64) -> String {
    let kibibytes = bytes >> 10;
    let mut text = String::with_capacity(1_024);
    let mut line = |name: &str, value| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{:<16}{value:>16} kB", format!("{name}:"));
    };
    for name in ["MemTotal", "MemFree", "MemAvailable"] {
        line(name, kibibytes);
    }
    for name in UNUSED_MEMORY {
        line(name, 0);
    }
    line("CommitLimit", kibibytes);
    text
}

/// Processors as the kernel lists them: `0-3,7`.
fn ranges(numbers: &[usize]) -> String {
    let parts = numbers.chunk_by(|one, next| one + 1 == *next);
    let parts = parts.filter_map(|part| match (part.first()?, part.last()?) {
        (first, last) if first == last => Some(first.to_string()),
        (first, last) => Some(format!("{first}-{last}")),
    });
    parts.collect::<Vec<_>>().join(",")
}

/// The parts of a /proc/cpuinfo.
fn blocks(cpuinfo: &str) -> impl Iterator<Item = &str> {
    cpuinfo.split("\n\n").filter(|block| !block.trim().is_empty())
}

/// Those about these processors.
fn blocks_of<'a>(cpuinfo: &'a str, numbers: &[usize]) -> Vec<&'a str> {
    let is_shown = |block: &&str| number_of(block).is_some_and(|number| numbers.contains(&number));
    blocks(cpuinfo).filter(is_shown).collect()
}

/// The value under a name in such a part.
fn value_of<'a>(block: &'a str, name: &str) -> Option<&'a str> {
    let lines = block.lines().filter_map(|line| line.split_once(':'));
    lines.into_iter().find(|(other, _)| other.trim() == name).map(|(_, value)| value.trim())
}

fn number_of(block: &str) -> Option<usize> {
    value_of(block, "processor")?.parse().ok()
}

/// The parts of `cpuinfo` that are about these processors. How many there are of a kind is counted
/// among them.
fn format_cpuinfo(cpuinfo: &str, numbers: &[usize]) -> String {
    let shown = blocks_of(cpuinfo, numbers);
    if shown.len() != numbers.len() {
        return numbers.iter().map(|number| format!("processor\t: {number}\n\n")).collect();
    }
    let is_long = shown.iter().map(|block| block.len()).sum::<usize>() > MAX_CPUINFO_BYTES;
    let mut text = String::new();
    for (index, block) in shown.iter().enumerate() {
        let package = value_of(block, "physical id");
        let siblings = shown.iter().filter(|other| value_of(other, "physical id") == package);
        let mut cores: Vec<_> = siblings.clone().map(|other| value_of(other, "core id")).collect();
        cores.sort_unstable();
        cores.dedup();
        for line in block.lines() {
            let name = line.split(':').next().unwrap_or_default().trim_end();
            let count = match name {
                "siblings" => Some(siblings.clone().count()),
                "cpu cores" => Some(cores.len()),
                _ if is_long && index > 0 && !SHORT_LINES.contains(&name) => continue,
                _ => None,
            };
            // Writing to a string does not fail.
            let _ = match count {
                Some(count) => writeln!(text, "{name}\t: {count}"),
                None => writeln!(text, "{line}"),
            };
        }
        text.push('\n');
    }
    text
}

/// The text of /proc/stat: nothing has been counted yet.
fn format_stat(numbers: &[usize], booted_at: u64) -> String {
    const COUNTERS: &str = "0 0 0 0 0 0 0 0 0 0\n";
    let each: String = numbers.iter().map(|number| format!("cpu{number} {COUNTERS}")).collect();
    format!(
        "cpu  {COUNTERS}{each}intr 0\nctxt 0\nbtime {booted_at}\nprocesses 1\nprocs_running 1\nprocs_blocked 0\nsoftirq 0\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(count: usize, flags: &str) -> String {
        let block = |number| {
            format!(
                "processor\t: {number}\nmodel name\t: A 1\nphysical id\t: {}\nsiblings\t: {}\ncore id\t\t: {}\n\
                 cpu cores\t: {}\nflags\t\t: {flags}\n\n",
                number / 4,
                4,
                number % 4 / 2,
                2
            )
        };
        (0..count).map(block).collect()
    }

    #[test]
    fn ranges_are_written_as_the_kernel_writes_them() {
        assert_eq!(ranges(&[0, 1, 2, 3, 7, 9, 10]), "0-3,7,9-10");
        assert_eq!(ranges(&[5]), "5");
        assert_eq!(ranges(&[]), "");
    }

    #[test]
    fn cpuinfo_counts_only_usable_processors() {
        let text = format_cpuinfo(&host(8, "fpu sse"), &[1, 4, 5]);
        let values = |name| blocks(&text).filter_map(|block| value_of(block, name)).collect::<Vec<_>>();
        assert_eq!(values("processor"), ["1", "4", "5"]);
        assert_eq!(values("siblings"), ["1", "2", "2"]);
        assert_eq!(values("cpu cores"), ["1", "1", "1"]);
        assert_eq!(values("flags"), ["fpu sse"; 3]);
        let unknown = format_cpuinfo(&host(2, ""), &[1, 4]);
        assert_eq!(unknown, "processor\t: 1\n\nprocessor\t: 4\n\n", "the host's text lacks one");
    }

    #[test]
    fn cpuinfo_of_many_processors_has_flags_once() {
        let numbers: Vec<usize> = (0..256).collect();
        let text = format_cpuinfo(&host(256, &"flag ".repeat(300)), &numbers);
        assert_eq!(text.matches("flags").count(), 1);
        assert_eq!(blocks(&text).count(), 256);
    }

    #[test]
    fn masks_are_written_as_the_kernel_writes_them() {
        assert_eq!(format_mask([0, 1, 33].into_iter()), "00000002,00000003");
        let files = topology(&host(4, ""), &[0, 1, 3]);
        let file = |at: usize| {
            (files[at].0.display().to_string(), String::from_utf8_lossy(&files[at].1).into_owned())
        };
        let path = |rest: &str| format!("/sys/devices/system/cpu/{rest}");
        assert_eq!(file(0), (path("cpu0/topology/thread_siblings"), "00000003\n".to_owned()));
        assert_eq!(file(5), (path("cpu3/topology/core_siblings"), "0000000b\n".to_owned()));
    }

    #[test]
    fn meminfo_has_constant_length() {
        let text = format_meminfo(512 << 20);
        assert_eq!(text.len(), format_meminfo(1 << 60).len());
        assert!(text.starts_with("MemTotal:                 524288 kB\n"), "{text}");
        assert!(text.contains("SwapTotal:                     0 kB\n"), "{text}");
    }

    #[test]
    fn machine_here_lists_its_processors() {
        let machine = MachineFiles::here(1 << 30);
        let count = Processors::of(0).expect("an affinity").count() as usize;
        let (_, stat) = machine.proc.iter().find(|(name, _)| *name == "stat").expect("one of the files");
        let stat = String::from_utf8_lossy(stat);
        assert_eq!(stat.lines().filter(|line| line.starts_with("cpu")).count(), count + 1, "{stat}");
        assert!(Arc::ptr_eq(&machine, &MachineFiles::here(1 << 30)), "it is written once");
    }
}
