//! Attacks F, C12 and D13: system calls that no ordinary program needs, or not so often.
//!
//! Each is made harmless by its arguments, so that a bare run as root can show that the payload
//! works.

use std::os::fd::AsRawFd;
use std::time::Duration;

use crate::arguments::PayloadArguments;
use crate::call;
use crate::privilege::of_child;
use crate::report::Finding;
use crate::system::{address, errno, fork_running, leave, now, pause_forever, reap, reap_within, signal};
use crate::tree::read_memory_of;

/// F1.
pub(crate) fn io_uring(_: &PayloadArguments) -> Finding {
    let parameters = [0u32; 64];
    Finding::of(call!(libc::SYS_io_uring_setup, 4, address(&parameters)))
}

/// F2: by unshare(2).
pub(crate) fn unshare_user(_: &PayloadArguments) -> Finding {
    Finding::of(call!(libc::SYS_unshare, libc::CLONE_NEWUSER))
}

/// F2: every other namespace, by unshare(2): `unshare KIND`.
pub(crate) fn unshare(arguments: &PayloadArguments) -> Finding {
    let flag = match arguments.text(0, "").as_str() {
        "mount" => libc::CLONE_NEWNS,
        "net" => libc::CLONE_NEWNET,
        "ipc" => libc::CLONE_NEWIPC,
        "uts" => libc::CLONE_NEWUTS,
        "pid" => libc::CLONE_NEWPID,
        "cgroup" => libc::CLONE_NEWCGROUP,
        "time" => 0x80,
        other => return Finding::Untried(format!("no namespace kind '{other}'")),
    };
    Finding::of(call!(libc::SYS_unshare, flag))
}

/// F2: by a flag of clone(2).
pub(crate) fn clone_user(_: &PayloadArguments) -> Finding {
    match call!(libc::SYS_clone, libc::CLONE_NEWUSER | libc::SIGCHLD) {
        Ok(0) => leave(0),
        Ok(child) => {
            let _ = reap(child as i32);
            Finding::Succeeded("a child in a user namespace of its own".into())
        }
        Err(errno) => Finding::Denied(errno),
    }
}

/// F2: by clone3(2), whose flags a filter cannot read.
pub(crate) fn clone3_user(_: &PayloadArguments) -> Finding {
    let mut request = [0u64; 11];
    request[0] = libc::CLONE_NEWUSER as u64;
    request[4] = libc::SIGCHLD as u64;
    match call!(libc::SYS_clone3, address(&request), size_of_val(&request)) {
        Ok(0) => leave(0),
        Ok(child) => {
            let _ = reap(child as i32);
            Finding::Succeeded("a child in a user namespace of its own".into())
        }
        Err(errno) => Finding::Denied(errno),
    }
}

/// F3: a map.
pub(crate) fn bpf(_: &PayloadArguments) -> Finding {
    let mut request = [0u32; 32];
    // BPF_MAP_CREATE of an array with one eight-byte element.
    request[..4].copy_from_slice(&[2, 4, 8, 1]);
    Finding::of(call!(libc::SYS_bpf, 0, address(&request), 48))
}

/// F4: a software counter of its own.
pub(crate) fn perf(_: &PayloadArguments) -> Finding {
    let mut request = [0u32; 32];
    // PERF_TYPE_SOFTWARE, with the structure's size.
    request[..2].copy_from_slice(&[1, 128]);
    Finding::of(call!(libc::SYS_perf_event_open, address(&request), 0, -1isize, -1isize, 0))
}

/// F5: for its own faults only, which needs no privilege.
pub(crate) fn userfaultfd(_: &PayloadArguments) -> Finding {
    const UFFD_USER_MODE_ONLY: usize = 1;
    Finding::of(call!(libc::SYS_userfaultfd, UFFD_USER_MODE_ONLY | libc::O_CLOEXEC as usize))
}

/// F6: asks for its own process keyring.
pub(crate) fn keyctl(_: &PayloadArguments) -> Finding {
    let (get_keyring_id, process_keyring) = (0, -2isize);
    Finding::of(call!(libc::SYS_keyctl, get_keyring_id, process_keyring, 1))
}

