//! The policy itself: which calls a sandbox is refused, which depend on their arguments, and the
//! answer each gets.
//!
//! Rules are plain data, so that the compiler and the tests read the same table each in its own
//! way. A call no rule names is allowed if the architecture's table knows its number.
//!
//! The hard fact: a filter sees 64-bit registers, the kernel what its prototype makes of them. For
//! an `int` or `unsigned` parameter the kernel drops the high half, so a rule must not look at it
//! either: garbage there would slip past a comparison with the whole. For a `long` or a pointer
//! both halves count.

use super::architecture as number;

/// What a sandbox was granted that its filter has to know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FilterPolicy {
    /// There is a network, the sandbox's own or the host's: TCP and UDP sockets (and unprivileged
    /// ping) over IPv4 and IPv6 can be made, and NETLINK_ROUTE ones.
    pub network: bool,
    /// The sandbox has an IPC namespace of its own, so System V IPC and POSIX message queues end
    /// with it. Without one they would outlive the run and connect it with others, and are refused.
    pub ipc_namespace: bool,
    /// Sockets may wait for their peer when they are closed. Without it SO_LINGER is refused: a job
    /// could send its supervisor such a socket, and the thread that drops the message waits
    /// ([`refuse_descriptors`](crate::zygote::refuse_descriptors)). A job without a network may get
    /// such a socket from another job.
    pub lingering: bool,
    /// The listener's holder decides about calls that send signals: the filter must be loaded with
    /// a listener.
    pub supervised: bool,
}

/// What a call gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum FilterAction {
    /// The call goes ahead.
    Allow,
    /// The call fails with this errno, and nothing is logged.
    Errno(u16),
    /// The process dies with SIGSYS.
    KillProcess,
    /// The supervisor is asked; seccomp_unotify(2).
    Ask,
}

impl FilterAction {
    /// The value a filter returns for this answer: SECCOMP_RET_ALLOW, _ERRNO or _KILL_PROCESS.
    pub(super) fn action(self) -> u32 {
        match self {
            FilterAction::Allow => 0x7fff_0000,
            FilterAction::Errno(errno) => 0x0005_0000 | u32::from(errno),
            FilterAction::KillProcess => 0x8000_0000,
            FilterAction::Ask => 0x7fc0_0000,
        }
    }
}

/// One of a call's six arguments, as far as it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Argument {
    /// Position, from 0.
    pub(super) index: u32,
    /// The bits that are compared.
    pub(super) mask: u64,
}

/// Where one 32-bit half of an argument lies in `struct seccomp_data`, and which of its bits are
/// compared.
#[derive(Debug, Clone, Copy)]
pub(super) struct Half {
    pub(super) offset: u32,
    pub(super) mask: u32,
}

impl Argument {
    /// Whether the high half matters too.
    pub(super) fn is_wide(self) -> bool {
        self.mask > u64::from(u32::MAX)
    }

    /// The low half. Arguments begin at byte 16, 8 bytes each, little-endian.
    pub(super) fn low(self) -> Half {
        Half { offset: 16 + 8 * self.index, mask: self.mask as u32 }
    }

    /// The high half.
    pub(super) fn high(self) -> Half {
        Half { offset: 16 + 8 * self.index + 4, mask: (self.mask >> 32) as u32 }
    }
}

/// How a call is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Rule {
    /// Always the same.
    Action(FilterAction),
    /// By whether the argument, masked, is one of `values`.
    Case { argument: Argument, values: Vec<u32>, hit: Box<Rule>, miss: Box<Rule> },
}

const ALLOW: Rule = Rule::Action(FilterAction::Allow);

fn errno(errno: i32) -> Rule {
    Rule::Action(FilterAction::Errno(errno as u16))
}

/// An argument whose parameter in the kernel is 32 bits wide or narrower.
const fn int(index: u32) -> Argument {
    Argument { index, mask: 0xffff_ffff }
}

/// An argument of which only `mask` matters, in a parameter that is 32 bits wide or narrower.
const fn bits(index: u32, mask: u32) -> Argument {
    Argument { index, mask: mask as u64 }
}

