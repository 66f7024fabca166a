//! Jobs as people read them.

use sandtimer::model::{Progress, counted};
use sandtimer_jobs::job::{
    BreakerPage, JobBlocker, JobFile, JobFileRefused, JobLine, JobRecord, JobState, LiveWorker, Page,
    QueueFacts, StoredBreaker, UnreadableSpec, WebhookState,
};

/// A table, the latest job first.
pub(super) fn listing(page: &Page, now_ms: u64) -> String {
    if page.jobs.is_empty() {
        return "no jobs\n".to_owned();
    }
    let mut entries = vec![["ID", "STATE", "QUEUE", "NAME", "AGE", "ERROR"].map(str::to_owned)];
    entries.extend(page.jobs.iter().map(|line| entry(line, now_ms)));
    columns(&entries) + &more(page.next.as_ref())
}

/// The line after a part of a list that another one follows.
fn more(next: Option<&String>) -> String {
    next.map_or_else(String::new, |next| format!("more with --cursor {next}\n"))
}

fn entry(line: &JobLine, now_ms: u64) -> [String; 6] {
    let error: String = line.error.as_deref().unwrap_or("-").chars().map(visible).take(60).collect();
    [
        line.id.clone(),
        state(line),
        line.queue.clone(),
        line.name.clone(),
        time(now_ms.saturating_sub(line.submitted_ms)),
        error,
    ]
}

pub(super) fn visible(character: char) -> char {
    if character.is_control() { ' ' } else { character }
}

