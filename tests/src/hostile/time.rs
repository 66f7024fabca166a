//! Attacks A: payloads that do not end, or end at the worst moment.

use std::time::Duration;

use crate::arguments::PayloadArguments;
use crate::call;
use crate::report::{Finding, line};
use crate::system::{
    NULL, address, burn_until, end_of_life, fork, fork_running, leave, now, pause, pause_for, pause_forever,
    processor_time, signal,
};

/// A1: a busy loop.
pub(crate) fn spin(_: &PayloadArguments) -> Finding {
    burn_until(Duration::MAX);
    Finding::Completed
}

/// A2: waits for a signal that never comes.
pub(crate) fn sleep(_: &PayloadArguments) -> Finding {
    pause_forever()
}

/// A4: ignores and blocks everything that can be, then spins.
pub(crate) fn ignore_signals(_: &PayloadArguments) -> Finding {
    // SAFETY: SIG_IGN is a valid disposition for every number; refused ones are left as they are.
    // The set lives across the calls.
    unsafe {
        for number in 1..=libc::SIGRTMAX() {
            libc::signal(number, libc::SIG_IGN);
        }
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
    line("{\"ignoring\":true}");
    burn_until(Duration::MAX);
    Finding::Completed
}

/// A5: stops itself, again after each continue.
pub(crate) fn stop_self(_: &PayloadArguments) -> Finding {
    line("{\"stopping\":true}");
    while now() < end_of_life() {
        let _ = signal(std::process::id() as i32, libc::SIGSTOP);
    }
    Finding::Completed
}

/// A5: stops its own children, then sleeps.
pub(crate) fn stop_children(_: &PayloadArguments) -> Finding {
    for _ in 0..4 {
        match fork_running(|| pause_forever()) {
            Ok(child) => {
                let _ = signal(child, libc::SIGSTOP);
            }
            Err(errno) => return Finding::Denied(errno),
        }
    }
    pause_forever()
}

/// A6: each link uses a little processor time, forks the next and exits: `fork-chain LINKS
/// BURN_MS`.
pub(crate) fn fork_chain(arguments: &PayloadArguments) -> Finding {
    let burn = Duration::from_millis(arguments.number(1, 300));
    let first = std::process::id();
    for _ in 0..arguments.number(0, 100).min(1000) {
        while processor_time() < burn && now() < end_of_life() {
            std::hint::black_box(());
        }
        match fork() {
            Ok(0) => {}
            // The first process stays, asleep, so that the run is not over when it exits.
            Ok(child) if std::process::id() == first => {
                let _ = crate::system::reap(child);
                pause_forever()
            }
            Ok(_) => leave(0),
            Err(errno) => return Finding::Denied(errno),
        }
    }
    Finding::Completed
}

/// A7: that many threads, each busy: `threads-spin N`.
pub(crate) fn threads_spin(arguments: &PayloadArguments) -> Finding {
    for _ in 1..arguments.number(0, 64).min(4096) {
        if std::thread::Builder::new().stack_size(64 << 10).spawn(|| burn_until(Duration::MAX)).is_err() {
            break;
        }
    }
    burn_until(Duration::MAX);
    Finding::Completed
}

/// A8: raises a hard limit of its own, by one.
pub(crate) fn raise_limit(_: &PayloadArguments) -> Finding {
    // One that no other setting bounds as well.
    let resource = libc::RLIMIT_SIGPENDING as usize;
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    if let Err(errno) = call!(libc::SYS_prlimit64, 0, resource, NULL, std::ptr::from_mut(&mut limit)) {
        return Finding::Denied(errno);
    }
    limit.rlim_max += 1;
    Finding::of(call!(libc::SYS_prlimit64, 0, resource, address(&limit), NULL))
}

/// A8: sets a limit of another process to what it already is: `prlimit-init [PID]`.
pub(crate) fn limit_of_init(arguments: &PayloadArguments) -> Finding {
    let victim = match arguments.victim(0) {
        Ok(victim) => victim,
        Err(refused) => return refused,
    };
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    let resource = libc::RLIMIT_CORE as usize;
    if let Err(errno) = call!(libc::SYS_prlimit64, victim, resource, NULL, std::ptr::from_mut(&mut limit)) {
        return Finding::Denied(errno);
    }
    Finding::of(call!(libc::SYS_prlimit64, victim, resource, address(&limit), NULL))
}

/// A9: timers until the kernel refuses, then sleep: `timers N`.
pub(crate) fn timers(arguments: &PayloadArguments) -> Finding {
    let mut made = 0u64;
    for _ in 0..arguments.number(0, 100_000).min(1_000_000) {
        let mut timer = 0i32;
        if call!(libc::SYS_timer_create, libc::CLOCK_MONOTONIC, NULL, std::ptr::from_mut(&mut timer)).is_err()
        {
            break;
        }
        made += 1;
    }
    line(&format!("{{\"timers\":{made}}}"));
    pause_forever()
}

/// A10: sets the calendar clock to the present; moves a real clock by microseconds, so only inside
/// a cage.
pub(crate) fn clock_settime(_: &PayloadArguments) -> Finding {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    if let Err(errno) = call!(libc::SYS_clock_gettime, libc::CLOCK_REALTIME, std::ptr::from_mut(&mut time)) {
        return Finding::Denied(errno);
    }
    Finding::of(call!(libc::SYS_clock_settime, libc::CLOCK_REALTIME, address(&time)))
}

/// A10: writes back the clock's own tick length.
pub(crate) fn adjtimex(_: &PayloadArguments) -> Finding {
    // SAFETY: all-zero is a valid timex: it asks to change nothing.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    if let Err(errno) = call!(libc::SYS_adjtimex, std::ptr::from_mut(&mut state)) {
        return Finding::Denied(errno);
    }
    const ADJ_TICK: u32 = 0x4000;
    state.modes = ADJ_TICK;
    Finding::of(call!(libc::SYS_adjtimex, std::ptr::from_mut(&mut state)))
}

