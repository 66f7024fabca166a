//! The compiled program against the policy's plain meaning, run by an interpreter of the kernel's
//! rules.
//!
//! Two oracles, because each misses what the other sees: the rule table evaluated number by number
//! finds faults of the compiler, the written-out cases (with libc's numbers, not the table's) find
//! faults of the table.

mod parts;

use super::assembler::{AND, Assembler, CodeLabel, JUMP, LOAD, RETURN, Test};
use super::policy::{FilterAction, Rule};
use super::{FilterPart, FilterPolicy, Instruction, policy, to_bytes};
use super::{compile as compile_part, ranges as ranges_of};

const ALLOW: u32 = 0x7fff_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const X86_64: u32 = 0xc000_003e;
const POLICIES: [FilterPolicy; 4] = [
    FilterPolicy { network: false, ipc_namespace: false, lingering: false, supervised: false },
    FilterPolicy { network: false, ipc_namespace: true, lingering: false, supervised: false },
    FilterPolicy { network: true, ipc_namespace: false, lingering: false, supervised: false },
    FilterPolicy { network: true, ipc_namespace: true, lingering: false, supervised: false },
];
const SEALED: FilterPolicy =
    FilterPolicy { network: false, ipc_namespace: true, lingering: false, supervised: false };
const NETWORKED: FilterPolicy =
    FilterPolicy { network: true, ipc_namespace: true, lingering: false, supervised: false };

fn compile(policy: &FilterPolicy) -> Vec<Instruction> {
    compile_part(policy, FilterPart::Whole)
}

fn ranges(policy: &FilterPolicy) -> Vec<super::SyscallRange> {
    ranges_of(policy, FilterPart::Whole)
}

/// A system call as the filter sees it.
#[derive(Debug, Clone, Copy)]
struct Syscall {
    architecture: u32,
    number: u32,
    arguments: [u64; 6],
}

impl Syscall {
    fn new(number: libc::c_long, arguments: &[u64]) -> Self {
        let mut call = Syscall { architecture: X86_64, number: number as u32, arguments: [0; 6] };
        call.arguments[..arguments.len()].copy_from_slice(arguments);
        call
    }

    /// The 32-bit word at `offset` of `struct seccomp_data`; panics where the kernel would refuse
    /// the filter.
    fn load_at(&self, offset: u32) -> u32 {
        assert!(offset.is_multiple_of(4) && offset < 64, "load from offset {offset}");
        match offset {
            0 => self.number,
            4 => self.architecture,
            8 | 12 => 0xdead_beef, // the instruction pointer, which no rule may use
            _ => {
                let argument = self.arguments[(offset as usize - 16) / 8];
                if offset.is_multiple_of(8) { argument as u32 } else { (argument >> 32) as u32 }
            }
        }
    }
}

/// What the program answers, and how many instructions that took. Panics where the kernel would
/// refuse the program.
fn interpret(program: &[Instruction], call: &Syscall) -> (u32, usize) {
    let (mut accumulator, mut next) = (0u32, 0usize);
    for steps in 1..=program.len() {
        let Instruction { code, jt, jf, k } = program[next];
        next += 1;
        match code {
            LOAD => accumulator = call.load_at(k),
            AND => accumulator &= k,
            JUMP => next += k as usize,
            RETURN => return (k, steps),
            _ => {
                let holds = match code {
                    0x15 => accumulator == k,
                    0x35 => accumulator >= k,
                    0x45 => accumulator & k != 0,
                    _ => panic!("operation {code:#x} at {}", next - 1),
                };
                next += usize::from(if holds { jt } else { jf });
            }
        }
    }
    panic!("{call:?} was not answered");
}

fn answer(policy: &FilterPolicy, number: libc::c_long, arguments: &[u64]) -> u32 {
    interpret(&compile(policy), &Syscall::new(number, arguments)).0
}

fn refused_with(errno: i32) -> u32 {
    0x0005_0000 | errno as u32
}

/// The table's meaning, without ranges or trees.
fn meaning(rules: &[(u32, Rule)], call: &Syscall) -> FilterAction {
    if call.architecture != X86_64 || call.number & 0x4000_0000 != 0 {
        return FilterAction::KillProcess;
    }
    let Some((_, rule)) = rules.iter().find(|(number, _)| *number == call.number) else {
        let known = call.number <= 336 || (424..=469).contains(&call.number);
        return if known { FilterAction::Allow } else { FilterAction::Errno(libc::ENOSYS as u16) };
    };
    let mut rule = rule;
    loop {
        match rule {
            Rule::Action(answer) => return *answer,
            Rule::Case { argument, values, hit, miss } => {
                let masked = call.arguments[argument.index as usize] & argument.mask;
                rule = if values.iter().any(|&value| u64::from(value) == masked) { hit } else { miss };
            }
        }
    }
}

