//! The machine that a pickle is a program for: a stack, a memo, and one arm for each opcode that is
//! taken.

use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyFloat, PyList, PyMemoryView, PySet, PyString, PyTuple};

use super::budget::{DecodeBudget, ResultBounds};
use super::classes::Classes;
use super::keys::Keys;
use super::names::Names;
use super::nesting::{Nesting, NestingNode};
use super::reader::ByteReader;
use super::rejection::{Result, refuse};
use super::value::Value;

/// A value of two steps.
#[derive(Debug)]
pub(super) enum Unbuilt<'py> {
    Waiting(Bound<'py, PyAny>),
    Built(Bound<'py, PyAny>),
}

pub(super) struct PickleMachine<'a, 'py> {
    pub(super) py: Python<'py>,
    pub(super) names: &'a Names<'py>,
    pub(super) classes: Classes<'py>,
    pub(super) nesting: Nesting,
    pub(super) keys: Keys,
    pub(super) unbuilt: Vec<Unbuilt<'py>>,
    reader: ByteReader<'a>,
    buffers: pyo3::types::list::BoundListIterator<'py>,
    pub(super) stack: Vec<Value<'py>>,
    marks: Vec<usize>,
    memo: Vec<Value<'py>>,
    pub(super) budget: DecodeBudget,
}

impl<'a, 'py> PickleMachine<'a, 'py> {
    pub(super) fn new(
        data: &'a [u8],
        buffers: &Bound<'py, PyList>,
        names: &'a Names<'py>,
        bounds: ResultBounds,
    ) -> Result<Self> {
        Ok(Self {
            py: buffers.py(),
            names,
            classes: Classes::default(),
            nesting: Nesting::new(),
            keys: Keys::new(bounds.objects),
            unbuilt: Vec::new(),
            reader: ByteReader::new(data),
            buffers: buffers.iter(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Vec::new(),
            budget: DecodeBudget::new(bounds),
        })
    }

    /// Runs the pickle to its end and gives its value.
    pub(super) fn run(mut self) -> Result<Bound<'py, PyAny>> {
        loop {
            let opcode = self.reader.byte()?;
            if opcode == b'.' {
                return self.stop();
            }
            self.step(opcode)?;
            self.budget.spend(self.py, 1)?;
        }
    }

    fn stop(mut self) -> Result<Bound<'py, PyAny>> {
        let value = self.pop()?;
        let (object, _) = self.object(value)?;
        if !(self.stack.is_empty() && self.marks.is_empty() && self.reader.is_at_end()) {
            return refuse("the result's pickle continues after its value");
        }
        self.nesting.finish()?;
        Ok(object)
    }

    fn step(&mut self, opcode: u8) -> Result<()> {
        match opcode {
            // Text and bytes.
            0x8c => self.string::<1>(),
            b'X' => self.string::<4>(),
            0x8d => self.string::<8>(),
            b'C' => self.bytes::<1>(),
            b'B' => self.bytes::<4>(),
            0x8e => self.bytes::<8>(),
            0x96 => {
                let content = self.reader.counted::<8>()?;
                self.push_leaf(PyByteArray::new(self.py, content).into_any())
            }
            // Numbers and constants.
            b'K' => {
                let number = self.reader.byte()?;
                self.integer(i64::from(number))
            }
            b'M' => {
                let number = u16::from_le_bytes(self.reader.array()?);
                self.integer(i64::from(number))
            }
            b'J' => {
                let number = i32::from_le_bytes(self.reader.array()?);
                self.integer(i64::from(number))
            }
            b'G' => {
                let number = f64::from_be_bytes(self.reader.array()?);
                self.push_leaf(PyFloat::new(self.py, number).into_any())
            }
            0x8a => {
                let digits = self.reader.counted::<1>()?;
                self.long(digits)
            }
            0x8b => {
                let digits = self.reader.counted::<4>()?;
                self.long(digits)
            }
            b'N' => self.push_leaf(self.py.None().into_bound(self.py)),
            0x88 => self.push_leaf(pyo3::types::PyBool::new(self.py, true).to_owned().into_any()),
            0x89 => self.push_leaf(pyo3::types::PyBool::new(self.py, false).to_owned().into_any()),
            _ => self.container_step(opcode),
        }
    }

    fn container_step(&mut self, opcode: u8) -> Result<()> {
        match opcode {
            // The memo and the stack.
            0x94 => self.memoize(),
            b'h' => {
                let index = self.reader.byte()?;
                self.recall(usize::from(index))
            }
            b'j' => {
                let index = u32::from_le_bytes(self.reader.array()?);
                self.recall(index as usize)
            }
            b'(' => self.mark(),
            b'0' => self.pop().map(drop),
            b'1' => self.pop_mark().map(drop),
            // Containers.
            b']' => self.push_container(PyList::empty(self.py).into_any(), 1),
            b'}' => self.push_container(PyDict::new(self.py).into_any(), 1),
            0x8f => self.push_container(PySet::empty(self.py)?.into_any(), 3),
            b')' => self.push_leaf(PyTuple::empty(self.py).into_any()),
            0x85 => self.pop_many(1).and_then(|values| self.push_tuple(values)),
            0x86 => self.pop_many(2).and_then(|values| self.push_tuple(values)),
            0x87 => self.pop_many(3).and_then(|values| self.push_tuple(values)),
            b't' => self.pop_mark().and_then(|values| self.push_tuple(values)),
            0x91 => self.pop_mark().and_then(|values| self.push_frozenset(values)),
            b'a' => self.pop_many(1).and_then(|values| self.append(values)),
            b'e' => self.pop_mark().and_then(|values| self.append(values)),
            b's' => self.pop_many(2).and_then(|values| self.set_items(values)),
            b'u' => self.pop_mark().and_then(|values| self.set_items(values)),
            0x90 => self.pop_mark().and_then(|values| self.add_items(values)),
            _ => self.object_step(opcode),
        }
    }

    fn object_step(&mut self, opcode: u8) -> Result<()> {
        match opcode {
            // Frames are hints for reading from files.
            0x95 => self.reader.array::<8>().map(drop),
            0x80 => match self.reader.byte()? {
                2..=5 => Ok(()),
                version => {
                    refuse(format!("the result's pickle has protocol {version}; protocols 2 to 5 are read"))
                }
            },
            0x97 => self.buffer(),
            0x98 => self.read_only(),
            b'c' => {
                let (module, name) = (self.reader.line()?, self.reader.line()?);
                match (std::str::from_utf8(module), std::str::from_utf8(name)) {
                    (Ok(module), Ok(name)) => self.name(module, name),
                    _ => refuse("the result's pickle has a name that is not UTF-8"),
                }
            }
            0x93 => self.stack_name(),
            b'R' => self.reduce(),
            0x81 => self.new_object(),
            0x92 => {
                let keywords = self.pop()?;
                let (keywords, _) = self.object(keywords)?;
                if keywords.cast_exact::<PyDict>().is_ok_and(|keywords| keywords.is_empty()) {
                    return self.new_object();
                }
                refuse(
                    "the result has an object whose __new__ takes keywords, which trust=\"data\" does not call",
                )
            }
            b'b' => self.build(),
            _ => refuse(format!(
                "the result's pickle has the opcode {}, which trust=\"data\" does not take",
                opcode_name(opcode)
            )),
        }
    }

    // -- the stack and the memo

    pub(super) fn charge(&mut self, objects: usize) -> Result<()> {
        self.budget.charge(objects)
    }

    pub(super) fn push(&mut self, object: Bound<'py, PyAny>, node: NestingNode) -> Result<()> {
        self.stack.push(Value::Object(object, node));
        Ok(())
    }

    fn push_leaf(&mut self, object: Bound<'py, PyAny>) -> Result<()> {
        self.charge(1)?;
        self.push(object, NestingNode::LEAF)
    }

    fn push_container(&mut self, object: Bound<'py, PyAny>, charge: usize) -> Result<()> {
        self.charge(charge)?;
        let node = self.nesting.container()?;
        self.push(object, node)
    }

    /// What lies on the stack above the last mark or the bottom may be taken.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    pub(super) fn pop(&mut self) -> Result<Value<'py>> {
        if self.stack.len() > self.floor() {
            if let Some(value) = self.stack.pop() {
                return Ok(value);
            }
        } else if self.marks.pop().is_some() {
            // POP takes a mark like any other value.
            return Ok(Value::Object(self.py.None().into_bound(self.py), NestingNode::LEAF));
        }
        refuse("the result's pickle takes more from its stack than it has put there")
    }

    pub(super) fn pop_many(&mut self, count: usize) -> Result<Vec<Value<'py>>> {
        match self.stack.len().checked_sub(count) {
            Some(start) if start >= self.floor() => Ok(self.stack.split_off(start)),
            _ => refuse("the result's pickle takes more from its stack than it has put there"),
        }
    }

    fn mark(&mut self) -> Result<()> {
        self.charge(1)?;
        self.marks.push(self.stack.len());
        Ok(())
    }

    fn pop_mark(&mut self) -> Result<Vec<Value<'py>>> {
        match self.marks.pop() {
            Some(mark) => Ok(self.stack.split_off(mark)),
            None => refuse("the result's pickle ends a sequence that it has not begun"),
        }
    }

    pub(super) fn top(&self) -> Result<&Value<'py>> {
        match self.stack.last() {
            Some(value) if self.stack.len() > self.floor() => Ok(value),
            _ => refuse("the result's pickle takes more from its stack than it has put there"),
        }
    }

    /// The container on top of the stack.
    pub(super) fn top_container(&self) -> Result<(Bound<'py, PyAny>, NestingNode)> {
        match self.top()? {
            Value::Object(object, node) if *node != NestingNode::LEAF => Ok((object.clone(), *node)),
            _ => refuse("the result's pickle puts something into what is not a container"),
        }
    }

    fn memoize(&mut self) -> Result<()> {
        let value = self.top()?.clone();
        self.memo.push(value);
        let most = self.budget.bounds().objects;
        if self.memo.len() <= most {
            return Ok(());
        }
        refuse(format!(
            "the result's pickle remembers more than the {most} objects that its limit allows (result_bytes)"
        ))
    }

    fn recall(&mut self, index: usize) -> Result<()> {
        let Some(value) = self.memo.get(index) else {
            return refuse("the result's pickle recalls what it has not remembered");
        };
        self.stack.push(value.clone());
        self.charge(1)
    }

    // -- leaves

    fn string<const N: usize>(&mut self) -> Result<()> {
        let text = self.reader.counted::<N>()?;
        let string = match PyString::from_bytes(self.py, text) {
            Ok(string) => string,
            // Lone surrogates, as in names of files, are written as if they were characters.
            Err(_) => PyString::from_encoded_object(
                &PyBytes::new(self.py, text),
                Some(c"utf-8"),
                Some(c"surrogatepass"),
            )?,
        };
        self.push_leaf(string.into_any())
    }

    fn bytes<const N: usize>(&mut self) -> Result<()> {
        let content = self.reader.counted::<N>()?;
        self.push_leaf(PyBytes::new(self.py, content).into_any())
    }

    fn integer(&mut self, number: i64) -> Result<()> {
        let Ok(number) = number.into_pyobject(self.py);
        self.push_leaf(number.into_any())
    }

    /// An integer in two's complement, lowest byte first.
    fn long(&mut self, digits: &[u8]) -> Result<()> {
        if let Some(number) = short_long(digits) {
            let Ok(number) = number.into_pyobject(self.py);
            return self.push_leaf(number.into_any());
        }
        // One more byte than the number itself needs is for its sign.
        let max_bits = self.budget.bounds().int_bits;
        if digits.len() - 1 > max_bits / 8 {
            return refuse(format!(
                "the result has an integer of {} bytes; the limit is {max_bits} bits",
                digits.len()
            ));
        }
        let table = self.names.table;
        let arguments = (PyBytes::new(self.py, digits), "little");
        let number = table.int_from_bytes.bind(self.py).call(arguments, Some(table.signed.bind(self.py)))?;
        self.push_leaf(number)
    }

    fn buffer(&mut self) -> Result<()> {
        match self.buffers.next() {
            Some(buffer) => self.push_leaf(buffer),
            None => refuse("the result's pickle asks for more buffers than came with it"),
        }
    }

    fn read_only(&mut self) -> Result<()> {
        let value = self.pop()?;
        let (buffer, _) = self.object(value)?;
        if buffer.is_exact_instance_of::<PyBytes>() {
            return self.push_leaf(buffer);
        }
        if !(buffer.is_exact_instance_of::<PyByteArray>() || buffer.is_exact_instance_of::<PyMemoryView>()) {
            return refuse("the result's pickle makes something read-only that is not a buffer");
        }
        let view = PyMemoryView::from(&buffer)?.call_method0("toreadonly")?;
        self.push_leaf(view)
    }
}

/// The number of at most sixteen bytes of two's complement.
fn short_long(digits: &[u8]) -> Option<i128> {
    let negative = digits.last().is_some_and(|highest| highest & 0x80 != 0);
    let mut bytes = if negative { [0xff; 16] } else { [0; 16] };
    bytes.get_mut(..digits.len())?.copy_from_slice(digits);
    Some(i128::from_le_bytes(bytes))
}

fn opcode_name(opcode: u8) -> String {
    let name = match opcode {
        0x82 => "EXT1",
        0x83 => "EXT2",
        0x84 => "EXT4",
        b'P' => "PERSID",
        b'Q' => "BINPERSID",
        b'i' => "INST",
        b'o' => "OBJ",
        b'2' => "DUP",
        b'I' => "INT",
        b'L' => "LONG",
        b'F' => "FLOAT",
        b'S' => "STRING",
        b'T' => "BINSTRING",
        b'U' => "SHORT_BINSTRING",
        b'V' => "UNICODE",
        b'd' => "DICT",
        b'l' => "LIST",
        b'g' => "GET",
        b'p' => "PUT",
        b'q' => "BINPUT",
        b'r' => "LONG_BINPUT",
        _ => return format!("{opcode:#04x}"),
    };
    name.to_owned()
}
