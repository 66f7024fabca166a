//! What rebuilding one result may cost its reader: objects, what is copied, and processor time.
//!
//! A pickle can refer to one object any number of times for two bytes each, so whatever copies that
//! object is charged for the copy, and not only for the call. Objects and copies are counted apart:
//! a value that a pickler wrote copies no more entries than it has objects, and no more bytes than
//! it has itself.

use pyo3::prelude::*;
use pyo3::types::{
    PyByteArray, PyBytes, PyDict, PyFrozenSet, PyInt, PyList, PyMemoryView, PySet, PyString, PyTuple,
};
use sandtimer_os::clock::thread_cpu_nanoseconds;

use super::rejection::{Result, refuse};

/// Steps between two checks of the clock, and of whether the caller was interrupted.
const STEPS_PER_CHECK: usize = 1 << 16;
/// Steps that a call of a function counts as. The slowest take some 100 microseconds.
const STEPS_PER_CALL: usize = 128;
/// Bytes that are copied or read in the time of one step.
const BYTES_PER_STEP: usize = 64;
/// Bytes of an argument that are not counted: what an object is charged covers them.
const FREE_BYTES: usize = 64;
/// An entry of a dict takes about as much memory as two objects that are charged, one of a tuple
/// less than one.
const PER_DICT_ENTRY: usize = 2;

/// The bounds of one result, as the Python module gives them.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub(crate) struct ResultBounds {
    pub(super) int_bits: usize,
    pub(super) objects: usize,
    /// Bytes that may be copied out of the result, besides those that it consists of.
    pub(super) copied_bytes: usize,
    pub(super) cpu_seconds: f64,
}

#[derive(Debug)]
pub(super) struct DecodeBudget {
    bounds: ResultBounds,
    objects_left: usize,
    /// Entries of containers that may still be copied, in objects.
    entries_left: usize,
    bytes_left: usize,
    steps_left: usize,
    started_ns: u64,
}

impl DecodeBudget {
    pub(super) fn new(bounds: ResultBounds) -> Self {
        Self {
            bounds,
            objects_left: bounds.objects,
            entries_left: bounds.objects,
            bytes_left: bounds.copied_bytes,
            steps_left: STEPS_PER_CHECK,
            started_ns: thread_cpu_nanoseconds(),
        }
    }

    pub(super) fn bounds(&self) -> ResultBounds {
        self.bounds
    }

    /// Charges for objects that are made.
    pub(super) fn charge(&mut self, objects: usize) -> Result<()> {
        match self.objects_left.checked_sub(objects) {
            Some(left) => {
                self.objects_left = left;
                Ok(())
            }
            None => refuse(format!(
                "the result has more objects than the {} that its limit allows: result_bytes allows one for each 16 bytes, \
                 at least 100,000 and at most 10,000,000; raise it, or return arrays or bytes",
                self.bounds.objects
            )),
        }
    }

    /// Counts work that was done, and fails once it took too long or the caller was interrupted.
    pub(super) fn spend(&mut self, py: Python<'_>, steps: usize) -> Result<()> {
        match self.steps_left.checked_sub(steps) {
            Some(left) => {
                self.steps_left = left;
                return Ok(());
            }
            None => self.steps_left = STEPS_PER_CHECK,
        }
        py.check_signals()?;
        let spent = thread_cpu_nanoseconds().saturating_sub(self.started_ns) as f64 / 1e9;
        if spent <= self.bounds.cpu_seconds {
            return Ok(());
        }
        refuse(format!(
            "rebuilding the result took {spent:.1} s of processor time, more than the limit of {} s, which is the call's \
             own wall-clock limit, at least 10 s and at most 60 s; return fewer values, arrays or bytes",
            self.bounds.cpu_seconds
        ))
    }

