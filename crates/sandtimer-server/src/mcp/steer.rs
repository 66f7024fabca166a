//! Tools that change a run: `kill`, `extend`, `pause`, `resume`, `write_stdin`.

use std::time::Duration;

use sandtimer::engine::Stream;
use sandtimer::model::time;
use sandtimer::supervise::signal_number;
use sandtimer_os::clock::calendar_milliseconds;
use serde_json::{Value, json};

use super::call::ToolCall;
use super::excerpt::{DEFAULT_EXCERPT_BYTES, Excerpt};
use super::render::{ToolAnswer, ends_at, kills_at};
use super::{read, render};
use crate::body::{RequestFields, refused};
use crate::error::{ApiRejection, Code};
use crate::registry::OwnedResource;
use crate::runs::{LiveRun, STDIN_WAIT};

/// How long a kill waits for the proof of death.
const PROOF: Duration = Duration::from_secs(5);
/// How long a call that wrote waits for an answer by default.
const ECHO_TIMEOUT: Duration = Duration::from_secs(1);
/// As good as no limit.
const THIRTY_YEARS: Duration = Duration::from_secs(30 * 365 * 24 * 3600);
/// `kill`. Of a run that has ended already it is no error: it is dead, which was asked for.
pub(super) async fn kill(call: &ToolCall, mut fields: RequestFields) -> Result<ToolAnswer, ApiRejection> {
    let run = call.run(&mut fields, "run_id")?;
    let (signal, grace) = (fields.string("signal")?, fields.milliseconds("grace_ms")?);
    let reason = fields.reason("the agent")?;
    fields.finish()?;
    if let Some(grace) = grace.filter(|grace| *grace > MAX_GRACE_PERIOD) {
        let most =
            "at most 30000: for more, send SIGTERM by `signal`, and call kill again when its time has passed";
        return Err(refused("grace_ms", &json!(grace.as_millis() as u64), most));
    }
    match (signal, grace) {
        (Some(signal), None) => return send(&run, &signal).await,
        (Some(signal), Some(_)) => {
            let message =
                "signal only sends a signal and ends nothing by itself: leave grace_ms out, or signal";
            return Err(ApiRejection::new(Code::BadField, message)
                .with("key", "signal")
                .with("value", signal));
        }
        (None, Some(grace)) => {
            if let Ok(running) = run.running()
                && running.signal(TERM).is_ok()
            {
                run.wait_ended(Some(grace)).await;
            }
        }
        (None, None) => {}
    }
    end(&run, &reason, grace.is_some()).await;
    read::shown(&run).await
}

const TERM: i32 = 15;

/// Together with the proof after it no call takes longer than 45 s.
const MAX_GRACE_PERIOD: Duration = Duration::from_secs(30);

/// Ends a run and waits for the proof; `at_once` without the grace that it has.
async fn end(run: &LiveRun, reason: &str, at_once: bool) {
    run.cancel(reason);
    if at_once {
        run.cancel(reason);
    }
    run.wait_ended(Some(PROOF)).await;
    if run.status() != "ended" {
        run.cancel(reason);
        run.wait_ended(Some(PROOF)).await;
    }
}

/// For aliases.
pub(super) async fn end_now(run: &LiveRun) {
    end(run, "the agent asked for its end", false).await;
}

async fn send(run: &LiveRun, signal: &str) -> Result<ToolAnswer, ApiRejection> {
    let number = signal_number(signal).or_else(|| signal.parse().ok());
    let number = number.filter(|number| (1..=64).contains(number));
    let number = number.ok_or_else(|| refused("signal", &signal.into(), "a signal, such as SIGINT or 2"))?;
    let over = |_| ApiRejection::new(Code::RunEnded, format!("the run `{}` has ended", run.id()));
    run.running()?.signal(number).map_err(over)?;
    let mut answer = render::run(run).await?;
    answer.structured["signal"] = number.into();
    Ok(answer)
}

