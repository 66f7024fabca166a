//! What the engine found when it was made: enforcers, namespaces, control groups, Landlock,
//! seccomp.

use rustix::process::{Resource, getrlimit};
use sandtimer::Engine;
use sandtimer::isolate::cgroup::CgroupLayout;
use sandtimer::isolate::host::{HostCapabilities, NamespaceSupport};

use super::machine::{Container, value};
use super::report::LayerFinding;

/// Where remedies are to work.
#[derive(Debug)]
pub(super) struct RemedyContext<'a> {
    pub(super) container: Option<&'a Container>,
    pub(super) root: bool,
}

impl RemedyContext<'_> {
    /// How to give this process a capability.
    fn capability(&self, name: &str) -> String {
        match self.container {
            Some(Container::Docker | Container::Podman) => {
                format!("docker run --cap-add {name} … (podman: the same)")
            }
            Some(Container::Kubernetes) => {
                format!("securityContext: {{ capabilities: {{ add: [{name}] }} }}")
            }
            _ => format!("in the systemd unit: AmbientCapabilities=CAP_{name}"),
        }
    }
}

pub(super) fn examine(
    engine: &Engine,
    host: &HostCapabilities,
    context: &RemedyContext<'_>,
    layers: &mut Vec<LayerFinding>,
) {
    layers.push(real_time(engine, context));
    layers.push(match &engine.armed().watchdog {
        Ok(()) => LayerFinding::ok(
            "watchdog",
            "a separate process; it kills at the deadline + 250 ms if the engine has not",
        ),
        Err(error) => LayerFinding::missing("watchdog", error.clone())
            .consequence("if the engine itself is stopped, only each sandbox's own timer ends runs")
            .remedy("let this user start more processes (RLIMIT_NPROC, pids.max of its cgroup)"),
    });
    layers.push(namespaces(host, context));
    layers.push(cgroup_limits(engine, host, context));
    layers.push(cgroup_kill(host, context));
    layers.push(landlock(host));
    if !host.seccomp {
        layers.push(
            LayerFinding::missing("seccomp", "seccomp(SECCOMP_SET_MODE_FILTER) is not known or was refused")
                .consequence("tier T0: every system call of the kernel is open to the code")
                .remedy(
                    "use a kernel built with CONFIG_SECCOMP_FILTER, and not from inside a run of Sandtimer",
                ),
        );
    }
}

fn real_time(engine: &Engine, context: &RemedyContext<'_>) -> LayerFinding {
    let share = value("/proc/sys/kernel/sched_rt_runtime_us").unwrap_or_else(|| "unknown".to_owned());
    match &engine.armed().real_time {
        Ok(()) => {
            LayerFinding::ok("real-time enforcer", format!("SCHED_FIFO granted; sched_rt_runtime_us={share}"))
        }
        Err(error) => {
            let limit = getrlimit(Resource::Rtprio)
                .current
                .map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string());
            let program = std::env::current_exe()
                .map_or_else(|_| "sandtimer".into(), |path| path.display().to_string());
            let remedy = match context.container {
                Some(Container::Docker | Container::Podman) => {
                    "docker run --ulimit rtprio=1 … or --cap-add SYS_NICE".to_owned()
                }
                Some(Container::Kubernetes) => context.capability("SYS_NICE"),
                _ => format!(
                    "one of: LimitRTPRIO=1 in the systemd unit; `{{user}} - rtprio 1` in /etc/security/limits.conf; \
                     setcap cap_sys_nice+ep {program}"
                ),
            };
            LayerFinding::degraded("real-time enforcer", format!("sched_setscheduler(SCHED_FIFO): {error}; RLIMIT_RTPRIO={limit}"))
                .consequence("busy processors make limits late: only the 50 ms class is promised (p99 ≤ 50 ms), not the 1 ms class")
                .remedy(remedy)
        }
    }
}

fn namespaces(host: &HostCapabilities, context: &RemedyContext<'_>) -> LayerFinding {
    let name = "namespaces";
    match &host.namespaces {
        NamespaceSupport::Root => LayerFinding::ok(name, "unshare(2) as root"),
        NamespaceSupport::User => LayerFinding::ok(name, "unshare(2) in a user namespace"),
        NamespaceSupport::None(error) => {
            let remedy = match context.container {
                Some(Container::Docker | Container::Podman) if context.root => {
                    "docker run --cap-add SYS_ADMIN …".to_owned()
                }
                Some(Container::Docker | Container::Podman) => {
                    "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined …"
                        .to_owned()
                }
                Some(Container::Kubernetes) => context.capability("SYS_ADMIN"),
                _ if context.root => context.capability("SYS_ADMIN"),
                _ => "see `user namespaces` above; or run sandtimer as root".to_owned(),
            };
            LayerFinding::missing(name, error.clone())
                .consequence("tier T1 at most: the code sees the host's files, processes and network, protected only by Landlock and seccomp")
                .remedy(remedy)
        }
    }
}

