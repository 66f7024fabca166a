//! Tools that look and change nothing: `read_output`, `wait`, `list_runs`, `time_left`.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, select_all};
use sandtimer::engine::Stream;
use sandtimer::model::{Ending, time};
use sandtimer::time::instant;
use sandtimer_os::clock::monotonic_nanoseconds;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::call::ToolCall;
use super::excerpt::{DEFAULT_EXCERPT_BYTES, Excerpt, MAX_EXCERPT_BYTES, MIN_EXCERPT_BYTES};
use super::lines;
use super::render::{self, ToolAnswer, ends_at, headline, how_far, kills_at, sentence};
use super::start::{DEFAULT_WAIT, bare};
use crate::body::{RequestFields, refused};
use crate::error::{ApiRejection, Code};
use crate::registry::OwnedResource;
use crate::runs::{self, LineSearch, LiveRun, RunPhase, StreamPosition, enter_large, search_end};

/// The default and the maximum number of runs of a listing.
const DEFAULT_LISTED: u64 = 20;
const MAX_LISTED: u64 = 200;
/// A run that has written nothing for this long is inspected; and how many of them are.
const QUIET_WINDOW: Duration = Duration::from_secs(5);
const MAX_DIAGNOSED: usize = 10;
/// Threads of a run, and frames of each, that the text of a listing has; the structured content has
/// all.
const MAX_THREADS: usize = 4;
const MAX_FRAMES: usize = 8;
/// Runs that one call waits for.
const MAX_WAITED_RUNS: usize = 100;

/// `read_output`.
pub(super) async fn output(call: &ToolCall, mut fields: RequestFields) -> Result<ToolAnswer, ApiRejection> {
    let run = call.run(&mut fields, "run_id")?;
    let cursor = fields.number("cursor")?.unwrap_or(0);
    let most = fields
        .number("max_bytes")?
        .map_or(DEFAULT_EXCERPT_BYTES, |most| (most as usize).clamp(MIN_EXCERPT_BYTES, MAX_EXCERPT_BYTES));
    let tail = fields.number("tail")?.map(|tail| usize::try_from(tail).unwrap_or(usize::MAX));
    let filter = lines::filter(&mut fields)?;
    let is_stderr = fields.enumeration("stream", &["stdout", "stderr"])? == Some("stderr");
    let until = fields.enumeration("until", &["new", "exit", "match"])?;
    let wait = call.wait_of(&mut fields, Duration::ZERO)?;
    fields.finish()?;
    let asked_at = Instant::now();
    let stream = if is_stderr { Stream::Stderr } else { Stream::Stdout };
    let waited_for = [&*run];
    let mut prompt = None;
    match (until, &filter) {
        (Some("match"), None) => {
            let message = "until: `match` needs filter: the regular expression that a line is to match";
            return Err(ApiRejection::new(Code::BadField, message).with("key", "filter"));
        }
        (Some("match"), Some(filter)) => {
            let mut search = LineSearch::new(stream, cursor, filter.clone());
            // The next read reports an output that cannot be read.
            let until = Some(Instant::now() + call.bounded_wait(wait));
            let waiting = async { drop(search.go(&run, until).await) };
            call.wait(wait, waiting, &waited_for).await;
            prompt = search.line.map(|line| (line, search.next_cursor));
        }
        (Some("exit"), _) => drop(call.wait(wait, run.wait_ended(None), &waited_for).await),
        _ => drop(call.wait(wait, run.grown(stream, cursor), &waited_for).await),
    }
    let snapshot = take_snapshot(&run).await?;
    let position = StreamPosition { stream, cursor };
    let (data, next, dropped) = match (tail, &filter) {
        (Some(count), filter) => {
            let looking = lines::last(&run, position, count, most, filter.as_ref(), call.end());
            let (text, next) = call.unless_cancelled(looking).await?;
            (text, next, 0)
        }
        (None, Some(filter)) => {
            let until = search_end(asked_at, wait).min(call.end());
            let looking = lines::matching(&run, position, most, filter, until);
            let (text, next) = call.unless_cancelled(looking).await?;
            // Lines without an end are no whole lines, and are not waited for in vain.
            let (text, next) = prompt.filter(|_| text.is_empty()).unwrap_or((text, next));
            (text, next, 0)
        }
        (None, None) => {
            let excerpt = Excerpt::read(&run, stream, cursor, most).await?;
            (excerpt.text(&run), excerpt.cursor, excerpt.dropped)
        }
    };
    Ok(ToolAnswer { data_bytes: most, ..read(&snapshot, cursor, next, data, dropped) })
}

