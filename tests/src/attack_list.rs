//! The attacks that apply to a command, by letter. Numbers are those of the attack list.

use crate::attack::{AttackSpec, Expect, Need, NegativeControl, wall};

const TIMEOUT: Expect = Expect::Ending(&["timeout"]);
const NO_MEMORY: Expect = Expect::DeniedOr(&["out_of_memory"]);
const NO_PROCESSES: Expect = Expect::DeniedOr(&["process_limit", "timeout"]);
const NO_DISK: Expect = Expect::DeniedOr(&["disk_limit"]);
const WALL_1S: &[&str] = &["--wall", "1s"];
const SMALL: &[&str] = &["--wall", "10s", "--memory", "64M", "--processes", "32"];
const DISK_16M: &[&str] = &["--wall", "10s", "--disk", "16M"];
const NO_CONTROL_HARMS: NegativeControl = NegativeControl::Unavailable("bare, it would harm the host");

/// Only who may raise limits can show that it works.
const RAISER: NegativeControl = NegativeControl::Where(Need::RaisesLimits, &NegativeControl::Bare(&[]));
const KMSG: NegativeControl = NegativeControl::Bare(&["read-file", "/dev/kmsg"]);

/// A run that only its limit ends.
const fn endless(attack: &'static str, payload: &'static [&'static str]) -> AttackSpec {
    wall(attack, payload).flags(WALL_1S).expect(TIMEOUT).control(NegativeControl::Lives)
}

/// A file with a credential's name that lies below a directory that the run is shown and may write.
const fn credential(payload: &'static [&'static str]) -> AttackSpec {
    wall("E15", payload)
        .flags(&["--workspace", "{workspace}"])
        .control(NegativeControl::With(&["--show-credentials"]))
}

/// A: time and CPU.
pub const TIME: &[AttackSpec] = &[
    endless("A1", &["spin"]),
    endless("A2", &["sleep"]),
    endless("A4", &["ignore-signals"]),
    endless("A4", &["ignore-signals"]).flags(&["--wall", "1s", "--grace", "300ms"]),
    endless("A5", &["stop-self"]),
    endless("A5", &["stop-children"]),
    endless("A6", &["fork-chain", "100", "200"]).flags(&["--cpu", "1s", "--wall", "15s"]),
    endless("A7", &["threads-spin", "64"]).flags(&["--cpu", "1s", "--wall", "15s"]),
    endless("A1", &["spin"]).flags(&["--cpu", "1s", "--wall", "15s"]),
    endless("A2", &["sleep"]).flags(&["--stall", "1s", "--wall", "15s"]).expect(Expect::Ending(&["stalled"])),
    wall("A8", &["raise-limit"]).control(RAISER),
    wall("A8", &["prlimit-init"]).control(NegativeControl::Bare(&["prlimit-init", "{canary}"])),
    endless("A9", &["timers", "100000"]),
    wall("A10", &["clock-settime"]).control(NO_CONTROL_HARMS),
    wall("A10", &["adjtimex"]),
    endless("A12", &["exit-hang"]),
    endless("A13", &["vfork-sleep"]),
    wall("A15", &["fuse-mount"]),
    wall("A16", &["sched-fifo"]),
    wall("A16", &["affinity-init"]).control(NegativeControl::Bare(&["affinity-init", "{canary}"])),
    wall("A16", &["nice-down"]),
    endless("A17", &["storm"]),
];

/// B: the process tree.
pub const TREE: &[AttackSpec] = &[
    wall("B3", &["daemon"]).expect(Expect::NoEffect).control(NegativeControl::Outlives),
    endless("B4", &["setsid-shuffle"]).control(NegativeControl::Outlives),
    endless("B5", &["subreaper"]),
    wall("B6", &["signal-probe", "{canary}"]),
    wall("B6", &["kill-all"]).expect(Expect::NoEffect).control(NO_CONTROL_HARMS),
    endless("B7", &["stop-init"]).control(NO_CONTROL_HARMS),
    endless("B9", &["fork-in-handler"]).flags(&["--wall", "1s", "--grace", "500ms"]),
    wall("B9", &["clone-parent"]),
    wall("B9", &["clone3", "parent"]).control(NegativeControl::Without(&["seccomp"])),
    wall("B9", &["clone3", "into-cgroup"]),
    wall("B10", &["setuid-exec", "{workspace}/setuid"])
        .flags(&["--workspace", "{workspace}"])
        .control(NegativeControl::BareAs(65534)),
    wall("B10", &["am-i-root"]),
    wall("B11", &["memfd-exec", "mount"]),
    // On a busy host its wall may be over first; its process ids are recycled either way.
    wall("B12", &["short-children", "10000"])
        .expect(Expect::Ending(&["exited", "timeout"]))
        .control(NegativeControl::Unavailable("it only makes work; the census decides")),
];

