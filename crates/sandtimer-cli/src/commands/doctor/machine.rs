//! The kernel's own values: files of /proc and /sys that explain a probe or change what runs cost.
//!
//! Nothing here decides a tier; the sandboxes do. A file that is absent means that the feature is.

use std::fs;
use std::path::Path;

use rustix::process::{Resource, getrlimit};
use sandtimer_os::probe;

use super::report::{LayerFinding, MeasuredTimes};

/// What a small file holds, trimmed; `None` where there is no such file.
pub(super) fn value(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// A container that this process is in, as far as it shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Container {
    Docker,
    Podman,
    Kubernetes,
    GVisor,
    Wsl,
    Other,
}

/// Looks for the marks that container runtimes leave.
pub(super) fn container() -> Option<Container> {
    let version = value("/proc/version").unwrap_or_default();
    // gVisor reports itself as a Linux 4.4.0 of this minute.
    if version.contains("gVisor") || version.contains("4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016") {
        return Some(Container::GVisor);
    }
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        return Some(Container::Kubernetes);
    }
    if Path::new("/run/.containerenv").exists() {
        return Some(Container::Podman);
    }
    if Path::new("/.dockerenv").exists() {
        return Some(Container::Docker);
    }
    let groups = value("/proc/1/cgroup").unwrap_or_default();
    if groups.contains("kubepods") {
        return Some(Container::Kubernetes);
    }
    if groups.contains("docker") {
        return Some(Container::Docker);
    }
    if version.to_lowercase().contains("microsoft") {
        return Some(Container::Wsl);
    }
    if groups.contains("lxc") || Path::new("/run/systemd/container").exists() {
        Some(Container::Other)
    } else {
        None
    }
}

pub(super) fn container_layer(container: Option<&Container>) -> LayerFinding {
    let Some(container) = container else {
        return LayerFinding::ok(
            "container",
            "none seen: no mark of Docker, Podman, Kubernetes, LXC, WSL or gVisor",
        );
    };
    match container {
        Container::GVisor => LayerFinding::degraded("container", "gVisor (/proc/version)")
            .consequence("its user-space kernel has no cgroup.kill and no real-time scheduling, and adds to every system call")
            .remedy("use the runtime `runc` for this container: Sandtimer has its own isolation layers"),
        other => LayerFinding::ok("container", format!("{other:?}")),
    }
}

/// `5.14.0-rc1` as (5, 14).
fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|letter: char| !letter.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

