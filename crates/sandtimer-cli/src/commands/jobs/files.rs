//! The files that a job has left: listed, and written out piece by piece.

use std::fs::File;
use std::io::Write;
use std::process::ExitCode;

use sandtimer_jobs::job::{FILE_PIECE, FileOf, JobRecord, JobStore, StoreError};
use serde_json::json;

use super::answers::answer;
use super::store::open;
use super::{choosing, text};
use crate::args::jobs::{GetArguments, OneJob, StoreFlags};
use crate::commands::CommandFailure;
use crate::render::{self, To};

fn record(store: &dyn JobStore, id: &str) -> Result<JobRecord, CommandFailure> {
    store.sweep()?;
    Ok(store.get(id)?.ok_or_else(|| StoreError::Unknown(id.to_owned()))?)
}

/// `sandtimer jobs files`.
pub(super) fn list(given: &OneJob) -> Result<ExitCode, CommandFailure> {
    let store = open(&given.store)?;
    let record = record(&*store, &choosing::resolve(&*store, &given.id)?)?;
    let (files, refused) =
        record.result.map(|result| (result.files, result.files_refused)).unwrap_or_default();
    answer(&given.store, &json!({"files": files, "refused": refused}), || text::files(&files, &refused));
    Ok(ExitCode::SUCCESS)
}

/// `sandtimer jobs get`.
pub(super) fn get(given: &GetArguments) -> Result<ExitCode, CommandFailure> {
    let flags = StoreFlags { state_dir: given.state_dir.clone(), store: given.store.clone(), json: false };
    let store = open(&flags)?;
    let GetArguments { name, out, .. } = given;
    let id = &choosing::resolve(&*store, &given.id)?;
    let record = record(&*store, id)?;
    let files = record.result.map(|result| result.files).unwrap_or_default();
    let Some(file) = files.iter().find(|file| file.name == *name) else {
        let remedy = match record.line.state.is_over() {
            true => format!("`sandtimer jobs files {id}` lists what there is"),
            false => "its files are stored when it has ended".to_owned(),
        };
        return Err(CommandFailure::usage(format!("job {id} has left no file `{name}`; {remedy}")));
    };
    let cannot = |error: std::io::Error| {
        CommandFailure::usage(format!("{}: cannot be written: {error}", out.display()))
    };
    let mut written = match out.as_os_str() == "-" {
        true => None,
        false => Some(File::create(out).map_err(cannot)?),
    };
    let mut start = 0;
    while start < file.bytes {
        let piece = store.read_file(id, FileOf::Output(name), start, FILE_PIECE)?;
        if piece.is_empty() {
            let message =
                format!("the file `{name}` of job {id} is gone: the job was queued again, or purged");
            return Err(CommandFailure::usage(message));
        }
        match &mut written {
            Some(file) => file.write_all(&piece).map_err(cannot)?,
            // The reader of stdout has gone.
            None if !render::write(To::Stdout, &piece) => return Ok(ExitCode::FAILURE),
            None => {}
        }
        start += piece.len() as u64;
    }
    Ok(ExitCode::SUCCESS)
}