/// `extend`.
pub(super) fn extend(call: &ToolCall, mut fields: RequestFields) -> Result<ToolAnswer, ApiRejection> {
    let run = call.run(&mut fields, "run_id")?;
    let (by, until) = (fields.milliseconds("by_ms")?, fields.number("until")?);
    let unlimited = fields.boolean("unlimited")?.unwrap_or(false);
    fields.enumeration("kind", &["wall"])?;
    fields.reason("the agent")?;
    fields.finish()?;
    let by = match (by, until, unlimited) {
        (Some(by), None, false) if !by.is_zero() => by,
        (None, Some(until), false) => later(&run, until)?,
        (None, None, true) => THIRTY_YEARS,
        _ => {
            let message = "give one of by_ms, a positive number of milliseconds, until, and unlimited";
            return Err(ApiRejection::new(Code::BadField, message).with("key", "by_ms"));
        }
    };
    let deadline = run.running()?.extend(by)?;
    let end = kills_at(&run);
    let source = deadline.as_ref().map(|deadline| json!(deadline.effect.source));
    let (id, more) = (run.id(), time(by.as_millis() as u64));
    let mut text = match end {
        None => format!("STILL RUNNING\nRun {id} has no wall-clock limit: there is nothing to extend."),
        Some(_) if unlimited => format!("STILL RUNNING\nRun {id} has more time. {}", ends_at(end)),
        Some(_) => format!("STILL RUNNING\nRun {id} was given {more} more. {}", ends_at(end)),
    };
    if let Some(Value::String(source)) = &source
        && source != "call"
    {
        text += &format!(" What bounds it is {source}.");
    }
    let structured = json!({
        "run_id": run.id(),
        "kills_at_ms": end.map(|(at, _)| at),
        "kills_in_ms": end.map(|(_, left)| left),
        "source": source,
    });
    Ok(ToolAnswer { text, structured, ..ToolAnswer::default() })
}

/// By how much the wall limit moves to be at a moment.
fn later(run: &LiveRun, until: u64) -> Result<Duration, ApiRejection> {
    let now = kills_at(run).map_or_else(calendar_milliseconds, |(at, _)| at);
    let by = until.checked_sub(now).filter(|by| *by > 0).ok_or_else(|| {
        refused("until", &until.into(), &format!("later than its wall-clock limit, which is at {now}"))
    })?;
    Ok(Duration::from_millis(by))
}

/// `pause` and `resume`.
pub(super) fn pause(
    call: &ToolCall,
    mut fields: RequestFields,
    stop: bool,
) -> Result<ToolAnswer, ApiRejection> {
    let run = call.run(&mut fields, "run_id")?;
    fields.finish()?;
    let running = run.running()?;
    if stop {
        running.pause()?
    } else {
        running.resume()?
    }
    let new_state =
        if stop { "is paused: its processes and its own clocks stand still" } else { "continues" };
    let text = format!("STILL RUNNING\nRun {} {new_state}. {}", run.id(), ends_at(kills_at(&run)));
    let end = kills_at(&run).map(|(at, _)| at);
    let structured = json!({"run_id": run.id(), "paused": stop, "kills_at_ms": end});
    Ok(ToolAnswer { text, structured, ..ToolAnswer::default() })
}

/// `write_stdin`.
pub(super) async fn write_stdin(
    call: &ToolCall,
    mut fields: RequestFields,
) -> Result<ToolAnswer, ApiRejection> {
    let run = call.run(&mut fields, "run_id")?;
    let data = fields.string("data")?.unwrap_or_default();
    let eof = fields.boolean("eof")?.unwrap_or(false);
    let cursor = fields.number("cursor")?;
    let wait = call.wait_of(&mut fields, ECHO_TIMEOUT)?;
    fields.finish()?;
    run.running()?;
    let cursor = match cursor {
        Some(cursor) => cursor,
        None => Excerpt::read(&run, Stream::Stdout, 0, DEFAULT_EXCERPT_BYTES).await?.cursor,
    };
    let written = run.input.write(data.as_bytes(), call.bounded_wait(STDIN_WAIT)).await?;
    // What was not taken is the caller's to send again: the end does not pass it.
    let closed = eof && written == data.len();
    if closed {
        run.input.close();
    }
    call.wait(wait, run.grown(Stream::Stdout, cursor), &[&*run]).await;
    let excerpt = Excerpt::read(&run, Stream::Stdout, cursor, DEFAULT_EXCERPT_BYTES).await?;
    let headline = read::take_snapshot(&run).await?.headline;
    let taken = if written == data.len() { String::new() } else { format!(" of {}", data.len()) };
    let text = format!(
        "{headline}\n{written}{taken} bytes were written to run {}. The next cursor is {}.\n\n{}",
        run.id(),
        excerpt.cursor,
        excerpt.text(&run)
    );
    let structured = json!({
        "run_id": run.id(), "status": run.status(), "written": written, "closed": closed,
        "from": cursor, "cursor": excerpt.cursor, "data": excerpt.text(&run),
    });
    Ok(ToolAnswer { text, structured, ..ToolAnswer::default() })
}