/// Every value and mask that some rule compares with.
fn constants(rule: &Rule, found: &mut Vec<u64>) {
    if let Rule::Case { argument, values, hit, miss } = rule {
        found.push(argument.mask);
        found.extend(values.iter().map(|&value| u64::from(value)));
        constants(hit, found);
        constants(miss, found);
    }
}

/// A fixed sequence of numbers that look random (splitmix64).
struct Sequence(u64);

impl Sequence {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// An argument near what the rules compare with: exact, one bit off, or with a high half of
    /// garbage.
    fn argument(&mut self, constants: &[u64]) -> u64 {
        let constant = constants[self.below(constants.len())];
        match self.below(5) {
            0 | 1 => constant,
            2 => constant ^ (1 << self.below(64)),
            3 => constant | (self.next() << 32),
            _ => self.next(),
        }
    }
}

fn check_against_table(policy: &FilterPolicy, calls: impl Iterator<Item = Syscall>) {
    let (program, rules) = (compile(policy), policy::rules(policy));
    for call in calls {
        let expected = meaning(&rules, &call).action();
        assert_eq!(interpret(&program, &call).0, expected, "{policy:?} {call:x?}");
    }
}

fn all_constants(policy: &FilterPolicy) -> Vec<u64> {
    let mut found = vec![0, 1, u64::MAX, 1 << 32, 1 << 63, u64::from(u32::MAX)];
    policy::rules(policy).iter().for_each(|(_, rule)| constants(rule, &mut found));
    found.sort_unstable();
    found.dedup();
    found
}

#[test]
fn every_number_matches_the_table() {
    for policy in &POLICIES {
        let constants = all_constants(policy);
        let mut sequence = Sequence(1);
        check_against_table(
            policy,
            (0..=1024).flat_map(|number| {
                let same = constants.iter().map(|&value| [value; 6]).collect::<Vec<_>>();
                let mixed = std::array::from_fn::<_, 32, _>(|_| {
                    std::array::from_fn::<_, 6, _>(|_| sequence.argument(&constants))
                });
                same.into_iter().chain(mixed).map(move |arguments| Syscall {
                    architecture: X86_64,
                    number,
                    arguments,
                })
            }),
        );
    }
}

#[test]
fn argument_rules_match_the_table() {
    for (seed, policy) in POLICIES.iter().enumerate() {
        let constants = all_constants(policy);
        let mut sequence = Sequence(seed as u64);
        for (number, rule) in policy::rules(policy) {
            let mut own = vec![0, 1];
            self::constants(&rule, &mut own);
            let calls = std::iter::repeat_with(|| {
                let near = if sequence.below(4) == 0 { &constants } else { &own };
                let arguments = std::array::from_fn(|_| sequence.argument(near));
                Syscall { architecture: X86_64, number, arguments }
            });
            let cases = if matches!(rule, Rule::Action(_)) { 4 } else { 4000 };
            check_against_table(policy, calls.take(cases));
        }
    }
}

#[test]
fn arbitrary_calls_match_the_table() {
    let mut sequence = Sequence(7);
    let calls = std::iter::repeat_with(|| Syscall {
        architecture: if sequence.below(8) == 0 { sequence.next() as u32 } else { X86_64 },
        number: sequence.next() as u32 >> sequence.below(32),
        arguments: std::array::from_fn(|_| sequence.next()),
    });
    check_against_table(&SEALED, calls.take(20_000));
}

#[test]
fn a_number_has_one_rule_and_is_in_use() {
    for policy in &POLICIES {
        let mut numbers: Vec<u32> = policy::rules(policy).into_iter().map(|(number, _)| number).collect();
        numbers.sort_unstable();
        assert!(numbers.windows(2).all(|pair| pair[0] != pair[1]), "{numbers:?}");
        assert!(numbers.iter().all(|number| *number <= 336 || (424..=469).contains(number)), "{numbers:?}");
    }
}

#[test]
fn other_interfaces_of_the_processor_are_killed() {
    let program = compile(&SEALED);
    let getpid = Syscall::new(libc::SYS_getpid, &[]);
    assert_eq!(interpret(&program, &getpid).0, ALLOW);
    // i386, arm, aarch64, and x86_64 without its 64-bit or little-endian mark.
    for architecture in [0x4000_0003, 0x4000_0028, 0xc000_00b7, 0x4000_003e, 0x8000_003e, 0] {
        assert_eq!(interpret(&program, &Syscall { architecture, ..getpid }).0, KILL_PROCESS);
    }
    for number in [0x4000_0000, 0x4000_0000 | getpid.number, 0x4000_0000 + 512, 0x7fff_ffff, u32::MAX] {
        assert_eq!(interpret(&program, &Syscall { number, ..getpid }).0, KILL_PROCESS);
    }
}

