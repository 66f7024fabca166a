//! `sandtimer config show`: every setting that applies here, with the place that set it.

use std::process::ExitCode;

use sandtimer::Limits;
use sandtimer::limits::{Key, Unit};
use serde_json::{Map, Value, json};

use super::Failure;
use crate::args::{ConfigAction, ConfigArguments};
use crate::config::{Config, Row, Shown, written};
use crate::render;

pub(crate) fn main(given: &ConfigArguments) -> Result<ExitCode, Failure> {
    let ConfigAction::Show { json } = given.action;
    let config = Config::load(&Limits::new(), true)?;
    let shown = config.shown();
    render::print(&if json { as_json(&shown) } else { as_table(&shown) });
    Ok(ExitCode::SUCCESS)
}

fn as_table(shown: &[Row]) -> String {
    let mut rows = vec![["SETTING".to_owned(), "VALUE".to_owned(), "FROM".to_owned()]];
    rows.extend(shown.iter().map(|row| {
        let value = match &row.value {
            Shown::Limit(Key::Grace, Some(0)) | Shown::Text(None) => "none".to_owned(),
            Shown::Limit(key, limit) => written(*key, *limit),
            Shown::Text(Some(text)) => text.clone(),
            Shown::Count(count) => count.to_string(),
        };
        [row.name.clone(), value, row.origin.clone()]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (first, second) = (width(0), width(1));
    rows.iter().map(|[name, value, origin]| format!("{name:first$}  {value:second$}  {origin}\n")).collect()
}

/// Under the wire keys, in milliseconds and bytes.
fn as_json(shown: &[Row]) -> String {
    format!("{}\n", Value::Object(object(shown)))
}

/// The same as an object.
pub(super) fn object(shown: &[Row]) -> Map<String, Value> {
    let entry = |row: &Row| {
        let (name, value) = match &row.value {
            Shown::Limit(key, limit) => (
                "limit",
                json!(limit.map(|value| match key.unit() {
                    Unit::Milliseconds | Unit::Seconds => value.div_ceil(1_000_000),
                    Unit::Bytes | Unit::Count => value,
                })),
            ),
            Shown::Text(text) => ("value", json!(text)),
            Shown::Count(count) => ("value", json!(count)),
        };
        (row.wire.clone(), json!({name: value, "source": row.source, "origin": row.origin}))
    };
    shown.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use sandtimer::model::Source;

    use super::*;
    use crate::config::NAMES;

    fn example() -> Vec<Row> {
        let shown = |index: usize, limit, source, origin: &str| Row {
            name: NAMES[index].file.to_owned(),
            wire: NAMES[index].key.wire().to_owned(),
            value: Shown::Limit(NAMES[index].key, limit),
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
            "SETTING  VALUE      FROM\n\
             wall     2s         SANDTIMER_WALL\n\
             grace    none       built in\n\
             memory   unlimited  /etc/sandtimer/sandtimer.toml\n"
        );
    }

    #[test]
    fn json_uses_the_wire_keys_and_units() {
        let value: Value = serde_json::from_str(&as_json(&example())).expect("JSON");
        assert_eq!(value["wall_ms"], json!({"limit": 2000, "source": "env", "origin": "SANDTIMER_WALL"}));
        assert_eq!(value["memory_bytes"]["limit"], Value::Null);
    }
}
