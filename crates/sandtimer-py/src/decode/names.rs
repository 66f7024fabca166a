//! The names that a pickle may use, and what each means. `python/sandtimer/_rebuild` has the table.

use std::collections::HashMap;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

use super::rejection::{Result, refuse};

/// The meaning of a name in a pickle. Holding one runs nothing.
#[derive(Clone, Copy, Debug)]
pub(super) enum Name {
    /// `builtins.getattr`, by which pickles spell class methods. Only the pairs in the table are
    /// taken.
    GetAttr,
    OrderedDict,
    DefaultDict,
    Deque,
    Counter,
    /// A built-in type that may be a value.
    Type(usize),
    /// A function of ours that rebuilds a value.
    Value(usize),
    /// A class of the caller's, or a built-in exception: an index into [`super::classes::Classes`].
    Class(usize),
}

/// A function of ours for one kind of value.
#[derive(Debug)]
pub(super) struct Rebuild {
    pub(super) call: Py<PyAny>,
    /// The exact types of the arguments it is called with; without any, it gets their tuple and
    /// looks itself.
    pub(super) signatures: Vec<Vec<Py<PyType>>>,
    /// Its values may be keys.
    pub(super) hashable: bool,
    /// The object for its name among arguments, if a pickle passes it on.
    pub(super) type_object: Option<Py<PyAny>>,
    /// What a value counts as besides the call: for those that are larger than their arguments.
    pub(super) objects: usize,
}

impl Rebuild {
    pub(super) fn call<'py>(&self, arguments: &Bound<'py, PyTuple>) -> Result<Bound<'py, PyAny>> {
        let call = self.call.bind(arguments.py());
        if self.signatures.is_empty() {
            return Ok(call.call1((arguments,))?);
        }
        if self.signatures.iter().any(|signature| fits(arguments, signature)) {
            return Ok(call.call1(arguments)?);
        }
        let name = call.getattr("__name__")?.extract::<String>()?;
        refuse(format!("the result's pickle makes a {name} from arguments that it does not have"))
    }
}

fn fits(arguments: &Bound<'_, PyTuple>, signature: &[Py<PyType>]) -> bool {
    arguments.len() == signature.len()
        && arguments.iter_borrowed().zip(signature).all(|(argument, class)| argument.get_type().is(class))
}

/// The part that is the same for every result.
#[derive(Debug)]
pub(super) struct NameTable {
    names: HashMap<String, HashMap<String, Name>>,
    pub(super) values: Vec<Rebuild>,
    pub(super) types: Vec<Py<PyType>>,
    pub(super) ordered_dict: Py<PyAny>,
    pub(super) default_dict: Py<PyAny>,
    pub(super) deque: Py<PyAny>,
    pub(super) counter: Py<PyAny>,
    /// What a function of ours returns when a second step has to follow.
    pub(super) unbuilt: Py<PyType>,
    /// `plan(class)`, which inspects a class from the outside.
    pub(super) plan: Py<PyAny>,
    pub(super) exceptions: Py<PyDict>,
    pub(super) int_from_bytes: Py<PyAny>,
    pub(super) signed: Py<PyDict>,
}

#[derive(Debug)]
pub(super) struct Names<'py> {
    pub(super) table: &'py NameTable,
    pub(super) results: Bound<'py, PyDict>,
}

impl<'py> Names<'py> {
    pub(super) fn new(py: Python<'py>, results: &Bound<'py, PyDict>) -> PyResult<Self> {
        Ok(Self { table: table(py)?, results: results.clone() })
    }

    /// The meaning of `name` of `module`, if it is in the table.
    pub(super) fn known(&self, module: &str, name: &str) -> Option<Name> {
        self.table.names.get(module)?.get(name).copied()
    }

    /// The class of the caller's, or the built-in exception, of this name.
    pub(super) fn class(&self, module: &str, name: &str) -> PyResult<Option<Bound<'py, PyType>>> {
        let py = self.results.py();
        let mut found = None;
        if module == "builtins" {
            found = self.table.exceptions.bind(py).get_item(name)?;
        }
        if found.is_none() {
            found = self.results.get_item((module, name))?;
        }
        Ok(found.map(|class| class.cast_into()).transpose()?)
    }
}

/// The table of this process.
pub(super) fn table(py: Python<'_>) -> PyResult<&NameTable> {
    static TABLE: PyOnceLock<NameTable> = PyOnceLock::new();
    TABLE.get_or_try_init(py, || NameTable::new(py))
}

impl NameTable {
    fn new(py: Python<'_>) -> PyResult<Self> {
        let rebuild = py.import("sandtimer._rebuild")?;
        let mut names: HashMap<String, HashMap<String, Name>> = HashMap::new();
        let mut name = |module: String, name: String, kind| {
            names.entry(module).or_default().insert(name, kind);
        };
        name("builtins".into(), "getattr".into(), Name::GetAttr);
        name("collections".into(), "OrderedDict".into(), Name::OrderedDict);
        name("collections".into(), "defaultdict".into(), Name::DefaultDict);
        name("collections".into(), "deque".into(), Name::Deque);
        name("collections".into(), "Counter".into(), Name::Counter);
        let mut types = Vec::new();
        for (key, class) in rebuild.getattr("TYPES")?.cast::<PyDict>()? {
            name("builtins".into(), key.extract()?, Name::Type(types.len()));
            types.push(class.cast_into::<PyType>()?.unbind());
        }
        let mut values = Vec::new();
        for (key, entry) in rebuild.getattr("VALUES")?.cast::<PyDict>()? {
            let (module, key) = key.extract::<(String, String)>()?;
            name(module, key, Name::Value(values.len()));
            let (call, signatures, hashable, type_object, objects) = entry.extract()?;
            values.push(Rebuild { call, signatures, hashable, type_object, objects });
        }
        let collections = py.import("collections")?;
        let signed = PyDict::new(py);
        signed.set_item("signed", true)?;
        Ok(Self {
            names,
            values,
            types,
            ordered_dict: collections.getattr("OrderedDict")?.unbind(),
            default_dict: collections.getattr("defaultdict")?.unbind(),
            deque: collections.getattr("deque")?.unbind(),
            counter: collections.getattr("Counter")?.unbind(),
            unbuilt: rebuild.getattr("Unbuilt")?.cast_into::<PyType>()?.unbind(),
            plan: rebuild.getattr("plan")?.unbind(),
            exceptions: rebuild.getattr("EXCEPTIONS")?.cast_into::<PyDict>()?.unbind(),
            int_from_bytes: py.get_type::<pyo3::types::PyInt>().getattr("from_bytes")?.unbind(),
            signed: signed.unbind(),
        })
    }
}
