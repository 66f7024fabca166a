//! What lies on the machine's stack and in its memo.

use pyo3::prelude::*;

use super::names::Name;
use super::nesting::NestingNode;

#[derive(Clone, Debug)]
pub(super) enum Value<'py> {
    /// A finished object, or a container that can still be filled, and its place among containers.
    Object(Bound<'py, PyAny>, NestingNode),
    /// A name from the table. It becomes an object only where a class may be a value.
    Name(Name),
    /// Something made in two steps, of which the second may still be missing: an index into the
    /// machine's list.
    Unbuilt(usize),
}