/// An argument whose parameter in the kernel is a `long` or a pointer.
const fn long(index: u32) -> Argument {
    Argument { index, mask: u64::MAX }
}

fn case(argument: Argument, values: &[u32], hit: Rule, miss: Rule) -> Rule {
    Rule::Case { argument, values: values.to_vec(), hit: Box::new(hit), miss: Box::new(miss) }
}

/// Refused whatever the arguments: EPERM, which the kernel returns to an unprivileged caller for
/// most of these, and for all if the administrator turned io_uring, bpf or userfaultfd off.
const REFUSED: &[u32] = &[
    // Large attack surface, or work done for the caller outside the reach of this filter.
    number::IO_URING_SETUP,
    number::IO_URING_ENTER,
    number::IO_URING_REGISTER,
    number::BPF,
    number::PERF_EVENT_OPEN,
    number::USERFAULTFD,
    number::VMSPLICE,
    // Memory outside the accounting, and stores that outlive the run.
    number::MEMFD_SECRET,
    number::ADD_KEY,
    number::REQUEST_KEY,
    number::KEYCTL,
    // Other processes' memory, descriptors and scheduling.
    number::PTRACE,
    number::PROCESS_VM_READV,
    number::PROCESS_VM_WRITEV,
    number::PROCESS_MADVISE,
    number::PIDFD_GETFD,
    number::KCMP,
    // The policy is in memory, where a filter cannot see whether it is a real-time one.
    number::SCHED_SETATTR,
    // Mounts, roots and namespaces.
    number::MOUNT,
    number::UMOUNT2,
    number::MOVE_MOUNT,
    number::OPEN_TREE,
    number::OPEN_TREE_ATTR,
    number::FSOPEN,
    number::FSCONFIG,
    number::FSMOUNT,
    number::FSPICK,
    number::MOUNT_SETATTR,
    number::STATMOUNT,
    number::LISTMOUNT,
    number::PIVOT_ROOT,
    number::CHROOT,
    number::SETNS,
    // Files by other means than a path inside the root, and watching files one does not own.
    number::NAME_TO_HANDLE_AT,
    number::OPEN_BY_HANDLE_AT,
    number::FANOTIFY_INIT,
    number::FANOTIFY_MARK,
    // The machine: its code, clock, name, log, quotas and ports.
    number::KEXEC_LOAD,
    number::KEXEC_FILE_LOAD,
    number::INIT_MODULE,
    number::FINIT_MODULE,
    number::DELETE_MODULE,
    number::CREATE_MODULE,
    number::QUERY_MODULE,
    number::GET_KERNEL_SYMS,
    number::REBOOT,
    number::SWAPON,
    number::SWAPOFF,
    number::ACCT,
    number::QUOTACTL,
    number::QUOTACTL_FD,
    number::SYSLOG,
    number::SETHOSTNAME,
    number::SETDOMAINNAME,
    number::SETTIMEOFDAY,
    number::CLOCK_SETTIME,
    number::CLOCK_ADJTIME,
    number::ADJTIMEX,
    number::IOPL,
    number::IOPERM,
    number::MODIFY_LDT,
    number::LOOKUP_DCOOKIE,
    number::NFSSERVCTL,
    // Landlock refuses to open a queue only after it was made: the queue would outlive the run.
    number::MQ_OPEN,
    number::MQ_UNLINK,
];

/// Refused unless the IPC objects end with the sandbox. Use as well as creation: objects of the
/// host are open to every process that guesses their number and passes their mode bits. POSIX
/// queues are used through a descriptor that only `mq_open` gives.
const IPC: &[u32] = &[
    number::SHMGET,
    number::SHMAT,
    number::SHMCTL,
    number::SEMGET,
    number::SEMOP,
    number::SEMTIMEDOP,
    number::SEMCTL,
    number::MSGGET,
    number::MSGSND,
    number::MSGRCV,
    number::MSGCTL,
];

