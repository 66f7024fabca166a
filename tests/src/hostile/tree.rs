//! Attacks B: payloads that hide, multiply, or aim at other processes.
//!
//! Everything that multiplies has two caps of its own: a number given as argument, counted in
//! memory all its processes share, and the end-of-life timer of each.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::arguments::PayloadArguments;
use crate::call;
use crate::report::{Finding, line};
use crate::system::{
    Pid, address, end_of_life, fork, fork_running, leave, now, pause_for, pause_forever, reap,
    shared_counter, signal,
};

/// No payload makes more processes or threads than this, whatever it is asked.
const MAX_PROCESSES: u64 = 20_000;

/// B1: every process forks until N were made, then all sleep: `fork-bomb N`.
pub(crate) fn fork_bomb(arguments: &PayloadArguments) -> Finding {
    let most = arguments.number(0, 200).min(MAX_PROCESSES);
    let made = shared_counter();
    let refused = shared_counter();
    let mut first = true;
    loop {
        if made.fetch_add(1, Ordering::Relaxed) >= most {
            break;
        }
        match fork() {
            Ok(0) => first = false,
            Ok(_) => {}
            Err(errno) => {
                made.fetch_sub(1, Ordering::Relaxed);
                refused.store(errno as u64, Ordering::Relaxed);
                break;
            }
        }
    }
    if first {
        // The others are still at it; what they reached is known once nothing has changed for a
        // while.
        pause_for(Duration::from_millis(200));
        let (made, refused) = (made.load(Ordering::Relaxed), refused.load(Ordering::Relaxed));
        line(&format!("{{\"made\":{},\"refused_errno\":{refused}}}", made.min(most)));
        if made >= most && refused == 0 {
            let all = Finding::Succeeded(format!("{most} processes"));
            all.as_json("B1", "fork-bomb").iter().for_each(|text| line(text));
        }
    }
    pause_forever()
}

/// B2: threads until N or a refusal: `thread-bomb N`.
pub(crate) fn thread_bomb(arguments: &PayloadArguments) -> Finding {
    let most = arguments.number(0, 200).min(MAX_PROCESSES);
    for made in 0..most {
        let thread = std::thread::Builder::new().stack_size(16 << 10);
        if let Err(error) = thread.spawn(|| pause_forever()) {
            line(&format!("{{\"made\":{made}}}"));
            return error.into();
        }
    }
    Finding::Succeeded(format!("{most} threads"))
}

/// B3: double fork, own session, no descriptors; prints the daemon's pid and exits 0.
pub(crate) fn daemon(_: &PayloadArguments) -> Finding {
    let (read, write) = match std::io::pipe() {
        Ok(ends) => ends,
        Err(error) => return error.into(),
    };
    let child = fork_running(|| {
        // SAFETY: setsid has no memory effects.
        unsafe { libc::setsid() };
        let daemon = fork_running(|| {
            let _ = call!(libc::SYS_close_range, 0, u32::MAX, 0);
            pause_forever()
        });
        drop(std::io::Write::write_all(&mut &write, &daemon.unwrap_or(-1).to_ne_bytes()));
        0
    });
    let child = match child {
        Ok(child) => child,
        Err(errno) => return Finding::Denied(errno),
    };
    let mut pid = [0; size_of::<Pid>()];
    drop(std::io::Read::read_exact(&mut &read, &mut pid));
    let _ = reap(child);
    Finding::Facts(format!("\"daemon\":{}", Pid::from_ne_bytes(pid)))
}

/// B4: a chain of forks, each leaving session and group, the last one stays.
pub(crate) fn setsid_shuffle(_: &PayloadArguments) -> Finding {
    for turn in 0..16 {
        // SAFETY: neither call has memory effects.
        unsafe {
            if turn % 2 == 0 {
                libc::setsid();
            } else {
                libc::setpgid(0, 0);
            }
        }
        match fork() {
            Ok(0) => {}
            Ok(_) if turn == 0 => pause_forever(),
            Ok(_) => leave(0),
            Err(errno) => return Finding::Denied(errno),
        }
    }
    pause_forever()
}

/// B5: adopts its orphans and keeps them.
pub(crate) fn subreaper(_: &PayloadArguments) -> Finding {
    if let Err(errno) = call!(libc::SYS_prctl, libc::PR_SET_CHILD_SUBREAPER, 1) {
        return Finding::Denied(errno);
    }
    for _ in 0..4 {
        let middle = fork_running(|| {
            let _ = fork_running(|| pause_forever());
            0
        });
        match middle {
            Ok(middle) => {
                let _ = reap(middle);
            }
            Err(errno) => return Finding::Denied(errno),
        }
    }
    pause_forever()
}

/// B6: SIGKILL to all, to process 1, and to low pids; then says it is still there.
pub(crate) fn kill_all(_: &PayloadArguments) -> Finding {
    for victim in [1, -1] {
        let _ = signal(victim, libc::SIGKILL);
    }
    let own = std::process::id() as Pid;
    for pid in (2..512).filter(|pid| *pid != own) {
        let _ = signal(pid, libc::SIGKILL);
        let _ = call!(libc::SYS_tgkill, pid, pid, libc::SIGKILL);
    }
    Finding::Facts("\"alive\":true".into())
}

