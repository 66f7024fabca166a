//! Sandtimer runs untrusted code in an isolated process tree, for exactly as long as it is allowed.
//! When a limit is reached it kills the whole tree, proves that no process is left, and reports
//! which limit it was and what the code was doing.
//!
//! This crate is the engine as a library: it needs no server and no daemon, only Linux 5.14 or
//! later. It works with and without root, and with any async runtime or none.
//!
//! ```
//! use std::time::Duration;
//! use sandtimer::{Ending, Engine, Limits, Spec};
//!
//! # fn main() -> Result<(), sandtimer::Error> {
//! let engine = Engine::new()?;
//! let limits = Limits::new().wall(Duration::from_millis(500)).memory(512 << 20);
//! // A daemon that would sleep for an hour, and a command that does.
//! let spec = Spec::command(["sh", "-c", "echo started; sleep 3600 & sleep 3600"]).limits(limits);
//! let outcome = engine.run_blocking(spec)?;
//!
//! assert_eq!(outcome.ending, Ending::Timeout);
//! assert_eq!(outcome.stdout, "started\n");
//! assert_eq!(outcome.tree.survivors, Some(0)); // the daemon is dead, too
//! println!("{}", outcome.verdict.as_ref().expect("a limit ended the run").sentence);
//! # Ok(())
//! # }
//! ```
//!
//! # The main types
//!
//! - [`Engine`] starts runs. Make one per process and keep it: it owns the threads that enforce
//!   deadlines, and a pool of prepared isolation. When its last clone is dropped, its runs are
//!   killed.
//! - [`Spec`] describes a run: the command, its [`Limits`], environment, working directory,
//!   workspaces and standard input.
//! - [`Run`] is a run that [`Engine::start`] has started. It can be waited for or awaited, read
//!   from, extended, paused, signalled and cancelled.
//! - [`Outcome`] is the result: how the run ended ([`Ending`]), its exit code and output, the
//!   [verdict](model::Verdict) if a limit ended it, the [proof](model::Tree) that its processes are
//!   dead, its [usage](model::Usage), and the [isolation](model::Isolation) that was active.
//! - [`Error`] means that Sandtimer could not start a run. A timeout, an exit code other than 0 and
//!   a lack of memory are data of the [`Outcome`], not errors.
//!
//! Code has no time limit unless [`Limits`] sets one. By default a run has no network, a private
//! `/tmp`, a clean environment, and the host's programs and the current directory read-only.
//! [`Spec::workspace`] and [`Spec::network`] grant more, and [`Spec::require`] refuses to start
//! with less isolation than a given tier.
//!
//! # More than one run
//!
//! [`Engine::contexts`] opens live interpreters and shells that keep their state over timeouts and
//! crashes, and [`Engine::open_scope`] bounds several runs by one set of limits.
//!
//! Other crates build on this one: `sandtimer-agents` has budgets of agents, estimates, retries and
//! circuit breakers; `sandtimer-jobs` has durable work; `sandtimer-records` stores the records of
//! runs; `sandtimer-server` and `sandtimer-cli` serve and run the engine.
//!
//! The other modules are for those who build a front end of their own; their types may change
//! between minor versions.
#![forbid(unsafe_code)]

pub(crate) mod context;
pub mod engine;
pub mod isolate;
pub mod limits;
pub mod model;
pub mod progress;
pub mod scope;
#[cfg(feature = "javascript")]
pub mod script;
pub mod supervise;
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