/// Refused where there is no mount namespace: Landlock does not govern attributes, so a file of the
/// caller's user that cannot be opened could get or lose them. Programs that copy attributes
/// continue if a file system has none.
const ATTRIBUTES: &[u32] = &[
    number::SETXATTR,
    number::LSETXATTR,
    number::FSETXATTR,
    number::SETXATTRAT,
    number::REMOVEXATTR,
    number::LREMOVEXATTR,
    number::FREMOVEXATTR,
    number::REMOVEXATTRAT,
    number::FILE_SETATTR,
];

/// Flags of clone(2) that make a namespace, and the one that makes a sibling instead of a child,
/// which the sandbox's pid 1 would not reap. `CLONE_NEWTIME` is not a flag there: its bit is part
/// of the exit signal.
const CLONE_REFUSED: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_PARENT) as u32;

/// The flags of unshare(2) that make no namespace. A list of what is allowed, because unshare takes
/// new flags over time.
const UNSHARE_ALLOWED: u32 = (libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SYSVSEM
    | libc::CLONE_THREAD
    | libc::CLONE_SIGHAND
    | libc::CLONE_VM) as u32;

/// ioctl(2) requests that reach beyond the descriptor they are made on.
const IOCTLS_REFUSED: &[u32] = &[
    0x5412,      // TIOCSTI: types into the terminal's other readers
    0x541c,      // TIOCLINUX: the same by the console's selection
    0x541d,      // TIOCCONS: takes the host's console output
    0x5423,      // TIOCSETD: line disciplines, each a driver of its own
    0x0001,      // FIBMAP: block numbers of the disk
    0xaa00,      // USERFAULTFD_IOC_NEW: userfaultfd by its device
    0xc050_6617, // FS_IOC_ADD_ENCRYPTION_KEY: a key store that outlives the run
];

/// The attributes of [`ATTRIBUTES`] by a descriptor that may be open for reading only.
const IOCTLS_ON_ATTRIBUTES: &[u32] = &[
    0x4008_6602, // FS_IOC_SETFLAGS
    0x401c_5820, // FS_IOC_FSSETXATTR
];

/// Refused fcntl(2) commands: a lease on a file makes the next process that opens it wait up to 45
/// s, also outside the jail; a notification reveals what other runs do in a shared directory.
const FCNTLS_REFUSED: &[u32] = &[
    1024, // F_SETLEASE
    1026, // F_NOTIFY
    1040, // F_SETDELEG
];

/// Requests that make a descriptor send signals to a process of the caller's choosing.
const IOCTLS_THAT_SIGNAL: &[u32] = &[
    0x8901, // FIOSETOWN
    0x8902, // SIOCSPGRP
];
/// The same by fcntl(2).
const FCNTLS_THAT_SIGNAL: &[u32] = &[
    8,  // F_SETOWN
    15, // F_SETOWN_EX
];

/// prctl(2) options refused whatever their arguments.
const PRCTLS_REFUSED: &[u32] = &[
    35,          // PR_SET_MM: rewrites what /proc says about the process
    59,          // PR_SET_SYSCALL_USER_DISPATCH
    62,          // PR_SCHED_CORE: shares a core's trust with other processes
    0x5961_6d61, // PR_SET_PTRACER
];

/// Called by what makes and seals processes, also in those: they clone into a control group, enter
/// namespaces and make one of users, change whose they are, and load a filter with a listener.
/// (`helper/python.rs`)
const FOR_SEALING: &[u32] = &[number::CLONE3, number::SETNS, number::UNSHARE, number::PRCTL, number::SECCOMP];

/// Whether a rule is of [`super::FilterPart::Rest`]. A rule that asks needs a separate listener for
/// each jail.
pub(super) fn is_of_the_rest(number: u32, rule: &Rule) -> bool {
    FOR_SEALING.contains(&number) || *rule == Rule::Action(FilterAction::Ask)
}

