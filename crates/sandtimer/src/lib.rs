//! Sandtimer runs code nobody has vouched for in isolated processes, for exactly as long as it is allowed, proves that
//! nothing of it is left alive, and says which limit fired and why.
//!
//! ```no_run
//! use std::time::Duration;
//! use sandtimer::{Engine, Limits, Spec};
//!
//! # fn main() -> Result<(), sandtimer::Error> {
//! let engine = Engine::new()?;
//! let outcome = engine.run_blocking(
//!     Spec::command(["python3", "strategy.py"]).limits(Limits::new().wall(Duration::from_secs(2)).memory(512 << 20)),
//! )?;
//! println!("{:?}, exit code {:?}", outcome.ending, outcome.exit_code);
//! # Ok(())
//! # }
//! ```
//!
//! A timeout, a non-zero exit and an out-of-memory are data in the [`Outcome`]; [`Error`] means that no run existed.
#![forbid(unsafe_code)]

pub(crate) mod context;
pub mod engine;
pub mod isolate;
pub mod job;
pub mod limits;
pub mod model;
pub mod resilience;
pub mod scope;
#[cfg(feature = "javascript")]
pub mod script;
pub mod supervise;
pub mod task;
pub mod time;
#[doc(hidden)]
pub mod vocabulary;
pub mod zygote;

pub use engine::{Engine, Error, Options, Output, Run, Spec, Stdin};

pub use limits::Limits;
pub use model::{Ending, Outcome};

/// The Rust examples of the pages, which documentation tests run.
#[cfg(doctest)]
#[allow(rustdoc::invalid_codeblock_attributes)]
#[doc = include_str!("../../../README.md")]
struct ReadmeExamples;

#[cfg(doctest)]
#[allow(rustdoc::invalid_codeblock_attributes)]
#[doc = include_str!("../../../docs/guides/rust.md")]
struct GuideExamples;