#[test]
fn unused_numbers_are_absent() {
    for number in
        [337, 400, 423, 470, 471, 511, 512, 547, 1024, 0x3fff_ffff, 0x8000_0000, 0xbfff_ffff_u32 as i64]
    {
        assert_eq!(answer(&SEALED, number, &[]), refused_with(libc::ENOSYS), "{number}");
    }
    for number in [0, 334, 335, 336, 424, 468, 469] {
        assert_eq!(answer(&SEALED, number, &[]), ALLOW, "{number}");
    }
    assert_eq!(answer(&SEALED, libc::SYS_clone3, &[]), refused_with(libc::ENOSYS));
}

#[rustfmt::skip]
const REFUSED: &[libc::c_long] = &[
    libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register, libc::SYS_bpf,
    libc::SYS_perf_event_open, libc::SYS_userfaultfd, libc::SYS_keyctl, libc::SYS_add_key,
    libc::SYS_request_key, libc::SYS_ptrace, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd, libc::SYS_kcmp, libc::SYS_process_madvise, libc::SYS_kexec_load,
    libc::SYS_kexec_file_load, /* create_module */ 174, libc::SYS_init_module, libc::SYS_finit_module,
    libc::SYS_delete_module, /* query_module */ 178, /* get_kernel_syms */ 177, libc::SYS_reboot,
    libc::SYS_swapon, libc::SYS_swapoff, libc::SYS_acct, libc::SYS_quotactl, libc::SYS_quotactl_fd,
    libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt, libc::SYS_lookup_dcookie, libc::SYS_nfsservctl,
    libc::SYS_syslog, libc::SYS_mount, libc::SYS_umount2, libc::SYS_move_mount, libc::SYS_open_tree,
    /* open_tree_attr */ 467, libc::SYS_fsopen, libc::SYS_fsconfig, libc::SYS_fsmount, libc::SYS_fspick,
    libc::SYS_mount_setattr, /* statmount */ 457, /* listmount */ 458, libc::SYS_pivot_root,
    libc::SYS_chroot, libc::SYS_fanotify_init, libc::SYS_fanotify_mark, libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at, libc::SYS_memfd_secret, libc::SYS_clock_settime, libc::SYS_settimeofday,
    libc::SYS_adjtimex, libc::SYS_clock_adjtime, libc::SYS_sethostname, libc::SYS_setdomainname,
    libc::SYS_setns, libc::SYS_vmsplice, libc::SYS_sched_setattr,
];

#[rustfmt::skip]
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_read, libc::SYS_write, libc::SYS_mmap,
    libc::SYS_mprotect, libc::SYS_execve, libc::SYS_execveat, libc::SYS_fork, libc::SYS_vfork,
    libc::SYS_exit_group, libc::SYS_wait4, libc::SYS_kill, libc::SYS_futex, libc::SYS_rseq,
    libc::SYS_membarrier, libc::SYS_set_robust_list, libc::SYS_sched_getaffinity, libc::SYS_setuid,
    libc::SYS_setresgid, libc::SYS_setgroups, libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_add_rule, libc::SYS_landlock_restrict_self, libc::SYS_io_submit,
    libc::SYS_splice, libc::SYS_tee, libc::SYS_copy_file_range, libc::SYS_flock, libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal, libc::SYS_memfd_create, libc::SYS_getrandom, libc::SYS_arch_prctl,
    libc::SYS_setrlimit, libc::SYS_close_range, libc::SYS_epoll_wait, libc::SYS_eventfd2,
    libc::SYS_inotify_add_watch, libc::SYS_bind,
];

#[test]
fn whole_calls_are_refused_or_allowed_whatever_the_arguments() {
    for policy in &POLICIES {
        let program = compile(policy);
        for arguments in [[0; 6], [1; 6], [u64::MAX; 6]] {
            for &number in REFUSED {
                let action = interpret(&program, &Syscall::new(number, &arguments)).0;
                assert_eq!(action, refused_with(libc::EPERM), "{number}");
            }
            for &number in ALLOWED {
                assert_eq!(interpret(&program, &Syscall::new(number, &arguments)).0, ALLOW, "{number}");
            }
        }
    }
}

#[rustfmt::skip]
const IPC: &[libc::c_long] = &[
    libc::SYS_shmget, libc::SYS_shmat, libc::SYS_shmctl, libc::SYS_semget, libc::SYS_semop,
    libc::SYS_semctl, libc::SYS_semtimedop, libc::SYS_msgget, libc::SYS_msgsnd, libc::SYS_msgrcv,
    libc::SYS_msgctl,
];

