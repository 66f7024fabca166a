//! The texts of a budget, for an agent: the lines of a check, the remedy for a limit, the summary.

use std::fmt::Write;
use std::time::Duration;

use sandtimer::model::LimitKind;

use super::kinds::Cause;
use super::limit_use::{LimitUse, Quantity};
use super::machine::{Budget, BudgetPhase};
use super::tasks::{CompletedTask, Task};
use crate::estimate::format_duration;

/// `45s`, `12m 0s`, `1h 30m`.
fn brief(duration: Duration) -> String {
    format_duration(duration.as_secs_f64())
}

/// In minutes where the limit has some, else in seconds: `2m / 120m` is read faster than two forms.
fn short(duration: Duration, limit: Option<Duration>) -> String {
    if limit.unwrap_or(duration) >= Duration::from_secs(60) {
        format!("{}m", duration.as_secs() / 60)
    } else if duration.subsec_millis() == 0 {
        format!("{}s", duration.as_secs())
    } else {
        format!("{:.1}s", duration.as_secs_f64())
    }
}

/// Which limit it is, with how much of it.
pub(super) fn reason(budget: &Budget, cause: &Cause) -> String {
    let limit = |kind| budget.limit(kind).map_or(0, |effect| effect.value);
    let time = |kind| brief(Duration::from_nanos(limit(kind)));
    match cause {
        Cause::Wall => match budget.wall_end() {
            Some(end) if end > budget.now => {
                let left = brief(end.since(budget.now));
                format!(
                    "Global timeout: {left} of {} are left, and kept for wrapping up",
                    time(LimitKind::Wall)
                )
            }
            _ => format!("Global timeout: exceeded {}", time(LimitKind::Wall)),
        },
        Cause::Turns => format!("Turn limit: {} turns are used up", limit(LimitKind::Turns)),
        Cause::Stall => {
            format!("Stalled: no activity for {}", brief(budget.stall_limit(None).unwrap_or_default()))
        }
        Cause::Failures => format!("Failure limit: {} failures are used up", limit(LimitKind::Failures)),
        Cause::Task { name, limit, estimated } => {
            format!("Task timeout: '{name}' {}", exceeded(*limit, *estimated))
        }
    }
}

/// `exceeded 1h 30m (estimated 30m 0s)`
fn exceeded(limit: Duration, estimated: Option<Duration>) -> String {
    let limit = brief(limit);
    match estimated {
        Some(estimated) => format!("exceeded {limit} (estimated {})", brief(estimated)),
        None => format!("exceeded {limit}"),
    }
}

/// The message for the agent: what was reached, and the remedy.
pub(super) fn message(budget: &Budget, cause: &Cause) -> String {
    let (what, remedy) = match cause {
        Cause::Task { name, limit, estimated } => (
            format!("Task '{name}' {}", exceeded(*limit, *estimated)),
            "Please stop this task and proceed with current best model.",
        ),
        _ => (reason(budget, cause), "Please stop this and proceed with the current best."),
    };
    let left = match &budget.phase {
        BudgetPhase::WrapUp { until, turn: None, .. } => {
            format!("One more turn is left, and {} for it.", brief(until.since(budget.now)))
        }
        BudgetPhase::WrapUp { until, .. } => {
            format!("This is the last turn; {} are left.", brief(until.since(budget.now)))
        }
        BudgetPhase::Over(_) => "The budget is used up.".to_owned(),
        BudgetPhase::Going | BudgetPhase::Hit(_) => String::new(),
    };
    format!("⏱️ TIMEOUT: {what}\n\n{remedy}\n{left}").trim_end().to_owned()
}

/// By how much an estimate is overrun, once that can be shown: in the unit of [`short`] it is not
/// nothing.
fn overrun(elapsed: Duration, estimated: Duration) -> Option<Duration> {
    let over = elapsed.checked_sub(estimated)?;
    let least = if estimated >= Duration::from_secs(60) { 60_000 } else { 100 };
    (over.as_millis() >= least).then_some(over)
}

