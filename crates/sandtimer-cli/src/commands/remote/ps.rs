//! `sandtimer ps`: the active runs of a server, and its contexts.

use std::io::IsTerminal;
use std::process::ExitCode;

use sandtimer::model::LimitKind;
use sandtimer_os::clock::calendar_milliseconds;
use serde_json::{Value, json};

use super::super::CommandFailure;
use super::client::{Client, RequestRejection, checked_id, printable};
use crate::args::PsArguments;
use crate::config::written;
use crate::render;

/// Runs that a server lists at a time.
const MAX_LISTED_RUNS: u64 = 1000;
const HEAD: [&str; 9] =
    ["KIND", "ID", "STATE", "WAITS FOR", "ELAPSED", "LIMIT", "PROGRESS", "IDLE", "COMMAND"];
const PROCESS_HEAD: [&str; 7] = ["PID", "WAITS FOR", "IN", "CPU", "I/O", "THREADS", "NAME"];

pub(crate) fn main(given: &PsArguments) -> Result<ExitCode, CommandFailure> {
    if let Some(id) = &given.id {
        let client = Client::having(&given.server, checked_id(id)?)?;
        return processes(&client, id, given.server.json);
    }
    let ActivityList { runs, contexts, total } = listed(given)?;
    if given.server.json {
        render::print(&format!("{}\n", json!({"runs": runs, "contexts": contexts})));
        return Ok(ExitCode::SUCCESS);
    }
    let now = calendar_milliseconds();
    let of = |list: &Value, entry: fn(&Value, u64) -> ListEntry| -> Vec<ListEntry> {
        list.as_array().into_iter().flatten().map(|one| entry(one, now)).collect()
    };
    let mut entries = of(&contexts, context);
    entries.extend(of(&runs, run));
    render::print(&table(HEAD, &entries, width()));
    if total > MAX_LISTED_RUNS {
        render::note(&format!("the newest {MAX_LISTED_RUNS} of {total} runs are listed"));
    }
    Ok(ExitCode::SUCCESS)
}

/// What is active, in however many servers.
struct ActivityList {
    runs: Value,
    contexts: Value,
    total: u64,
}

impl ActivityList {
    fn of(client: &Client, all: bool) -> Result<Self, RequestRejection> {
        let which = if all { "" } else { "&status=running" };
        let mut listed = client.get(&format!("/v1/runs?limit={MAX_LISTED_RUNS}{which}"))?;
        let total = listed["total"].as_u64().unwrap_or(0);
        let contexts = client.get("/v1/contexts")?["contexts"].take();
        Ok(ActivityList { runs: listed["runs"].take(), contexts, total })
    }

    fn with(mut self, other: ActivityList) -> Self {
        for (own, others) in [(&mut self.runs, other.runs), (&mut self.contexts, other.contexts)] {
            if let (Value::Array(own), Value::Array(others)) = (own, others) {
                own.extend(others);
            }
        }
        ActivityList { total: self.total.max(other.total), ..self }
    }
}

/// Of the server, and of that of MCP clients: where only one of them is up, of that.
fn listed(given: &PsArguments) -> Result<ActivityList, CommandFailure> {
    let usual = ActivityList::of(&Client::new(&given.server)?, given.all);
    let agents =
        Client::of_agents(&given.server).and_then(|client| ActivityList::of(&client, given.all).ok());
    match (usual, agents) {
        (Ok(usual), Some(agents)) => Ok(usual.with(agents)),
        (Err(RequestRejection::Unreachable { .. }), Some(agents)) => Ok(agents),
        (usual, _) => Ok(usual?),
    }
}

/// What one run is doing.
fn processes(client: &Client, id: &str, json: bool) -> Result<ExitCode, CommandFailure> {
    let snapshot = client.get(&format!("/v1/runs/{id}/processes"))?;
    if json {
        render::print(&format!("{snapshot}\n"));
        return Ok(ExitCode::SUCCESS);
    }
    let entries: Vec<_> = snapshot["processes"].as_array().into_iter().flatten().map(process).collect();
    let stacks: String = snapshot["processes"].as_array().into_iter().flatten().map(stacks).collect();
    let table = table(PROCESS_HEAD, &entries, width());
    render::print(&format!("{}\n\n{table}{stacks}", text(&snapshot["sentence"])));
    if snapshot["truncated"].as_bool() == Some(true) {
        render::note(&format!("the first {} of its processes are listed", entries.len()));
    }
    Ok(ExitCode::SUCCESS)
}

fn process(process: &Value) -> [String; 7] {
    let indent = usize::try_from(process["depth"].as_u64().unwrap_or(0)).unwrap_or(0).min(20);
    [
        process["pid"].to_string(),
        text(&process["waiting_for"]),
        text(&process["wait_channel"]),
        elapsed(process["cpu_ms"].as_u64().unwrap_or(0)),
        process["io_bytes"].as_u64().map_or("-".to_owned(), size),
        process["threads"].to_string(),
        format!("{}{}", "  ".repeat(indent), text(&process["name"])),
    ]
}

/// The Python stacks of a process, the innermost frame first.
fn stacks(process: &Value) -> String {
    let list = |value: &Value, name: &str| value[name].as_array().cloned().unwrap_or_default();
    let mut shown = String::new();
    for thread in list(process, "python") {
        let number = thread["thread"].as_u64().map_or(String::new(), |number| format!(" {number}"));
        shown.push_str(&format!("\nPython in {}, thread{number}:\n", process["pid"]));
        for frame in list(&thread, "frames") {
            let line = frame["line"].as_u64().map_or(String::new(), |line| format!(":{line}"));
            shown.push_str(&format!("  {}  {}{line}\n", text(&frame["function"]), text(&frame["file"])));
        }
        if thread["truncated"].as_bool() == Some(true) {
            shown.push_str("  …\n");
        }
    }
    shown
}