/// F6: a key in its own process keyring.
pub(crate) fn add_key(_: &PayloadArguments) -> Finding {
    let (kind, name) = (c"user".as_ptr(), c"hostile".as_ptr());
    Finding::of(call!(libc::SYS_add_key, kind, name, c"x".as_ptr(), 1, -2isize))
}

/// Runs `probe` on a child of its own, which is then ended.
fn on_child(probe: impl FnOnce(i32) -> Finding) -> Finding {
    match fork_running(|| pause_forever()) {
        Ok(child) => {
            let finding = probe(child);
            let _ = signal(child, libc::SIGKILL);
            let _ = reap(child);
            finding
        }
        Err(errno) => Finding::Denied(errno),
    }
}

/// F7: traces a child of its own.
pub(crate) fn ptrace_child(_: &PayloadArguments) -> Finding {
    on_child(|child| Finding::of(call!(libc::SYS_ptrace, libc::PTRACE_SEIZE, child, 0, 0)))
}

/// F7: traces whoever started it, without stopping it.
pub(crate) fn ptrace_parent(_: &PayloadArguments) -> Finding {
    Finding::of(call!(libc::SYS_ptrace, libc::PTRACE_SEIZE, std::os::unix::process::parent_id(), 0, 0))
}

/// F7: reads a child's memory.
pub(crate) fn process_vm(_: &PayloadArguments) -> Finding {
    let secret = 0x005e_c7e7u64;
    on_child(|child| read_memory_of(child, &secret))
}

/// F7: takes a descriptor of a child.
pub(crate) fn pidfd_getfd(_: &PayloadArguments) -> Finding {
    on_child(|child| {
        let taken =
            call!(libc::SYS_pidfd_open, child, 0).and_then(|pidfd| call!(libc::SYS_pidfd_getfd, pidfd, 1, 0));
        Finding::of(taken)
    })
}

/// F7: compares kernel objects with a child.
pub(crate) fn kcmp(_: &PayloadArguments) -> Finding {
    const KCMP_FILE: usize = 0;
    on_child(|child| Finding::of(call!(libc::SYS_kcmp, std::process::id(), child, KCMP_FILE, 1, 1)))
}

/// F9: each with an argument that the kernel refuses after its permission check: `admin NAME`.
pub(crate) fn admin(arguments: &PayloadArguments) -> Finding {
    let nowhere = c"/nonexistent/hostile".as_ptr();
    let (result, passed): (Result<i64, i32>, &[i32]) = match arguments.text(0, "").as_str() {
        "reboot" => (call!(libc::SYS_reboot, 0, 0, 0, 0), &[libc::EINVAL]),
        "swapon" => (call!(libc::SYS_swapon, nowhere, 0), &[libc::ENOENT]),
        "acct" => (call!(libc::SYS_acct, nowhere), &[libc::ENOENT]),
        "init-module" => (call!(libc::SYS_init_module, 0, 0, nowhere), &[libc::ENOEXEC, libc::EFAULT]),
        "delete-module" => (call!(libc::SYS_delete_module, c"hostile".as_ptr(), 0), &[libc::ENOENT]),
        "kexec" => (call!(libc::SYS_kexec_load, 0, 4096, 0, 0), &[libc::EINVAL]),
        "syslog" => (call!(libc::SYS_syslog, 9, 0, 0), &[]),
        "sethostname" => return set_hostname(),
        other => return Finding::Untried(format!("no call '{other}'")),
    };
    Finding::past_permission(result, passed)
}

/// Writes back the name the host already has.
fn set_hostname() -> Finding {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or("sandbox".into());
    let name = name.trim_end();
    Finding::of(call!(libc::SYS_sethostname, name.as_ptr(), name.len()))
}

/// F9: port access for itself.
#[cfg(target_arch = "x86_64")]
pub(crate) fn iopl(_: &PayloadArguments) -> Finding {
    Finding::of(call!(libc::SYS_iopl, 3))
}