/// The warnings of every task that takes longer than estimated and may continue.
pub(super) fn overruns(budget: &Budget) -> Vec<String> {
    let overdue = |task: &Task| {
        let (elapsed, estimated) = (task.elapsed(budget.now), task.estimated?);
        let over = overrun(elapsed, estimated).filter(|_| task.limit.is_none_or(|limit| elapsed < limit))?;
        let most = task.limit.map_or("no limit".to_owned(), brief);
        Some(format!(
            "⚠️ Task '{}' is taking longer than expected\n   Expected: {}, Actual: {} ({} overrun)\n   Max allowed: {most}",
            task.name(),
            short(estimated, Some(estimated)),
            short(elapsed, Some(estimated)),
            short(over, Some(estimated)),
        ))
    };
    budget.tasks.active().filter_map(overdue).collect()
}

/// The lines of a check.
pub(super) fn check(budget: &Budget, limits: &[LimitUse], warnings: &[String]) -> String {
    let mut lines: Vec<String> = limits.iter().filter_map(|limit| own_line(budget, limit)).collect();
    for task in budget.tasks.active() {
        lines.extend(task_lines(budget, task));
    }
    if budget.tasks.active().next().is_none() && budget.phase == BudgetPhase::Going {
        lines.push("✓ All checks OK (no active task)".to_owned());
    }
    lines.extend(warnings.iter().cloned());
    if let BudgetPhase::WrapUp { cause, .. } | BudgetPhase::Over(cause) = &budget.phase {
        lines.push(message(budget, cause));
    }
    lines.join("\n")
}

fn own_line(budget: &Budget, limit: &LimitUse) -> Option<String> {
    let name = match limit.kind {
        _ if limit.task.is_some() => return None,
        LimitKind::Wall => "Global",
        LimitKind::Turns => "Turns",
        LimitKind::Stall => "Stall",
        _ => "Failures",
    };
    let (used, most) = match (limit.used, limit.limit?) {
        (Quantity::Time(used), Quantity::Time(most)) => (short(used, Some(most)), short(most, Some(most))),
        (Quantity::Count(used), Quantity::Count(most)) => (used.to_string(), most.to_string()),
        _ => return None,
    };
    if limit.hit && limit.kind == LimitKind::Wall && limit.remaining != Some(Quantity::Time(Duration::ZERO)) {
        let kept = brief(budget.reserve());
        return Some(format!("❌ {name}: {used} / {most} ({kept} are kept for wrapping up)"));
    }
    if limit.hit {
        return Some(format!("❌ {name}: {used} / {most} USED UP"));
    }
    if limit.kind != LimitKind::Stall {
        return Some(format!("✓ {name}: {used} / {most} OK"));
    }
    // An active task widens a built-in limit, which is shown unwidened until that matters.
    let own = Duration::from_nanos(budget.limit(LimitKind::Stall).map_or(0, |effect| effect.value));
    if budget.idle_time() >= own {
        return Some(format!("✓ {name}: {used} / {most} OK (within the time of the task)"));
    }
    let (used, most) = (short(budget.idle_time(), Some(own)), short(own, Some(own)));
    let note = if used.starts_with('0') { " (activity registered)" } else { "" };
    Some(format!("✓ {name}: {used} / {most} OK{note}"))
}

fn task_lines(budget: &Budget, task: &Task) -> Vec<String> {
    let elapsed = task.elapsed(budget.now);
    let several = budget.tasks.active().count() > 1;
    let name = if several { format!("Task '{}'", task.name()) } else { "Task".to_owned() };
    let used = short(elapsed, task.limit);
    let most = task.limit.map_or("unlimited".to_owned(), |limit| short(limit, Some(limit)));
    if task.limit.is_some_and(|limit| elapsed >= limit) {
        let limit = task.limit.map_or_else(String::new, brief);
        return vec![format!("❌ Task timeout: '{}' exceeded {limit}", task.name())];
    }
    match task.estimated {
        Some(estimated) if elapsed >= estimated => {
            let how = match overrun(elapsed, estimated) {
                Some(over) => format!("OVERRUN by {}", short(over, Some(estimated))),
                None => "REACHED ESTIMATED DURATION".to_owned(),
            };
            let within = "ℹ️  Still OK - within max duration".to_owned();
            vec![format!("⚠️ {name}: {used} / {most} ({how})"), within]
        }
        estimated => vec![format!("✓ {name}: {used} / {most} OK{}", shares(elapsed, estimated, task.limit))],
    }
}

