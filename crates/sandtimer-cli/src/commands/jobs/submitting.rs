//! From a file, or lines of standard input, to submissions.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use sandtimer_jobs::job::{
    JobSpec, JobStore, LOCAL_OWNER, MAX_FAN_OUT_BYTES, Submission, UnambiguousValue, anchored, embedded,
    expanded, parse_file,
};
use serde_json::{Value, json};

use super::answers::answer;
use super::store::open;
use crate::args::jobs::SubmitArguments;
use crate::commands::CommandFailure;

/// `sandtimer jobs submit`.
pub(super) fn submit(given: &SubmitArguments) -> Result<ExitCode, CommandFailure> {
    let store = open(&given.store)?;
    let submissions = read(given, &*store)?;
    let submitted = store.submit(&submissions)?;
    answer(&given.store, &json!({"jobs": submitted}), || {
        submitted.iter().map(|one| format!("{}\n", one.id)).collect()
    });
    Ok(ExitCode::SUCCESS)
}

/// Everything that was handed over, checked.
pub(super) fn read(given: &SubmitArguments, store: &dyn JobStore) -> Result<Vec<Submission>, CommandFailure> {
    let scale = time_scale(given)?;
    let here =
        std::env::current_dir().map_err(CommandFailure::system("the current directory cannot be read"))?;
    let (mut submissions, mut budget) = (Vec::new(), MAX_FAN_OUT_BYTES);
    for (origin, source, directory) in sources(&given.file, &here)? {
        let refused = |error: &dyn std::fmt::Display| CommandFailure::usage(format!("{origin}: {error}"));
        for source in expanded(source, &mut budget).map_err(|error| refused(&error))? {
            let source = embedded(source, &directory).map_err(|error| refused(&error))?;
            let spec = JobSpec::read(anchored(source, &directory, scale)).map_err(|error| refused(&error))?;
            spec.check_deadline(store.calendar_ms()).map_err(|error| refused(&error))?;
            submissions.push(Submission { spec, owner: LOCAL_OWNER.to_owned() });
        }
    }
    Ok(submissions)
}

/// Each spec, with the place it was found at and the directory its paths count from.
pub(super) fn sources(file: &Path, here: &Path) -> Result<Vec<(String, Value, PathBuf)>, CommandFailure> {
    let shown = file.display().to_string();
    if shown == "-" {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .map_err(CommandFailure::system("standard input cannot be read"))?;
        return lines(&text, here);
    }
    let cannot = |error: std::io::Error| CommandFailure::usage(format!("{shown}: cannot be read: {error}"));
    let text = std::fs::read_to_string(file).map_err(cannot)?;
    let source =
        parse_file(file, &text).map_err(|error| CommandFailure::usage(format!("{shown}: {error}")))?;
    let directory = file.canonicalize().map_err(cannot)?.parent().map_or_else(PathBuf::new, Path::to_owned);
    Ok(vec![(shown, source, directory)])
}

fn lines(text: &str, here: &Path) -> Result<Vec<(String, Value, PathBuf)>, CommandFailure> {
    let mut sources = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let origin = format!("line {} of standard input", index + 1);
        let UnambiguousValue(source) = serde_json::from_str(line)
            .map_err(|error| CommandFailure::usage(format!("{origin}: {error}")))?;
        sources.push((origin, source, here.to_owned()));
    }
    match sources.is_empty() {
        true => {
            Err(CommandFailure::usage("standard input has no job: one line of JSON for each is expected"))
        }
        false => Ok(sources),
    }
}

fn time_scale(given: &SubmitArguments) -> Result<Option<f64>, CommandFailure> {
    let variable = || std::env::var("SANDTIMER_TIME_SCALE").ok().filter(|value| !value.is_empty());
    let (typed, origin) = match &given.time_scale {
        Some(typed) => (Some(typed.clone()), "--time-scale"),
        None => (variable(), "SANDTIMER_TIME_SCALE"),
    };
    let number = |typed: String| {
        let refused =
            || CommandFailure::usage(format!("{origin}: `{typed}` is not a number; use one such as 0.1"));
        typed.parse::<f64>().ok().filter(|scale| scale.is_finite()).ok_or_else(refused)
    };
    typed.map(number).transpose()
}
