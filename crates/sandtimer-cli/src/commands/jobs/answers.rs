//! Prints answers: as JSON where that was asked for, else as text.

use sandtimer_jobs::job::JobRecord;
use serde::Serialize;

use crate::args::EncodingErrors;
use crate::args::jobs::{OutputFlags, StoreFlags};
use crate::render;

/// Prints JSON where that was asked for, else text.
pub(super) fn answer(flags: &StoreFlags, value: &impl Serialize, text: impl FnOnce() -> String) {
    // Plain data with text keys always serialises.
    let json = || serde_json::to_string(value).unwrap_or_default() + "\n";
    render::print(&if flags.json { json() } else { text() });
}

/// The same for a job, whose output may not be UTF-8.
pub(super) fn answer_job(
    flags: &StoreFlags,
    output: OutputFlags,
    record: &JobRecord,
    text: impl FnOnce(&JobRecord) -> String,
) {
    match output.errors {
        EncodingErrors::Replace if flags.json => {
            let mut record = record.clone();
            record.replace_invalid_utf8();
            answer(flags, &record, String::new);
        }
        _ => answer(flags, record, || text(record)),
    }
}