/// B, C and F17: what multiplies, eats memory, or calls anything at all. Only after
/// [`crate::attack::cage_in_force`].
pub const BOMBS: &[AttackSpec] = &[
    wall("B1", &["fork-bomb", "400"])
        .flags(&["--wall", "2s", "--processes", "64", "--memory", "256M"])
        .expect(Expect::Ending(&["timeout", "process_limit"]))
        .control(NegativeControl::Without(&["cgroup", "rlimits"])),
    wall("B2", &["thread-bomb", "400"])
        .flags(SMALL)
        .expect(NO_PROCESSES)
        .control(NegativeControl::Without(&["cgroup", "rlimits"])),
    wall("B8", &["zombies", "400"])
        .flags(SMALL)
        .expect(NO_PROCESSES)
        .control(NegativeControl::Without(&["cgroup", "rlimits"])),
    wall("C1", &["memory", "256M"])
        .flags(SMALL)
        .expect(NO_MEMORY)
        .control(NegativeControl::Without(&["cgroup", "rlimits"])),
    wall("C2", &["mappings", "1000000"])
        .flags(SMALL)
        .expect(NO_MEMORY)
        .control(NegativeControl::Bare(&["mappings", "1000"])),
    wall("C3", &["memory-fork", "32M", "8", "2"])
        .flags(SMALL)
        .expect(Expect::Ending(&["out_of_memory"]))
        .control(NegativeControl::Without(&["cgroup", "rlimits"])),
    wall("C4", &["memfd", "256M"])
        .flags(SMALL)
        .expect(NO_MEMORY)
        .control(NegativeControl::Without(&["cgroup", "rlimits"])),
    wall("C13", &["memfd-hold", "256M"])
        .flags(SMALL)
        .expect(Expect::Ending(&["out_of_memory"]))
        .control(NegativeControl::Lives),
    wall("C4", &["shared", "256M"])
        .flags(SMALL)
        .expect(NO_MEMORY)
        .control(NegativeControl::Without(&["cgroup", "rlimits"])),
    wall("C4", &["shm", "/dev/shm", "256M"])
        .flags(SMALL)
        .expect(Expect::DeniedOr(&["out_of_memory", "disk_limit"]))
        .control(NegativeControl::Without(&["cgroup", "rlimits", "mount", "landlock"])),
    wall("C5", &["fd-hoard", "1100000"])
        .flags(SMALL)
        .expect(NO_MEMORY)
        .control(NegativeControl::Bare(&["fd-hoard", "500"])),
    wall("C6", &["mlock", "256M"])
        .flags(SMALL)
        .expect(NO_MEMORY)
        .control(NegativeControl::Bare(&["mlock", "16M"])),
    wall("C8", &["stack-bomb"]).flags(SMALL).expect(Expect::Ending(&["signaled", "out_of_memory"])).control(
        NegativeControl::Unavailable("the ending is the kernel's; what counts is that it is not a hang"),
    ),
    wall("F17", &["random-syscalls", "20000", "1"])
        .flags(&["--wall", "30s", "--memory", "256M", "--processes", "64", "--output", "1M"])
        .expect(Expect::Ending(&["exited", "timeout", "out_of_memory", "signaled"]))
        .control(NO_CONTROL_HARMS),
];

