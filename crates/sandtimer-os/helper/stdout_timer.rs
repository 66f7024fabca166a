//! Writes standard output that waits in memory to its pipe, a moment after it came there: for
//! interpreters that no engine looks into.
//!
//! A timer of the process's own sends it a real-time signal, whose handler writes. It is set when
//! something waits, and once; so a process that prints nothing is never interrupted, and one that
//! prints without a pause is interrupted fifty times a second. There is no thread: Python warns of
//! forks where there are.
//!
//! In a session or a context timers with a signal of one's choice are refused, as they could
//! continue what is stopped there. What is printed is written at once then; where it is more than a
//! thousand pieces without a pause, every two milliseconds.

use core::ffi::c_int;
use core::ptr::{null, null_mut};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64};

use crate::signal_action::{DEFAULT_ACTION, SignalAction};
use crate::stdout;
use crate::sys::call;

/// The last but one of the real-time signals; programs that use any take the first.
const SIGNAL: c_int = 63;
/// How long something waits at most, in nanoseconds.
const WAIT: i64 = 20_000_000;
const TIMER_CREATE: usize = 222;
const TIMER_SETTIME: usize = 223;
const MONOTONIC: usize = 1;
const SA_RESTART: c_int = 0x1000_0000;
const NO_TIMER: i32 = -1;
/// Timers are refused.
const REFUSED: i32 = -2;
/// Without a timer: pieces that are written at once after a pause, how long a pause is, and how
/// soon something is written again after them, both in nanoseconds.
const MAX_AT_ONCE: u32 = 1000;
const PAUSE: u64 = 20_000_000;
const NEXT: u64 = 2_000_000;

unsafe extern "C" {
    fn sigaction(signal: c_int, new: *const SignalAction, old: *mut SignalAction) -> c_int;
}

static TIMER: AtomicI32 = AtomicI32::new(NO_TIMER);
static IS_SET: AtomicBool = AtomicBool::new(false);
static AT_ONCE: AtomicU32 = AtomicU32::new(0);
static WRITTEN_AT: AtomicU64 = AtomicU64::new(0);

/// Has this process handle the signal. False where something else does.
pub fn install() -> bool {
    let mut action = DEFAULT_ACTION;
    // SAFETY: of the C library's layout.
    let known = unsafe { sigaction(SIGNAL, null(), &raw mut action) } == 0;
    if !known || action.handler != 0 {
        return false;
    }
    action = SignalAction { handler: write_waiting as *const () as usize, flags: SA_RESTART, ..action };
    // SAFETY: the same.
    unsafe { sigaction(SIGNAL, &raw const action, null_mut()) == 0 }
}

/// Has what waits be written soon.
pub fn set() {
    if IS_SET.swap(true, Relaxed) {
        return;
    }
    let mut timer = TIMER.load(Relaxed);
    if timer == NO_TIMER {
        // `struct sigevent`: the value, the signal, and that it is to be sent.
        let mut event = [0u64; 8];
        event[1] = SIGNAL as u64;
        if call!(TIMER_CREATE, MONOTONIC, event.as_ptr(), &raw mut timer) < 0 {
            timer = REFUSED;
        }
        TIMER.store(timer, Relaxed);
    }
    if timer == REFUSED {
        IS_SET.store(false, Relaxed);
        write_soon(stdout::now());
        return;
    }
    // `struct itimerspec`: no interval, and the time.
    let once = [0i64, 0, 0, WAIT];
    if call!(TIMER_SETTIME, timer, 0, once.as_ptr(), 0) < 0 {
        IS_SET.store(false, Relaxed);
    }
}

/// Writes without a timer.
fn write_soon(now: u64) {
    let since = now.saturating_sub(WRITTEN_AT.load(Relaxed));
    let count = if since >= PAUSE { 0 } else { AT_ONCE.load(Relaxed) };
    if count < MAX_AT_ONCE || since >= NEXT {
        AT_ONCE.store(count.saturating_add(1), Relaxed);
        WRITTEN_AT.store(now, Relaxed);
        // What the pipe has no room for is written with what comes next.
        stdout::write_without_waiting();
    }
}

/// In a fork, which has none of its parent's timers.
pub fn forget() {
    TIMER.store(NO_TIMER, Relaxed);
    IS_SET.store(false, Relaxed);
}

extern "C" fn write_waiting(_: c_int) {
    IS_SET.store(false, Relaxed);
    if !stdout::write_without_waiting() {
        set();
    }
}
