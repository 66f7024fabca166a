//! The syscall numbers of the machine this is compiled for. Everything in the filter that depends
//! on it is here.
//!
//! The hard fact: numbers are part of the kernel's stable interface, but a C library's headers know
//! only those of its own day, so they are written out. Another architecture adds a module with the
//! same constants.

#[cfg(not(target_arch = "x86_64"))]
compile_error!("seccomp knows the syscall numbers of x86_64 only: add those of this architecture here");

use std::ops::RangeInclusive;

/// `AUDIT_ARCH_X86_64`: 64-bit, little-endian, ELF machine 62.
pub(super) const AUDIT_ARCHITECTURE: u32 = 0xc000_003e;

/// `__X32_SYSCALL_BIT`: marks a call of the x32 interface, which shares the audit architecture.
pub(super) const FOREIGN_NUMBER_BIT: u32 = 0x4000_0000;

/// The numbers in use as of Linux 6.18. `uretprobe` and `uprobe` (335, 336) are among them:
/// refusing those would break a sandbox whose libraries the host's administrator is tracing.
pub(super) const KNOWN: [RangeInclusive<u32>; 2] = [0..=336, 424..=NEWEST];

/// The newest number in use as of Linux 6.18: `file_setattr`.
pub(super) const FILE_SETATTR: u32 = 469;
pub(super) const FREMOVEXATTR: u32 = 199;
pub(super) const FSETXATTR: u32 = 190;
pub(super) const IOPRIO_SET: u32 = 251;
pub(super) const LREMOVEXATTR: u32 = 198;
pub(super) const LSETXATTR: u32 = 189;
pub(super) const NEWEST: u32 = 469;

