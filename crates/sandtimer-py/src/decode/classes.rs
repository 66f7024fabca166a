//! Instances of classes that the caller named, and of built-in exceptions: made by their built-in
//! base and given their fields from the outside.
//!
//! `python/sandtimer/_rebuild/classes.py` inspects a class once and returns a plan; what is done
//! for each instance is here.

use std::collections::HashMap;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple, PyType};

use super::budget::DecodeBudget;
use super::identity::address;
use super::names::Names;
use super::rejection::{Result, refuse, shown};

/// Bytes of an instance that one object covers.
const BYTES_PER_OBJECT: usize = 128;

/// How instances of one class are rebuilt.
#[derive(Debug)]
pub(super) struct Plan<'py> {
    class: Bound<'py, PyType>,
    pub(super) name: String,
    /// Makes an instance without arguments, if nothing else has to be checked.
    bare: Option<Bound<'py, PyAny>>,
    /// How many elements it has, if it is a named tuple, and what makes a tuple of such a class.
    elements: Option<usize>,
    tuple: Bound<'py, PyAny>,
    /// Makes an instance from the arguments of NEWOBJ.
    new: Bound<'py, PyAny>,
    /// Makes an instance, or finds a member, from the arguments of REDUCE.
    reduce: Bound<'py, PyAny>,
    /// Gives an instance's `__dict__`.
    dict_of: Option<Bound<'py, PyAny>>,
    /// Sets one slot of an instance.
    slots: HashMap<String, Bound<'py, PyAny>>,
    /// Names of the fields of a dataclass whose state is a list.
    fields: Option<Vec<String>>,
    /// Its `__hash__` and `__eq__` are not its own.
    pub(super) safe_key: bool,
    /// Its instances are there already: members of an enumeration. Nothing may be done to them.
    shared: bool,
    /// Bytes of an instance, without what it refers to.
    size: usize,
}

#[derive(Debug, Default)]
pub(super) struct Classes<'py> {
    plans: Vec<Plan<'py>>,
    by_type: HashMap<usize, usize>,
}

impl<'py> Classes<'py> {
    /// The plan for `class`, made if it is not there yet.
    pub(super) fn index(&mut self, names: &Names<'py>, class: Bound<'py, PyType>) -> Result<usize> {
        if let Some(index) = self.by_type.get(&address(&class)) {
            return Ok(*index);
        }
        let plan = Plan::new(names, class)?;
        self.by_type.insert(address(&plan.class), self.plans.len());
        self.plans.push(plan);
        Ok(self.plans.len() - 1)
    }

    pub(super) fn class(&self, index: usize) -> Bound<'py, PyAny> {
        self.plans[index].class.clone().into_any()
    }

    pub(super) fn of_type(&self, class: &Bound<'py, PyType>) -> Option<&Plan<'py>> {
        self.by_type.get(&address(class)).map(|index| &self.plans[*index])
    }

    /// Whether `object` is a class that may be a value: one that has a plan here, or one of type
    /// `type` itself.
    pub(super) fn is_class(&self, object: &Bound<'py, PyAny>) -> bool {
        object.is_exact_instance_of::<PyType>()
    }

    pub(super) fn is_shared(&self, index: usize) -> bool {
        self.plans[index].shared
    }

    /// What an instance counts as besides one object: slots make it larger.
    pub(super) fn objects_per_instance(&self, index: usize) -> usize {
        self.plans[index].size / BYTES_PER_OBJECT
    }

    pub(super) fn is_named_tuple(&self, index: usize) -> bool {
        self.plans[index].elements.is_some()
    }

    pub(super) fn reduce(&self, index: usize, arguments: &Bound<'py, PyTuple>) -> Result<Bound<'py, PyAny>> {
        Ok(self.plans[index].reduce.call1((arguments,))?)
    }

    pub(super) fn new_object(
        &self,
        index: usize,
        arguments: &Bound<'py, PyTuple>,
    ) -> Result<Bound<'py, PyAny>> {
        let plan = &self.plans[index];
        match &plan.bare {
            Some(bare) if arguments.is_empty() => Ok(bare.call1((&plan.class,))?),
            // A named tuple gives its elements one by one.
            None if Some(arguments.len()) == plan.elements => {
                Ok(plan.tuple.call1((&plan.class, arguments))?)
            }
            _ => Ok(plan.new.call1((arguments,))?),
        }
    }

    /// Gives `object` the fields that `state` has.
    pub(super) fn build(
        &self,
        object: &Bound<'py, PyAny>,
        state: &Bound<'py, PyAny>,
        budget: &mut DecodeBudget,
    ) -> Result<()> {
        let Some(plan) = self.of_type(&object.get_type()) else {
            return refuse("the result gives a state to something that has none");
        };
        if let Ok(fields) = state.cast_exact::<PyDict>() {
            return plan.set(object, fields, budget);
        }
        if let (Ok(values), Some(names)) = (state.cast_exact::<PyList>(), &plan.fields) {
            return plan.set_attributes_in_sequence(object, names, values, budget);
        }
        if let Ok(pair) = state.cast_exact::<PyTuple>()
            && pair.len() == 2
        {
            for fields in pair.iter().filter(|fields| !fields.is_none()) {
                let Ok(fields) = fields.cast_exact::<PyDict>() else { return plan.refuse_state() };
                plan.set(object, fields, budget)?;
            }
            return Ok(());
        }
        if state.is_none() { Ok(()) } else { plan.refuse_state() }
    }
}