/// Every rule the policy has, by syscall number, in no order, each number once.
pub(super) fn rules(policy: &FilterPolicy) -> Vec<(u32, Rule)> {
    let refused = || errno(libc::EPERM);
    let mut rules: Vec<(u32, Rule)> = REFUSED.iter().map(|&number| (number, refused())).collect();
    if !policy.ipc_namespace {
        rules.extend(IPC.iter().map(|&number| (number, refused())));
    }
    // Namespaces come together: without one of IPC the processes and files are those of the host.
    let has_host_namespaces = !policy.ipc_namespace;
    rules.extend(process_rules(policy.supervised, has_host_namespaces));
    if has_host_namespaces {
        rules.extend(ATTRIBUTES.iter().map(|&number| (number, errno(libc::EOPNOTSUPP))));
        rules.extend(priority_rules());
    }
    if policy.supervised {
        rules.extend(signal_rules());
    }
    rules.extend(file_rules(policy.supervised, has_host_namespaces));
    rules.extend([
        (number::SOCKET, socket(policy.network)),
        (number::SOCKETPAIR, case(int(0), &[libc::AF_UNIX as u32], ALLOW, errno(libc::EAFNOSUPPORT))),
        (number::SETSOCKOPT, setsockopt(policy.lingering)),
        (number::SENDTO, without_urgent(3)),
        (number::SENDMSG, without_urgent(2)),
        (number::SENDMMSG, without_urgent(3)),
    ]);
    rules
}

/// The listener's holder decides about calls that send a signal by a number. A call that names its
/// target in memory, or by a descriptor that another thread could replace during the decision,
/// cannot be judged: it is refused.
fn signal_rules() -> Vec<(u32, Rule)> {
    let ask = || Rule::Action(FilterAction::Ask);
    let asked =
        [number::KILL, number::TKILL, number::TGKILL, number::RT_SIGQUEUEINFO, number::RT_TGSIGQUEUEINFO];
    let mut rules: Vec<(u32, Rule)> = asked.iter().map(|&number| (number, ask())).collect();
    // The last two send their signal later, also SIGCONT to a process that is to stay stopped.
    // timeout(1) and others use older timers then, which send none but their own.
    let refused = [number::PIDFD_SEND_SIGNAL, number::TIMER_CREATE, number::MQ_NOTIFY];
    rules.extend(refused.iter().map(|&number| (number, errno(libc::ENOSYS))));
    rules
}

/// The answer to a further filter. Filters are compiled into memory of which the machine has a
/// fixed amount (`net.core.bpf_jit_limit`), and when it is used up no sandbox can be started; a
/// listener would let the job suspend its own calls. EINVAL is the answer of a kernel without
/// filters, for which man, browsers and systemd look.
fn no_filters() -> Rule {
    errno(libc::EINVAL)
}

/// Priorities where the processes of the host are in reach: only those of the caller and of its
/// process group, which is the run's own. The same call can name all processes of a user.
fn priority_rules() -> [(u32, Rule); 3] {
    let own = |kinds: &[u32]| {
        let own = case(int(1), &[0], ALLOW, errno(libc::EPERM));
        case(int(0), kinds, own, errno(libc::EPERM))
    };
    [
        (number::SETPRIORITY, own(&[libc::PRIO_PROCESS, libc::PRIO_PGRP])),
        // IOPRIO_WHO_PROCESS, IOPRIO_WHO_PGRP.
        (number::IOPRIO_SET, own(&[1, 2])),
        (number::SCHED_SETPARAM, case(int(0), &[0], ALLOW, errno(libc::EPERM))),
    ]
}