pub(super) const ACCT: u32 = 163;
pub(super) const ADD_KEY: u32 = 248;
pub(super) const ADJTIMEX: u32 = 159;
pub(super) const BPF: u32 = 321;
pub(super) const CHMOD: u32 = 90;
pub(super) const CHROOT: u32 = 161;
pub(super) const CLOCK_ADJTIME: u32 = 305;
pub(super) const CLOCK_SETTIME: u32 = 227;
pub(super) const CLONE: u32 = 56;
pub(super) const CLONE3: u32 = 435;
pub(super) const CREAT: u32 = 85;
pub(super) const CREATE_MODULE: u32 = 174;
pub(super) const DELETE_MODULE: u32 = 176;
pub(super) const FANOTIFY_INIT: u32 = 300;
pub(super) const FANOTIFY_MARK: u32 = 301;
pub(super) const FCHMOD: u32 = 91;
pub(super) const FCHMODAT: u32 = 268;
pub(super) const FCHMODAT2: u32 = 452;
pub(super) const FCNTL: u32 = 72;
pub(super) const FINIT_MODULE: u32 = 313;
pub(super) const FSCONFIG: u32 = 431;
pub(super) const FSMOUNT: u32 = 432;
pub(super) const FSOPEN: u32 = 430;
pub(super) const FSPICK: u32 = 433;
pub(super) const GET_KERNEL_SYMS: u32 = 177;
pub(super) const INIT_MODULE: u32 = 175;
pub(super) const IO_SETUP: u32 = 206;
pub(super) const IO_URING_ENTER: u32 = 426;
pub(super) const IO_URING_REGISTER: u32 = 427;
pub(super) const IO_URING_SETUP: u32 = 425;
pub(super) const IOCTL: u32 = 16;
pub(super) const IOPERM: u32 = 173;
pub(super) const IOPL: u32 = 172;
pub(super) const KCMP: u32 = 312;
pub(super) const KEXEC_FILE_LOAD: u32 = 320;
pub(super) const KEXEC_LOAD: u32 = 246;
pub(super) const KEYCTL: u32 = 250;
pub(super) const LISTMOUNT: u32 = 458;
pub(super) const LOOKUP_DCOOKIE: u32 = 212;
pub(super) const MADVISE: u32 = 28;
pub(super) const MEMFD_SECRET: u32 = 447;
pub(super) const MIGRATE_PAGES: u32 = 256;
pub(super) const MKNOD: u32 = 133;
pub(super) const MKNODAT: u32 = 259;
pub(super) const OPEN: u32 = 2;
pub(super) const OPENAT: u32 = 257;
pub(super) const OPENAT2: u32 = 437;
pub(super) const MODIFY_LDT: u32 = 154;
pub(super) const MOUNT: u32 = 165;
pub(super) const MOUNT_SETATTR: u32 = 442;
pub(super) const MOVE_MOUNT: u32 = 429;
pub(super) const MOVE_PAGES: u32 = 279;
pub(super) const MQ_OPEN: u32 = 240;
pub(super) const MQ_UNLINK: u32 = 241;
pub(super) const MSGCTL: u32 = 71;
pub(super) const MSGGET: u32 = 68;
pub(super) const MSGRCV: u32 = 70;
pub(super) const MSGSND: u32 = 69;
pub(super) const NAME_TO_HANDLE_AT: u32 = 303;
pub(super) const NFSSERVCTL: u32 = 180;
pub(super) const OPEN_BY_HANDLE_AT: u32 = 304;
pub(super) const OPEN_TREE: u32 = 428;
pub(super) const OPEN_TREE_ATTR: u32 = 467;
pub(super) const PERF_EVENT_OPEN: u32 = 298;
pub(super) const PERSONALITY: u32 = 135;
pub(super) const PIDFD_GETFD: u32 = 438;
pub(super) const PIVOT_ROOT: u32 = 155;
pub(super) const PRCTL: u32 = 157;
pub(super) const PRLIMIT64: u32 = 302;
pub(super) const PROCESS_MADVISE: u32 = 440;
pub(super) const PROCESS_VM_READV: u32 = 310;
pub(super) const PROCESS_VM_WRITEV: u32 = 311;
pub(super) const PTRACE: u32 = 101;
pub(super) const KILL: u32 = 62;
pub(super) const REMOVEXATTR: u32 = 197;
pub(super) const REMOVEXATTRAT: u32 = 466;
pub(super) const RT_SIGQUEUEINFO: u32 = 129;
pub(super) const SCHED_SETPARAM: u32 = 142;
pub(super) const SETPRIORITY: u32 = 141;
pub(super) const SETXATTR: u32 = 188;
pub(super) const SETXATTRAT: u32 = 463;
pub(super) const TKILL: u32 = 200;
pub(super) const TGKILL: u32 = 234;
pub(super) const RT_TGSIGQUEUEINFO: u32 = 297;
pub(super) const PIDFD_SEND_SIGNAL: u32 = 424;
pub(super) const TIMER_CREATE: u32 = 222;
pub(super) const MQ_NOTIFY: u32 = 244;
pub(super) const QUERY_MODULE: u32 = 178;
pub(super) const QUOTACTL: u32 = 179;
pub(super) const QUOTACTL_FD: u32 = 443;
pub(super) const REBOOT: u32 = 169;
pub(super) const REQUEST_KEY: u32 = 249;
pub(super) const SCHED_SETAFFINITY: u32 = 203;
pub(super) const SCHED_SETATTR: u32 = 314;
pub(super) const SCHED_SETSCHEDULER: u32 = 144;
pub(super) const SECCOMP: u32 = 317;
pub(super) const SEMCTL: u32 = 66;
pub(super) const SEMGET: u32 = 64;
pub(super) const SEMOP: u32 = 65;
pub(super) const SEMTIMEDOP: u32 = 220;
pub(super) const SENDMMSG: u32 = 307;
pub(super) const SENDMSG: u32 = 46;
pub(super) const SENDTO: u32 = 44;
pub(super) const SETDOMAINNAME: u32 = 171;
pub(super) const SETHOSTNAME: u32 = 170;
pub(super) const SETNS: u32 = 308;
pub(super) const SETSOCKOPT: u32 = 54;
pub(super) const SETTIMEOFDAY: u32 = 164;
pub(super) const SHMAT: u32 = 30;
pub(super) const SHMCTL: u32 = 31;
pub(super) const SHMGET: u32 = 29;
pub(super) const SOCKET: u32 = 41;
pub(super) const SOCKETPAIR: u32 = 53;
pub(super) const STATMOUNT: u32 = 457;
pub(super) const SWAPOFF: u32 = 168;
pub(super) const SWAPON: u32 = 167;
pub(super) const SYSLOG: u32 = 103;
pub(super) const UMOUNT2: u32 = 166;
pub(super) const UNSHARE: u32 = 272;
pub(super) const USERFAULTFD: u32 = 323;
pub(super) const VMSPLICE: u32 = 278;