impl<'py> Plan<'py> {
    fn new(names: &Names<'py>, class: Bound<'py, PyType>) -> Result<Self> {
        let py = class.py();
        let plan = names.table.plan.bind(py).call1((&class,))?;
        Ok(Self {
            name: plan.getattr("name")?.extract()?,
            bare: present(plan.getattr("bare")?),
            elements: plan.getattr("elements")?.extract()?,
            tuple: py.get_type::<PyTuple>().getattr("__new__")?,
            new: plan.getattr("new")?,
            reduce: plan.getattr("reduce")?,
            dict_of: present(plan.getattr("dict_of")?),
            slots: plan.getattr("slots")?.extract()?,
            fields: plan.getattr("fields")?.extract()?,
            safe_key: plan.getattr("safe_key")?.extract()?,
            shared: plan.getattr("shared")?.extract()?,
            size: plan.getattr("size")?.extract()?,
            class,
        })
    }

    fn refuse_state<T>(&self) -> Result<T> {
        refuse(format!(
            "the state of {} is not a set of fields, so only its __setstate__ could read it, which trust=\"data\" does \
             not call: give the class plain fields, or use trust=\"pickle\" if you vouch for the code",
            shown(&self.name)
        ))
    }

    fn set(
        &self,
        object: &Bound<'py, PyAny>,
        fields: &Bound<'py, PyDict>,
        budget: &mut DecodeBudget,
    ) -> Result<()> {
        budget.charge_container(fields)?;
        let named = fields.iter().all(|(name, _)| name.is_exact_instance_of::<PyString>());
        if !named {
            return self.refuse_state();
        }
        match &self.dict_of {
            Some(dict_of) if self.slots.is_empty() => {
                let own = dict_of.call1((object,))?;
                let Ok(own) = own.cast_exact::<PyDict>() else { return self.refuse_state() };
                Ok(own.update(fields.as_mapping())?)
            }
            _ => fields.iter().try_for_each(|(name, value)| self.set_one(object, &name, &value, budget)),
        }
    }

    fn set_attributes_in_sequence(
        &self,
        object: &Bound<'py, PyAny>,
        names: &[String],
        values: &Bound<'py, PyList>,
        budget: &mut DecodeBudget,
    ) -> Result<()> {
        budget.charge_container(values)?;
        if names.len() != values.len() {
            return self.refuse_state();
        }
        for (name, value) in names.iter().zip(values) {
            self.set_one(object, PyString::new(object.py(), name).as_any(), &value, budget)?;
        }
        Ok(())
    }

    fn set_one(
        &self,
        object: &Bound<'py, PyAny>,
        name: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
        budget: &mut DecodeBudget,
    ) -> Result<()> {
        let text = name.cast::<PyString>().map_err(PyErr::from)?.to_string_lossy();
        if let Some(slot) = self.slots.get(&*text) {
            slot.call1((object, value))?;
            return Ok(());
        }
        let Some(dict_of) = &self.dict_of else {
            return refuse(format!("{} has no field {}", shown(&self.name), shown(&text)));
        };
        let own = dict_of.call1((object,))?;
        let Ok(own) = own.cast_exact::<PyDict>() else { return self.refuse_state() };
        // Some classes, pydantic's among them, name the dict itself as a field.
        match value.cast_exact::<PyDict>() {
            Ok(fields)
                if text == "__dict__"
                    && fields.iter().all(|(name, _)| name.is_exact_instance_of::<PyString>()) =>
            {
                budget.charge_container(fields)?;
                Ok(own.update(fields.as_mapping())?)
            }
            _ => Ok(own.set_item(name, value)?),
        }
    }
}

fn present(object: Bound<'_, PyAny>) -> Option<Bound<'_, PyAny>> {
    Some(object).filter(|object| !object.is_none())
}
