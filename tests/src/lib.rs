//! What the black-box suites share: starting the command line with a hard stop, reading its
//! Outcome, looking at the host from outside, and running a table of attacks.
//!
//! It must not build anything, and it believes nothing Sandtimer says about processes: survivors
//! are looked for in /proc, by a marker in their arguments.
#![allow(
    clippy::disallowed_methods,
    reason = "tests start the command line and their own helpers directly; they are not part of the product"
)]

pub mod attack;
pub mod attack_list;
pub mod cache;
pub mod census;
pub mod command;
pub mod deaths;
pub mod fuse;
pub mod honest;
pub mod outcome;
pub mod process;
pub mod rejection;
pub mod scene;
pub mod side_by_side;
pub mod wait;

/// Whether the campaigns run at full size (`SANDTIMER_FULL=1`) rather than shortened.
#[must_use]
pub fn full() -> bool {
    std::env::var_os("SANDTIMER_FULL").is_some_and(|value| value == "1")
}

/// `short`, or `long` in a full campaign.
#[must_use]
pub fn count(short: usize, long: usize) -> usize {
    if full() { long } else { short }
}