/// C and G: what needs no cage.
pub const MEMORY: &[AttackSpec] = &[
    // Address space costs nothing until it is touched: `attacks_memory.rs` looks at the peak.
    wall("C2", &["reserve", "32768G"]).flags(SMALL).expect(Expect::NoEffect),
    wall("C4", &["sysv-shm", "4096"]).expect(Expect::DeniedOr(&["exited"])).control(
        NegativeControl::Unavailable("the harness suite shows that the census sees one left behind"),
    ),
    wall("C6", &["memfd-secret"]),
    wall("C10", &["oom-score"]).control(RAISER),
    wall("C10", &["oom-score-of-host"]),
    wall("C12", &["stalled-write"]),
    wall("C12", &["read-file", "/dev/userfaultfd"]).control(KMSG),
];

/// D: disk and output.
pub const DISK: &[AttackSpec] = &[
    wall("D1", &["fill-disk", "/tmp", "64M"])
        .flags(DISK_16M)
        .expect(NO_DISK)
        .control(NegativeControl::Bare(&["fill-disk", "{scene}", "64M"])),
    wall("D2", &["inodes", "/tmp", "300000"])
        .flags(DISK_16M)
        .expect(NO_DISK)
        .control(NegativeControl::Bare(&["inodes", "{scene}", "2000"])),
    wall("D3", &["sparse", "/tmp", "1024G"])
        .flags(DISK_16M)
        .expect(NO_DISK)
        .control(NegativeControl::Bare(&["sparse", "{scene}", "1024G"])),
    wall("D3", &["fallocate", "/tmp", "64M"])
        .flags(DISK_16M)
        .expect(NO_DISK)
        .control(NegativeControl::Bare(&["fallocate", "{scene}", "64M"])),
    wall("D4", &["fill-disk", "/dev/shm", "64M"])
        .flags(DISK_16M)
        .expect(NO_DISK)
        .control(NegativeControl::Bare(&["fill-disk", "{scene}", "64M"])),
    endless("D8", &["hold-pipe", "30"]).expect(Expect::NoEffect).control(NegativeControl::Outlives),
    endless("D8", &["close-stdio"]),
    wall("E12", &["core-dump"]).expect(Expect::Ending(&["signaled"])).control(NegativeControl::Unavailable(
        "the ending is the kernel's; what counts is that it is on time",
    )),
];

/// E: files and escape.
pub const FILES: &[AttackSpec] = &[
    wall("E1", &["read-file", "{secret}"]),
    wall("E1", &["read-file", "/etc/shadow"]).control(NegativeControl::Bare(&["read-file", "{secret}"])),
    wall("E1", &["read-file", "/run"]).control(NegativeControl::Bare(&["read-file", "{scene}"])),
    wall("E1", &["read-file", "/proc/kcore"]).control(NegativeControl::Bare(&["read-file", "{secret}"])),
    wall("E1", &["read-file", "/sys/kernel"]).control(NegativeControl::Bare(&["read-file", "/sys/kernel"])),
    wall("E1", &["proc-environ"]).control(NegativeControl::Bare(&["proc-environ", "{canary}"])),
    wall("E1", &["proc-environ", "{canary}"]),
    wall("E3", &["read-file", "/proc/1/exe"])
        .control(NegativeControl::Bare(&["read-file", "/proc/{canary}/exe"])),
    wall("E2", &["write-file", "/usr/bin/env"]),
    wall("E2", &["write-file", "/etc/passwd"]),
    wall("E2", &["create-file", "/usr/lib/hostile-new"])
        .control(NegativeControl::Bare(&["create-file", "{scene}/new"])),
    wall("E2", &["create-file", "hostile-new"])
        .control(NegativeControl::Bare(&["create-file", "{scene}/new"])),
    wall("E4", &["open-fds"]).control(NegativeControl::Unavailable("the harness suite shows one that leaks")),
    wall("E5", &["pivot"]),
    wall("E5", &["chroot-escape"]),
    wall("E6", &["mount"]),
    wall("E6", &["remount"]),
    wall("E6", &["umount", "/proc"]),
    wall("E6", &["umount", "/tmp"]).control(NegativeControl::Bare(&["umount", "/proc"])),
    wall("E6", &["open-tree"]),
    wall("E6", &["fsopen"]),
    wall("E6", &["mount-setattr"]),
    wall("E8", &["hardlink", "/usr/bin/env", "/tmp/hostile-link"]).control(NegativeControl::Bare(&[
        "hardlink",
        "{secret}",
        "{scene}/link",
    ])),
    wall("E8", &["by-handle", "/usr/bin/env"]),
    wall("E9", &["mknod", "/tmp/hostile-null"]).control(NegativeControl::Bare(&["mknod", "{scene}/null"])),
    wall("E9", &["read-file", "/dev/kmsg"]),
    wall("E9", &["read-file", "/dev/mem"]).control(KMSG),
    wall("E9", &["read-file", "/dev/fuse"]).control(KMSG),
    wall("E9", &["read-file", "/dev/kvm"]).control(KMSG),
    wall("E9", &["read-file", "/dev/net/tun"]).control(KMSG),
    wall("E10", &["tiocsti"]),
    wall("E11", &["write-file", "/proc/sys/kernel/core_pattern"]),
    wall("E11", &["write-file", "/proc/sysrq-trigger"])
        .control(NegativeControl::Bare(&["write-file", "/proc/sys/kernel/core_pattern"])),
    wall("E11", &["write-file", "/sys/fs/cgroup/cgroup.procs"])
        .control(NegativeControl::Bare(&["write-file", "/proc/sys/kernel/core_pattern"])),
    wall("E13", &["send-descriptor", "{unix}"]),
    wall("E14", &["setns"]).control(NegativeControl::Bare(&["setns", "{canary}"])),
    credential(&["read-file", "{workspace}/project/.aws/credentials"]),
    credential(&["read-file", "{workspace}/project/.netrc"]),
    credential(&["read-file", "{workspace}/project/.docker/config.json"]),
    credential(&["read-file", "{workspace}/.pypirc"]),
];