/// F9: segments of its own.
#[cfg(target_arch = "x86_64")]
pub(crate) fn modify_ldt(_: &PayloadArguments) -> Finding {
    // One 32-bit code segment, as user_desc writes it.
    let segment = [0u32, 0, 0, 0b0100_0001];
    Finding::of(call!(libc::SYS_modify_ldt, 1, address(&segment), 16))
}

/// F10: the same addresses in every child.
pub(crate) fn personality(_: &PayloadArguments) -> Finding {
    Finding::of(call!(libc::SYS_personality, libc::ADDR_NO_RANDOMIZE))
}

/// F11: a system call by the 32-bit gate, whose numbers mean other calls.
#[cfg(target_arch = "x86_64")]
pub(crate) fn int80(_: &PayloadArguments) -> Finding {
    of_child(fork_running(|| {
        let mut value: i64 = 20;
        // SAFETY: i386 getpid takes no arguments; the gate keeps every register but these.
        unsafe {
            std::arch::asm!("int 0x80", inlateout("rax") value, out("r8") _, out("r9") _, out("r10") _, out("r11") _)
        };
        let value = value as i32;
        if value > 0 { 0 } else { -value }
    }))
}

/// F11: getpid by the x32 numbers.
#[cfg(target_arch = "x86_64")]
pub(crate) fn x32(_: &PayloadArguments) -> Finding {
    const X32_BIT: libc::c_long = 0x4000_0000;
    of_child(fork_running(|| call!(X32_BIT | libc::SYS_getpid).err().unwrap_or(0)))
}

/// F12.
pub(crate) fn fanotify(_: &PayloadArguments) -> Finding {
    const FAN_REPORT_FID: usize = 0x200;
    Finding::of(call!(libc::SYS_fanotify_init, FAN_REPORT_FID, libc::O_RDONLY))
}

/// F13: `ioctl NAME [PATH]`.
pub(crate) fn ioctl(arguments: &PayloadArguments) -> Finding {
    const FIBMAP: libc::c_ulong = 1;
    match arguments.text(0, "").as_str() {
        // A line discipline, on what is no terminal: the kernel says so only to who may ask.
        "discipline" => match std::io::pipe() {
            Ok((read, _write)) => {
                let set = call!(libc::SYS_ioctl, read.as_raw_fd(), libc::TIOCSETD, address(&0i32));
                Finding::past_permission(set, &[libc::ENOTTY])
            }
            Err(error) => error.into(),
        },
        // Where on the disk a file's first block is.
        "block-number" => {
            let path = crate::files::c_path(arguments.text(1, "/usr/bin/env").as_ref());
            let mut block = 0i32;
            let result = call!(libc::SYS_open, path.as_ptr(), libc::O_RDONLY)
                .and_then(|file| call!(libc::SYS_ioctl, file, FIBMAP, std::ptr::from_mut(&mut block)));
            // File systems without blocks say EINVAL, after the permission check.
            Finding::past_permission(result, &[libc::EINVAL])
        }
        other => Finding::Untried(format!("no request '{other}'")),
    }
}

/// D13: calls that are refused, over and over: `refusals N`. A kernel that wrote each down would
/// have a full log.
pub(crate) fn rejected_calls(arguments: &PayloadArguments) -> Finding {
    let mut refused = 0u64;
    for _ in 0..arguments.number(0, 10_000).min(1_000_000) {
        let tries = [
            call!(libc::SYS_mount, 0, 0, 0, 0, 0),
            call!(libc::SYS_keyctl, 0, 0, 0),
            call!(libc::SYS_unlinkat, libc::AT_FDCWD, c"/usr/bin/env".as_ptr(), libc::AT_REMOVEDIR),
            call!(libc::SYS_ptrace, libc::PTRACE_SEIZE, 0, 0, 0),
        ];
        refused += tries.iter().filter(|result| result.is_err()).count() as u64;
    }
    Finding::Facts(format!("\"refused\":{refused}"))
}