/// A11: exits 0 that many milliseconds after it began: `exit-at MS`.
pub(crate) fn exit_at(arguments: &PayloadArguments) -> Finding {
    pause_for(Duration::from_millis(arguments.number(0, 100)));
    Finding::Completed
}

/// A12: an exit handler that never returns.
pub(crate) fn exit_hang(_: &PayloadArguments) -> Finding {
    extern "C" fn hang() {
        while now() < end_of_life() {
            pause();
        }
    }
    // SAFETY: `hang` is a function of this program and needs nothing that exit tears down.
    unsafe { libc::atexit(hang) };
    Finding::Completed
}

/// A13: a parent held in vfork by a child that sleeps; it shows as uninterruptible and is not.
pub(crate) fn vfork_sleep(_: &PayloadArguments) -> Finding {
    // Without CLONE_VM the child has memory of its own, and still holds its parent until it execs
    // or exits.
    match call!(libc::SYS_clone, libc::CLONE_VFORK | libc::SIGCHLD) {
        Ok(0) => pause_forever(),
        other => Finding::of(other),
    }
}

/// A16: real-time scheduling for itself.
pub(crate) fn sched_fifo(_: &PayloadArguments) -> Finding {
    let priority = libc::sched_param { sched_priority: 1 };
    let result = call!(libc::SYS_sched_setscheduler, 0, libc::SCHED_FIFO, address(&priority));
    let normal = libc::sched_param { sched_priority: 0 };
    let _ = call!(libc::SYS_sched_setscheduler, 0, libc::SCHED_OTHER, address(&normal));
    Finding::of(result)
}

/// A16: writes back the processor set of another process: `affinity-init [PID]`.
pub(crate) fn affinity_of_init(arguments: &PayloadArguments) -> Finding {
    let victim = match arguments.victim(0) {
        Ok(victim) => victim,
        Err(refused) => return refused,
    };
    let mut set = [0u64; 16];
    let size = size_of_val(&set);
    if let Err(errno) = call!(libc::SYS_sched_getaffinity, victim, size, std::ptr::from_mut(&mut set)) {
        return Finding::Denied(errno);
    }
    Finding::of(call!(libc::SYS_sched_setaffinity, victim, size, address(&set)))
}

/// A16: a higher priority than it was given.
pub(crate) fn nice_down(_: &PayloadArguments) -> Finding {
    Finding::of(call!(libc::SYS_setpriority, libc::PRIO_PROCESS, 0, -5isize))
}

/// A17: a storm of cheap system calls.
pub(crate) fn storm(_: &PayloadArguments) -> Finding {
    // SAFETY: a fresh anonymous mapping.
    let page = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, flags, -1, 0)
    } as usize;
    while now() < end_of_life() {
        for _ in 0..1000 {
            let _ = call!(libc::SYS_sched_yield);
            let _ = call!(libc::SYS_mprotect, page, 4096, libc::PROT_READ | libc::PROT_WRITE);
            let _ = call!(libc::SYS_mprotect, page, 4096, libc::PROT_READ);
        }
    }
    Finding::Completed
}
