//! Filling containers. What is filled is always one that this machine made; the base type's own
//! code does it, so that methods of a subclass are not called.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFrozenSet, PyInt, PyList, PySet, PyTuple};

use super::machine::{PickleMachine, Unbuilt};
use super::names::Name;
use super::nesting::NestingNode;
use super::rejection::{Result, refuse};
use super::value::Value;

/// Freeing a deque or defaultdict frees what it holds with no stop to the recursion, which all
/// others have. Also when a result is refused half-way, before what was filled late is checked: so
/// these lie less deep, and are never filled late.
const MAX_UNGUARDED_DEPTH: u32 = 100;

/// What an empty deque takes, in objects.
pub(super) const DEQUE: usize = 8;

impl<'py> PickleMachine<'_, 'py> {
    /// `value` as it lies in a container.
    pub(super) fn object(&self, value: Value<'py>) -> Result<(Bound<'py, PyAny>, NestingNode)> {
        let py = self.py;
        match value {
            Value::Object(object, node) => Ok((object, node)),
            Value::Unbuilt(index) => match &self.unbuilt[index] {
                Unbuilt::Built(object) => Ok((object.clone(), NestingNode::LEAF)),
                Unbuilt::Waiting(_) => refuse("the result uses a value before it is complete"),
            },
            Value::Name(name) => match name {
                Name::Type(index) => {
                    Ok((self.names.table.types[index].bind(py).clone().into_any(), NestingNode::LEAF))
                }
                Name::Class(index) => Ok((self.classes.class(index), NestingNode::LEAF)),
                Name::Value(index) => match &self.names.table.values[index].type_object {
                    Some(class) => Ok((class.bind(py).clone(), NestingNode::LEAF)),
                    None => refuse(
                        "the result has a class or function as a value, which trust=\"data\" does not give",
                    ),
                },
                _ => refuse(
                    "the result has a class or function as a value, which trust=\"data\" does not give",
                ),
            },
        }
    }

    pub(super) fn objects(&self, values: Vec<Value<'py>>) -> Result<Vec<(Bound<'py, PyAny>, NestingNode)>> {
        values.into_iter().map(|value| self.object(value)).collect()
    }

    pub(super) fn push_tuple(&mut self, values: Vec<Value<'py>>) -> Result<()> {
        let objects = self.objects(values)?;
        self.charge(1)?;
        let node = self.nesting.full(objects.iter().map(|(_, node)| *node))?;
        let tuple = PyTuple::new(self.py, objects.into_iter().map(|(object, _)| object))?;
        self.push(tuple.into_any(), node)
    }

    pub(super) fn append(&mut self, values: Vec<Value<'py>>) -> Result<()> {
        let (target, outer) = self.top_container()?;
        if let Ok(list) = target.cast::<PyList>() {
            for value in values {
                let (object, node) = self.object(value)?;
                self.nesting.nest(outer, node)?;
                list.append(object)?;
            }
            return Ok(());
        }
        if !target.get_type().is(self.names.table.deque.bind(self.py)) {
            return refuse("the result's pickle appends to something that is not a list");
        }
        let append = target.getattr("append")?;
        let was_placed = self.nesting.is_placed(outer);
        for value in values {
            let (object, node) = self.object(value)?;
            self.nesting.nest(outer, node)?;
            append.call1((object,))?;
        }
        self.check_unguarded(outer, was_placed)
    }

    fn check_unguarded(&self, node: NestingNode, was_placed: bool) -> Result<()> {
        if was_placed && self.nesting.depth(node) > 1 {
            return refuse("the result has a deque or defaultdict in a cycle");
        }
        if self.nesting.depth(node) <= MAX_UNGUARDED_DEPTH {
            return Ok(());
        }
        refuse(format!(
            "what the result has in a deque or defaultdict lies more than {MAX_UNGUARDED_DEPTH} deep"
        ))
    }

    pub(super) fn set_items(&mut self, values: Vec<Value<'py>>) -> Result<()> {
        let (target, outer) = self.top_container()?;
        let Ok(dict) = target.cast::<PyDict>() else {
            return refuse("the result's pickle sets items of something that is not a dict");
        };
        let class = target.get_type();
        // Its order is in a list of its own, which the functions of dict do not know.
        let ordered = class.is(self.names.table.ordered_dict.bind(self.py));
        if !values.len().is_multiple_of(2) {
            return refuse("the result's pickle has a key without a value");
        }
        let was_placed = self.nesting.is_placed(outer);
        let mut values = values.into_iter();
        while let (Some(key), Some(value)) = (values.next(), values.next()) {
            let (key, key_node) = self.object(key)?;
            let (value, value_node) = self.object(value)?;
            self.keys.check(&target, &key, &self.classes)?;
            self.budget.spend(self.py, 1)?;
            self.nesting.nest(outer, key_node)?;
            self.nesting.nest(outer, value_node)?;
            if ordered { target.set_item(key, value)? } else { dict.set_item(key, value)? }
        }
        if class.is(self.names.table.default_dict.bind(self.py)) {
            self.check_unguarded(outer, was_placed)
        } else {
            Ok(())
        }
    }

    pub(super) fn add_items(&mut self, values: Vec<Value<'py>>) -> Result<()> {
        let (target, outer) = self.top_container()?;
        let Ok(set) = target.cast_exact::<PySet>() else {
            return refuse("the result's pickle adds members to something that is not a set");
        };
        for value in values {
            let (member, node) = self.object(value)?;
            self.keys.check(&target, &member, &self.classes)?;
            self.budget.spend(self.py, 1)?;
            self.nesting.nest(outer, node)?;
            set.add(member)?;
        }
        Ok(())
    }

    pub(super) fn push_frozenset(&mut self, values: Vec<Value<'py>>) -> Result<()> {
        let objects = self.objects(values)?;
        self.charge(2)?;
        // Hashes are counted against this list's address, which nothing else has while it is alive.
        let members = PyList::new(self.py, objects.iter().map(|(object, _)| object))?;
        for (member, _) in &objects {
            self.keys.check(members.as_any(), member, &self.classes)?;
            self.budget.spend(self.py, 1)?;
        }
        self.keys.forget(members.as_any());
        let node = self.nesting.full(objects.iter().map(|(_, node)| *node))?;
        let frozen = PyFrozenSet::new(self.py, members)?;
        self.push(frozen.into_any(), node)
    }

    /// An empty container of the standard library, or one with what its pickles pass to it.
    pub(super) fn reduce_container(
        &mut self,
        name: Name,
        arguments: &Bound<'py, PyTuple>,
        inner: NestingNode,
    ) -> Result<Value<'py>> {
        let table = self.names.table;
        let made = match name {
            Name::OrderedDict if arguments.is_empty() => table.ordered_dict.bind(self.py).call0()?,
            Name::DefaultDict if arguments.is_empty() => table.default_dict.bind(self.py).call0()?,
            Name::DefaultDict => {
                let (factory,): (Bound<'py, PyAny>,) = arguments.extract()?;
                if !(factory.is_none() || table.types.iter().any(|class| factory.is(class))) {
                    return refuse(
                        "the result has a defaultdict whose factory is not a built-in type: return dict(it), or use \
                         trust=\"pickle\" if you vouch for the code",
                    );
                }
                table.default_dict.bind(self.py).call1((factory,))?
            }
            Name::Deque => {
                let longest = match arguments.len() {
                    0 | 1 => self.py.None().into_bound(self.py),
                    _ => arguments.get_item(1)?,
                };
                let start: usize = if arguments.is_empty() {
                    0
                } else {
                    arguments.get_item(0)?.cast::<PyTuple>().map_or(1, |start| start.len())
                };
                let length = longest.is_none() || longest.is_exact_instance_of::<PyInt>();
                if start != 0 || arguments.len() > 2 || !length {
                    return refuse("the result's pickle has a deque with other arguments than a length");
                }
                self.charge(DEQUE)?;
                table.deque.bind(self.py).call1((PyTuple::empty(self.py), longest))?
            }
            Name::Counter if arguments.len() == 1 => {
                let counts = arguments.get_item(0)?;
                let Ok(counts) = counts.cast_exact::<PyDict>() else {
                    return refuse("the result's pickle has a Counter of something that is not a dict");
                };
                self.budget.charge_container(counts)?;
                table.counter.bind(self.py).call1((counts,))?
            }
            _ => return refuse("the result's pickle makes a container from arguments that it does not have"),
        };
        let node = self.nesting.container()?;
        self.nesting.nest(node, inner)?;
        Ok(Value::Object(made, node))
    }
}
