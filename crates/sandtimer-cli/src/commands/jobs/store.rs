//! Opens the store that flags and variables name.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sandtimer_jobs::job::{JobStore, StoreError};
use sandtimer_jobs::{NatsAddress, NatsJobs, SqliteJobs};
use sandtimer_os::clock::monotonic_nanoseconds;

use crate::args::jobs::StoreFlags;
use crate::commands::CommandFailure;
use crate::commands::serve::state_directory as server_state_directory;
use crate::render;

/// How long a server that does not answer is asked again, and how often.
const RESTART_TIMEOUT: Duration = Duration::from_secs(5);
const RESTART_INTERVAL: Duration = Duration::from_millis(250);

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The named store: flags take precedence over variables, and a store over a state directory.
fn named(flags: &StoreFlags) -> Option<OsString> {
    let is_typed = flags.store.is_some() || flags.state_dir.is_some();
    flags.store.clone().map(Into::into).or_else(|| variable("SANDTIMER_STORE").filter(|_| !is_typed))
}

pub(super) fn open(flags: &StoreFlags) -> Result<Arc<dyn JobStore>, CommandFailure> {
    let store = named(flags);
    match store.as_ref().and_then(|store| store.to_str()).filter(|text| NatsAddress::is_meant(text)) {
        Some(url) => open_patiently(url),
        None => Ok(Arc::new(SqliteJobs::open(&state_directory(flags)?)?)),
    }
}

/// The store of a NATS server. A server that is being started again is waited for, as open
/// connections wait for it.
fn open_patiently(url: &str) -> Result<Arc<dyn JobStore>, CommandFailure> {
    let address = NatsAddress::with_environment(url)?;
    let until = monotonic_nanoseconds() + RESTART_TIMEOUT.as_nanos() as u64;
    let mut is_noted = false;
    loop {
        match NatsJobs::open(&address, render::report_error) {
            // A server that has just come back may not have its JetStream yet.
            Err(error)
                if monotonic_nanoseconds() < until
                    && (is_noted || matches!(error, StoreError::Unreachable(_))) =>
            {
                if !std::mem::replace(&mut is_noted, true) {
                    let seconds = RESTART_TIMEOUT.as_secs();
                    render::note(&format!("{address} does not answer; trying again for {seconds} s"));
                }
                std::thread::park_timeout(RESTART_INTERVAL);
            }
            opened => return Ok(Arc::new(opened?)),
        }
    }
}

/// The store of a NATS server, with the files that the environment names.
pub(in crate::commands) fn open_server(
    url: &str,
    report_error: fn(&str),
) -> Result<Arc<dyn JobStore>, CommandFailure> {
    Ok(Arc::new(NatsJobs::open(&NatsAddress::with_environment(url)?, report_error)?))
}

/// The named state directory: the store itself, or with a server the worker's own.
pub(super) fn state_directory(flags: &StoreFlags) -> Result<PathBuf, CommandFailure> {
    let store = named(flags).filter(|store| !store.to_str().is_some_and(NatsAddress::is_meant));
    let directory = store.map(Into::into).or_else(|| flags.state_dir.clone());
    directory.map_or_else(server_state_directory, Ok)
}