/// D13: children that the kernel ends for what they did, which it may write down: `crashes N`.
pub(crate) fn crashes(arguments: &PayloadArguments) -> Finding {
    let mut ended = 0u64;
    for _ in 0..arguments.number(0, 100).min(10_000) {
        let child = fork_running(|| {
            // SAFETY: it is not: nothing is there, and the process ends.
            unsafe { std::ptr::without_provenance_mut::<u8>(16).write_volatile(1) };
            0
        });
        match child.and_then(reap) {
            Ok(crate::system::ChildEnd::Signaled(_)) => ended += 1,
            Ok(_) => {}
            Err(errno) => return Finding::Denied(errno),
        }
    }
    Finding::Facts(format!("\"ended\":{ended}"))
}

/// C12: writes to a pipe from memory whose pages only its owner can bring in, and does not. Whoever
/// is given such a buffer to copy from waits as long as the owner likes.
pub(crate) fn stalled_write(_: &PayloadArguments) -> Finding {
    let stalled = || -> Result<Finding, i32> {
        let (api, register) = (0xc018_aa3fu32, 0xc020_aa00u32);
        let faults = call!(libc::SYS_userfaultfd, libc::O_CLOEXEC)?;
        let (mut version, mut missing) = ([0xaau64, 0, 0], [0u64; 4]);
        call!(libc::SYS_ioctl, faults, api, version.as_mut_ptr())?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = call!(libc::SYS_mmap, 0, 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1isize, 0)?;
        // Missing pages of this one are the owner's business.
        missing[..3].copy_from_slice(&[page as u64, 4096, 1]);
        call!(libc::SYS_ioctl, faults, register, missing.as_mut_ptr())?;
        let (read, write) = std::io::pipe().map_err(|_| errno())?;
        let (descriptor, page) = (write.as_raw_fd(), page as usize);
        let writer = std::thread::spawn(move || call!(libc::SYS_write, descriptor, page, 4096));
        let mut ready = libc::pollfd { fd: read.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one live pollfd.
        let came = unsafe { libc::poll(&mut ready, 1, 300) };
        // Closing waits for the writer.
        std::mem::forget((read, write));
        if came == 0 && !writer.is_finished() {
            return Ok(Finding::Succeeded("the write waits for a page".into()));
        }
        Ok(Finding::Untried("the write did not wait".into()))
    };
    stalled().unwrap_or_else(Finding::Denied)
}

/// F14: `prctl NAME`.
pub(crate) fn prctl(arguments: &PayloadArguments) -> Finding {
    let any_tracer = -1isize;
    let result = match arguments.text(0, "").as_str() {
        "dumpable" => call!(libc::SYS_prctl, libc::PR_SET_DUMPABLE, 1, 0, 0, 0),
        "ptracer" => call!(libc::SYS_prctl, libc::PR_SET_PTRACER, any_tracer, 0, 0, 0),
        // PR_SET_MM_START_STACK, to where this stack is.
        "mm" => call!(libc::SYS_prctl, libc::PR_SET_MM, 5, address(&any_tracer), 0, 0),
        // Off is what it already is.
        "user-dispatch" => call!(libc::SYS_prctl, 59, 0, 0, 0, 0),
        "sched-core" => {
            let (create, scope_thread) = (1, 0);
            call!(libc::SYS_prctl, 62, create, 0, scope_thread, 0)
        }
        other => return Finding::Untried(format!("no operation '{other}'")),
    };
    Finding::of(result)
}

/// F15: gives pages of its own to a pipe.
pub(crate) fn vmsplice(_: &PayloadArguments) -> Finding {
    let (_read, write) = match std::io::pipe() {
        Ok(ends) => ends,
        Err(error) => return error.into(),
    };
    let page = [0u8; 16];
    let part = libc::iovec { iov_base: address(&page) as *mut libc::c_void, iov_len: 16 };
    Finding::of(call!(libc::SYS_vmsplice, write.as_raw_fd(), address(&part), 1, 0))
}

/// F18: requests of asynchronous I/O, of which the machine has a fixed number.
pub(crate) fn aio(_: &PayloadArguments) -> Finding {
    let context = 0usize;
    Finding::of(call!(libc::SYS_io_setup, 1, address(&context)))
}

/// F18: a program in the memory that all filters of the machine share: `attach-filter OPTION`, by
/// its number.
pub(crate) fn attach_filter(arguments: &PayloadArguments) -> Finding {
    let Ok((socket, _other)) = std::os::unix::net::UnixDatagram::pair() else {
        return Finding::Untried("no socket".into());
    };
    let allow = libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: u32::MAX };
    let program = libc::sock_fprog { len: 1, filter: std::ptr::from_ref(&allow).cast_mut() };
    let size = size_of_val(&program);
    let option = arguments.number(0, 0);
    let result =
        call!(libc::SYS_setsockopt, socket.as_raw_fd(), libc::SOL_SOCKET, option, address(&program), size);
    // No descriptor of a program, and no socket that shares a port.
    Finding::past_permission(result, &[libc::EINVAL, libc::EBADF])
}

