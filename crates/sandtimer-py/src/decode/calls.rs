//! Names, and the objects made by calling what they name: functions of ours, classes of the caller,
//! containers of the standard library. Whatever the pickle contains, nothing else is called.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};

use super::machine::{PickleMachine, Unbuilt};
use super::names::{Name, Rebuild};
use super::nesting::NestingNode;
use super::rejection::{Result, refuse, refuse_class, shown};
use super::value::Value;

impl<'py> PickleMachine<'_, 'py> {
    pub(super) fn stack_name(&mut self) -> Result<()> {
        let mut values = self.objects_of(2)?;
        let (Some((name, _)), Some((module, _))) = (values.pop(), values.pop()) else {
            return refuse("the result's pickle has a name that is not text");
        };
        let (Ok(module), Ok(name)) = (module.cast_exact::<PyString>(), name.cast_exact::<PyString>()) else {
            return refuse("the result's pickle has a name that is not text");
        };
        self.name(&module.to_string_lossy(), &name.to_string_lossy())
    }

    fn objects_of(&mut self, count: usize) -> Result<Vec<(Bound<'py, PyAny>, NestingNode)>> {
        let values = self.pop_many(count)?;
        self.objects(values)
    }

    pub(super) fn name(&mut self, module: &str, name: &str) -> Result<()> {
        self.charge(1)?;
        let found = match self.names.known(module, name) {
            Some(found) => found,
            None => match self.names.class(module, name)? {
                Some(class) => Name::Class(self.classes.index(self.names, class)?),
                None => return refuse_class(module, name),
            },
        };
        self.stack.push(Value::Name(found));
        Ok(())
    }

    /// What is called and its arguments, from the top of the stack.
    fn call(&mut self) -> Result<(Name, Bound<'py, PyTuple>, NestingNode)> {
        let arguments = self.pop()?;
        let (arguments, node) = self.object(arguments)?;
        let Ok(arguments) = arguments.cast_into_exact::<PyTuple>() else {
            return refuse("the result's pickle calls with arguments that are not a tuple");
        };
        match self.pop()? {
            Value::Name(name) => Ok((name, arguments, node)),
            _ => refuse("the result's pickle calls something that is not a name"),
        }
    }

    pub(super) fn reduce(&mut self) -> Result<()> {
        let (name, arguments, inner) = self.call()?;
        self.charge(2)?;
        let value = match name {
            Name::Value(index) => self.rebuild(index, &arguments)?,
            Name::Class(index) => {
                self.charge(self.classes.objects_per_instance(index))?;
                self.budget.charge_entries(&arguments)?;
                let object = self.classes.reduce(index, &arguments)?;
                if self.classes.is_shared(index) {
                    Value::Object(object, NestingNode::LEAF)
                } else {
                    self.instance(object, inner)?
                }
            }
            Name::GetAttr => Value::Name(self.attribute(&arguments)?),
            Name::Type(index) => {
                let class = self.names.table.types[index].bind(self.py);
                return refuse(format!("the result's pickle calls {}", class.name()?));
            }
            container => self.reduce_container(container, &arguments, inner)?,
        };
        self.stack.push(value);
        Ok(())
    }

    pub(super) fn new_object(&mut self) -> Result<()> {
        let (name, arguments, inner) = self.call()?;
        self.charge(2)?;
        let value = match name {
            Name::Value(index) => self.rebuild(index, &arguments)?,
            Name::Class(index) => {
                self.charge(self.classes.objects_per_instance(index))?;
                if self.classes.is_named_tuple(index) {
                    // It refers to its elements.
                    self.budget.charge_container(&arguments)?;
                } else {
                    self.budget.charge_copies(&arguments)?;
                }
                let object = self.classes.new_object(index, &arguments)?;
                self.instance(object, inner)?
            }
            _ => return refuse("the result's pickle makes an object of something that is not a class"),
        };
        self.stack.push(value);
        Ok(())
    }

    fn instance(&mut self, object: Bound<'py, PyAny>, inner: NestingNode) -> Result<Value<'py>> {
        let node = self.nesting.container()?;
        self.nesting.nest(node, inner)?;
        Ok(Value::Object(object, node))
    }

    fn rebuild(&mut self, index: usize, arguments: &Bound<'py, PyTuple>) -> Result<Value<'py>> {
        let rebuild = &self.names.table.values[index];
        self.charge(rebuild.objects)?;
        self.budget.charge_copies(arguments)?;
        let made = rebuild.call(arguments)?;
        let class = made.get_type();
        if class.is(self.names.table.unbuilt.bind(self.py)) {
            self.unbuilt.push(Unbuilt::Waiting(made));
            return Ok(Value::Unbuilt(self.unbuilt.len() - 1));
        }
        if rebuild.hashable {
            self.keys.allow(&class);
        }
        Ok(Value::Object(made, NestingNode::LEAF))
    }

    /// The attribute of a class that a pickle may take: a member of an enumeration, or a name in
    /// the table.
    fn attribute(&mut self, arguments: &Bound<'py, PyTuple>) -> Result<Name> {
        let (object, name): (Bound<'py, PyAny>, Bound<'py, PyString>) = arguments.extract()?;
        let attribute = name.to_string_lossy();
        let owner = |rebuild: &Rebuild| rebuild.type_object.as_ref().is_some_and(|class| object.is(class));
        let class = object.cast_exact::<PyType>().map_err(PyErr::from)?;
        if self.names.table.values.iter().any(owner) {
            let (module, class) = (class.module()?, class.name()?);
            let qualified = format!("{}.{attribute}", class.to_string_lossy());
            if let Some(name) = self.names.known(&module.to_string_lossy(), &qualified) {
                return Ok(name);
            }
        }
        refuse(format!("the result's pickle takes the attribute {} of a class", shown(&attribute)))
    }

    pub(super) fn build(&mut self) -> Result<()> {
        let state = self.pop()?;
        let (state, inner) = self.object(state)?;
        match self.top()? {
            Value::Object(object, node) if *node != NestingNode::LEAF => {
                let (object, node) = (object.clone(), *node);
                self.nesting.nest(node, inner)?;
                self.classes.build(&object, &state, &mut self.budget)
            }
            Value::Unbuilt(index) => {
                let index = *index;
                let Unbuilt::Waiting(waiting) = &self.unbuilt[index] else {
                    return refuse("the result's pickle completes a value twice");
                };
                match state.cast_exact::<PyTuple>() {
                    Ok(parts) => self.budget.charge_copies(parts)?,
                    Err(_) => self.budget.charge_container(&state)?,
                }
                let done = waiting.call_method1("build", (state,))?;
                if waiting.getattr("hashable")?.is_truthy()? {
                    self.keys.allow(&done.get_type());
                }
                self.unbuilt[index] = Unbuilt::Built(done);
                Ok(())
            }
            _ => refuse("the result's pickle gives a state to something that has none"),
        }
    }
}