fn describe_layout(layout: CgroupLayout) -> &'static str {
    match layout {
        CgroupLayout::V2 => "layout v2: limits, kill and freeze in one tree",
        CgroupLayout::V1 => "layout v1: limits, no kill and no freeze",
        CgroupLayout::Hybrid => "layout hybrid: v2 tree for kill and freeze, v1 controllers for limits",
        CgroupLayout::None => "no usable hierarchy",
    }
}

fn controllers() -> String {
    let v2 = value("/sys/fs/cgroup/cgroup.controllers")
        .or_else(|| value("/sys/fs/cgroup/unified/cgroup.controllers"));
    let v1: Vec<String> = value("/proc/self/cgroup")
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.split(':').nth(1).map(str::to_owned))
        .filter(|name| !name.is_empty() && !name.starts_with("name="))
        .collect();
    let or_none = |text: String| if text.is_empty() { "none".to_owned() } else { text };
    format!("controllers of v2: {}; of v1: {}", or_none(v2.unwrap_or_default()), or_none(v1.join(" ")))
}

/// How to be given a subtree of the control groups.
fn delegation(context: &RemedyContext<'_>) -> String {
    match context.container {
        Some(Container::Docker | Container::Podman) => {
            "docker run --privileged …, or --cgroupns=private with /sys/fs/cgroup mounted writable".to_owned()
        }
        Some(Container::Kubernetes) => {
            "securityContext: { privileged: true }, or a runtime that mounts /sys/fs/cgroup writable"
                .to_owned()
        }
        _ if context.root => {
            "mount the hierarchy: mount -t cgroup2 none /sys/fs/cgroup; check that it is writable".to_owned()
        }
        _ => "systemd-run --user --scope -p Delegate=yes sandtimer … (in a unit: Delegate=yes)".to_owned(),
    }
}

fn cgroup_limits(engine: &Engine, host: &HostCapabilities, context: &RemedyContext<'_>) -> LayerFinding {
    let layout = describe_layout(engine.cgroup_layout());
    match &host.cgroup_limits {
        Ok(()) => LayerFinding::ok("cgroup limits", format!("{layout}; {}", controllers())),
        Err(error) => LayerFinding::missing("cgroup limits", format!("{layout}; {error}; {}", controllers()))
            .consequence("tier T2 at most: memory is limited for each process and by polling, processes by RLIMIT_NPROC")
            .remedy(delegation(context)),
    }
}

fn cgroup_kill(host: &HostCapabilities, context: &RemedyContext<'_>) -> LayerFinding {
    match &host.cgroup_kill {
        Ok(()) => LayerFinding::ok("cgroup.kill", "the file is there; see `ending` for what it did to a real tree"),
        Err(error) => LayerFinding::missing("cgroup.kill", of_v2(error))
            .consequence("kill class K2 at most: the tree ends with the first process of its pid namespace; no freezing")
            .remedy(delegation(context)),
    }
}

/// Selects from several reasons those for which the v2 hierarchy is missing.
fn of_v2(reasons: &str) -> String {
    let of_v2: Vec<&str> = reasons.split("; ").filter(|reason| !reason.starts_with("the v1 ")).collect();
    if of_v2.is_empty() { "no v2 hierarchy is mounted".to_owned() } else { of_v2.join("; ") }
}

fn landlock(host: &HostCapabilities) -> LayerFinding {
    let abi = host.landlock_abi;
    let evidence = format!("ABI {abi}");
    match abi {
        0 => LayerFinding::missing("Landlock", "landlock_create_ruleset(2) is absent or switched off")
            .consequence("tier T0: there is no isolation layer besides the mounts")
            .remedy("boot with `landlock` in the lsm= list, such as lsm=landlock,lockdown,yama,integrity,apparmor"),
        1..4 => LayerFinding::degraded("Landlock", evidence)
            .consequence("no rules for TCP (ABI 4, Linux 6.7): the network has two isolation layers instead of three")
            .remedy("boot a kernel of 6.12 or later"),
        4 | 5 => LayerFinding::degraded("Landlock", evidence)
            .consequence("no scoping of abstract sockets and signals (ABI 6, Linux 6.12); namespaces hold these")
            .remedy("boot a kernel of 6.12 or later"),
        _ => LayerFinding::ok("Landlock", format!("{evidence}: files, TCP, abstract sockets, signals")),
    }
}