pub(super) fn kernel(layers: &mut Vec<LayerFinding>) {
    let release = value("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned());
    layers.push(match kernel_version(&release) {
        Some(version) if version >= (5, 14) => {
            LayerFinding::ok("kernel", format!("{release} (5.14 or later is needed)"))
        }
        _ => LayerFinding::missing("kernel", release)
            .consequence(
                "older than 5.14: no cgroup.kill, and other calls that the sandbox is made of may be absent",
            )
            .remedy("boot a kernel of 5.14 or later"),
    });
}

/// Text of an AppArmor profile that gives this program user namespaces.
fn apparmor_profile() -> String {
    let program = std::env::current_exe()
        .map_or_else(|_| "/usr/bin/sandtimer".into(), |path| path.display().to_string());
    format!(
        "write this to /etc/apparmor.d/sandtimer, then run `apparmor_parser -r /etc/apparmor.d/sandtimer`:\n  \
         abi <abi/4.0>,\n  include <tunables/global>\n  profile sandtimer {program} flags=(unconfined) {{\n    userns,\n  }}\n\
         or, for all programs: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
    )
}

pub(super) fn user_namespaces(layers: &mut Vec<LayerFinding>) {
    let name = "user namespaces";
    let most = value("/proc/sys/user/max_user_namespaces");
    let cloning = value("/proc/sys/kernel/unprivileged_userns_clone");
    let apparmor = value("/proc/sys/kernel/apparmor_restrict_unprivileged_userns");
    let shown = [
        ("max_user_namespaces", &most),
        ("unprivileged_userns_clone", &cloning),
        ("apparmor_restrict", &apparmor),
    ];
    let shown: Vec<String> = shown
        .iter()
        .filter_map(|(name, value)| value.as_ref().map(|value| format!("{name}={value}")))
        .collect();
    let root = sandtimer::engine::workspace_owner().is_some();
    let evidence = if shown.is_empty() { "no sysctl limits them".to_owned() } else { shown.join(" ") };
    let consequence = if root {
        "idmapped workspaces need one; the namespaces of runs do not, as this is root"
    } else {
        "without root, no namespaces can be had: tier T1 at most"
    };
    let (remedy, missing) = if most.is_none() {
        ("use a kernel built with CONFIG_USER_NS".to_owned(), true)
    } else if most.as_deref() == Some("0") {
        ("sysctl -w user.max_user_namespaces=15000".to_owned(), true)
    } else if !root && cloning.as_deref() == Some("0") {
        ("sysctl -w kernel.unprivileged_userns_clone=1".to_owned(), true)
    } else if !root && apparmor.as_deref() == Some("1") {
        (apparmor_profile(), false)
    } else {
        (String::new(), false)
    };
    layers.push(match (remedy.is_empty(), missing) {
        (true, _) if root => LayerFinding::ok(name, format!("{evidence}; not needed for runs, as this is root")),
        (true, _) => LayerFinding::ok(name, evidence),
        (false, true) => LayerFinding::missing(name, evidence).consequence(consequence).remedy(remedy),
        // A profile may be in place already: the test run shows it.
        (false, false) => LayerFinding::degraded(name, evidence)
            .consequence("AppArmor gives them only to programs that have a profile for it; see `namespaces` for what came of it")
            .remedy(remedy),
    });
}

/// The choice in brackets: `always [madvise] never`.
fn chosen(text: &str) -> Option<&str> {
    text.split_once('[')?.1.split_once(']').map(|(inside, _)| inside)
}

/// Memory and number ceilings of the machine.
pub(super) fn resources(layers: &mut Vec<LayerFinding>) {
    layers.push(swap());
    let huge = value("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    layers.push(match chosen(&huge) {
        Some("always") => LayerFinding::degraded("huge pages", "transparent_hugepage=always")
            .consequence("small programs take more memory, and copying a warm interpreter's pages costs more")
            .remedy("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"),
        Some(other) => LayerFinding::ok("huge pages", format!("transparent_hugepage={other}")),
        None => LayerFinding::ok("huge pages", "the kernel has no transparent huge pages"),
    });
    layers.push(match value("/sys/kernel/mm/ksm/run").as_deref() {
        Some("1") => LayerFinding::degraded("same-page merging", "ksm/run=1")
            .consequence("where pages are merged, one run can infer by timing what another has in memory")
            .remedy("echo 2 > /sys/kernel/mm/ksm/run"),
        Some(other) => LayerFinding::ok("same-page merging", format!("ksm/run={other}")),
        None => LayerFinding::ok("same-page merging", "the kernel has none"),
    });
    layers.push(process_numbers());
    layers.push(pressure());
}

fn swap() -> LayerFinding {
    let swaps = value("/proc/swaps").unwrap_or_default();
    let devices = swaps.lines().skip(1).count();
    let name = "swap";
    if devices == 0 {
        return LayerFinding::ok(name, "none");
    }
    let v1_without_accounting = Path::new("/sys/fs/cgroup/memory").is_dir()
        && !Path::new("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes").exists();
    if v1_without_accounting {
        return LayerFinding::degraded(name, format!("{devices} in use, and not accounted to cgroups"))
            .consequence(
                "a run at its memory limit swaps, slowly and beyond the limit, instead of being ended",
            )
            .remedy("boot with swapaccount=1, or run `swapoff -a`");
    }
    LayerFinding::ok(name, format!("{devices} in use; runs are kept off it by their memory limit"))
}

fn process_numbers() -> LayerFinding {
    let limit = getrlimit(Resource::Nproc).current;
    let read = |path: &str| value(path).and_then(|text| text.parse::<u64>().ok());
    let pids = read("/proc/sys/kernel/pid_max");
    let threads = read("/proc/sys/kernel/threads-max");
    let least = [limit, pids, threads].into_iter().flatten().min().unwrap_or(u64::MAX);
    let used = fs::read_dir("/proc").map_or(0, |entries| {
        let number = |name: &std::ffi::OsStr| {
            name.to_str().is_some_and(|name| name.bytes().all(|b| b.is_ascii_digit()))
        };
        entries.flatten().filter(|entry| number(&entry.file_name())).count() as u64
    });
    let show =
        |number: Option<u64>| number.map_or_else(|| "unlimited".to_owned(), |number| number.to_string());
    let evidence = format!(
        "RLIMIT_NPROC={} pid_max={} threads-max={}, {used} processes now",
        show(limit),
        show(pids),
        show(threads)
    );
    let name = "process numbers";
    if least.saturating_sub(used) < 4096 {
        return LayerFinding::degraded(name, evidence)
            .consequence("one run may have up to 4096 processes: it could use up what there is")
            .remedy("ulimit -u 65536 (or LimitNPROC= in the unit), sysctl -w kernel.pid_max=4194304");
    }
    LayerFinding::ok(name, evidence)
}

