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
//!   [verdict](Verdict) if a limit ended it, the [proof](TreeReport) that its processes are dead,
//!   its [usage](Usage), and the [isolation](Isolation) that was active.
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
//! The names at the root of the crate are what most programs need. The modules have further types,
//! for front ends; these may change between minor versions.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub(crate) mod context;
pub mod engine;
// For the front ends of this project, which report what a host can do.
#[doc(hidden)]
pub mod isolate;
pub mod limits;
pub mod model;
pub mod progress;
pub mod scope;
// For the server and the command line, which parse TypeScript apart.
#[cfg(feature = "javascript")]
#[doc(hidden)]
pub mod script;
// For the front ends of this project, which write output and signals in the engine's form.
#[doc(hidden)]
pub mod supervise;
pub mod time;
#[doc(hidden)]
pub mod vocabulary;
pub mod zygote;

#[doc(inline)]
pub use engine::{
    BranchSpec, CellEvent, CellSpec, Chunk, Context, ContextSpec, Contexts, Engine, Error, Options, Output,
    Require, Run, RunOutput, Sandbox, SandboxError, SandboxNetwork, SandboxSpec, Sandboxes, ScopeHandle,
    Spec, Stdin, Stream, Template, Terminal,
};
#[doc(inline)]
pub use limits::{EffectiveLimits, Limits, Setting};
#[doc(inline)]
pub use model::{
    Ending, Isolation, KillClass, Layer, LimitKind, Outcome, Progress, Proof, RemainingState, Source, Tier,
    TreeReport, Usage, Verdict, Warning,
};
#[doc(inline)]
pub use scope::ScopeId;
#[doc(inline)]
pub use time::Moment;
#[doc(inline)]
pub use zygote::{Language, Profile};

/// The Rust examples of the pages, which documentation tests run.
#[cfg(doctest)]
#[allow(rustdoc::invalid_codeblock_attributes)]
#[doc = include_str!("../../../README.md")]
struct ReadmeExamples;

#[cfg(doctest)]
#[allow(rustdoc::invalid_codeblock_attributes)]
#[doc = include_str!("../../../docs/guides/rust.md")]
struct GuideExamples;