#[test]
fn ipc_needs_a_namespace_of_its_own() {
    for &number in IPC {
        for policy in &POLICIES {
            let expected = if policy.ipc_namespace { ALLOW } else { refused_with(libc::EPERM) };
            assert_eq!(answer(policy, number, &[]), expected, "{number} {policy:?}");
        }
    }
}

#[test]
fn processes_may_be_made_but_not_namespaces_or_siblings() {
    const THREAD: u64 = 0x3d_0f00; // what glibc's pthread_create passes
    const HIGH: u64 = 0xffff_ffff_0000_0000;
    for flags in [0x11, 0x0120_0011, 0x4111, THREAD, THREAD | HIGH, 0x8000_0011 | HIGH, 0x1_0000_0011] {
        assert_eq!(answer(&SEALED, libc::SYS_clone, &[flags]), ALLOW, "{flags:#x}");
    }
    for flag in [0x2_0000, 0x200_0000, 0x400_0000, 0x800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000, 0x8000]
    {
        for other in [0, 0x11, THREAD, HIGH, 0x7e02_8000] {
            let flags = flag | other;
            assert_eq!(answer(&SEALED, libc::SYS_clone, &[flags]), refused_with(libc::EPERM), "{flags:#x}");
        }
        if flag != 0x8000 {
            assert_eq!(answer(&SEALED, libc::SYS_unshare, &[flag | 0x200]), refused_with(libc::EPERM));
        }
    }
    for flags in [0, 0x200, 0x400, 0x4_0000, 0x600] {
        assert_eq!(answer(&SEALED, libc::SYS_unshare, &[flags]), ALLOW);
    }
    // CLONE_NEWTIME, and flags no kernel had when this was written.
    for flags in [0x80, 0x10_0000, 1 << 32, 0x200 | 1 << 63] {
        assert_eq!(answer(&SEALED, libc::SYS_unshare, &[flags]), refused_with(libc::EPERM), "{flags:#x}");
    }
}

