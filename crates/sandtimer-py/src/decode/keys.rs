//! Which objects may be keys of dicts and members of sets, and what their hashes may cost.
//!
//! Putting a key into a dict calls its `__hash__`, and `__eq__` where hashes meet. So a key is a
//! plain value, a value that a function of ours made, a tuple or frozenset of these, or an instance
//! of a class that inherits both methods from a type we know. All but text and bytes have
//! predictable hashes, so a job could choose keys that all collide and make filling a dict
//! quadratic: only a limited number of keys of one container may share a hash. Hashing a tuple that
//! holds tuples many times over is work as well, and counted.

use std::collections::{HashMap, HashSet};

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyFrozenSet, PyInt, PyString, PyTuple, PyType};

use super::classes::Classes;
use super::identity::address;
use super::rejection::{Result, refuse, shown};

/// Floats have about 35 values to a hash, all others one but by ill luck.
const SHARE_A_HASH: u32 = 64;

/// Integers of this size are their own hashes.
const OWN_HASH: std::ops::Range<i64> = -(1 << 60)..1 << 60;

#[derive(Debug)]
pub(super) struct Keys {
    /// Types of values made by functions of ours.
    types: HashSet<usize>,
    /// How often each hash has been put into a container, by the container's address.
    shared: HashMap<usize, HashMap<isize, u32>>,
    /// Elements of tuples that may still be hashed.
    work: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Hash {
    /// Keyed with a secret of this process, or a small number's own.
    Safe,
    Known,
}

impl Keys {
    pub(super) fn new(work: usize) -> Self {
        Self { types: HashSet::new(), shared: HashMap::new(), work }
    }

    /// From now on, objects of this type may be keys.
    pub(super) fn allow(&mut self, class: &Bound<'_, PyType>) {
        self.types.insert(address(class));
    }

    /// Fails unless `key` may be put into `container`.
    pub(super) fn check(
        &mut self,
        container: &Bound<'_, PyAny>,
        key: &Bound<'_, PyAny>,
        classes: &Classes<'_>,
    ) -> Result<()> {
        if self.kind(key, classes)? == Hash::Safe {
            return Ok(());
        }
        let hash = key.hash()?;
        let count = self.shared.entry(address(container)).or_default().entry(hash).or_default();
        *count += 1;
        if *count > SHARE_A_HASH {
            return refuse(format!(
                "more than {SHARE_A_HASH} keys of one of the result's containers share a hash"
            ));
        }
        Ok(())
    }

    /// `container` goes away; its address may be another's next.
    pub(super) fn forget(&mut self, container: &Bound<'_, PyAny>) {
        self.shared.remove(&address(container));
    }

    fn kind(&mut self, key: &Bound<'_, PyAny>, classes: &Classes<'_>) -> Result<Hash> {
        if key.is_exact_instance_of::<PyString>() || key.is_exact_instance_of::<PyBytes>() || key.is_none() {
            return Ok(Hash::Safe);
        }
        if key.is_exact_instance_of::<PyInt>() {
            let own = key.extract::<i64>().is_ok_and(|number| OWN_HASH.contains(&number));
            return Ok(if own { Hash::Safe } else { Hash::Known });
        }
        if key.is_exact_instance_of::<PyBool>() {
            return Ok(Hash::Safe);
        }
        // The members of a frozenset were checked when it was made, and its hash is remembered.
        if key.is_exact_instance_of::<PyFloat>() || key.is_exact_instance_of::<PyFrozenSet>() {
            return Ok(Hash::Known);
        }
        self.rare_kind(key, classes)
    }

    fn rare_kind(&mut self, key: &Bound<'_, PyAny>, classes: &Classes<'_>) -> Result<Hash> {
        let class = key.get_type();
        let plan = classes.of_type(&class);
        if let Some(plan) = plan.filter(|plan| !plan.safe_key) {
            return refuse(format!(
                "the result has an object of {} as a key, whose hash is the class's own code, which trust=\"data\" does \
                 not call: use another key, or trust=\"pickle\" if you vouch for the code",
                shown(&plan.name)
            ));
        }
        if let Ok(tuple) = key.cast::<PyTuple>()
            && (plan.is_some() || key.is_exact_instance_of::<PyTuple>())
        {
            for element in tuple {
                let Some(left) = self.work.checked_sub(1) else {
                    return refuse("the result's keys are too large to hash");
                };
                self.work = left;
                self.kind(&element, classes)?;
            }
            return Ok(Hash::Known);
        }
        if plan.is_some() || self.types.contains(&address(&class)) || classes.is_class(key) {
            return Ok(Hash::Known);
        }
        refuse(format!("the result has an object of {} as a key", shown(&class.name()?.to_string())))
    }
}
