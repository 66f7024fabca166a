//! The commands of a store of jobs, each one message of the log, and their effect on the tables.
//!
//! Every reader of the log gets the same tables: a command contains what its sender chose at random
//! or by its own program, and its moment is the log's. A change to the commands, or to their
//! effect, must raise [`FORMAT`].

use std::time::Duration;

use sandtimer_agents::resilience::BreakerSnapshot;

use crate::job::{
    CancelResult, Delivery, DeliveryResult, Filter, Finish, FinishResult, JobAssignment, JobLease, JobState,
    LeaseRequest, Renewal, StoreError, SubmittedJob, WebhookShares, WebhookState, WorkerFacts,
};
use rusqlite::Transaction;
use serde::{Deserialize, Serialize};

use crate::sqlite::schedules::{self, NewSchedule, RemovedSchedule, SchedulePause, ScheduleTick};
use crate::sqlite::submitting::NewJob;
use crate::sqlite::turns::Turns;
use crate::sqlite::webhooks::WebhookRules;
use crate::sqlite::{breakers, files, leasing, moving, reading, renewing, submitting, webhooks, workers};

/// The version of the log. A program reads no later one.
pub(super) const FORMAT: i64 = 11;
/// From this version on a job is left alone for a while that could not be executed.
const DEFERS: i64 = 4;
/// From this version on owners take turns, and not only queues.
const OWNERS_IN_TURNS: i64 = 5;
/// From this version on webhooks that are due outlive their jobs' records.
const LASTING_WEBHOOKS: i64 = 6;
/// From this version on pieces of logs have times.
const TIMED_LOGS: i64 = 8;

/// From this version on removed schedules leave their last jobs, and leases may be returned for
/// later.
const RETURNS_FOR_LATER: i64 = 9;

/// One call of the store.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StoreCommand {
    Submit(Vec<NewJob>),
    Lease(LeaseRequest),
    Renew {
        held: Vec<JobLease>,
        lease: Duration,
    },
    Finish(Vec<Finish>),
    Cancel {
        id: String,
        reason: String,
    },
    Retry(String),
    Purge(Filter),
    Pause {
        queue: String,
        paused: bool,
    },
    Sweep,
    AppendLog {
        held: JobLease,
        #[serde(with = "crate::base64_text")]
        bytes: Vec<u8>,
    },
    WriteFile {
        held: JobLease,
        name: String,
        start: u64,
        #[serde(with = "crate::base64_text")]
        bytes: Vec<u8>,
    },
    ClaimWebhooks {
        most: usize,
        claim: Duration,
        /// Without it there are none.
        #[serde(default)]
        shares: WebhookShares,
    },
    SettleWebhook {
        delivery: Delivery,
        came: DeliveryResult,
    },
    SwapBreaker {
        version: u64,
        snapshot: BreakerSnapshot,
    },
    PutSchedule(NewSchedule),
    PauseSchedule(SchedulePause),
    RemoveSchedule {
        owner: String,
        name: String,
    },
    Tick(Box<ScheduleTick>),
    RedeliverWebhook(String),
    Announce(WorkerFacts),
    Depart(String),
}

/// A command on its way.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LogEntry {
    /// On the store's clock: after this moment its sender no longer waits, and it has no effect.
    pub until_ms: Option<i64>,
    pub command: StoreCommand,
}

/// What a command did.
#[derive(Debug)]
pub(super) enum CommandResult {
    Submitted(Vec<SubmittedJob>),
    Leased(Vec<JobAssignment>),
    Renewed(Vec<Renewal>),
    Finished(Vec<FinishResult>),
    Cancelled(CancelResult),
    State(JobState),
    Count(u64),
    Deliveries(Vec<Delivery>),
    Webhook(WebhookState),
    /// Whether the breaker is kept.
    Swapped(bool),
    /// Whether the schedule was there.
    OfSchedule(bool),
    Applied,
    /// Nothing: it came too late.
    Late,
}

impl LogEntry {
    /// Does it, at the log's moment `now`, as the version of the log does that it was written for.
    /// Rejections are the same for all readers of the log.
    pub fn perform(self, tx: &Transaction<'_>, now: i64, format: i64) -> Result<CommandResult, StoreError> {
        if self.until_ms.is_some_and(|until| until < now) {
            return Ok(CommandResult::Late);
        }
        self.command.perform(tx, now, format)
    }
}