/// Calls decided by an argument: number, arguments, answer as an errno, 0 for allowed.
#[rustfmt::skip]
const ARGUMENT_CASES: &[(libc::c_long, &[u64], i32)] = &[
    (libc::SYS_sched_setaffinity, &[0, 8, 0x7fff_0000], 0),
    (libc::SYS_sched_setaffinity, &[1, 8, 0x7fff_0000], libc::EPERM),
    // The kernel's pid is an int: the high half is not part of it.
    (libc::SYS_sched_setaffinity, &[5 << 32, 8, 0x7fff_0000], 0),
    (libc::SYS_move_pages, &[0], 0),
    (libc::SYS_move_pages, &[77], libc::EPERM),
    (libc::SYS_migrate_pages, &[77], libc::EPERM),
    (libc::SYS_sched_setscheduler, &[0, 0], 0),
    (libc::SYS_sched_setscheduler, &[0, 3], 0),
    (libc::SYS_sched_setscheduler, &[0, 0x4000_0005], 0),
    (libc::SYS_sched_setscheduler, &[0, 1], libc::EPERM),
    (libc::SYS_sched_setscheduler, &[0, 0x4000_0002], libc::EPERM),
    (libc::SYS_sched_setscheduler, &[0, 6], libc::EPERM),
    (libc::SYS_sched_setscheduler, &[0, 7], libc::EPERM),
    (libc::SYS_sched_setscheduler, &[0, 0xff_0000_0001], libc::EPERM),
    (libc::SYS_prlimit64, &[0, 7, 0x7fff_0000, 0], 0),
    (libc::SYS_prlimit64, &[1, 7, 0, 0x7fff_0000], 0),
    (libc::SYS_prlimit64, &[1, 7, 0x7fff_0000, 0], libc::EPERM),
    (libc::SYS_prlimit64, &[1, 7, 1 << 32, 0], libc::EPERM),
    (libc::SYS_prlimit64, &[0x1_0000_0001, 7, 1 << 47, 0], libc::EPERM),
    (libc::SYS_personality, &[0], 0),
    (libc::SYS_personality, &[0xffff_ffff], 0),
    (libc::SYS_personality, &[u64::MAX], 0),
    (libc::SYS_personality, &[0x004_0000], libc::EPERM),
    (libc::SYS_personality, &[0x040_0000], libc::EPERM),
    (libc::SYS_personality, &[0x1_0000_0008], libc::EPERM),
    (libc::SYS_prctl, &[libc::PR_SET_NAME as u64, 0x7fff_0000], 0),
    (libc::SYS_prctl, &[libc::PR_SET_NO_NEW_PRIVS as u64, 1], 0),
    (libc::SYS_prctl, &[libc::PR_SET_PDEATHSIG as u64, 9], 0),
    (libc::SYS_prctl, &[libc::PR_SET_SECCOMP as u64, 1], 0),
    (libc::SYS_prctl, &[libc::PR_SET_SECCOMP as u64, 2, 0x7fff_0000], libc::EINVAL),
    (libc::SYS_prctl, &[0xff_0000_0000 | libc::PR_SET_SECCOMP as u64, 2], libc::EINVAL),
    // The whole of it counts: the kernel knows no such mode.
    (libc::SYS_prctl, &[libc::PR_SET_SECCOMP as u64, 1 << 32 | 2], 0),
    (libc::SYS_prctl, &[libc::PR_SET_NAME as u64, 2], 0),
    (libc::SYS_prctl, &[libc::PR_GET_DUMPABLE as u64, 1], 0),
    (libc::SYS_prctl, &[libc::PR_SET_DUMPABLE as u64, 0], 0),
    (libc::SYS_prctl, &[libc::PR_SET_DUMPABLE as u64, 1], libc::EPERM),
    (libc::SYS_prctl, &[libc::PR_SET_DUMPABLE as u64, 1 << 32], libc::EPERM),
    (libc::SYS_prctl, &[0xff_0000_0000 | libc::PR_SET_DUMPABLE as u64, 1], libc::EPERM),
    (libc::SYS_prctl, &[libc::PR_SET_MM as u64], libc::EPERM),
    (libc::SYS_prctl, &[0x1_0000_0000 | libc::PR_SET_MM as u64], libc::EPERM),
    (libc::SYS_prctl, &[libc::PR_SET_PTRACER as u64, u64::MAX], libc::EPERM),
    (libc::SYS_prctl, &[59, 1], libc::EPERM),
    (libc::SYS_prctl, &[libc::PR_SCHED_CORE as u64], libc::EPERM),
    (libc::SYS_seccomp, &[0, 0], 0),
    (libc::SYS_seccomp, &[2, 0, 0x7fff_0000], 0),
    (libc::SYS_seccomp, &[1, 0, 0x7fff_0000], libc::EINVAL),
    (libc::SYS_seccomp, &[1, 8, 0x7fff_0000], libc::EINVAL),
    (libc::SYS_seccomp, &[0xffff_ffff_0000_0001, 0, 0x7fff_0000], libc::EINVAL),
    (libc::SYS_io_setup, &[1, 0x7fff_0000], libc::ENOSYS),
    (libc::SYS_madvise, &[0, 4096, libc::MADV_DONTNEED as u64], 0),
    (libc::SYS_madvise, &[0, 4096, libc::MADV_MERGEABLE as u64], libc::EINVAL),
    (libc::SYS_mknod, &[0, 0o644], 0),
    (libc::SYS_mknod, &[0, (libc::S_IFREG | 0o644) as u64], 0),
    (libc::SYS_mknod, &[0, (libc::S_IFIFO | 0o644) as u64], 0),
    (libc::SYS_mknod, &[0, (libc::S_IFSOCK | 0o644) as u64], 0),
    (libc::SYS_mknod, &[0, (libc::S_IFCHR | 0o644) as u64, 0x0101], libc::EPERM),
    (libc::SYS_mknod, &[0, (libc::S_IFBLK | 0o644) as u64, 0x0800], libc::EPERM),
    (libc::SYS_mknod, &[0, 0xff_0000 | libc::S_IFCHR as u64, 0], libc::EPERM),
    (libc::SYS_mknodat, &[libc::S_IFIFO as u64, 0, (libc::S_IFCHR | 0o644) as u64], libc::EPERM),
    (libc::SYS_mknodat, &[libc::S_IFCHR as u64, 0, (libc::S_IFIFO | 0o644) as u64], 0),
    (libc::SYS_ioctl, &[0, libc::TIOCGWINSZ], 0),
    (libc::SYS_ioctl, &[0, libc::FIONREAD], 0),
    (libc::SYS_ioctl, &[0, libc::TIOCSTI], libc::EPERM),
    (libc::SYS_ioctl, &[0, 0xffff_ffff_0000_0000 | libc::TIOCSTI], libc::EPERM),
    (libc::SYS_ioctl, &[0, libc::TIOCLINUX], libc::EPERM),
    (libc::SYS_ioctl, &[0, libc::TIOCCONS], libc::EPERM),
    (libc::SYS_ioctl, &[0, 1], libc::EPERM),
    (libc::SYS_fcntl, &[3, libc::F_SETFL as u64, 0x800], 0),
    (libc::SYS_fcntl, &[3, libc::F_OFD_SETLK as u64], 0),
    (libc::SYS_fcntl, &[3, libc::F_SETLEASE as u64, 1], libc::EPERM),
    (libc::SYS_fcntl, &[3, libc::F_NOTIFY as u64, 1], libc::EPERM),
    (libc::SYS_socketpair, &[libc::AF_UNIX as u64, 1, 0], 0),
    (libc::SYS_socketpair, &[libc::AF_TIPC as u64, 1, 0], libc::EAFNOSUPPORT),
    (libc::SYS_setsockopt, &[3, libc::SOL_SOCKET as u64, 31], 0),
    (libc::SYS_setsockopt, &[3, libc::SOL_SOCKET as u64, libc::SO_ATTACH_FILTER as u64], libc::ENOPROTOOPT),
    (libc::SYS_setsockopt, &[3, libc::SOL_SOCKET as u64, libc::SO_ATTACH_BPF as u64], libc::ENOPROTOOPT),
    (libc::SYS_setsockopt, &[3, libc::SOL_SOCKET as u64, libc::SO_ATTACH_REUSEPORT_CBPF as u64], libc::ENOPROTOOPT),
    (libc::SYS_setsockopt, &[3, libc::SOL_SOCKET as u64, libc::SO_ATTACH_REUSEPORT_EBPF as u64], libc::ENOPROTOOPT),
    (libc::SYS_setsockopt, &[3, libc::SOL_SOCKET as u64, libc::SO_REUSEPORT as u64], 0),
    (libc::SYS_setsockopt, &[3, libc::IPPROTO_TCP as u64, libc::SO_ATTACH_FILTER as u64], 0),
    (libc::SYS_setsockopt, &[3, libc::IPPROTO_TCP as u64, libc::TCP_NODELAY as u64], 0),
    (libc::SYS_setsockopt, &[3, libc::IPPROTO_TCP as u64, libc::TCP_ULP as u64], libc::ENOPROTOOPT),
];