type ListEntry = [String; 9];

fn run(run: &Value, now: u64) -> ListEntry {
    let state = match (run["status"].as_str(), run["paused"].as_bool(), run["ending"].as_str()) {
        (Some("running"), Some(true), _) => "paused",
        (Some("running"), ..) => "running",
        (.., Some(ending)) => ending,
        _ => "ended",
    };
    let begun = run["created_at_ms"].as_u64().unwrap_or(now);
    let end = run["ended_at_ms"].as_u64().unwrap_or(now);
    let command = run["command"].as_array().into_iter().flatten().filter_map(Value::as_str);
    [
        "run".to_owned(),
        text(&run["run_id"]),
        printable(state),
        text(&run["waiting_for"]),
        elapsed(end.saturating_sub(begun)),
        limit(&run["wall_ms"]),
        progress(&run["progress"]),
        "-".to_owned(),
        printable(&command.collect::<Vec<_>>().join(" ")),
    ]
}

fn context(context: &Value, now: u64) -> ListEntry {
    let begun = context["created_at_ms"].as_u64().unwrap_or(now);
    let is_shell = context["language"].as_str() == Some("bash");
    [
        if is_shell { "session" } else { "context" }.to_owned(),
        text(&context["context_id"]),
        text(&context["status"]),
        "-".to_owned(),
        elapsed(now.saturating_sub(begun)),
        "-".to_owned(),
        "-".to_owned(),
        match context["idle_left_ms"].as_u64() {
            Some(left) => format!("ends in {}", elapsed(left)),
            None => "kept".to_owned(),
        },
        text(&context["language"]),
    ]
}

fn text(value: &Value) -> String {
    printable(value.as_str().unwrap_or("-"))
}

fn limit(wall: &Value) -> String {
    written(LimitKind::Wall.into(), wall.as_u64().map(|milliseconds| milliseconds.saturating_mul(1_000_000)))
}

/// `8/15, 2m05s left`
fn progress(progress: &Value) -> String {
    let count = |value: &Value| value.as_f64().map(|count| ((count * 10.0).round() / 10.0).to_string());
    let Some(done) = count(&progress["done"]) else { return "-".to_owned() };
    let of = count(&progress["total"]).map_or(String::new(), |total| format!("/{total}"));
    let left = progress["eta_ms"].as_u64().map_or(String::new(), |left| format!(", {} left", elapsed(left)));
    format!("{done}{of}{left}")
}

/// `350ms`, `12.3s`, `4m05s`, `2h30m`.
fn elapsed(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match seconds {
        0 => format!("{milliseconds}ms"),
        1..60 => format!("{seconds}.{}s", milliseconds % 1000 / 100),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

/// `512B`, `64K`, `3M`.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes}B"),
        1_024..1_048_576 => format!("{}K", bytes >> 10),
        1_048_576..1_073_741_824 => format!("{}M", bytes >> 20),
        _ => format!("{}G", bytes >> 30),
    }
}

/// The terminal's width; `None` where it is none.
fn width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout());
    let columns = size.ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0);
    std::io::stdout().is_terminal().then(|| columns.unwrap_or(80))
}

/// `width`: lines are cut there.
fn table<const COLUMNS: usize>(
    head: [&str; COLUMNS],
    entries: &[[String; COLUMNS]],
    width: Option<usize>,
) -> String {
    let head = head.map(str::to_owned);
    let all = || std::iter::once(&head).chain(entries);
    let widths: [usize; COLUMNS] =
        std::array::from_fn(|column| all().map(|entry| entry[column].chars().count()).max().unwrap_or(0));
    let mut table = String::new();
    for entry in all() {
        let cells = entry.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        let line: String = line.trim_end().chars().take(width.unwrap_or(usize::MAX)).collect();
        table.push_str(&line);
        table.push('\n');
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_stay_on_their_lines() {
        let frame =
            |function: &str, line: Value| json!({"function": function, "file": "/w/a\n.py", "line": line});
        let thread = json!({"thread": 7, "frames": [frame("f", json!(3)), frame("<module>", Value::Null)], "truncated": true});
        assert_eq!(
            stacks(&json!({"pid": 2, "python": [thread]})),
            "\nPython in 2, thread 7:\n  f  /w/a .py:3\n  <module>  /w/a .py\n  …\n"
        );
        assert_eq!(stacks(&json!({"pid": 2})), "");
    }

    #[test]
    fn each_entry_is_one_escaped_line() {
        let one = run(
            &json!({"run_id": "a1", "status": "running", "paused": true, "command": ["sh", "-c", "a\n\u{1b}[2J"],
                "created_at_ms": 1_000, "ended_at_ms": null, "ending": null, "wall_ms": 90_000, "waiting_for": "stopped",
                "progress": {"done": 7.512, "total": 15.0, "eta_ms": 125_000}}),
            66_400,
        );
        let other = context(
            &json!({"context_id": "c2", "status": "idle", "language": "bash", "created_at_ms": 0, "idle_left_ms": 7_260_000}),
            400,
        );
        let shown = table(HEAD, &[other, one], None);
        assert_eq!(
            shown,
            "KIND     ID  STATE   WAITS FOR  ELAPSED  LIMIT  PROGRESS            IDLE           COMMAND\n\
             session  c2  idle    -          400ms    -      -                   ends in 2h01m  bash\n\
             run      a1  paused  stopped    1m05s    90s    7.5/15, 2m05s left  -              sh -c a \\u{1b}[2J\n"
        );
        assert!(table(HEAD, &[], Some(10)).lines().all(|line| line.chars().count() <= 10));
    }
}
