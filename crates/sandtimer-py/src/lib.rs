//! The Python module `_sandtimer`: what the package `sandtimer` needs and Python cannot do.
//!
//! It must not decide anything about a run, and nothing here is public: `python/sandtimer` is. The
//! hard fact is that a panic must not cross into the interpreter; PyO3 turns one into a Python
//! exception, so nothing here may hold a lock or a half-changed object across code that can panic.
//! The interpreter's lock is released for every wait, and signals are handled whenever one
//! interrupts a wait: `calls.rs`, `contexts.rs`, `ended.rs` and `jobs.rs` are the only places that
//! wait.
#![deny(unsafe_code)]

mod budgets;
mod calls;
mod contexts;
mod decode;
mod ended;
mod errors;
mod estimates;
mod jobs;
mod limits;
mod memory;
mod resilience;
mod signals;

use pyo3::prelude::*;

/// The native half of the package `sandtimer`.
#[pymodule(gil_used = true)]
mod _sandtimer {
    use super::*;

    #[pymodule_export]
    use super::budgets::{Budget, duration_text, parse_estimate};
    #[pymodule_export]
    use super::calls::{Call, Engine, Pool, Scope, child_source, gpu_nodes};
    #[pymodule_export]
    use super::contexts::{Context, Contexts, Execution};
    #[pymodule_export]
    use super::decode::decode;
    #[pymodule_export]
    use super::ended::Ended;
    #[pymodule_export]
    use super::estimates::estimate;
    #[pymodule_export]
    use super::jobs::{JobStore, JobWorker, end_remarks, parse_job_file};
    #[pymodule_export]
    use super::limits::CallLimits;
    #[pymodule_export]
    use super::resilience::{Attempts, Breakers, LoopGuard};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::decode::prepare(module.py())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