fn check_case(policy: &FilterPolicy, number: libc::c_long, arguments: &[u64], errno: i32) {
    let expected = if errno == 0 { ALLOW } else { refused_with(errno) };
    assert_eq!(answer(policy, number, arguments), expected, "{number} {arguments:x?} {policy:?}");
}

#[test]
fn argument_cases_match_the_policy() {
    for policy in &POLICIES {
        for &(number, arguments, errno) in ARGUMENT_CASES {
            check_case(policy, number, arguments, errno);
        }
    }
}

#[test]
fn lingering_sockets_need_the_policys_permission() {
    let lingering = [3, libc::SOL_SOCKET as u64, libc::SO_LINGER as u64, 0, 8];
    let wide = lingering.map(|argument| argument | 0xffff_ffff_0000_0000);
    // The same number at another level.
    let elsewhere = [3, libc::IPPROTO_TCP as u64, libc::SO_LINGER as u64, 0, 4];
    for policy in &POLICIES {
        check_case(policy, libc::SYS_setsockopt, &lingering, libc::EPERM);
        check_case(policy, libc::SYS_setsockopt, &wide, libc::EPERM);
        check_case(policy, libc::SYS_setsockopt, &elsewhere, 0);
        check_case(policy, libc::SYS_getsockopt, &lingering, 0);
        check_case(&FilterPolicy { lingering: true, ..*policy }, libc::SYS_setsockopt, &lingering, 0);
    }
}

/// Sockets: family, type, protocol, errno without the network, errno with it.
#[rustfmt::skip]
const SOCKETS: &[(i32, i32, i32, i32, i32)] = &[
    (libc::AF_UNIX, libc::SOCK_STREAM, 0, 0, 0),
    (libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0, 0, 0),
    (libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, 0, 0),
    (libc::AF_INET, libc::SOCK_STREAM, 0, libc::EACCES, 0),
    (libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, libc::IPPROTO_TCP, libc::EACCES, 0),
    (libc::AF_INET6, libc::SOCK_DGRAM, libc::IPPROTO_UDP, libc::EACCES, 0),
    (libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP, libc::EACCES, 0),
    (libc::AF_INET6, libc::SOCK_DGRAM, libc::IPPROTO_ICMPV6, libc::EACCES, 0),
    (libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP, libc::EACCES, libc::ESOCKTNOSUPPORT),
    (libc::AF_INET, libc::SOCK_SEQPACKET, 0, libc::EACCES, libc::ESOCKTNOSUPPORT),
    (libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_MPTCP, libc::EACCES, libc::EPROTONOSUPPORT),
    (libc::AF_INET6, libc::SOCK_STREAM, libc::IPPROTO_SCTP, libc::EACCES, libc::EPROTONOSUPPORT),
    (libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_UDPLITE, libc::EACCES, libc::EPROTONOSUPPORT),
    (libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE, libc::EAFNOSUPPORT, 0),
    (libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_AUDIT, libc::EAFNOSUPPORT, libc::EPROTONOSUPPORT),
    (libc::AF_NETLINK, libc::SOCK_DGRAM, libc::NETLINK_GENERIC, libc::EAFNOSUPPORT, libc::EPROTONOSUPPORT),
    (libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_SOCK_DIAG, libc::EAFNOSUPPORT, libc::EPROTONOSUPPORT),
    (libc::AF_VSOCK, libc::SOCK_STREAM, 0, libc::EAFNOSUPPORT, libc::EAFNOSUPPORT),
    (libc::AF_ALG, libc::SOCK_SEQPACKET, 0, libc::EAFNOSUPPORT, libc::EAFNOSUPPORT),
    (libc::AF_PACKET, libc::SOCK_DGRAM, 0, libc::EAFNOSUPPORT, libc::EAFNOSUPPORT),
    (libc::AF_XDP, libc::SOCK_RAW, 0, libc::EAFNOSUPPORT, libc::EAFNOSUPPORT),
    (0, libc::SOCK_STREAM, 0, libc::EAFNOSUPPORT, libc::EAFNOSUPPORT),
    (-1, libc::SOCK_STREAM, 0, libc::EAFNOSUPPORT, libc::EAFNOSUPPORT),
];

