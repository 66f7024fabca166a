//! Waits for what sends no event.
#![allow(clippy::disallowed_methods)] // sleeps between two checks

use std::time::Duration;

/// Waits at most ten seconds for a condition.
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1_000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("not within ten seconds: {what}");
}