/// Calls that make, schedule or describe processes.
fn process_rules(supervised: bool, has_host_namespaces: bool) -> Vec<(u32, Rule)> {
    let refused = || errno(libc::EPERM);
    let own_process = || case(int(0), &[0], ALLOW, refused());
    vec![
        // The flags are in memory, where no filter sees them. libc uses clone if clone3 is absent.
        (number::CLONE3, errno(libc::ENOSYS)),
        // The kernel keeps only the low half of clone's flags, although the parameter is a long.
        (number::CLONE, case(bits(0, CLONE_REFUSED), &[0], ALLOW, refused())),
        (
            number::UNSHARE,
            case(Argument { index: 0, mask: !u64::from(UNSHARE_ALLOWED) }, &[0], ALLOW, refused()),
        ),
        (number::SCHED_SETAFFINITY, own_process()),
        (number::MIGRATE_PAGES, own_process()),
        (number::MOVE_PAGES, own_process()),
        (number::SCHED_SETSCHEDULER, {
            let ordinary = [libc::SCHED_OTHER as u32, libc::SCHED_BATCH as u32, libc::SCHED_IDLE as u32];
            let policy = case(bits(1, !(libc::SCHED_RESET_ON_FORK as u32)), &ordinary, ALLOW, refused());
            if has_host_namespaces { case(int(0), &[0], policy, refused()) } else { policy }
        }),
        // Another process's limits can be read, not set. A filter cannot know the caller's own pid,
        // but 0 means the caller.
        (number::PRLIMIT64, case(int(0), &[0], ALLOW, case(long(2), &[0], ALLOW, refused()))),
        // PER_LINUX without flags, and the query. Flags turn off address randomisation or make
        // readable memory executable.
        (number::PERSONALITY, case(int(0), &[0, 0xffff_ffff], ALLOW, refused())),
        (number::PRCTL, {
            // The children of a checkpoint that continues may inspect it again.
            let undumpable_only = case(long(1), if supervised { &[0, 1] } else { &[0] }, ALLOW, refused());
            let dumpable = case(int(0), &[libc::PR_SET_DUMPABLE as u32], undumpable_only, ALLOW);
            let filter = case(long(1), &[libc::SECCOMP_MODE_FILTER], no_filters(), ALLOW);
            let seccomp = case(int(0), &[libc::PR_SET_SECCOMP as u32], filter, dumpable);
            case(int(0), PRCTLS_REFUSED, refused(), seccomp)
        }),
        (number::SECCOMP, case(int(0), &[libc::SECCOMP_SET_MODE_FILTER], no_filters(), ALLOW)),
        // Merged pages reveal by timing what other processes hold. A kernel without merging returns
        // EINVAL.
        (number::MADVISE, case(int(2), &[libc::MADV_MERGEABLE as u32], errno(libc::EINVAL), ALLOW)),
    ]
}

/// `__O_TMPFILE`: O_TMPFILE without the O_DIRECTORY that is part of it.
const TMPFILE: u32 = 0o20_000_000;

/// Calls on files and descriptors.
fn file_rules(supervised: bool, has_host_namespaces: bool) -> Vec<(u32, Rule)> {
    let refused = || errno(libc::EPERM);
    let with = |always: &[u32], signals: &[u32]| [always, if supervised { signals } else { &[] }].concat();
    let ioctls = [IOCTLS_REFUSED, if has_host_namespaces { IOCTLS_ON_ATTRIBUTES } else { &[] }].concat();
    // Regular (also as 0), FIFO and socket. The parameter is 16 bits wide, and all of the type is
    // inside them.
    let harmless = [0, libc::S_IFREG, libc::S_IFIFO, libc::S_IFSOCK];
    // Set-id bits are refused on whatever the run makes: in a workspace they would be its owner's
    // on the host, where no nosuid mount covers them.
    let plain = |mode| case(bits(mode, libc::S_ISUID | libc::S_ISGID), &[0], ALLOW, refused());
    let node = |mode| case(bits(mode, libc::S_IFMT), &harmless, plain(mode), refused());
    // The mode counts only where a file is made; elsewhere it is whatever the register held.
    let open = |flags| {
        let made = || plain(flags + 1);
        let temporary = case(bits(flags, TMPFILE), &[0], ALLOW, made());
        case(bits(flags, libc::O_CREAT as u32), &[0], temporary, made())
    };
    vec![
        (number::MKNOD, node(1)),
        (number::MKNODAT, node(2)),
        (number::CHMOD, plain(1)),
        (number::FCHMOD, plain(1)),
        (number::FCHMODAT, plain(2)),
        (number::FCHMODAT2, plain(2)),
        (number::CREAT, plain(1)),
        (number::OPEN, open(1)),
        (number::OPENAT, open(2)),
        // Its mode is in memory, where a filter cannot see it. Programs fall back to openat(2).
        (number::OPENAT2, errno(libc::ENOSYS)),
        // The machine has a fixed number of requests (`fs.aio-max-nr`). Databases fall back to
        // threads, as on a kernel built without it.
        (number::IO_SETUP, errno(libc::ENOSYS)),
        (number::IOCTL, case(int(1), &with(&ioctls, IOCTLS_THAT_SIGNAL), refused(), ALLOW)),
        (number::FCNTL, case(int(1), &with(FCNTLS_REFUSED, FCNTLS_THAT_SIGNAL), refused(), ALLOW)),
    ]
}

