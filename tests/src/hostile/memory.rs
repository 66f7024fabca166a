//! Attacks C: payloads that take memory by every road the kernel offers.
//!
//! Each takes at most the bytes given as argument and touches every page of them.

use std::time::Duration;

use crate::arguments::PayloadArguments;
use crate::call;
use crate::report::{Finding, line};
use crate::system::{NULL, address, errno, fork_running, pause_for, pause_forever};

const PAGE: usize = 4096;
/// No payload takes more than this, whatever it is asked.
const MAX_BYTES: u64 = 8 << 30;

fn bytes(arguments: &PayloadArguments, index: usize) -> usize {
    arguments.number(index, 256 << 20).min(MAX_BYTES) as usize
}

/// Maps and touches `length` bytes; the mapping stays.
fn take(length: usize, flags: i32, descriptor: i32) -> Result<(), i32> {
    // SAFETY: a fresh mapping chosen by the kernel.
    let start = unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(std::ptr::null_mut(), length, protection, flags, descriptor, 0)
    };
    if start == libc::MAP_FAILED {
        return Err(errno());
    }
    for offset in (0..length).step_by(PAGE) {
        // SAFETY: the offset is inside the mapping just made. Past the end of a full file system it
        // is SIGBUS.
        unsafe { start.cast::<u8>().add(offset).write_volatile(1) };
    }
    Ok(())
}

fn took(result: Result<(), i32>, length: usize) -> Finding {
    match result {
        Ok(()) => Finding::Succeeded(format!("{length} bytes")),
        Err(errno) => Finding::Denied(errno),
    }
}

/// C1: private memory: `memory BYTES`.
pub(crate) fn private(arguments: &PayloadArguments) -> Finding {
    let length = bytes(arguments, 0);
    took(take(length, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1), length)
}

/// C3: children that each touch their own copy: `memory-fork BYTES N`. The first waits for them
/// all.
pub(crate) fn forked(arguments: &PayloadArguments) -> Finding {
    let (length, children) = (bytes(arguments, 0), arguments.number(1, 8).clamp(1, 64));
    let mut started = 0;
    for _ in 0..children {
        let child = fork_running(|| match take(length, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1) {
            Ok(()) => {
                line("{\"touched\":true}");
                pause_forever()
            }
            Err(_) => 1,
        });
        started += u64::from(child.is_ok());
    }
    // All of it at once is what counts, so the children stay; this is how long they get to touch
    // their share.
    pause_for(Duration::from_secs(arguments.number(2, 5)));
    Finding::Succeeded(format!("{started} children of {length} bytes"))
}

/// C4: shared anonymous memory: `shared BYTES`.
pub(crate) fn shared(arguments: &PayloadArguments) -> Finding {
    let length = bytes(arguments, 0);
    took(take(length, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1), length)
}

/// C4: a memory file: `memfd BYTES`.
pub(crate) fn memfd(arguments: &PayloadArguments) -> Finding {
    let length = bytes(arguments, 0);
    let made = call!(libc::SYS_memfd_create, c"hostile".as_ptr(), 0);
    let file = match made {
        Ok(file) => file,
        Err(errno) => return Finding::Denied(errno),
    };
    if let Err(errno) = call!(libc::SYS_ftruncate, file, length) {
        return Finding::Denied(errno);
    }
    took(take(length, libc::MAP_SHARED, file as i32), length)
}

/// C13: fills a file of memory that no process maps, and keeps it: `memfd-hold BYTES`. Outside a
/// cage at most 16 MiB.
pub(crate) fn memfd_hold(arguments: &PayloadArguments) -> Finding {
    let most = if arguments.inside_cage() { usize::MAX } else { 16 << 20 };
    let file = match call!(libc::SYS_memfd_create, c"hostile".as_ptr(), 0) {
        Ok(file) => file,
        Err(errno) => return Finding::Denied(errno),
    };
    let page = [1u8; 4096];
    for _ in 0..bytes(arguments, 0).min(most) / page.len() {
        if let Err(errno) = call!(libc::SYS_write, file, address(&page), page.len()) {
            return Finding::Denied(errno);
        }
    }
    pause_forever()
}

/// C4, G2: a System V segment of N bytes, left behind on purpose: `sysv-shm BYTES`.
pub(crate) fn sysv(arguments: &PayloadArguments) -> Finding {
    let length = arguments.number(0, 4096).min(MAX_BYTES) as usize;
    match call!(libc::SYS_shmget, libc::IPC_PRIVATE, length, libc::IPC_CREAT | 0o600) {
        Ok(id) => Finding::Succeeded(format!("segment {id}")),
        Err(errno) => Finding::Denied(errno),
    }
}

/// C5: event descriptors until N or a refusal: `fd-hoard N`.
pub(crate) fn descriptors(arguments: &PayloadArguments) -> Finding {
    let most = arguments.number(0, 1000).min(2_000_000);
    for _ in 0..most {
        if let Err(errno) = call!(libc::SYS_eventfd2, 0, 0) {
            return Finding::Denied(errno);
        }
    }
    Finding::Succeeded(format!("{most} descriptors"))
}

/// C6: memory the kernel itself cannot read.
pub(crate) fn secret(_: &PayloadArguments) -> Finding {
    Finding::of(call!(libc::SYS_memfd_secret, 0))
}