/// The status of a run at one moment: an answer takes all of its status from here, for the run may
/// end while the answer is made.
pub(super) struct RunSnapshot {
    described: Value,
    pub headline: String,
    sentence: String,
}

impl RunSnapshot {
    fn has_ended(&self) -> bool {
        self.described["status"] == "ended"
    }

    /// As data, with its first line.
    fn object(&self) -> Value {
        let mut object = self.described.clone();
        object["headline"] = self.headline.clone().into();
        object["sentence"] = self.sentence.clone().into();
        object
    }
}

pub(super) async fn take_snapshot(run: &LiveRun) -> Result<RunSnapshot, ApiRejection> {
    let described = described(run);
    let (headline, sentence) = match run.phase() {
        RunPhase::Ended(record) if described["status"] == "ended" => {
            let facts = record.facts();
            let headline = if facts.ending == Ending::Raised && facts.error.is_none() {
                // The type of an error that is not in memory.
                let _permit = enter_large(run.owner(), record.head_bytes()).await;
                headline(&record.outcome_without_output().await?)
            } else {
                headline(facts)
            };
            (headline, sentence(run, facts))
        }
        _ => {
            let sentence = format!("Run {} is running. {}{}", run.id(), ends_at(kills_at(run)), how_far(run));
            ("STILL RUNNING".to_owned(), sentence)
        }
    };
    Ok(RunSnapshot { described, headline, sentence })
}

fn read(snapshot: &RunSnapshot, cursor: u64, next: u64, data: String, dropped: u64) -> ToolAnswer {
    let RunSnapshot { headline, sentence, .. } = snapshot;
    let mut text = format!("{headline}\n{sentence} The next cursor is {next}.\n\n");
    if dropped > 0 {
        text += &format!("[{dropped} bytes were past the output limit and are gone]\n");
    }
    text += if data.is_empty() { "(nothing new)" } else { &data };
    let mut structured = snapshot.object();
    structured["from"] = cursor.into();
    structured["cursor"] = next.into();
    structured["next_cursor"] = next.into();
    structured["data"] = data.into();
    structured["dropped_bytes"] = dropped.into();
    ToolAnswer { text, structured, ..ToolAnswer::default() }
}

/// A line of a listing with when its limit ends it.
pub(super) fn described(run: &LiveRun) -> Value {
    let mut summary = run.summary();
    let end = kills_at(run);
    summary["kills_at"] = end.map(|(at, _)| instant(at)).into();
    summary["kills_at_ms"] = end.map(|(at, _)| at).into();
    summary["kills_in_ms"] = end.map(|(_, left)| left).into();
    summary
}

/// `wait`.
pub(super) async fn wait(call: &ToolCall, mut fields: RequestFields) -> Result<ToolAnswer, ApiRejection> {
    let runs = named(call, &mut fields)?;
    let any = fields.enumeration("mode", &["any", "all"])? == Some("any");
    let wait = call.wait_of(&mut fields, DEFAULT_WAIT)?;
    fields.finish()?;
    let ends = || runs.iter().map(|run| Box::pin(run.wait_ended(None)));
    let waited_for: Vec<&LiveRun> = runs.iter().map(|run| &**run).collect();
    if any {
        call.wait(wait, async { drop(select_all(ends()).await) }, &waited_for).await;
    } else {
        call.wait(wait, async { drop(join_all(ends()).await) }, &waited_for).await;
    }
    let (mut text, mut shown, mut running_count, mut stopped) = (String::new(), Vec::new(), 0, 0);
    for run in &runs {
        let snapshot = take_snapshot(run).await?;
        text += &format!("{} {}: {}\n", run.id(), snapshot.headline, snapshot.sentence);
        running_count += usize::from(!snapshot.has_ended());
        stopped += usize::from(snapshot.headline.starts_with("STOPPED BY"));
        shown.push(snapshot.object());
    }
    let first = match (running_count, stopped) {
        (0, 0) => format!("EXITED: all of {}", runs.len()),
        (0, _) => format!("STOPPED BY limits, as listed for each: {stopped} of {}", runs.len()),
        _ => format!("STILL RUNNING: {running_count} of {}", runs.len()),
    };
    let text = format!("{first}\n{text}");
    Ok(ToolAnswer {
        text,
        structured: json!({"runs": shown, "running": running_count}),
        ..ToolAnswer::default()
    })
}