/// F: kernel surface.
pub const KERNEL: &[AttackSpec] = &[
    wall("F1", &["io-uring"]).control(NegativeControl::Without(&["seccomp"])),
    wall("F2", &["unshare-user"]).control(NegativeControl::Without(&["seccomp"])),
    wall("F2", &["clone-user"]).control(NegativeControl::Without(&["seccomp"])),
    wall("F2", &["clone3-user"]).control(NegativeControl::Without(&["seccomp"])),
    wall("F2", &["unshare", "mount"]),
    wall("F2", &["unshare", "net"]),
    wall("F2", &["unshare", "ipc"]),
    wall("F2", &["unshare", "uts"]),
    wall("F2", &["unshare", "pid"]),
    wall("F2", &["unshare", "cgroup"]),
    wall("A10", &["unshare", "time"]),
    wall("F3", &["bpf"]),
    wall("F4", &["perf"]),
    wall("F5", &["userfaultfd"]).control(NegativeControl::Without(&["seccomp"])),
    wall("F6", &["keyctl"]).control(NegativeControl::Without(&["seccomp"])),
    wall("F6", &["add-key"]).control(NegativeControl::Without(&["seccomp"])),
    wall("F7", &["ptrace-child"]).control(NegativeControl::Without(&["seccomp"])),
    wall("F7", &["ptrace-parent"]),
    wall("F7", &["process-vm"]).control(NegativeControl::Without(&["seccomp"])),
    wall("F7", &["pidfd-getfd"]),
    wall("F7", &["kcmp"]).control(NegativeControl::Without(&["seccomp"])),
    wall("F8", &["socket", "16", "3", "9"]).control(NegativeControl::Without(&["seccomp"])),
    wall("F8", &["socket", "16", "3", "16"]).control(NegativeControl::Without(&["seccomp"])),
    wall("F8", &["urgent-data"]).control(NegativeControl::Without(&["seccomp"])),
    wall("F8", &["socket", "40", "1", "0"]),
    wall("F8", &["socket", "38", "5", "0"]),
    wall("F8", &["socket", "17", "3", "0"]),
    wall("F8", &["socket", "44", "3", "0"]),
    wall("F8", &["socket", "2", "1", "262"]).control(NegativeControl::Without(&["seccomp"])),
    wall("F8", &["socket", "2", "1", "132"]),
    wall("F8", &["socket", "2", "3", "1"]),
    wall("F9", &["admin", "reboot"]),
    wall("F9", &["admin", "swapon"]),
    wall("F9", &["admin", "acct"]),
    wall("F9", &["admin", "init-module"]),
    wall("F9", &["admin", "delete-module"]),
    wall("F9", &["admin", "kexec"]),
    wall("F9", &["admin", "syslog"]),
    wall("F9", &["admin", "sethostname"]),
    #[cfg(target_arch = "x86_64")]
    wall("F9", &["iopl"]),
    #[cfg(target_arch = "x86_64")]
    wall("F9", &["modify-ldt"]),
    wall("F10", &["personality"]).control(NegativeControl::Without(&["seccomp"])),
    #[cfg(target_arch = "x86_64")]
    wall("F11", &["int80"]),
    #[cfg(target_arch = "x86_64")]
    wall("F11", &["x32"]),
    wall("F12", &["fanotify"]),
    wall("F12", &["file-handle", "/usr/bin/env"]),
    wall("F13", &["ioctl", "discipline"]).control(NegativeControl::Without(&["seccomp"])),
    wall("F13", &["ioctl", "block-number"]),
    wall("F14", &["prctl", "dumpable"]).control(NegativeControl::Without(&["seccomp"])),
    wall("F14", &["prctl", "ptracer"]).control(NegativeControl::Where(
        Need::Path("/proc/sys/kernel/yama"),
        &NegativeControl::Without(&["seccomp"]),
    )),
    wall("F14", &["prctl", "mm"]).control(RAISER),
    wall("F14", &["prctl", "user-dispatch"]).control(NegativeControl::Without(&["seccomp"])),
    wall("F14", &["prctl", "sched-core"])
        .control(NegativeControl::Where(Need::SharedCores, &NegativeControl::Without(&["seccomp"]))),
    wall("F15", &["vmsplice"]).control(NegativeControl::Without(&["seccomp"])),
    wall("F16", &["seccomp-stack", "64"]).control(NegativeControl::Without(&["seccomp"])),
    wall("F16", &["seccomp-stack", "64", "prctl"]).control(NegativeControl::Without(&["seccomp"])),
    wall("F18", &["aio"]).control(NegativeControl::Without(&["seccomp"])),
    wall("F18", &["attach-filter", "26"]).control(NegativeControl::Without(&["seccomp"])),
    wall("F18", &["attach-filter", "50"]).control(NegativeControl::Without(&["seccomp"])),
    wall("F18", &["attach-filter", "51"]).control(NegativeControl::Without(&["seccomp"])),
    wall("F18", &["attach-filter", "52"]).control(NegativeControl::Without(&["seccomp"])),
];

