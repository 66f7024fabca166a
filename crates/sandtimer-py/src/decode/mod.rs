//! Reading a result that a hostile process has pickled, without running anything of its choosing.
//!
//! A pickle is a program: it names functions and has the reader call them. Its writer here is the
//! job, which may have written any bytes at all. What follows from that:
//!
//! - No name is ever imported or looked up because the pickle names it. A name is a key into a
//!   table of ours ([`names`]); what is not in it is refused, by name, with the remedies.
//! - Nothing is called but functions of ours, which check the types of what they are given first
//!   (`python/sandtimer/_rebuild`). Classes that the caller named are rebuilt from the outside: no
//!   `__init__`, no `__setstate__`, no property, no `__hash__` or `__eq__` of theirs runs
//!   ([`classes`], [`keys`]).
//! - Opcodes that reach beyond the pickle (extension codes, persistent ids) and those that no
//!   pickle of protocol 4 or later has are refused. So `copyreg` and its caches do not matter.
//! - What it costs is bounded by the length of the input and by limits: the number of objects, what
//!   is copied of them and the processor time of it all ([`budget`]), how deep they lie in one
//!   another ([`nesting`]), the bits of an integer, how many keys may share one hash ([`keys`]).
//!   Lengths are held against what is there before anything is allocated.
//!
//! It is not a promise that the value is true or sane: fields of a class are whatever the job
//! wrote, a list may hold itself, and one object may be reached by very many paths.
//!
//! Every refusal is a `ResultRefusedError`; whatever a function of ours raises becomes its cause.

mod budget;
mod calls;
mod classes;
mod containers;
mod identity;
mod keys;
mod machine;
mod names;
mod nesting;
mod reader;
mod rejection;
mod value;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use budget::ResultBounds;
use machine::PickleMachine;
use names::Names;

/// Makes what all results share, while the module is imported. If it were made with the first
/// result, an import could release the interpreter's lock in the middle, and another thread could
/// fork: in the forked process it would stay unfinished.
pub(crate) fn prepare(py: Python<'_>) -> PyResult<()> {
    names::table(py)?;
    rejection::refused_class(py)?;
    Ok(())
}

/// Rebuilds the value in `data`, a pickle, and `buffers`, what lay out of band, in the caller's own
/// memory.
///
/// `results` has the classes that may be rebuilt, by module and qualified name.
#[pyfunction]
pub(crate) fn decode<'py>(
    data: &Bound<'py, PyBytes>,
    buffers: &Bound<'py, PyList>,
    results: &Bound<'py, PyDict>,
    bounds: ResultBounds,
) -> PyResult<Bound<'py, PyAny>> {
    let py = data.py();
    let names = Names::new(py, results)?;
    let machine = PickleMachine::new(data.as_bytes(), buffers, &names, bounds);
    machine.and_then(PickleMachine::run).map_err(|refusal| refusal.into_exception(py))
}