/// F16: filters on filters until the kernel refuses, then a child and its exec: `seccomp-stack N
/// [prctl]`.
pub(crate) fn seccomp_stack(arguments: &PayloadArguments) -> Finding {
    // SAFETY: no memory effects.
    unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    let allow = libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0x7fff_0000 };
    let program = libc::sock_fprog { len: 1, filter: std::ptr::from_ref(&allow).cast_mut() };
    let by_prctl = arguments.text(1, "") == "prctl";
    let mut stacked = 0;
    for _ in 0..arguments.number(0, 64).min(4096) {
        let result = if by_prctl {
            call!(libc::SYS_prctl, libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, address(&program), 0, 0)
        } else {
            call!(libc::SYS_seccomp, 1, 0, address(&program))
        };
        match result {
            Err(errno) if stacked == 0 => return Finding::Denied(errno),
            Err(_) => break,
            Ok(_) => {}
        }
        stacked += 1;
    }
    let child = fork_running(|| {
        let (path, nothing) = (c"/usr/bin/true".as_ptr(), [std::ptr::null::<libc::c_char>()]);
        let list = [path, std::ptr::null()];
        let _ = call!(libc::SYS_execve, path, list.as_ptr(), nothing.as_ptr());
        errno()
    });
    let _ = child.map(reap);
    Finding::Succeeded(format!("{stacked} filters"))
}

/// F17: random calls with random arguments, in children: `random-syscalls N SEED`. Only inside a
/// cage.
pub(crate) fn random_syscalls(arguments: &PayloadArguments) -> Finding {
    let (most, mut state) = (arguments.number(0, 20_000).min(1_000_000), arguments.number(1, 1) | 1);
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    const BATCH: u64 = 200;
    const BATCH_TIMEOUT: Duration = Duration::from_millis(100);
    let (mut made, mut deaths) = (0, 0);
    while made < most && now() < crate::system::end_of_life() {
        // A batch may block for ever, or end its process: it has a child.
        let seed = random();
        let child = fork_running(|| batch(seed, BATCH));
        match child.and_then(|child| reap_within(child, BATCH_TIMEOUT)) {
            Ok(crate::system::ChildEnd::Signaled(_)) => deaths += 1,
            Ok(_) => {}
            Err(errno) => return Finding::Denied(errno),
        }
        made += BATCH;
    }
    Finding::Facts(format!("\"made\":{made},\"deaths\":{deaths}"))
}

fn batch(seed: u64, calls: u64) -> i32 {
    let mut state = seed | 1;
    let buffer = [0u8; 4096];
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    for _ in 0..calls {
        let number = (random() % 470) as libc::c_long;
        let skip = [libc::SYS_exit, libc::SYS_exit_group, libc::SYS_fork, libc::SYS_vfork, libc::SYS_pause];
        if skip.contains(&number) {
            continue;
        }
        let mut given = [0usize; 6];
        for argument in &mut given {
            *argument = match random() % 4 {
                0 => 0,
                1 => (random() % 64) as usize,
                2 => address(&buffer),
                _ => random() as usize,
            };
        }
        let _ = crate::system::call(number, given);
    }
    0
}
