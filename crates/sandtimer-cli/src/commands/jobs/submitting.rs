//! From a file, or lines of standard input, to submissions.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use sandtimer::isolate::files::home_directories;
use sandtimer::job::{JobSpec, JobStore, Submission};
use serde_json::{Map, Value, json};

use super::{answer, open};
use crate::args::jobs::SubmitArguments;
use crate::commands::Failure;

/// Whose jobs those of the command line are.
const OWNER: &str = "local";

/// `sandtimer jobs submit`.
pub(super) fn submit(given: &SubmitArguments) -> Result<ExitCode, Failure> {
    let store = open(&given.store)?;
    let submissions = read(given, &*store)?;
    let submitted = store.submit(&submissions)?;
    answer(&given.store, &json!({"jobs": submitted}), || {
        submitted.iter().map(|one| format!("{}\n", one.id)).collect()
    });
    Ok(ExitCode::SUCCESS)
}

/// Everything that was handed over, checked.
pub(super) fn read(given: &SubmitArguments, store: &dyn JobStore) -> Result<Vec<Submission>, Failure> {
    let scale = time_scale(given)?;
    let here = std::env::current_dir().map_err(Failure::system("the current directory cannot be read"))?;
    let mut submissions = Vec::new();
    for (place, source, directory) in sources(&given.file, &here)? {
        let refused = |error: &dyn std::fmt::Display| Failure::usage(format!("{place}: {error}"));
        let spec = JobSpec::read(anchored(source, &directory, scale)).map_err(|error| refused(&error))?;
        spec.deadline(store.now_ms()).map_err(|error| refused(&error))?;
        submissions.push(Submission { spec, owner: OWNER.to_owned() });
    }
    Ok(submissions)
}

/// Each spec, with the place it was found at and the directory its paths count from.
fn sources(file: &Path, here: &Path) -> Result<Vec<(String, Value, PathBuf)>, Failure> {
    let shown = file.display().to_string();
    if shown == "-" {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .map_err(Failure::system("standard input cannot be read"))?;
        return lines(&text, here);
    }
    let cannot = |error: std::io::Error| Failure::usage(format!("{shown}: cannot be read: {error}"));
    let text = std::fs::read_to_string(file).map_err(cannot)?;
    let refused = |error: &dyn std::fmt::Display| Failure::usage(format!("{shown}: {error}"));
    let source = match file.extension().is_some_and(|extension| extension == "json") {
        true => serde_json::from_str(&text).map_err(|error| refused(&error))?,
        false => JobSpec::json_of_toml(&text).map_err(|error| refused(&error))?,
    };
    let directory = file.canonicalize().map_err(cannot)?.parent().map_or_else(PathBuf::new, Path::to_owned);
    Ok(vec![(shown, source, directory)])
}

fn lines(text: &str, here: &Path) -> Result<Vec<(String, Value, PathBuf)>, Failure> {
    let mut sources = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let place = format!("line {} of standard input", index + 1);
        let source =
            serde_json::from_str(line).map_err(|error| Failure::usage(format!("{place}: {error}")))?;
        sources.push((place, source, here.to_owned()));
    }
    match sources.is_empty() {
        true => Err(Failure::usage("standard input has no job: one line of JSON for each is expected")),
        false => Ok(sources),
    }
}

fn time_scale(given: &SubmitArguments) -> Result<Option<f64>, Failure> {
    let variable = || std::env::var("SANDTIMER_TIME_SCALE").ok().filter(|value| !value.is_empty());
    let (typed, origin) = match &given.time_scale {
        Some(typed) => (Some(typed.clone()), "--time-scale"),
        None => (variable(), "SANDTIMER_TIME_SCALE"),
    };
    let number = |typed: String| {
        let refused = || Failure::usage(format!("{origin}: `{typed}` is not a number; use one such as 0.1"));
        typed.parse::<f64>().ok().filter(|scale| scale.is_finite()).ok_or_else(refused)
    };
    typed.map(number).transpose()
}

/// The spec with its paths made absolute, and with what the caller says where it says nothing.
fn anchored(mut source: Value, directory: &Path, scale: Option<f64>) -> Value {
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

/// Jobs start where they were submitted, unless that is not shown inside a sandbox.
fn add_place(fields: &mut Map<String, Value>) {
    let passwd = std::fs::read("/etc/passwd").unwrap_or_default();
    let homes = home_directories(&passwd, std::env::var_os("HOME").as_deref());
    let here = std::env::current_dir().ok().and_then(|here| here.canonicalize().ok());
    let shown =
        here.filter(|here| here.parent().is_some() && !homes.iter().any(|home| home.starts_with(here)));
    if let Some(here) = shown {
        fields.entry("cwd").or_insert_with(|| here.to_string_lossy().into_owned().into());
    }
}