pub(super) fn columns<const N: usize>(entries: &[[String; N]]) -> String {
    let width = |column: usize| entries.iter().map(|entry| entry[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |entry: &[String; N]| {
        let cells = entry.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    entries.iter().map(line).collect()
}

pub(super) fn state(line: &JobLine) -> String {
    match (line.state, line.ok) {
        (JobState::Ended, Some(true)) => "ok".to_owned(),
        (JobState::Ended, _) => "failed".to_owned(),
        (JobState::Leased, _) if line.cancel.is_some() => "ending".to_owned(),
        (JobState::Leased, _) => "running".to_owned(),
        (state, _) => state.name().to_owned(),
    }
}

/// Everything about a job.
pub(super) fn record(record: &JobRecord) -> String {
    let line = &record.line;
    let mut text = format!(
        "job        {} ({})\nstate      {}\nqueue      {}, priority {}\nage        {}\ndeliveries {}\n",
        line.id,
        line.name,
        state(line),
        line.queue,
        line.priority,
        time(record.now_ms.saturating_sub(line.submitted_ms)),
        line.deliveries,
    );
    let mut add = |name: &str, value: String| text.push_str(&format!("{name:<10} {value}\n"));
    for blocker in &record.blocked_by {
        add("waits for", blocked_by(blocker, record.now_ms));
    }
    if let Some(worker) = &line.worker {
        add("worker", worker.clone());
    }
    if let Some(deadline) = line.deadline_ms.filter(|_| !line.state.is_over()) {
        add("deadline", format!("in {}", time(deadline.saturating_sub(record.now_ms))));
    }
    if let Some(result) = &record.result {
        add("result", ending(record));
        let spent = &result.spent;
        add(
            "time",
            format!(
                "{}{} queued, {} in {}, {} in pauses between them, {} in the driver",
                match spent.earlier_ms {
                    0 => String::new(),
                    earlier => format!("{} in earlier deliveries, ", time(earlier)),
                },
                time(spent.queued_ms),
                time(spent.attempts_ms),
                counted(spent.attempts, "attempt"),
                time(spent.backoff_ms),
                time(spent.driver_ms)
            ),
        );
        if !result.files.is_empty() {
            let total: u64 = result.files.iter().map(|file| file.bytes).sum();
            add("files", format!("{}, {total} bytes", result.files.len()));
        }
        for JobFileRefused { name, reason } in &result.files_refused {
            add("not kept", format!("{name}: {reason}"));
        }
        if result.log_bytes_dropped > 0 {
            add(
                "log",
                format!("{} bytes are missing that the store could not take", result.log_bytes_dropped),
            );
        }
        for breaker in result.breakers.iter().filter(|breaker| breaker.state != "closed") {
            add(
                "breaker",
                format!("{} {}, {} failures in a row", breaker.key, breaker.state, breaker.failures_in_a_row),
            );
        }
    }
    if let Some(webhook) = &record.webhook {
        add("webhook", delivery(webhook, line.state.is_over()));
    }
    for earlier in &record.earlier {
        add("earlier", earlier.error.clone().unwrap_or_default());
    }
    if !record.duplicates.is_empty() {
        add("late", format!("{} results came after their lease was lost", record.duplicates.len()));
    }
    text
}

/// What a job waits for.
fn blocked_by(blocker: &JobBlocker, now_ms: u64) -> String {
    let remaining = |at_ms: u64| time(at_ms.saturating_sub(now_ms));
    match blocker {
        JobBlocker::QueuePaused { queue } => {
            format!("its queue, which is paused; `sandtimer jobs resume {queue}` resumes it")
        }
        JobBlocker::Jobs { ids, count } => {
            let more = count.saturating_sub(ids.len() as u64);
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            format!("the end of {}{more}", ids.join(", "))
        }
        JobBlocker::NotBefore { at_ms } => format!("its start, in {}", remaining(*at_ms)),
        JobBlocker::Rate { key, at_ms: Some(at_ms) } => {
            format!("its rate key `{key}`; the next start is in {}", remaining(*at_ms))
        }
        JobBlocker::Rate { key, at_ms: None } => format!("its rate key `{key}`"),
        JobBlocker::Concurrency { key } => format!("its concurrency key `{key}`, which is in use"),
        JobBlocker::Memory { bytes, largest_bytes } => format!(
            "a worker with {} of memory; the largest live one has {}",
            mebibytes(*bytes),
            mebibytes(*largest_bytes)
        ),
        JobBlocker::NoWorker { queue } => {
            format!("a worker: none takes jobs from `{queue}`; `sandtimer jobs work` starts one")
        }
        JobBlocker::NoHandler { handlers } => {
            let shown = |name: &String| name.chars().map(visible).collect::<String>();
            let names: Vec<String> = handlers.iter().map(|name| format!("`{}`", shown(name))).collect();
            let (noun, all) = if names.len() == 1 { ("handler", "it") } else { ("handlers", "all of them") };
            format!("a worker with the {noun} {}; no live worker of its queue has {all}", names.join(" and "))
        }
        JobBlocker::UnreadableSpec(UnreadableSpec { worker, version, field, problem }) => format!(
            "a worker that can read its spec: {worker} of version {version} cannot ({field}: {problem}); start a worker \
             of the version that submitted it"
        ),
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// The state of a job's webhook.
fn delivery(webhook: &WebhookState, is_over: bool) -> String {
    let WebhookState { url, attempts, delivered_ms, error, due_ms } = webhook;
    let error = error.as_deref().map_or_else(String::new, |error| format!(": {error}"));
    let tried = counted((*attempts).into(), "attempt");
    match (delivered_ms, due_ms) {
        _ if !is_over => format!("{url} receives the end of the job"),
        (Some(_), _) => format!("delivered to {url} at attempt {attempts}"),
        (None, Some(_)) => format!("not yet delivered to {url} after {tried}{error}"),
        (None, None) if *attempts > 0 => format!("not delivered to {url} in {tried}{error}"),
        (None, None) => format!("not delivered to {url}{error}"),
    }
}

/// How a job ended, in one line.
pub(super) fn ending(record: &JobRecord) -> String {
    let id = &record.line.id;
    let Some(result) = &record.result else { return format!("job {id} has no result") };
    let turns = result.turns.map_or_else(String::new, |turns| format!(" after {turns} turns"));
    let degraded = if result.degraded { ", by a fallback" } else { "" };
    match (&result.error, record.line.state) {
        (None, _) => format!("job {id} is done{turns}{degraded}"),
        (Some(error), JobState::Dead) => format!("job {id} is dead: {error}"),
        (Some(error), _) => format!("job {id} did not succeed{turns}: {error}"),
    }
}

/// The final value of a loop's driver.
pub(super) fn value(record: &JobRecord) -> String {
    match record.result.as_ref().and_then(|result| result.value.as_ref()) {
        None => String::new(),
        Some(serde_json::Value::String(text)) => format!("{text}\n"),
        Some(value) => format!("{value}\n"),
    }
}

/// One line while it is active.
pub(super) fn progress(line: &JobLine, now_ms: u64) -> String {
    let age = now_ms.saturating_sub(line.submitted_ms);
    let of = line
        .deadline_ms
        .map_or_else(String::new, |deadline| format!(" of {}", time(deadline - line.submitted_ms)));
    format!("job {} {}, {}{of}", line.id, state(line), time(age))
}

/// Cells of a bar.
const CELLS: usize = 20;

/// The same with a bar: of its own progress, else of its time.
pub(super) fn bar(line: &JobLine, now_ms: u64, reported: Option<&Progress>) -> String {
    let of_time = line.deadline_ms.map(|deadline| {
        let all = deadline.saturating_sub(line.submitted_ms).max(1);
        now_ms.saturating_sub(line.submitted_ms) as f64 / all as f64
    });
    let reported_share = reported.and_then(|reported| reported.total.map(|total| reported.done / total));
    let cells = reported_share.or(of_time).map(|share| {
        let full = (share.clamp(0.0, 1.0) * CELLS as f64) as usize;
        format!("[{}{}] ", "#".repeat(full), ".".repeat(CELLS - full))
    });
    let prefix = reported.map_or_else(String::new, |reported| format!("{}, ", reported.description()));
    format!("{}{prefix}{}", cells.unwrap_or_default(), progress(line, now_ms))
}

/// A table of files, and why others are not there.
pub(super) fn files(files: &[JobFile], refused: &[JobFileRefused]) -> String {
    let mut entries = vec![["NAME", "BYTES", "SHA256"].map(str::to_owned)];
    entries.extend(files.iter().map(|file| [file.name.clone(), file.bytes.to_string(), file.sha256.clone()]));
    let mut text = if files.is_empty() { "no files\n".to_owned() } else { columns(&entries) };
    for JobFileRefused { name, reason } in refused {
        text.push_str(&format!("not kept: {name}: {reason}\n"));
    }
    text
}

/// A table of queues.
pub(super) fn queues(facts: &[QueueFacts]) -> String {
    let mut entries =
        vec![["QUEUE", "SCHEDULED", "QUEUED", "RUNNING", "DEAD", "OLDEST", ""].map(str::to_owned)];
    entries.extend(facts.iter().map(|facts| {
        [
            facts.queue.clone(),
            facts.scheduled.to_string(),
            facts.queued.to_string(),
            facts.leased.to_string(),
            facts.dead.to_string(),
            facts.oldest_ms.map_or_else(|| "-".to_owned(), time),
            if facts.paused { "paused".to_owned() } else { String::new() },
        ]
    }));
    columns(&entries)
}

/// A table, one breaker a line.
pub(super) fn breakers(page: &BreakerPage) -> String {
    if page.breakers.is_empty() {
        return "no breakers that jobs share\n".to_owned();
    }
    let printable = |text: &str| text.chars().map(visible).collect::<String>();
    let mut entries =
        vec![["OWNER", "BREAKER", "STATE", "PROBE", "FAILURES", "LAST FAILURE"].map(str::to_owned)];
    entries.extend(page.breakers.iter().map(|StoredBreaker { owner, snapshot }| {
        let probe = match (snapshot.state.as_str(), snapshot.retry_after_ms) {
            ("open", Some(0)) => "now".to_owned(),
            ("open", Some(left)) => format!("in {}", time(left)),
            _ => "-".to_owned(),
        };
        [
            owner.clone(),
            printable(&snapshot.key),
            snapshot.state.replace('_', " "),
            probe,
            snapshot.failures_in_a_row.to_string(),
            snapshot.said.last().map_or_else(String::new, |reported| printable(reported)),
        ]
    }));
    columns(&entries) + &more(page.next.as_ref())
}

/// A table, one worker a line.
pub(super) fn workers(workers: &[LiveWorker], now_ms: u64) -> String {
    if workers.is_empty() {
        return "no live workers\n".to_owned();
    }
    let some = |names: &[String], none: &str| match names {
        [] => none.to_owned(),
        names => names.join(" ").chars().map(visible).collect(),
    };
    let mut entries =
        vec![["WORKER", "SLOTS", "VERSION", "SEEN", "QUEUES", "HANDLERS", "JOBS"].map(str::to_owned)];
    entries.extend(workers.iter().map(|worker| {
        let LiveWorker { facts, seen_ms, jobs } = worker;
        [
            facts.name.chars().map(visible).collect(),
            format!("{} of {}", jobs.len(), facts.slots),
            facts.version.clone(),
            format!("{} ago", time(now_ms.saturating_sub(*seen_ms))),
            some(&facts.queues, "all"),
            some(&facts.handlers, "-"),
            some(jobs, "-"),
        ]
    }));
    columns(&entries)
}

/// `350 ms`, `2.5 s`, `1 m 30 s`, `2 h 5 m`.
fn time(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match seconds {
        0 => format!("{milliseconds} ms"),
        1..60 => format!("{:.1} s", milliseconds as f64 / 1000.0),
        60..3600 => format!("{} m {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} m", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_prefers_reported_progress_to_time() {
        let mut line = JobLine {
            id: "j1".to_owned(),
            name: String::new(),
            queue: "default".to_owned(),
            priority: 0,
            state: JobState::Leased,
            ok: None,
            error: None,
            submitted_ms: 1_000,
            due_ms: 1_000,
            deadline_ms: Some(5_000),
            leased_ms: Some(1_000),
            ended_ms: None,
            deliveries: 1,
            worker: None,
            cancel: None,
            waiting_for: 0,
        };
        let reported = |done, total| Progress { done, total, eta_ms: None, p_finish_before_deadline: None };
        let of_time = "[#####...............] job j1 running, 1.0 s of 4.0 s";
        assert_eq!(bar(&line, 2_000, None), of_time);
        let of_work = "[##########..........] 8 of 16, job j1 running, 1.0 s of 4.0 s";
        assert_eq!(bar(&line, 2_000, Some(&reported(8.0, Some(16.0)))), of_work);
        assert!(bar(&line, 9_000, None).starts_with("[####################] "), "late is no more than full");
        line.deadline_ms = None;
        assert_eq!(bar(&line, 2_000, None), "job j1 running, 1.0 s");
        assert_eq!(bar(&line, 2_000, Some(&reported(8.0, None))), "8, job j1 running, 1.0 s");
    }

    #[test]
    fn unreadable_spec_names_worker_and_field() {
        let blocker = JobBlocker::UnreadableSpec(UnreadableSpec {
            worker: "w1".to_owned(),
            version: "0.0.9".to_owned(),
            field: "rate.burst".to_owned(),
            problem: "unknown field".to_owned(),
        });
        assert_eq!(
            blocked_by(&blocker, 0),
            "a worker that can read its spec: w1 of version 0.0.9 cannot (rate.burst: unknown field); start a worker of the \
             version that submitted it"
        );
    }
}