/// C8: recursion without end.
pub(crate) fn stack(_: &PayloadArguments) -> Finding {
    fn deeper(depth: u64) -> u64 {
        let frame = std::hint::black_box([depth; 512]);
        if depth == u64::MAX { 0 } else { deeper(depth + 1) + frame[(depth % 512) as usize] }
    }
    Finding::Facts(format!("\"depth\":{}", deeper(0)))
}

/// C10: asks never to be chosen by the out-of-memory killer.
pub(crate) fn oom_score(_: &PayloadArguments) -> Finding {
    match std::fs::write("/proc/self/oom_score_adj", "-1000") {
        Ok(()) => Finding::Succeeded("oom_score_adj is -1000".into()),
        Err(error) => error.into(),
    }
}

/// C10: asks to be chosen by the out-of-memory killer as any other process of the host is.
pub(crate) fn oom_score_of_host(_: &PayloadArguments) -> Finding {
    const FILE: &str = "/proc/self/oom_score_adj";
    let is_usual = || std::fs::read_to_string(FILE).is_ok_and(|score| score.trim() == "0");
    // Bare it is so already: what is tried is to lower it.
    let lowered = if is_usual() { std::fs::write(FILE, "500") } else { Ok(()) };
    match lowered.and_then(|()| std::fs::write(FILE, "0")) {
        Ok(()) if is_usual() => Finding::Succeeded("oom_score_adj is 0".into()),
        Ok(()) => Finding::Untried("it reads otherwise".into()),
        Err(error) => error.into(),
    }
}

/// C6: locks all its memory, now and later, then takes some: `mlock BYTES`. Outside a cage at most
/// 16 MiB of it.
pub(crate) fn lock(arguments: &PayloadArguments) -> Finding {
    const MAX_BYTES_OUTSIDE_CAGE: usize = 16 << 20;
    let most = if arguments.inside_cage() { usize::MAX } else { MAX_BYTES_OUTSIDE_CAGE };
    let length = bytes(arguments, 0).min(most);
    if let Err(errno) = call!(libc::SYS_mlockall, libc::MCL_CURRENT | libc::MCL_FUTURE, NULL) {
        return Finding::Denied(errno);
    }
    took(take(length, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1), length)
}

/// C2: address space without memory: `reserve BYTES`.
pub(crate) fn reserve(arguments: &PayloadArguments) -> Finding {
    let length = arguments.number(0, 1 << 40) as usize;
    // SAFETY: a fresh mapping chosen by the kernel, which nobody touches.
    let start = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        libc::mmap(std::ptr::null_mut(), length, libc::PROT_NONE, flags, -1, 0)
    };
    if start == libc::MAP_FAILED { Finding::Denied(errno()) } else { took(Ok(()), length) }
}

/// C2: mappings of one page each until N or a refusal: `mappings N`.
pub(crate) fn mappings(arguments: &PayloadArguments) -> Finding {
    let most = arguments.number(0, 1000).min(2_000_000);
    for made in 0..most {
        // Neighbours that are alike would become one.
        let protection = if made % 2 == 0 { libc::PROT_NONE } else { libc::PROT_READ };
        // SAFETY: a fresh mapping chosen by the kernel.
        let start = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), PAGE, protection, flags, -1, 0)
        };
        if start == libc::MAP_FAILED {
            return Finding::Denied(errno());
        }
    }
    Finding::Succeeded(format!("{most} mappings"))
}

/// C7: reads a file from beginning to end, over and over: `read-over PATH TIMES`.
pub(crate) fn read_over(arguments: &PayloadArguments) -> Finding {
    let read = (|| -> Result<u64, Finding> {
        let path = arguments.path(0)?;
        let mut total = 0;
        for _ in 0..arguments.number(1, 1).min(100) {
            let mut file = std::fs::File::open(&path)?;
            total += std::io::copy(&mut file, &mut std::io::sink())?;
        }
        Ok(total)
    })();
    read.map_or_else(|refused| refused, |total| Finding::Succeeded(format!("{total} bytes read")))
}

/// C12: writes a file to stdout from where it is mapped: the kernel brings the page in while it
/// writes, and holds the pipe meanwhile: `echo-mapped PATH`.
pub(crate) fn echo_mapped(arguments: &PayloadArguments) -> Finding {
    let file = match arguments.path(0).and_then(|path| Ok(std::fs::File::open(path)?)) {
        Ok(file) => file,
        Err(refused) => return refused,
    };
    // SAFETY: a fresh mapping chosen by the kernel; past the end of the file it would be SIGBUS.
    let start = unsafe {
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&file);
        libc::mmap(std::ptr::null_mut(), PAGE, libc::PROT_READ, libc::MAP_PRIVATE, descriptor, 0)
    };
    if start == libc::MAP_FAILED {
        return Finding::Denied(errno());
    }
    Finding::of(call!(libc::SYS_write, 1, start, PAGE))
}

/// C11: touches that much, says `{"holding":true}`, holds it that long and gives it back:
/// `hold-memory BYTES MS`.
pub(crate) fn hold(arguments: &PayloadArguments) -> Finding {
    let length = bytes(arguments, 0);
    if let Err(errno) = take(length, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1) {
        return Finding::Denied(errno);
    }
    line("{\"holding\":true}");
    pause_for(Duration::from_millis(arguments.number(1, 1000)));
    Finding::Facts(format!("\"held\":{length}"))
}
