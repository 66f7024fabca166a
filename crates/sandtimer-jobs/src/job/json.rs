//! JSON in which no key of a table is there twice. Readers of JSON disagree about which of the two
//! counts, so either may have been meant: such a table is refused, with the path of the key.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A value that was read without losing anything.
#[derive(Debug, Clone, PartialEq)]
pub struct UnambiguousValue(pub Value);

impl<'de> Deserialize<'de> for UnambiguousValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        JsonPosition::Whole.deserialize(deserializer).map(UnambiguousValue)
    }
}

/// Where a value is. Formatted only when the value is refused: most never are, and there may be
/// millions.
#[derive(Clone, Copy)]
enum JsonPosition<'a> {
    Whole,
    Item(&'a JsonPosition<'a>, usize),
    Field(&'a JsonPosition<'a>, &'a str),
}

impl fmt::Display for JsonPosition<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JsonPosition::Whole => Ok(()),
            JsonPosition::Item(list, index) => write!(formatter, "{list}[{index}]"),
            JsonPosition::Field(JsonPosition::Whole, key) => formatter.write_str(key),
            JsonPosition::Field(table, key) => write!(formatter, "{table}.{key}"),
        }
    }
}

impl<'de> DeserializeSeed<'de> for JsonPosition<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for JsonPosition<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(JsonPosition::Item(&self, list.len()))? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut table = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let path = JsonPosition::Field(&self, &key);
            let value = entries.next_value_seed(path)?;
            if let Some(first) = table.get(&key) {
                let (first, second) = (shown(first), shown(&value));
                let message =
                    format!("`{path}` is there twice, as {first} and as {second}; leave one of them out");
                return Err(A::Error::custom(message));
            }
            table.insert(key, value);
        }
        Ok(Value::Object(table))
    }
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() > 40 { text.chars().take(40).chain(['…']).collect() } else { text }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_read_is_what_serde_json_reads() {
        let text =
            r#"{"a": [1, -2, 2.5, 18446744073709551615, true, null, "\u0041"], "b": {"a": {}}, "c": []}"#;
        let read: UnambiguousValue = serde_json::from_str(text).expect("read");
        assert_eq!(read.0, serde_json::from_str::<Value>(text).expect("read"));
        assert_eq!(read.0["a"][6], json!("A"));
    }

    #[test]
    fn a_key_that_is_there_twice_is_refused_wherever_it_is() {
        // Long keys are in the way to each of many values, and cost nothing by that.
        let deep = format!("{{\"{}\": [{}0]}}", "k".repeat(1 << 20), "0,".repeat(1 << 20));
        serde_json::from_str::<UnambiguousValue>(&deep).expect("read");
        for (text, expected) in [
            (r#"{"a": 1, "a": 1}"#, "`a` is there twice, as 1 and as 1; leave one of them out"),
            (
                r#"{"steps": [{}, {"name": "x", "name": "y"}]}"#,
                "`steps[1].name` is there twice, as \"x\" and as \"y\"",
            ),
            (r#"[{"env": {"A": "b", "A": "c"}}]"#, "`[0].env.A` is there twice"),
            ("{\"a\": 1, \"\\u0061\": 2}", "`a` is there twice"),
        ] {
            let refused = serde_json::from_str::<UnambiguousValue>(text).expect_err(text);
            assert!(refused.is_data() && refused.to_string().starts_with(expected), "{refused}");
        }
    }
}