fn pressure() -> LayerFinding {
    if value("/proc/pressure/cpu").is_some() {
        return LayerFinding::ok(
            "run-queue time",
            "/proc/pressure/cpu is there; counted for runs with a v2 group",
        );
    }
    LayerFinding::degraded("run-queue time", "/proc/pressure/cpu cannot be read")
        .consequence("`run_queue_ms` is null: an Outcome cannot say how long the run waited for a processor")
        .remedy("use a kernel built with CONFIG_PSI, and boot with psi=1")
}

/// What the processors add to cost, lateness and leaks.
pub(super) fn processors(layers: &mut Vec<LayerFinding>) {
    layers.push(match value("/sys/devices/system/cpu/smt/active").as_deref() {
        Some("1") => LayerFinding::degraded("hyper-threads", "smt/active=1")
            .consequence("two runs on one core can observe each other through its caches")
            .remedy("echo off > /sys/devices/system/cpu/smt/control, or boot with nosmt"),
        _ => LayerFinding::ok("hyper-threads", "not in use"),
    });
    let source =
        value("/sys/devices/system/clocksource/clocksource0/current_clocksource").unwrap_or_default();
    layers.push(match source.as_str() {
        "hpet" | "acpi_pm" | "jiffies" | "pit" => LayerFinding::degraded("clock", source)
            .consequence("reading the time is a slow call into a device: limits are later and runs cost more")
            .remedy("boot with clocksource=tsc tsc=reliable, if the machine's clock allows it"),
        "" => LayerFinding::ok("clock", "the clock source is not shown"),
        other => LayerFinding::ok("clock", other),
    });
}

/// Processor time of the whole machine since it was started, in ticks.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::commands) struct Ticks {
    all: u64,
    stolen: u64,
}

impl Ticks {
    pub(in crate::commands) fn now() -> Self {
        Ticks::parse(&value("/proc/stat").unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let first = text.lines().next().unwrap_or_default();
        // user nice system idle iowait irq softirq steal; what follows is part of user and nice
        // already.
        let fields: Vec<u64> =
            first.split_whitespace().skip(1).take(8).filter_map(|field| field.parse().ok()).collect();
        Ticks { all: fields.iter().sum(), stolen: fields.get(7).copied().unwrap_or(0) }
    }

    /// How much of the time since `self` another guest had, in percent.
    pub(in crate::commands) fn steal_percent(&self, later: &Ticks) -> f64 {
        let all = later.all.saturating_sub(self.all).max(1);
        later.stolen.saturating_sub(self.stolen) as f64 * 100.0 / all as f64
    }
}

pub(super) fn steal_layer(percent: f64) -> LayerFinding {
    let evidence = format!("{percent:.1} % of the time of these probes (/proc/stat)");
    if percent < 1.0 {
        return LayerFinding::ok("stolen time", evidence);
    }
    LayerFinding::degraded("stolen time", evidence)
        .consequence("the hypervisor gives this machine's processors to other guests: during that time no program here can be on time")
        .remedy("use dedicated processors, or fewer guests on the host")
}

/// How many runs at a time are sensible here.
pub(super) fn suggest(measured: &mut MeasuredTimes) {
    /// What a small waiting interpreter takes, with its init and its kernel structures.
    const WAITING_BYTES: u64 = 64 << 20;
    let processors = probe::processors() as u64;
    let by_memory = probe::total_memory_bytes() / 2 / WAITING_BYTES;
    measured.processors = processors;
    measured.suggested_runs = processors;
    measured.suggested_waiting_runs = by_memory.clamp(processors, sandtimer::engine::CAPACITY as u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_versions_are_compared_by_number() {
        assert_eq!(kernel_version("6.18.44-fc"), Some((6, 18)));
        assert!(kernel_version("5.9.1").expect("a version") < (5, 14));
        assert!(kernel_version("5.14-rc1").expect("a version") >= (5, 14));
        assert_eq!(kernel_version("unknown"), None);
    }

    #[test]
    fn steal_is_a_share_of_all_processors() {
        let before = Ticks::parse("cpu  100 0 100 700 50 0 0 50 30 0\ncpu0 1 2 3");
        let after = Ticks::parse("cpu  150 0 125 715 50 0 0 60 60 0\n");
        assert!((before.steal_percent(&after) - 10.0).abs() < 1e-9);
        assert!(after.steal_percent(&after).abs() < 1e-9);
    }

    #[test]
    fn the_bracketed_choice_is_the_chosen_one() {
        assert_eq!(chosen("always [madvise] never"), Some("madvise"));
        assert_eq!(chosen(""), None);
    }
}
