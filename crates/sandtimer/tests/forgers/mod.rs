//! Outcomes of contexts and sessions while other processes of theirs send what the interpreter
//! would: nothing counts but what the interpreter's own process sends about the execution that is
//! on.
//!
//! 300 executions while a forger runs; at full size (`SANDTIMER_FULL`) 10,000.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)] // one starts this process as another user; counts are shown

mod cells;
mod commands;
mod javascript;

/// Executions while a forger runs; the full proof has more.
fn executions() -> usize {
    if std::env::var_os("SANDTIMER_FULL").is_some() { 10_000 } else { 300 }
}