#[test]
fn sockets_are_gated_by_family_type_and_protocol() {
    for &(family, kind, protocol, sealed, networked) in SOCKETS {
        // The same ints as a compiler may pass them: sign-extended, or with whatever was above them
        // in the register.
        for high in [0, 0xdead_beef_0000_0000, u64::MAX << 32] {
            let arguments = [family, kind, protocol].map(|argument| u64::from(argument as u32) | high);
            check_case(&SEALED, libc::SYS_socket, &arguments, sealed);
            check_case(&NETWORKED, libc::SYS_socket, &arguments, networked);
        }
    }
}

#[test]
fn urgent_data_is_refused_and_ordinary_data_is_sent() {
    let calls = [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)];
    for (policy, (number, flags)) in POLICIES.iter().flat_map(|policy| calls.map(|call| (policy, call))) {
        for high in [0, 0xdead_beef_0000_0000] {
            let with = |value: i32| {
                let mut arguments = [3; 6];
                arguments[flags] = value as u64 | high;
                arguments
            };
            check_case(policy, number, &with(libc::MSG_OOB), libc::EOPNOTSUPP);
            check_case(policy, number, &with(libc::MSG_OOB | libc::MSG_NOSIGNAL), libc::EOPNOTSUPP);
            check_case(policy, number, &with(libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT), 0);
        }
    }
}

#[test]
fn the_program_is_small_and_its_paths_short() {
    for policy in &POLICIES {
        let program = compile(policy);
        let ranges = ranges(policy).len();
        assert!(program.len() < 512, "{} instructions", program.len());
        // Architecture and number are four instructions, each level of a balanced tree is one, the
        // answer is one, and a target out of reach costs one more.
        let bound = 4 + ranges.next_power_of_two().ilog2() as usize + 2;
        for number in (0..=500).filter(|&number| {
            let rules = policy::rules(policy);
            !rules.iter().any(|(listed, rule)| *listed == number && matches!(rule, Rule::Case { .. }))
        }) {
            let call = Syscall { architecture: X86_64, number, arguments: [0; 6] };
            let steps = interpret(&program, &call).1;
            assert!(
                steps <= bound,
                "number {number} took {steps} instructions, {bound} were expected at most"
            );
        }
    }
}

#[test]
fn neighbours_with_one_answer_share_a_range() {
    let ranges = ranges(&SEALED);
    assert_eq!(ranges[0].first, 0);
    assert!(ranges.windows(2).all(|pair| pair[0].first < pair[1].first && pair[0].rule != pair[1].rule));
    assert!(ranges.len() < 140, "{} ranges", ranges.len());
}

/// A number in the accumulator is compared with each of `values`; the answer is an errno equal to
/// the position.
fn chain(values: u32, length: u32) -> Vec<Instruction> {
    let mut program = Assembler::default();
    let far_load = program.answer(FilterAction::Errno(1));
    let far_load = program.and(0xff, far_load);
    let far_answer = program.answer(FilterAction::Allow);
    let mut next: CodeLabel = program.answer(FilterAction::KillProcess);
    for value in (0..values).rev() {
        // Filler that changes nothing, so that each target recedes by `length` instructions a step.
        let filler = (0..length).fold(next, |node, _| program.and(u32::MAX, node));
        let hit = if value % 2 == 0 { far_load } else { far_answer };
        next = program.branch(Test::Equal, value, hit, filler);
    }
    program.load(0, next);
    program.finish()
}

#[test]
fn targets_out_of_reach_are_reached() {
    for (values, length) in [(2, 0), (300, 1), (20, 253), (20, 254), (20, 255), (20, 256), (7, 1000)] {
        let program = chain(values, length);
        for value in 0..=values {
            let call = Syscall { architecture: X86_64, number: value, arguments: [0; 6] };
            let expected = match value {
                _ if value == values => KILL_PROCESS,
                _ if value % 2 == 0 => refused_with(1),
                _ => ALLOW,
            };
            assert_eq!(interpret(&program, &call).0, expected, "value {value} of {values}, {length} apart");
        }
    }
}