fn named(call: &ToolCall, fields: &mut RequestFields) -> Result<Vec<Arc<LiveRun>>, ApiRejection> {
    let given = fields.value("run_ids").unwrap_or_default();
    let wrong = || refused("run_ids", &given, &format!("a list of 1 to {MAX_WAITED_RUNS} ids of runs"));
    let ids = given.as_array().filter(|ids| (1..=MAX_WAITED_RUNS).contains(&ids.len())).ok_or_else(wrong)?;
    let find =
        |id: &Value| call.service().contexts.runs.get(bare(id.as_str().ok_or_else(wrong)?), call.owner());
    ids.iter().map(find).collect()
}

/// `list_runs`.
pub(super) fn list(call: &ToolCall, mut fields: RequestFields) -> Result<ToolAnswer, ApiRejection> {
    let status = fields.enumeration("status", &["queued", "running", "ended"])?;
    let limit = fields.number("limit")?.unwrap_or(DEFAULT_LISTED).min(MAX_LISTED);
    fields.finish()?;
    let mut runs = call.service().contexts.runs.records.of(call.owner());
    let wanted = |is: &str| status.map_or(is != "ended", |status| status == is);
    runs.retain(|run| wanted(run.status()));
    runs.sort_by_cached_key(|run| std::cmp::Reverse(run.ended_at_ms().unwrap_or(run.created_at_ms())));
    let total = runs.len();
    runs.truncate(usize::try_from(limit).unwrap_or(0));
    let mut shown: Vec<Value> = runs.iter().map(|run| described(run)).collect();
    tokio::task::block_in_place(|| diagnose(&runs, &mut shown));
    let mut text = match (total, status) {
        (1, None) => "1 run is running or queued\n".to_owned(),
        (1, Some(status)) => format!("1 run {status}\n"),
        (_, status) => format!("{total} runs {}\n", status.unwrap_or("are running or queued")),
    };
    for run in &shown {
        text += &format!("{}\n", line(run));
        if let Some(sentence) = run["doing"]["sentence"].as_str() {
            text += &format!("  {sentence}\n{}", stacks(&run["doing"]));
        }
    }
    Ok(ToolAnswer { text, structured: json!({"runs": shown, "total": total}), ..ToolAnswer::default() })
}

/// Adds what those are doing that have been silent for a while: why a run is quiet is what is asked
/// next.
fn diagnose(runs: &[Arc<LiveRun>], shown: &mut [Value]) {
    let running = runs.iter().zip(shown).filter_map(|(run, shown)| Some((run.running().ok()?, shown)));
    for (run, shown) in running.filter(|(run, _)| run.quiet_for() >= QUIET_WINDOW).take(MAX_DIAGNOSED) {
        shown["doing"] = runs::doing(&run);
    }
}

/// The Python stacks of a run's processes, the innermost frame first.
fn stacks(doing: &Value) -> String {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let threads = list(&doing["processes"]).into_iter().flat_map(|process| list(&process["python"]));
    let mut text = String::new();
    for thread in threads.take(MAX_THREADS) {
        let frames = list(&thread["frames"]).into_iter().filter_map(|frame| {
            let line = frame["line"].as_u64().map_or(String::new(), |line| format!(":{line}"));
            Some(format!("{} {}{line}", frame["function"].as_str()?, frame["file"].as_str()?))
        });
        let frames = frames.take(MAX_FRAMES).collect::<Vec<_>>().join(" < ");
        text += &format!("  Python: {}\n", frames.replace('\n', " "));
    }
    text
}

