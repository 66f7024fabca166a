//! `sandtimer config show`.

use std::process::ExitCode;

use sandtimer::Limits;
use sandtimer::limits::{Key, Unit};
use serde_json::{Map, Value, json};

use super::Failure;
use crate::args::{ConfigAction, ConfigArguments};
use crate::config::{Config, Shown, written};
use crate::render;

pub(crate) fn main(given: &ConfigArguments) -> Result<ExitCode, Failure> {
    let ConfigAction::Show { json } = given.action;
    let shown = Config::load(&Limits::new(), true)?.shown();
    render::print(&if json { as_json(&shown) } else { as_table(&shown) });
    Ok(ExitCode::SUCCESS)
}

fn as_table(shown: &[Shown]) -> String {
    let mut rows = vec![["LIMIT".to_owned(), "VALUE".to_owned(), "FROM".to_owned()]];
    rows.extend(shown.iter().map(|shown| {
        let mut value = written(shown.name.key, shown.limit);
        if shown.name.key == Key::Grace && shown.limit == Some(0) {
            value = "none".to_owned();
        }
        [shown.name.file.to_owned(), value, shown.origin.clone()]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (first, second) = (width(0), width(1));
    rows.iter().map(|[name, value, origin]| format!("{name:first$}  {value:second$}  {origin}\n")).collect()
}

/// Under the wire keys, in milliseconds and bytes.
fn as_json(shown: &[Shown]) -> String {
    format!("{}\n", Value::Object(limits(shown)))
}

/// The same as an object.
pub(super) fn limits(shown: &[Shown]) -> Map<String, Value> {
    let entry = |shown: &Shown| {
        let limit = shown.limit.map(|value| match shown.name.key.unit() {
            Unit::Milliseconds | Unit::Seconds => value.div_ceil(1_000_000),
            Unit::Bytes | Unit::Count => value,
        });
        let value = json!({"limit": limit, "source": shown.source, "origin": shown.origin});
        (shown.name.key.wire().to_owned(), value)
    };
    shown.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use sandtimer::model::Source;

    use super::*;
    use crate::config::NAMES;

    fn example() -> Vec<Shown> {
        let shown = |index: usize, limit, source, origin: &str| Shown {
            name: NAMES[index],
            limit,
            source,
            origin: origin.to_owned(),
        };
        vec![
            shown(0, Some(2_000_000_000), Source::Env, "SANDTIMER_WALL"),
            shown(1, Some(0), Source::Builtin, "built in"),
            shown(4, None, Source::Config, "/etc/sandtimer/sandtimer.toml"),
        ]
    }

    #[test]
    fn the_table_lines_up() {
        assert_eq!(
            as_table(&example()),
            "LIMIT   VALUE      FROM\n\
             wall    2s         SANDTIMER_WALL\n\
             grace   none       built in\n\
             memory  unlimited  /etc/sandtimer/sandtimer.toml\n"
        );
    }

    #[test]
    fn json_uses_the_wire_keys_and_units() {
        let value: Value = serde_json::from_str(&as_json(&example())).expect("JSON");
        assert_eq!(value["wall_ms"], json!({"limit": 2000, "source": "env", "origin": "SANDTIMER_WALL"}));
        assert_eq!(value["memory_bytes"]["limit"], Value::Null);
    }
}