/// B6: SIGKILL to one process: `signal-probe PID`.
pub(crate) fn signal_probe(arguments: &PayloadArguments) -> Finding {
    match arguments.number(0, 0) {
        victim @ 2.. => Finding::of(signal(victim as Pid, libc::SIGKILL)),
        _ => Finding::Untried("argument 1 (a pid above 1) is missing".into()),
    }
}

/// B7: stops and continues process 1 over and over, then sleeps.
pub(crate) fn stop_init(_: &PayloadArguments) -> Finding {
    for _ in 0..10_000 {
        for number in [libc::SIGSTOP, libc::SIGTSTP, libc::SIGCONT, libc::SIGTERM] {
            let _ = signal(1, number);
        }
    }
    let _ = signal(1, libc::SIGSTOP);
    pause_forever()
}

/// B8: children that exit and are never reaped, until N or a refusal: `zombies N`.
pub(crate) fn zombies(arguments: &PayloadArguments) -> Finding {
    let most = arguments.number(0, 200).min(MAX_PROCESSES);
    for _ in 0..most {
        if let Err(errno) = fork_running(|| 0) {
            return Finding::Denied(errno);
        }
    }
    Finding::Succeeded(format!("{most} zombies"))
}

/// B9: forks from a signal handler each time it is told to end, up to 8 times.
pub(crate) fn fork_in_handler(_: &PayloadArguments) -> Finding {
    extern "C" fn again(_: i32) {
        use std::sync::atomic::AtomicU32;
        static TIMES: AtomicU32 = AtomicU32::new(0);
        if TIMES.fetch_add(1, Ordering::Relaxed) < 8 {
            let _ = fork();
        }
    }
    let handler = again as extern "C" fn(i32);
    // SAFETY: the handler only forks and touches an atomic.
    unsafe { libc::signal(libc::SIGTERM, handler as libc::sighandler_t) };
    line("{\"handling\":true}");
    pause_forever()
}

/// B9: a child that is its parent's sibling, out of reach of its parent's wait.
pub(crate) fn clone_parent(_: &PayloadArguments) -> Finding {
    match call!(libc::SYS_clone, libc::CLONE_PARENT | libc::SIGCHLD) {
        Ok(0) => leave(0),
        other => Finding::of(other),
    }
}

/// B9: by clone3(2), whose flags a filter cannot read: `clone3 KIND`.
pub(crate) fn clone3(arguments: &PayloadArguments) -> Finding {
    const CLONE_INTO_CGROUP: u64 = 1 << 33;
    let mut request = [0u64; 11];
    request[4] = libc::SIGCHLD as u64;
    match arguments.text(0, "").as_str() {
        "parent" => (request[0], request[4]) = (libc::CLONE_PARENT as u64, 0),
        // The group the process is in already: nothing changes for it.
        "into-cgroup" => match own_group() {
            Some(group) => {
                request[0] = CLONE_INTO_CGROUP;
                request[10] = std::os::fd::IntoRawFd::into_raw_fd(group) as u64;
            }
            None => request[0] = CLONE_INTO_CGROUP,
        },
        other => return Finding::Untried(format!("no kind of clone3 '{other}'")),
    }
    match call!(libc::SYS_clone3, address(&request), size_of_val(&request)) {
        Ok(0) => leave(0),
        other => Finding::of(other),
    }
}

/// The directory of this process's v2 group, where one can be seen.
fn own_group() -> Option<std::fs::File> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let top = mounts.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        (fields.get(2) == Some(&"cgroup2")).then(|| fields[1].to_owned())
    })?;
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    std::fs::File::open(format!("{top}{own}")).ok()
}

/// B12: many short children, one after another: `short-children N`.
pub(crate) fn short_children(arguments: &PayloadArguments) -> Finding {
    let most = arguments.number(0, 10_000).min(100_000);
    for made in 0..most {
        match fork_running(|| 0) {
            Ok(child) => {
                let _ = reap(child);
            }
            Err(errno) => return Finding::Denied(errno),
        }
        if now() >= end_of_life() {
            return Finding::Facts(format!("\"made\":{made}"));
        }
    }
    Finding::Facts(format!("\"made\":{most}"))
}

/// D8: a grandchild keeps stdout open for S seconds after this process exits: `hold-pipe S`.
pub(crate) fn hold_pipe(arguments: &PayloadArguments) -> Finding {
    let seconds = arguments.number(0, 30);
    let child = fork_running(|| {
        // SAFETY: setsid has no memory effects.
        unsafe { libc::setsid() };
        let _ = fork_running(|| {
            pause_for(Duration::from_secs(seconds));
            0
        });
        0
    });
    match child {
        Ok(child) => {
            let _ = reap(child);
        }
        Err(errno) => return Finding::Denied(errno),
    }
    Finding::Facts("\"holding\":true".into())
}

/// Reads memory of `pid` at the address of a value of this process's own.
pub(crate) fn read_memory_of(pid: Pid, secret: &u64) -> Finding {
    let mut copy = 0u64;
    let local = libc::iovec { iov_base: std::ptr::from_mut(&mut copy).cast(), iov_len: 8 };
    let remote = libc::iovec { iov_base: address(secret) as *mut libc::c_void, iov_len: 8 };
    Finding::of(call!(libc::SYS_process_vm_readv, pid, address(&local), 1, address(&remote), 1, 0))
}
