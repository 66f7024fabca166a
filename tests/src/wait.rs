//! Waiting, always with a bound, and the hard stop of each test.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};

/// Between two looks at something that has no descriptor to wait on.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Time on the monotonic clock.
#[must_use]
pub fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: duration.subsec_nanos().into() }
}

/// Looks at `condition` until it holds or `bound` has passed; says whether it held.
pub fn until(bound: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = now() + bound;
    loop {
        if condition() {
            return true;
        }
        if now() >= end {
            return false;
        }
        // An interrupted look is only an early one.
        let _ = poll(&mut [], Some(&timespec(POLL_INTERVAL)));
    }
}

/// Lets `duration` pass, where the time itself is what is tested.
pub fn pass(duration: Duration) {
    until(duration, || false);
}

/// Waits until `descriptor` is readable or `bound` has passed; says whether it is.
#[must_use]
pub fn readable(descriptor: BorrowedFd<'_>, bound: Duration) -> bool {
    let end = now() + bound;
    loop {
        let left = end.saturating_sub(now());
        match poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&timespec(left))) {
            Ok(0) if now() >= end => return false,
            Ok(0) | Err(_) => {}
            Ok(_) => return true,
        }
    }
}

/// Ends the whole test process when a test outlives its bound; dropped, it does nothing more.
#[derive(Debug)]
pub struct HardStop {
    _armed: Sender<()>,
}

impl HardStop {
    /// Arms the stop.
    #[must_use]
    pub fn after(bound: Duration, test: &'static str) -> Self {
        let (armed, fired) = channel();
        std::thread::spawn(move || {
            if fired.recv_timeout(bound) == Err(RecvTimeoutError::Timeout) {
                let _ = writeln!(std::io::stderr(), "hard stop: {test} ran longer than {bound:?}");
                std::process::abort();
            }
        });
        HardStop { _armed: armed }
    }
}

/// Held by a test that looks at the whole host, so that no other test's doings are in its view.
#[derive(Debug)]
pub struct Alone {
    _lock: File,
    _stop: HardStop,
}

/// Waits for every other such test, in this process or another, then arms the hard stop.
///
/// # Panics
/// When the lock cannot be had within ten minutes.
#[must_use]
pub fn alone(test: &'static str, bound: Duration) -> Alone {
    let path = std::env::temp_dir().join("st-tests.lock");
    let lock = File::options().create(true).truncate(false).write(true).open(&path);
    let lock = lock.unwrap_or_else(|error| panic!("lock {}: {error}", path.display()));
    let operation = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    let held = until(Duration::from_secs(600), || rustix::fs::flock(lock.as_fd(), operation).is_ok());
    assert!(held, "another test has held {} for ten minutes", path.display());
    Alone { _lock: lock, _stop: HardStop::after(bound, test) }
}