#[test]
fn both_targets_out_of_reach_at_every_distance() {
    for distance in 240..=520u32 {
        for allowed_is_farther in [true, false] {
            let mut program = Assembler::default();
            let target = |program: &mut Assembler, answer| {
                let answer = program.answer(answer);
                program.and(u32::MAX, answer)
            };
            let (allowed, killed) = if allowed_is_farther {
                let allowed = target(&mut program, FilterAction::Allow);
                (allowed, target(&mut program, FilterAction::KillProcess))
            } else {
                let killed = target(&mut program, FilterAction::KillProcess);
                (target(&mut program, FilterAction::Allow), killed)
            };
            (0..distance).fold(allowed, |node, index| program.and(index, node));
            let choice = program.branch(Test::AtLeast, 9, allowed, killed);
            program.load(0, choice);
            let program = program.finish();
            for (number, expected) in [(8, KILL_PROCESS), (9, ALLOW)] {
                let call = Syscall { architecture: X86_64, number, arguments: [0; 6] };
                assert_eq!(interpret(&program, &call).0, expected, "{distance} {allowed_is_farther}");
            }
        }
    }
}

#[test]
fn bytes_are_the_kernels_layout() {
    let program = [
        Instruction { code: 0x0115, jt: 2, jf: 3, k: 0x0405_0607 },
        Instruction { code: 6, jt: 0, jf: 0, k: ALLOW },
    ];
    assert_eq!(
        to_bytes(&program),
        [0x15, 1, 2, 3, 7, 6, 5, 4, 6, 0, 0, 0, 0, 0, 0xff, 0x7f],
        "little-endian, the only order there is a table for"
    );
    assert_eq!(size_of::<Instruction>(), 8);
}

/// Calls that reach the host's processes and files: arguments, errno without namespaces. With them
/// all are allowed.
#[rustfmt::skip]
const REACHING: &[(libc::c_long, &[u64], i32)] = &[
    (libc::SYS_setpriority, &[0, 0, 5], 0),
    (libc::SYS_setpriority, &[1, 0, 5], 0),
    (libc::SYS_setpriority, &[2, 0, 5], libc::EPERM),
    (libc::SYS_setpriority, &[0, 1234, 5], libc::EPERM),
    (libc::SYS_setpriority, &[1 << 32, 1 << 32, 5], 0),
    (libc::SYS_setpriority, &[1 << 32 | 2, 0, 5], libc::EPERM),
    (libc::SYS_ioprio_set, &[1, 0, 0x6000], 0),
    (libc::SYS_ioprio_set, &[2, 0, 0x6000], 0),
    (libc::SYS_ioprio_set, &[3, 0, 0x6000], libc::EPERM),
    (libc::SYS_ioprio_set, &[1, 1234, 0x6000], libc::EPERM),
    (libc::SYS_sched_setparam, &[0, 0x7fff_0000], 0),
    (libc::SYS_sched_setparam, &[1234, 0x7fff_0000], libc::EPERM),
    (libc::SYS_sched_setscheduler, &[0, libc::SCHED_IDLE as u64], 0),
    (libc::SYS_sched_setscheduler, &[1234, libc::SCHED_IDLE as u64], libc::EPERM),
    (libc::SYS_getpriority, &[2, 0], 0),
    (libc::SYS_setxattr, &[0], libc::EOPNOTSUPP),
    (libc::SYS_lsetxattr, &[0], libc::EOPNOTSUPP),
    (libc::SYS_fsetxattr, &[0], libc::EOPNOTSUPP),
    (/* setxattrat */ 463, &[0], libc::EOPNOTSUPP),
    (libc::SYS_removexattr, &[0], libc::EOPNOTSUPP),
    (libc::SYS_lremovexattr, &[0], libc::EOPNOTSUPP),
    (libc::SYS_fremovexattr, &[0], libc::EOPNOTSUPP),
    (/* removexattrat */ 466, &[0], libc::EOPNOTSUPP),
    (/* file_setattr */ 469, &[0], libc::EOPNOTSUPP),
    (libc::SYS_getxattr, &[0], 0),
    (libc::SYS_ioctl, &[3, 0x4008_6602], libc::EPERM),
    (libc::SYS_ioctl, &[3, 0x401c_5820], libc::EPERM),
    (libc::SYS_chmod, &[0, 0o644], 0),
];

#[test]
fn without_namespaces_only_own_priorities_and_no_attributes() {
    for policy in &POLICIES {
        for &(number, arguments, errno) in REACHING {
            check_case(policy, number, arguments, if policy.ipc_namespace { 0 } else { errno });
        }
    }
}
