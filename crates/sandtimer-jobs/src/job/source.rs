//! Turns a file into what [`JobSpec::read`](super::JobSpec::read) takes: its format, and paths that
//! mean the same wherever the job is executed.

use std::path::{Path, PathBuf};

use sandtimer::isolate::files::home_directories;
use serde_json::{Map, Value, json};

use super::error::SpecError;
use super::files::embedded;
use super::json::UnambiguousValue;
use super::schedule::ScheduleSpec;
use super::spec::JobSpec;

/// The owner of jobs that are submitted on this machine, without a server.
pub const LOCAL_OWNER: &str = "local";

/// Parses the text of a file with a spec: JSON if its name ends in `.json`, else TOML.
///
/// # Errors
/// The line that cannot be parsed, and what is wrong with it.
pub fn parse_file(file: &Path, text: &str) -> Result<Value, SpecError> {
    if file.extension().is_none_or(|extension| extension != "json") {
        return JobSpec::json_of_toml(text);
    }
    serde_json::from_str(text)
        .map(|UnambiguousValue(source)| source)
        .map_err(|error| SpecError { path: format!("line {}", error.line()), problem: error.to_string() })
}

/// Makes the relative paths of a spec absolute, counted from `directory`, and returns the spec. If
/// a command has a relative path, `cwd` becomes the current directory, unless runs do not see that.
/// `scale` becomes the `time_scale` of a spec that has none. Other specs are the same wherever they
/// are submitted.
pub fn anchored(mut source: Value, directory: &Path, scale: Option<f64>) -> Value {
    if let Value::Object(fields) = &mut source {
        let absolute = |value: &mut Value| {
            if let Value::String(path) = value {
                // Without `.` components, which have no meaning after an existing directory.
                let joined: PathBuf = directory.join(&*path).components().collect();
                *path = joined.to_string_lossy().into_owned();
            }
        };
        fields.get_mut("cwd").into_iter().for_each(absolute);
        fields.get_mut("workspaces").and_then(Value::as_array_mut).into_iter().flatten().for_each(absolute);
        add_working_directory(fields);
        if let Some(scale) = scale {
            fields.entry("time_scale").or_insert_with(|| json!(scale));
        }
    }
    source
}

/// Reads a schedule, with the relative paths of its job counted from `directory` and its input
/// files read.
///
/// # Errors
/// The first field that is refused, or an input that cannot be read.
pub fn schedule_from(mut source: Value, directory: &Path) -> Result<ScheduleSpec, SpecError> {
    if let Some(job) = source.get_mut("job") {
        let in_job = |error: SpecError| SpecError { path: format!("job.{}", error.path), ..error };
        *job = anchored(embedded(job.take(), directory).map_err(in_job)?, directory, None);
    }
    ScheduleSpec::read(source)
}

fn add_working_directory(fields: &mut Map<String, Value>) {
    // With files of its own it begins in their directory.
    if fields.contains_key("inputs") || fields.contains_key("outputs") || !has_relative_command(fields) {
        return;
    }
    let passwd = std::fs::read("/etc/passwd").unwrap_or_default();
    let homes = home_directories(&passwd, std::env::var_os("HOME").as_deref());
    let here = std::env::current_dir().ok().and_then(|here| here.canonicalize().ok());
    let shown =
        here.filter(|here| here.parent().is_some() && !homes.iter().any(|home| home.starts_with(here)));
    if let Some(here) = shown {
        fields.entry("cwd").or_insert_with(|| here.to_string_lossy().into_owned().into());
    }
}

/// Whether a command of the spec (the job's, a step's, an action's, a driver's or a fallback's) has
/// a relative path: as its program, or as an argument that names something in the current
/// directory.
fn has_relative_command(fields: &Map<String, Value>) -> bool {
    let is_relative = |(index, argument): (usize, &str)| {
        let path = Path::new(argument);
        match index {
            _ if argument.is_empty() || path.is_absolute() => false,
            // A name without a slash is searched in PATH.
            0 => argument.contains('/'),
            _ => path.symlink_metadata().is_ok(),
        }
    };
    let command = fields.get("command").and_then(Value::as_array);
    let arguments = command.into_iter().flatten().filter_map(Value::as_str);
    arguments.enumerate().any(is_relative) || inner_tables(fields).any(has_relative_command)
}

/// The tables of a spec that may have a command.
fn inner_tables(fields: &Map<String, Value>) -> impl Iterator<Item = &Map<String, Value>> {
    let lists = ["steps", "fallback"].into_iter().filter_map(|name| fields.get(name)?.as_array()).flatten();
    let tables = ["loop", "driver"].into_iter().filter_map(|name| fields.get(name));
    let actions = fields.get("actions").and_then(Value::as_object).into_iter().flat_map(Map::values);
    lists.chain(tables).chain(actions).filter_map(Value::as_object)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cwd_of(source: Value) -> Option<Value> {
        anchored(source, Path::new("/elsewhere"), None).get("cwd").cloned()
    }

    #[test]
    fn spec_without_relative_command_has_no_cwd() {
        for source in [
            json!({"command": ["true"]}),
            json!({"command": ["/bin/sh", "-c", "exit 3"]}),
            json!({"command": ["python3", "no-such-file.py", ""]}),
            json!({"code": "print(1)", "language": "python"}),
            json!({"handler": "h", "input": {"command": ["./x"]}}),
            json!({"command": ["./x"], "outputs": ["a"]}),
        ] {
            assert_eq!(cwd_of(source.clone()), None, "{source}");
        }
    }

    #[test]
    fn relative_command_gets_current_directory() {
        let here = std::env::current_dir().expect("there is one").canonicalize().expect("a path");
        let here = json!(here.to_str().expect("UTF-8"));
        let command = json!({"command": ["./x"]});
        for source in [
            command.clone(),
            json!({"command": ["tools/x"]}),
            // The tests are executed in their package's directory.
            json!({"command": ["cat", "Cargo.toml"]}),
            json!({"steps": [{"command": ["true"]}, {"name": "b", "command": ["true"], "fallback": [command]}]}),
            json!({"loop": {"driver": command, "actions": {}}}),
            json!({"loop": {"driver": {"command": ["true"]}, "actions": {"a": command}}}),
        ] {
            assert_eq!(cwd_of(source.clone()), Some(here.clone()), "{source}");
        }
        assert_eq!(cwd_of(json!({"command": ["./x"], "cwd": "."})), Some(json!("/elsewhere")));
    }
}