/// socket(2): Unix sockets always, internet sockets and the questions about interfaces and
/// addresses (NETLINK_ROUTE) where there is a network, nothing else.
///
/// Internet sockets without a network get EACCES, which socket(2) documents for "permission denied"
/// and Landlock uses too: EAFNOSUPPORT would have programs report, and act on, a host without IPv4.
/// The other families do get EAFNOSUPPORT, as on a kernel built without them, so that programs fall
/// back.
fn socket(network: bool) -> Rule {
    let internet = [libc::AF_INET as u32, libc::AF_INET6 as u32];
    let granted = if network { internet_socket() } else { errno(libc::EACCES) };
    // getifaddrs(3) asks by it. Whatever it could change takes a capability that no job has.
    let netlink = case(int(2), &[libc::NETLINK_ROUTE as u32], ALLOW, errno(libc::EPROTONOSUPPORT));
    let absent = || errno(libc::EAFNOSUPPORT);
    let netlink =
        if network { case(int(0), &[libc::AF_NETLINK as u32], netlink, absent()) } else { absent() };
    let other = case(int(0), &internet, granted, netlink);
    case(int(0), &[libc::AF_UNIX as u32], ALLOW, other)
}

/// Streams and datagrams of the plain protocols. Raw sockets, SCTP, MPTCP, SMC and L2TP are
/// refused; the ICMP protocols are ping without privileges on a datagram socket, and the kernel
/// knows no such stream.
fn internet_socket() -> Rule {
    // The bits above are SOCK_NONBLOCK and SOCK_CLOEXEC, or an error in the kernel.
    let kind = bits(1, 0xf);
    let kinds = [libc::SOCK_STREAM as u32, libc::SOCK_DGRAM as u32];
    let protocols = [
        0,
        libc::IPPROTO_TCP as u32,
        libc::IPPROTO_UDP as u32,
        libc::IPPROTO_ICMP as u32,
        libc::IPPROTO_ICMPV6 as u32,
    ];
    let plain = case(int(2), &protocols, ALLOW, errno(libc::EPROTONOSUPPORT));
    case(kind, &kinds, plain, errno(libc::ESOCKTNOSUPPORT))
}

/// Sending without MSG_OOB, which Unix sockets answer with this where the kernel was built without
/// it. No known program needs urgent data on them, and the kernel's code for it had a vulnerability
/// (CVE-2025-38236). A filter does not see what socket it is, so it is refused on TCP too.
fn without_urgent(flags: u32) -> Rule {
    case(bits(flags, libc::MSG_OOB as u32), &[0], ALLOW, errno(libc::EOPNOTSUPP))
}

/// setsockopt(2): no upper layer protocol may be put on TCP, because that turns an allowed socket
/// into another kind (SMC) or hands it to another driver (kTLS). A filter on a socket is compiled
/// into the memory of [`no_filters`]. A kernel without them returns ENOPROTOOPT.
fn setsockopt(lingering: bool) -> Rule {
    const TCP_ULP: u32 = 31;
    let filters = [
        libc::SO_ATTACH_FILTER as u32,
        libc::SO_ATTACH_BPF as u32,
        libc::SO_ATTACH_REUSEPORT_CBPF as u32,
        libc::SO_ATTACH_REUSEPORT_EBPF as u32,
    ];
    let of_tcp = case(int(2), &[TCP_ULP], errno(libc::ENOPROTOOPT), ALLOW);
    let of_sockets =
        if lingering { ALLOW } else { case(int(2), &[libc::SO_LINGER as u32], errno(libc::EPERM), ALLOW) };
    let of_sockets = case(int(2), &filters, errno(libc::ENOPROTOOPT), of_sockets);
    let others = case(int(1), &[libc::SOL_SOCKET as u32], of_sockets, ALLOW);
    case(int(1), &[libc::IPPROTO_TCP as u32], of_tcp, others)
}
