//! `sandtimer config show`: every setting that applies here, with the place that set it.

use std::process::ExitCode;

use sandtimer::Limits;
use sandtimer::limits::{Key, Unit};
use serde_json::{Map, Value, json};

use super::CommandFailure;
use crate::args::{ConfigAction, ConfigArguments};
use crate::config::{Config, SettingValue, ShownSetting, written};
use crate::render;

pub(crate) fn main(given: &ConfigArguments) -> Result<ExitCode, CommandFailure> {
    let ConfigAction::Show { json } = given.action;
    let config = Config::load(&Limits::new(), true)?;
    let shown = config.shown();
    render::print(&if json { as_json(&shown) } else { as_table(&shown) });
    Ok(ExitCode::SUCCESS)
}

fn as_table(shown: &[ShownSetting]) -> String {
    let mut entries = vec![["SETTING".to_owned(), "VALUE".to_owned(), "FROM".to_owned()]];
    entries.extend(shown.iter().map(|setting| {
        let value = match &setting.value {
            SettingValue::Limit(Key::Grace, Some(0)) | SettingValue::Literal(None) => "none".to_owned(),
            SettingValue::Limit(key, limit) => written(*key, *limit),
            SettingValue::Literal(Some(text)) => text.clone(),
            SettingValue::Count(count) => count.to_string(),
        };
        [setting.name.clone(), value, setting.origin.clone()]
    }));
    let width =
        |column: usize| entries.iter().map(|setting| setting[column].chars().count()).max().unwrap_or(0);
    let (first, second) = (width(0), width(1));
    entries
        .iter()
        .map(|[name, value, origin]| format!("{name:first$}  {value:second$}  {origin}\n"))
        .collect()
}

/// Under the wire keys, in milliseconds and bytes.
fn as_json(shown: &[ShownSetting]) -> String {
    format!("{}\n", Value::Object(object(shown)))
}

/// The same as an object.
pub(super) fn object(shown: &[ShownSetting]) -> Map<String, Value> {
    let entry = |setting: &ShownSetting| {
        let (name, value) = match &setting.value {
            SettingValue::Limit(key, limit) => (
                "limit",
                json!(limit.map(|value| match key.unit() {
                    Unit::Milliseconds | Unit::Seconds => value.div_ceil(1_000_000),
                    Unit::Bytes | Unit::Count => value,
                })),
            ),
            SettingValue::Literal(text) => ("value", json!(text)),
            SettingValue::Count(count) => ("value", json!(count)),
        };
        (setting.wire.clone(), json!({name: value, "source": setting.source, "origin": setting.origin}))
    };
    shown.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use sandtimer::model::Source;

    use super::*;
    use crate::config::NAMES;

    fn example() -> Vec<ShownSetting> {
        let shown = |index: usize, limit, source, origin: &str| ShownSetting {
            name: NAMES[index].file.to_owned(),
            wire: NAMES[index].key.wire().to_owned(),
            value: SettingValue::Limit(NAMES[index].key, limit),
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