/// One run in a line of text.
fn line(run: &Value) -> String {
    let field_value = |key: &str| run[key].as_str().unwrap_or_default().to_owned();
    let mut line = format!("{} {}", field_value("run_id"), field_value("status"));
    line += &format!(", {}", time(run["elapsed_ms"].as_u64().unwrap_or_default()));
    if run["paused"] == true {
        line += ", paused";
    }
    if let Some(left) = run["kills_in_ms"].as_u64() {
        line += &format!(", its limit ends it in {}", time(left));
    }
    if let Some(ending) = run["ending"].as_str() {
        line += &format!(", {ending}");
    }
    let command: Vec<&str> =
        run["command"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    format!("{line}: {}", command.join(" ").replace('\n', " "))
}

/// `time_left`.
pub(super) fn time_left(call: &ToolCall, mut fields: RequestFields) -> Result<ToolAnswer, ApiRejection> {
    let named = fields.string("run_id")?;
    fields.finish()?;
    let mut runs = match named {
        Some(id) => vec![call.service().contexts.runs.get(bare(&id), call.owner())?],
        None => call.service().contexts.runs.records.of(call.owner()),
    };
    runs.retain(|run| run.status() == "running");
    runs.sort_by_cached_key(|run| kills_at(run).map_or(u64::MAX, |(at, _)| at));
    let mut text = match runs.len() {
        1 => "1 run is running\n".to_owned(),
        count => format!("{count} runs are running\n"),
    };
    let (mut budget, now) = call.conversation.budget()?.lock();
    let check = budget.check(now);
    drop(budget);
    text += &format!("{}\n", check.text);
    text.extend(render::closing(&check).map(|line| line + "\n"));
    let budget = render::budget(&check);
    let mut shown = Vec::new();
    for run in &runs {
        let limits = limits(run);
        text += &format!("{}: {}{}\n", run.id(), ends_at(kills_at(run)), how_far(run));
        for limit in &limits {
            let field_value = |key: &str| limit[key].as_str().unwrap_or_default().to_owned();
            text += &format!("  {} {} set by {}", field_value("kind"), limit["limit"], field_value("source"));
            text += &limit["remaining"].as_u64().map_or_else(String::new, |left| format!(", {left} left"));
            text += "\n";
        }
        let mut described = described(run);
        described["limits"] = limits.into();
        shown.push(described);
    }
    Ok(ToolAnswer { text, structured: json!({"runs": shown, "budget": budget}), ..ToolAnswer::default() })
}

/// The limits that apply to a run, the one that ends it by the clock first.
fn limits(run: &LiveRun) -> Vec<Value> {
    // With what extended it; before the run begins and in a pause, what it was submitted with.
    let wall = run.running().ok().and_then(|run| run.wall());
    let each = |(kind, effect): (&String, &Value)| {
        let set = effect["limit"].as_u64()?;
        let source = &effect["source"];
        let Some(wall) = wall.as_ref().filter(|_| kind == "wall_ms") else {
            return Some(
                json!({"kind": kind, "limit": set, "used": null, "remaining": null, "source": source}),
            );
        };
        let limit = wall.limit.as_millis() as u64;
        let left = wall.wall_end.as_nanos().saturating_sub(monotonic_nanoseconds()) / 1_000_000;
        let used = limit.saturating_sub(left);
        Some(
            json!({"kind": kind, "limit": limit, "used": used, "remaining": left, "source": wall.effect.source}),
        )
    };
    let mut limits: Vec<Value> = run.effective().as_object().into_iter().flatten().filter_map(each).collect();
    limits.sort_by_key(|limit| limit["kind"] != "wall_ms");
    limits
}

/// For aliases: a run's status, and its output since the conversation last read it.
pub(super) async fn news(
    call: &ToolCall,
    run: &LiveRun,
    fields: &mut RequestFields,
) -> Result<(ToolAnswer, String), ApiRejection> {
    let filter = lines::filter(fields)?;
    let read_cursors = call.conversation.cursors(run.id());
    let snapshot = take_snapshot(run).await?;
    let (data, next) = match &filter {
        Some(filter) => {
            let until = search_end(Instant::now(), Duration::ZERO);
            let position = StreamPosition { stream: Stream::Stdout, cursor: read_cursors[0] };
            let looking = lines::matching(run, position, DEFAULT_EXCERPT_BYTES, filter, until);
            call.unless_cancelled(looking).await?
        }
        None => {
            let excerpt = Excerpt::read(run, Stream::Stdout, read_cursors[0], DEFAULT_EXCERPT_BYTES).await?;
            (excerpt.text(run), excerpt.cursor)
        }
    };
    call.conversation.note_read(run.id(), [next, read_cursors[1]]);
    Ok((read(&snapshot, read_cursors[0], next, String::new(), 0), data))
}

/// The named run, for tools that report its status.
pub(super) async fn shown(run: &LiveRun) -> Result<ToolAnswer, ApiRejection> {
    render::run(run).await
}
