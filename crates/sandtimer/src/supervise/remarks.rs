//! What the owner of a run may not expect: processes that were killed after its command had ended,
//! a network that is not there, a grace that was cut.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use memchr::memmem;

use super::output::{CollectedOutput, SharedSpool};
use super::run::SharedRun;
use super::run_facts::{Cause, RunFacts};
use crate::limits::Key;
use crate::model::{Remark, RemarkKind, Source, time};

/// Bytes at the end of each stream that are searched.
pub(crate) const MAX_SEARCHED_BYTES: usize = 16 << 10;

/// What programs write that find no network, as the C library, curl, Git, Python, Node.js, Go, Rust
/// and Java have it.
const NETWORK_ERRORS: [&str; 14] = [
    "Temporary failure in name resolution",
    "Name or service not known",
    "Temporary failure resolving",
    "Could not resolve host",
    "Couldn't resolve host",
    "failed to lookup address information",
    "getaddrinfo EAI_AGAIN",
    "getaddrinfo ENOTFOUND",
    "dial tcp: lookup ",
    "Network is unreachable",
    "network is unreachable",
    "connect ENETUNREACH",
    "java.net.UnknownHostException",
    "unable to resolve host address",
];

const NO_NETWORK: &str = "This run has no network except a loopback of its own, and its output shows that it tried to use one; give it the host's by `\"network\": true` over HTTP, `network=True` in Python or `--network` on the command line.";

/// The remark on processes that a call, or a program that answers, had left.
const CALL_ENDS: &str = "a call ends with its answer. Wait for the process before the call answers, or, to keep it, start it in \
     a context (`Sandbox.context()` in Python), which keeps what its cells start.";
/// The same for a command, and a program that is a run of its own.
const COMMAND_ENDS: &str = "a run ends with its command. To keep a process, start it as the command of a run of its own, in the background \
     (`\"detach\": true` over HTTP, `background: true` over MCP), or in a context (`Sandbox.context()` in Python).";

/// All that there is to remark of a run that is dead.
pub(super) fn remarks(
    run: &SharedRun,
    facts: &RunFacts,
    collected: &[CollectedOutput; 2],
    spools: &[Option<SharedSpool>; 2],
    error: Option<&serde_json::Value>,
) -> Vec<Remark> {
    let leftovers =
        leftovers(run, facts).map(|message| Remark { kind: RemarkKind::KilledLeftovers, message });
    let traceback = error.and_then(|error| error["traceback"].as_str()).unwrap_or_default();
    let is_network_error = || {
        let outputs = collected.iter().map(|output| output.bytes.as_slice());
        outputs.chain([traceback.as_bytes()]).any(names_network_error)
    };
    let network = (run.lacks_network && is_network_error()).then(no_network);
    leftovers
        .into_iter()
        .chain(network)
        .chain(denied(run))
        .chain(shortened_grace(run))
        .chain(not_stored(spools))
        .collect()
}

/// The remark for a run whose last output this is, where the engine does not see its output.
pub(crate) fn of_output(run: &SharedRun, output: &[u8]) -> Option<Remark> {
    (run.lacks_network && names_network_error(output)).then(no_network)
}

fn no_network() -> Remark {
    Remark { kind: RemarkKind::NoNetwork, message: NO_NETWORK.to_owned() }
}

/// Which hosts the network of its sandbox was refused while it ran.
fn denied(run: &SharedRun) -> Vec<Remark> {
    let Some(denials) = &run.denials else { return Vec::new() };
    let started = run.started_at.load(Ordering::Acquire);
    let (messages, more) = denials.since(if started > 0 { started } else { run.spawned_at });
    let more = (more > 0).then(|| {
        format!("Connections to {more} more hosts were refused by the network allow-list of the sandbox.")
    });
    let remark = |message| Remark { kind: RemarkKind::NetworkDenied, message };
    messages.into_iter().chain(more).map(remark).collect()
}

/// The remark on output that the disk did not take.
fn not_stored(spools: &[Option<SharedSpool>; 2]) -> Option<Remark> {
    let error = spools.iter().flatten().find_map(|spool| {
        let spool = spool.lock().unwrap_or_else(PoisonError::into_inner);
        spool.spill_error().map(ToString::to_string)
    })?;
    let message = format!(
        "Less output was kept than the output limit allows: the disk of captured output ($TMPDIR, or the server's state directory) \
         could not store it: {error}. Make room there."
    );
    Some(Remark { kind: RemarkKind::OutputNotStored, message })
}

/// The remark on a grace period that the limits around the run have cut.
fn shortened_grace(run: &SharedRun) -> Option<Remark> {
    let grace = run.cell.grace();
    if grace >= run.requested_grace {
        return None;
    }
    let cut_by = run.effective.get(Key::Grace).filter(|effect| effect.source != Source::Call);
    let owner = match cut_by {
        Some(effect) if effect.source == Source::Ceiling => "the operator's".to_owned(),
        Some(effect) => format!("the {}'s", format!("{:?}", effect.layer).to_lowercase()),
        None => "the outer".to_owned(),
    };
    let [grace, asked] =
        [grace, run.requested_grace].map(|grace| time(u64::try_from(grace.as_millis()).unwrap_or(u64::MAX)));
    let message = format!(
        "Its grace was {grace} instead of {asked}: if the wall-clock limit and the grace do not fit into {owner} wall-clock limit together, the grace is at most half of what that one leaves."
    );
    Some(Remark { kind: RemarkKind::ShortenedGrace, message })
}

/// What was killed after a command had ended by itself.
fn leftovers(run: &SharedRun, facts: &RunFacts) -> Option<String> {
    let has_answered = matches!(facts.cause, Some(Cause::Answer { .. }));
    if run.live().is_some() || !(has_answered || facts.cause == Some(Cause::Exit)) {
        return None;
    }
    let what = match if run.job.is_some() { facts.leftovers } else { facts.killed } {
        0 => return None,
        1 => "1 process that it had left behind was".to_owned(),
        count => format!("{count} processes that it had left behind were"),
    };
    let is_call = run.job.as_ref().is_some_and(|job| has_answered || !job.program);
    let why = if is_call { CALL_ENDS } else { COMMAND_ENDS };
    Some(format!("{what} killed: {why}"))
}

fn names_network_error(output: &[u8]) -> bool {
    let end = &output[output.len().saturating_sub(MAX_SEARCHED_BYTES)..];
    NETWORK_ERRORS.iter().any(|error| memmem::find(end, error.as_bytes()).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_the_output_is_searched() {
        let error = b"curl: (6) Could not resolve host: pypi.org\n";
        assert!(names_network_error(error));
        assert!(!names_network_error(b"resolved\n"));
        assert!(!names_network_error(&[&error[..], &[b'x'; MAX_SEARCHED_BYTES]].concat()));
    }
}