    /// Charges for a call that makes something of `arguments`: it may copy what they hold.
    pub(super) fn charge_copies(&mut self, arguments: &Bound<'_, PyTuple>) -> Result<()> {
        self.charge_entries(arguments)?;
        let mut copied = 0_usize;
        for argument in arguments {
            let bytes = byte_length(&argument)?;
            copied = copied.saturating_add(if bytes > FREE_BYTES { bytes } else { 0 });
        }
        self.charge_bytes(arguments.py(), copied)
    }

    /// The same of a call that refers to its arguments: only the entries of those that are
    /// containers are copied.
    pub(super) fn charge_entries(&mut self, arguments: &Bound<'_, PyTuple>) -> Result<()> {
        let inner = arguments.iter().fold(0_usize, |sum, each| sum.saturating_add(entries(&each)));
        self.spend_entries(arguments.py(), inner.saturating_add(arguments.len()))?;
        self.spend(arguments.py(), STEPS_PER_CALL)
    }

    /// Charges for the entries of one container that are copied into another.
    pub(super) fn charge_container(&mut self, container: &Bound<'_, PyAny>) -> Result<()> {
        self.spend_entries(container.py(), entries(container))
    }

    fn spend_entries(&mut self, py: Python<'_>, copied: usize) -> Result<()> {
        match self.entries_left.checked_sub(copied) {
            Some(left) => self.entries_left = left,
            None => {
                return refuse(format!(
                    "rebuilding the result copies more entries of its containers than its limit of {} objects allows \
                     (result_bytes: one for each 16 bytes, at least 100,000 and at most 10,000,000; a dict's entry counts as \
                     {PER_DICT_ENTRY}); raise it, or return plain lists and dicts",
                    self.bounds.objects
                ));
            }
        }
        self.spend(py, copied)
    }

    fn charge_bytes(&mut self, py: Python<'_>, copied: usize) -> Result<()> {
        match self.bytes_left.checked_sub(copied) {
            Some(left) => self.bytes_left = left,
            None => {
                return refuse(format!(
                    "rebuilding the result copies more than {} bytes, which is its limit (result_bytes, at least 16 MiB): it \
                     uses the same bytes, text or buffer for several values; raise it, or return each value once",
                    self.bounds.copied_bytes
                ));
            }
        }
        self.spend(py, copied / BYTES_PER_STEP)
    }
}

/// What the entries of a container count as when they are copied. Of exact types only: nothing else
/// is taken apart.
fn entries(object: &Bound<'_, PyAny>) -> usize {
    if let Ok(tuple) = object.cast_exact::<PyTuple>() {
        tuple.len()
    } else if let Ok(dict) = object.cast_exact::<PyDict>() {
        dict.len().saturating_mul(PER_DICT_ENTRY)
    } else if let Ok(list) = object.cast_exact::<PyList>() {
        list.len()
    } else if let Ok(set) = object.cast_exact::<PySet>() {
        set.len()
    } else if let Ok(set) = object.cast_exact::<PyFrozenSet>() {
        set.len()
    } else {
        0
    }
}

/// Bytes of an object of an exact type whose values are bytes, text or digits.
fn byte_length(object: &Bound<'_, PyAny>) -> PyResult<usize> {
    if let Ok(bytes) = object.cast_exact::<PyBytes>() {
        Ok(bytes.as_bytes().len())
    } else if let Ok(bytes) = object.cast_exact::<PyByteArray>() {
        Ok(bytes.len())
    } else if object.is_exact_instance_of::<PyMemoryView>() {
        object.getattr("nbytes")?.extract()
    } else if object.is_exact_instance_of::<PyString>() {
        if object.len()? <= FREE_BYTES / 4 { Ok(0) } else { object.call_method0("__sizeof__")?.extract() }
    } else if object.is_exact_instance_of::<PyInt>() {
        if object.extract::<i64>().is_ok() { Ok(0) } else { object.call_method0("__sizeof__")?.extract() }
    } else {
        Ok(0)
    }
}
