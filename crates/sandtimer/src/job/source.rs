//! From what somebody has written to what [`JobSpec::read`](super::JobSpec::read) takes: the file's format, and paths that
//! mean the same wherever the job is executed.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::json::Unambiguous;
use super::spec::{JobSpec, SpecError};
use crate::isolate::files::home_directories;

/// Whose jobs those are that are submitted on this machine, without a server.
pub const LOCAL_OWNER: &str = "local";

/// A file's spec: JSON where its name ends in `.json`, else TOML.
///
/// # Errors
/// The line, and what is wrong with it.
pub fn parse_file(file: &Path, text: &str) -> Result<Value, SpecError> {
    if file.extension().is_none_or(|extension| extension != "json") {
        return JobSpec::json_of_toml(text);
    }
    serde_json::from_str(text)
        .map(|Unambiguous(source)| source)
        .map_err(|error| SpecError { path: format!("line {}", error.line()), problem: error.to_string() })
}

/// The spec with its relative paths counted from `directory`, and with what the caller says where it says nothing: the
/// current directory, unless that is not shown inside a sandbox, and what durations are multiplied by.
pub fn anchored(mut source: Value, directory: &Path, scale: Option<f64>) -> Value {
    if let Value::Object(fields) = &mut source {
        let absolute = |value: &mut Value| {
            if let Value::String(path) = value {
                // Without the dots, which stand for nothing behind a path that is there.
                let joined: PathBuf = directory.join(&*path).components().collect();
                *path = joined.to_string_lossy().into_owned();
            }
        };
        fields.get_mut("cwd").into_iter().for_each(absolute);
        fields.get_mut("workspaces").and_then(Value::as_array_mut).into_iter().flatten().for_each(absolute);
        add_place(fields);
        if let Some(scale) = scale {
            fields.entry("time_scale").or_insert_with(|| json!(scale));
        }
    }
    source
}

fn add_place(fields: &mut Map<String, Value>) {
    // With files of its own it begins in their directory.
    if fields.contains_key("inputs") || fields.contains_key("outputs") {
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
