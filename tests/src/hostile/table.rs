//! The table of payloads: name, attack, what runs, one line about it.
//!
//! Attack letters: A time, B process tree, C memory, D disk and output, E files, F kernel surface,
//! G between runs, H network, I supervisor.

use crate::arguments::PayloadArguments;
use crate::report::{Finding, quoted};
use crate::{disk, files, kernel, locks, meeting, memory, network, output, privilege, time, tree};

pub(crate) struct Payload {
    pub(crate) name: &'static str,
    pub(crate) attack: &'static str,
    pub(crate) run: fn(&PayloadArguments) -> Finding,
    pub(crate) about: &'static str,
    /// Refused outside a process namespace of its own: it would harm the host.
    pub(crate) cage_only: bool,
}

type PayloadFunction = fn(&PayloadArguments) -> Finding;

const fn free(
    name: &'static str,
    attack: &'static str,
    run: PayloadFunction,
    about: &'static str,
) -> Payload {
    Payload { name, attack, run, about, cage_only: false }
}

const fn caged(
    name: &'static str,
    attack: &'static str,
    run: PayloadFunction,
    about: &'static str,
) -> Payload {
    Payload { name, attack, run, about, cage_only: true }
}

pub(crate) static TABLE: &[Payload] = &[
    free("spin", "A1", time::spin, "a busy loop"),
    free("sleep", "A2", time::sleep, "waits for ever"),
    free("ignore-signals", "A4", time::ignore_signals, "ignores and blocks every signal, then spins"),
    free("stop-self", "A5", time::stop_self, "stops itself, again after each continue"),
    free("stop-children", "A5", time::stop_children, "stops its own children, then sleeps"),
    free("fork-chain", "A6", time::fork_chain, "LINKS BURN_MS: each link burns a little and forks the next"),
    free("threads-spin", "A7", time::threads_spin, "N: busy threads"),
    free("raise-limit", "A8", time::raise_limit, "raises its own hard limit"),
    free("prlimit-init", "A8", time::limit_of_init, "[PID]: writes back a limit of another process"),
    free("timers", "A9", time::timers, "N: timers, then sleeps"),
    caged("clock-settime", "A10", time::clock_settime, "sets the calendar clock"),
    free("adjtimex", "A10", time::adjtimex, "writes back the clock's tick"),
    free("exit-at", "A11", time::exit_at, "MS: exits 0 then"),
    free("exit-hang", "A12", time::exit_hang, "an exit handler that never returns"),
    free("vfork-sleep", "A13", time::vfork_sleep, "a parent held in vfork by a sleeping child"),
    free("fuse-mount", "A15", privilege::fuse_mount, "a file system of its own making"),
    free("sched-fifo", "A16", time::sched_fifo, "real-time scheduling for itself"),
    free("affinity-init", "A16", time::affinity_of_init, "[PID]: writes back another process's processors"),
    free("nice-down", "A16", time::nice_down, "a higher priority for itself"),
    free("storm", "A17", time::storm, "a storm of cheap system calls"),
    caged("fork-bomb", "B1", tree::fork_bomb, "N: every process forks until N were made"),
    caged("thread-bomb", "B2", tree::thread_bomb, "N: threads until N or a refusal"),
    free("daemon", "B3", tree::daemon, "a daemon that outlives it; prints its pid"),
    free("setsid-shuffle", "B4", tree::setsid_shuffle, "leaves session and group at each fork"),
    free("subreaper", "B5", tree::subreaper, "adopts its orphans"),
    caged("kill-all", "B6", tree::kill_all, "SIGKILL to everything it can name"),
    free("signal-probe", "B6", tree::signal_probe, "PID: SIGKILL to that one"),
    caged("stop-init", "B7", tree::stop_init, "stops and continues process 1 over and over"),
    caged("zombies", "B8", tree::zombies, "N: children never reaped"),
    free("fork-in-handler", "B9", tree::fork_in_handler, "forks each time it is told to end"),
    free("clone-parent", "B9", tree::clone_parent, "a child that is its parent's sibling"),
    free("clone3", "B9", tree::clone3, "KIND: a child by clone3 where it does not belong"),
    free("setuid-exec", "B10", privilege::setuid_exec, "PATH: runs a set-user-id copy of this program"),
    free("am-i-root", "B10", privilege::am_i_root, "whether it acts for root"),
    free("memfd-exec", "B11", privilege::memfd_exec, "NAME…: runs itself from memory to probe from there"),
    free("short-children", "B12", tree::short_children, "N: short children, one after another"),
    caged("memory", "C1", memory::private, "BYTES: private memory, touched"),
    free("reserve", "C2", memory::reserve, "BYTES: address space without memory"),
    free("mappings", "C2", memory::mappings, "N: mappings of a page each"),
    caged("memory-fork", "C3", memory::forked, "BYTES N SECONDS: children that each touch a copy"),
    caged("memfd", "C4", memory::memfd, "BYTES: a memory file, touched"),
    caged("shared", "C4", memory::shared, "BYTES: shared anonymous memory, touched"),
    caged("shm", "C4", disk::fill, "DIR BYTES: a file in shared memory"),
    free("sysv-shm", "C4", memory::sysv, "BYTES: a System V segment, left behind"),
    free("fd-hoard", "C5", memory::descriptors, "N: descriptors until N or a refusal"),
    free("memfd-secret", "C6", memory::secret, "memory the kernel cannot read"),
    free("mlock", "C6", memory::lock, "BYTES: locked memory"),
    free("read-over", "C7", memory::read_over, "PATH TIMES: a file from beginning to end"),
    free("stack-bomb", "C8", memory::stack, "recursion without end"),
    free("memfd-hold", "C13", memory::memfd_hold, "BYTES in a file of memory, kept and not mapped"),
    free(
        "oom-score-of-host",
        "C10",
        memory::oom_score_of_host,
        "lowers its score to that of other processes",
    ),
    free("oom-score", "C10", memory::oom_score, "asks never to be chosen by the out-of-memory killer"),
    caged("hold-memory", "C11", memory::hold, "BYTES MS: touches it and gives it back"),
    free("echo-mapped", "C12", memory::echo_mapped, "PATH: to stdout, from where it is mapped"),
    free("stalled-write", "C12", kernel::stalled_write, "writes from a page that nobody brings in"),
    free("fill-disk", "D1", disk::fill, "DIR BYTES: one file"),
    free("inodes", "D2", disk::inodes, "DIR N: empty files"),
    free("sparse", "D3", disk::sparse, "DIR BYTES: a file that claims that size"),
    free("fallocate", "D3", disk::reserve, "DIR BYTES: reserves that many"),
    free("flood-stdout", "D5", output::stdout, "BYTES"),
    free("newline-flood", "D6", output::newlines, "N: empty lines"),
    free("junk-output", "D6", output::junk, "bytes that are no text, terminal escapes, false frames"),
    free("flood-both", "D7", output::both, "BYTES to each stream at once"),
    free("hold-pipe", "D8", tree::hold_pipe, "S: a grandchild keeps stdout open that long"),
    free("close-stdio", "D8", output::close_streams, "closes its streams and lives on"),
    caged("refusals", "D13", kernel::rejected_calls, "N: refused calls of each kind"),
    caged("crashes", "D13", kernel::crashes, "N: children that the kernel ends"),
    free("read-file", "E1", files::read, "PATH"),
    free("proc-environ", "E1", files::process_secrets, "[PID]: opens what /proc shows of it"),
    free("write-file", "E2", files::write, "PATH: opens it for writing, writes nothing"),
    free("create-file", "E2", files::create, "PATH [keep]"),
    free("open-fds", "E4", files::inherited, "descriptors beyond the three streams"),
    free("pivot", "E5", privilege::pivot, "another root"),
    free("chroot-escape", "E5", privilege::chroot_escape, "a root in the root, left again"),
    free("mount", "E6", privilege::mount, "a new file system"),
    free("remount", "E6", privilege::remount, "/usr writable"),
    free("umount", "E6", privilege::unmount, "PATH: what lies below a mount"),
    free("open-tree", "E6", privilege::open_tree, "a detached copy of the tree"),
    free("fsopen", "E6", privilege::fsopen, "a file system context"),
    free("mount-setattr", "E6", privilege::mount_setattr, "mount attributes"),
    free("swap", "E7", disk::swap, "DIR PATH MS: a directory and a link change places"),
    free("hardlink", "E8", files::hard_link, "PATH NEW: a second name"),
    free("by-handle", "E8", files::by_handle, "PATH: opens a file by its number"),
    free("mknod", "E9", files::device_node, "PATH: a device node"),
    free("tiocsti", "E10", privilege::tiocsti, "types into a terminal"),
    free("core-dump", "E12", output::core_dump, "ends by SIGSEGV"),
    free("send-descriptor", "E13", network::send_descriptor, "PATH: gives one away"),
    free("setns", "E14", privilege::setns, "[PID]: joins namespaces by descriptor"),
    free("io-uring", "F1", kernel::io_uring, "a ring"),
    free("unshare-user", "F2", kernel::unshare_user, "a user namespace by unshare"),
    free("unshare", "F2", kernel::unshare, "KIND: another namespace by unshare"),
    free("clone-user", "F2", kernel::clone_user, "a user namespace by clone"),
    free("clone3-user", "F2", kernel::clone3_user, "a user namespace by clone3"),
    free("bpf", "F3", kernel::bpf, "a map"),
    free("perf", "F4", kernel::perf, "a counter"),
    free("userfaultfd", "F5", kernel::userfaultfd, "for its own faults"),
    free("keyctl", "F6", kernel::keyctl, "its process keyring"),
    free("add-key", "F6", kernel::add_key, "a key"),
    free("ptrace-child", "F7", kernel::ptrace_child, "traces a child"),
    free("ptrace-parent", "F7", kernel::ptrace_parent, "traces its parent"),
    free("process-vm", "F7", kernel::process_vm, "reads a child's memory"),
    free("pidfd-getfd", "F7", kernel::pidfd_getfd, "takes a child's descriptor"),
    free("kcmp", "F7", kernel::kcmp, "compares kernel objects with a child"),
    free("socket", "F8", network::socket, "FAMILY TYPE PROTOCOL, by numbers"),
    free("urgent-data", "F8", network::urgent_data, "MSG_OOB on a pair of Unix sockets"),
    free("admin", "F9", kernel::admin, "NAME: a call for administrators"),
    #[cfg(target_arch = "x86_64")]
    free("iopl", "F9", kernel::iopl, "port access"),
    #[cfg(target_arch = "x86_64")]
    free("modify-ldt", "F9", kernel::modify_ldt, "segments"),
    free("personality", "F10", kernel::personality, "no address randomisation"),
    #[cfg(target_arch = "x86_64")]
    free("int80", "F11", kernel::int80, "a call by the 32-bit gate"),
    #[cfg(target_arch = "x86_64")]
    free("x32", "F11", kernel::x32, "a call by an x32 number"),
    free("fanotify", "F12", kernel::fanotify, "a watch on the file system"),
    free("file-handle", "F12", files::file_handle, "PATH: its number"),
    free("inotify", "F12", locks::watch, "PATH [MS]: a watch on a shared path"),
    free("ioctl", "F13", kernel::ioctl, "NAME [PATH]: a request beyond its descriptor"),
    free("prctl", "F14", kernel::prctl, "NAME: an operation on itself"),
    free("vmsplice", "F15", kernel::vmsplice, "pages into a pipe"),
    free("seccomp-stack", "F16", kernel::seccomp_stack, "N [prctl]: filters on filters"),
    free("aio", "F18", kernel::aio, "requests of asynchronous I/O"),
    free("attach-filter", "F18", kernel::attach_filter, "OPTION: a filter on a socket"),
    caged("random-syscalls", "F17", kernel::random_syscalls, "N SEED"),
    free("unix-abstract", "G1", network::unix_abstract, "NAME: connects"),
    free("unix-abstract-listen", "G1", network::unix_abstract_listen, "NAME: waits for a connection"),
    free("meeting", "G2", meeting::meeting, "hold|find|both NAME: objects by which two runs could meet"),
    free("lock", "G4", locks::lock, "KIND PATH [MS]: a lock on a shared file"),
    free("find", "G5", disk::find, "PATH: whether an earlier run left it"),
    free("connect", "H1", network::connect, "HOST PORT"),
    free("udp", "H2", network::udp, "HOST PORT: one datagram"),
    free("listen", "H3", network::listen, "HOST PORT"),
    free("unix-path", "H4", network::unix_path, "PATH: connects"),
    free("fast-open", "H5", network::fast_open, "HOST PORT: data in the first packet"),
    free("forge-outcome", "I2", output::forge_outcome, "prints a false Outcome, then exits 3"),
    free("ignore-input", "I4", output::ignore_input, "exits without reading"),
    free("environ", "I12", output::environment, "prints its environment"),
    free("echo-arguments", "E15", output::arguments, "prints its arguments in hexadecimal"),
];

/// The table as `hostile list` prints it.
pub(crate) fn as_json() -> String {
    let objects: Vec<String> = TABLE
        .iter()
        .map(|payload| {
            format!(
                "{{\"name\":{},\"attack\":{},\"cage_only\":{},\"about\":{}}}",
                quoted(payload.name),
                quoted(payload.attack),
                payload.cage_only,
                quoted(payload.about)
            )
        })
        .collect();
    format!("[{}]", objects.join(",\n"))
}