impl StoreCommand {
    fn perform(self, tx: &Transaction<'_>, now: i64, format: i64) -> Result<CommandResult, StoreError> {
        let turns = if format >= OWNERS_IN_TURNS { Turns::Owners } else { Turns::Queues };
        let rules = match format >= LASTING_WEBHOOKS {
            true => WebhookRules::OutliveRecord,
            false => WebhookRules::EndWithRecord,
        };
        match self {
            StoreCommand::Submit(new) => {
                submitting::submit_all(tx, &new, turns, now).map(CommandResult::Submitted)
            }
            StoreCommand::Lease(request) => {
                moving::sweep(tx, rules, now)?;
                leasing::lease(tx, &request, turns, now).map(CommandResult::Leased)
            }
            StoreCommand::Renew { held, lease } => {
                let renewed = held.iter().map(|held| renewing::renew(tx, held, lease, now));
                renewed.collect::<Result<_, _>>().map(CommandResult::Renewed)
            }
            StoreCommand::Finish(finishes) => {
                let defers = format >= DEFERS;
                let finished = finishes.iter().map(|finish| moving::finish(tx, finish, defers, now));
                finished.collect::<Result<_, _>>().map(CommandResult::Finished)
            }
            StoreCommand::Cancel { id, reason } => {
                moving::cancel(tx, &id, &reason, now).map(CommandResult::Cancelled)
            }
            StoreCommand::Retry(id) => moving::retry(tx, &id, now).map(CommandResult::State),
            StoreCommand::Purge(filter) => {
                moving::purge(tx, &filter, usize::MAX, rules, now).map(CommandResult::Count)
            }
            StoreCommand::Pause { queue, paused } => {
                moving::pause(tx, &queue, paused).map(|()| CommandResult::Applied)
            }
            StoreCommand::Sweep => moving::sweep(tx, rules, now).map(|()| CommandResult::Applied),
            StoreCommand::AppendLog { held, bytes } => {
                let at = (format >= TIMED_LOGS).then_some(now);
                reading::append_log(tx, &held, &bytes, at).map(|()| CommandResult::Applied)
            }
            StoreCommand::WriteFile { held, name, start, bytes } => {
                files::write(tx, &held, &name, start, &bytes).map(|()| CommandResult::Applied)
            }
            StoreCommand::ClaimWebhooks { most, claim, shares } => {
                webhooks::claim(tx, most, claim, &shares, rules, now).map(CommandResult::Deliveries)
            }
            StoreCommand::SettleWebhook { delivery, came } => {
                webhooks::settle(tx, &delivery, &came, now).map(|()| CommandResult::Applied)
            }
            StoreCommand::SwapBreaker { version, snapshot } => {
                breakers::swap(tx, version, &snapshot, now).map(CommandResult::Swapped)
            }
            StoreCommand::PutSchedule(new) => schedules::put(tx, &new, now).map(|()| CommandResult::Applied),
            StoreCommand::RemoveSchedule { owner, name } => {
                let rest = match format >= RETURNS_FOR_LATER {
                    true => RemovedSchedule::LastJob,
                    false => RemovedSchedule::Nothing,
                };
                schedules::remove(tx, &owner, &name, rest).map(CommandResult::OfSchedule)
            }
            StoreCommand::PauseSchedule(pause) => schedules::pause(tx, &pause).map(CommandResult::OfSchedule),
            StoreCommand::Tick(tick) => {
                schedules::apply(tx, &tick, turns, now).map(|()| CommandResult::Applied)
            }
            StoreCommand::RedeliverWebhook(id) => {
                webhooks::redeliver(tx, &id, now).map(CommandResult::Webhook)
            }
            StoreCommand::Announce(worker) => {
                workers::announce(tx, &worker, now).map(|()| CommandResult::Applied)
            }
            StoreCommand::Depart(worker) => workers::depart(tx, &worker).map(|()| CommandResult::Applied),
        }
    }
}

/// Whether a refusal is the tables' own, and so the same wherever the log is read.
pub(super) fn is_rejection(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Spec(_)
            | StoreError::Conflict { .. }
            | StoreError::Queues { .. }
            | StoreError::Schedules { .. }
            | StoreError::Unknown(_)
            | StoreError::WrongState { .. }
            | StoreError::Lost(_)
    )
}
