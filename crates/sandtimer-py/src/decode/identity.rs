//! The identity of Python objects.

use pyo3::prelude::*;

pub(super) fn address(object: &Bound<'_, PyAny>) -> usize {
    object.as_ptr() as usize
}