/// G and H: other runs and the network.
pub const NETWORK: &[AttackSpec] = &[
    wall("G1", &["unix-abstract", "{abstract}"]),
    // A lease can only be taken on what belongs to the taker: here it does.
    wall("G4", &["lock", "lease", "{workspace}/setuid"])
        .flags(&["--workspace", "{workspace}"])
        .control(NegativeControl::Without(&["seccomp"])),
    wall("G4", &["lock", "notify", "/usr"]).control(NegativeControl::Without(&["seccomp"])),
    wall("H1", &["connect", "127.0.0.1", "{tcp}"]),
    wall("H1", &["connect", "169.254.169.254", "80"]).control(NegativeControl::Bare(&[
        "connect",
        "127.0.0.1",
        "{tcp}",
    ])),
    // On its own loopback it may send, connect and listen: the canaries on the host's decide.
    wall("H2", &["udp", "127.0.0.1", "{udp}"]).expect(Expect::NoEffect),
    wall("H2", &["connect", "::ffff:127.0.0.1", "{tcp}"]).control(NegativeControl::Bare(&[
        "connect",
        "127.0.0.1",
        "{tcp}",
    ])),
    wall("H3", &["listen", "127.0.0.1", "0"]).expect(Expect::NoEffect),
    wall("H4", &["unix-path", "{unix}"]),
    wall("H5", &["fast-open", "127.0.0.1", "{tcp}"]),
];

/// All that may run beside honest runs.
pub const ALL: &[&[AttackSpec]] = &[TIME, TREE, MEMORY, DISK, FILES, KERNEL, NETWORK];