/// ` (50% of estimated, 17% of max)`. The share of the estimate is shown only from a tenth on:
/// before that it is no evidence about the end.
fn shares(elapsed: Duration, estimated: Option<Duration>, limit: Option<Duration>) -> String {
    let share = |whole: Duration| 100.0 * elapsed.as_secs_f64() / whole.as_secs_f64().max(1e-9);
    let estimated = estimated.map(share).filter(|share| *share >= 10.0);
    let parts = [(estimated, "estimated"), (limit.map(share), "max")];
    let parts: Vec<String> = parts
        .into_iter()
        .filter_map(|(share, of)| share.map(|share| format!("{share:.0}% of {of}")))
        .collect();
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}

/// The summary at the end.
pub(super) fn summary(budget: &Budget) -> String {
    let tasks = &budget.tasks;
    let names: Vec<&str> = tasks.completed.iter().map(|task| task.name.as_str()).collect();
    let mut text = format!("Summary:\n  - Tasks completed: {}", tasks.completed_count);
    if !names.is_empty() {
        let _ = write!(text, " ({})", names.join(", "));
    }
    let stopped: Vec<&str> = tasks.stopped.iter().map(String::as_str).collect();
    if !stopped.is_empty() {
        let _ = write!(text, "\n  - Tasks stopped: {} ({})", tasks.stopped_count, stopped.join(", "));
    }
    let active: Vec<&str> = tasks.active().map(Task::name).collect();
    if !active.is_empty() {
        let _ = write!(text, "\n  - Tasks not completed: {} ({})", active.len(), active.join(", "));
    }
    let _ = write!(text, "\n  - Total runtime: {}", spelled_duration(budget.now.since(budget.started)));
    let over = |limit: fn(&CompletedTask) -> Option<Duration>| -> Vec<String> {
        let over = tasks.completed.iter().filter_map(|task| {
            let over = task.took.checked_sub(limit(task)?).filter(|over| !over.is_zero())?;
            Some(format!("{} by {}", task.name, brief(over)))
        });
        over.collect()
    };
    let (over_estimate, over_max) = (over(|task| task.estimated), over(|task| task.max));
    if !over_max.is_empty() {
        let _ = write!(text, "\n  - Over their maximum durations: {}", over_max.join(", "));
    } else if !over_estimate.is_empty() {
        let _ = write!(text, "\n  - Over their estimates: {}", over_estimate.join(", "));
        if stopped.is_empty() {
            text.push_str("\n  - All tasks within maximum durations");
        }
    } else if !names.is_empty() && stopped.is_empty() {
        text.push_str("\n  - All tasks within estimated durations");
    }
    if let BudgetPhase::Hit(cause) | BudgetPhase::WrapUp { cause, .. } | BudgetPhase::Over(cause) =
        &budget.phase
    {
        let _ = write!(text, "\n  - Ended by: {}", reason(budget, cause));
    }
    text
}

/// `12 seconds`, `52 minutes`, `1h 12m`.
fn spelled_duration(duration: Duration) -> String {
    let plural = |count: u64, unit: &str| format!("{count} {unit}{}", if count == 1 { "" } else { "s" });
    match duration.as_secs() {
        seconds @ 0..60 => plural(seconds, "second"),
        seconds @ 60..3600 => plural(seconds / 60, "minute"),
        _ => brief(duration),
    }
}
