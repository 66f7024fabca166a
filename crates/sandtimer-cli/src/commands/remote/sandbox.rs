//! `sandtimer sandbox`: the sandboxes of a server.

use std::process::ExitCode;

use sandtimer::limits::{Format, Key, Setting, parse_string};
use sandtimer::model::{LimitKind, Outcome};
use sandtimer_os::clock::calendar_milliseconds;
use serde_json::{Map, Value, json};

use super::super::CommandFailure;
use super::super::run::exit::exit_code;
use super::arguments::{added, checked_sandbox_id};
use super::client::{Client, printable};
use super::reply::print_reply;
use super::{archive, copy, template};
use crate::args::sandbox::{
    OneSandbox, SandboxAction, SandboxArguments, SandboxCreate, SandboxExec, SandboxExpose, SandboxExtend,
    SandboxList,
};
use crate::config::written;
use crate::render::{self, To};

/// How long one request waits for the end of a run. The server cancels a run that no client has
/// waited for for ten seconds.
const WAIT_MILLISECONDS: u64 = 20_000;
const HEAD: [&str; 5] = ["ID", "TEMPLATE", "RUNS", "DURABILITY", "AGE"];

pub(crate) fn main(given: &SandboxArguments) -> Result<ExitCode, CommandFailure> {
    match &given.action {
        SandboxAction::Create(given) => create(given),
        SandboxAction::List(given) => list(given),
        SandboxAction::Exec(given) => execute(given),
        SandboxAction::Copy(given) => copy::main(given),
        SandboxAction::Snapshot(given) => template::snapshot(given),
        SandboxAction::Fork(given) => template::fork(given),
        SandboxAction::Diff(given) => archive::diff(given),
        SandboxAction::Export(given) => archive::export(given),
        SandboxAction::Expose(given) => expose(given),
        SandboxAction::Pause(given) => change(given, "pause", "paused"),
        SandboxAction::Resume(given) => change(given, "resume", "resumed"),
        SandboxAction::Extend(given) => extend(given),
        SandboxAction::Delete(given) => delete(given),
    }
}

fn create(given: &SandboxCreate) -> Result<ExitCode, CommandFailure> {
    let mut body = Map::new();
    if let Some(template) = &given.template {
        body.insert("template".to_owned(), template.as_str().into());
    }
    if !given.allow.is_empty() {
        body.insert("network".to_owned(), given.allow.clone().into());
    } else if let Some(network) = &given.network {
        body.insert("network".to_owned(), network.as_str().into());
    }
    for (kind, flag, given) in
        [(LimitKind::Idle, "--idle", &given.idle), (LimitKind::Wall, "--wall", &given.wall)]
    {
        if let Some(given) = given {
            body.insert(Key::from(kind).wire().to_owned(), milliseconds(kind, flag, given)?);
        }
    }
    for (kind, flag, given) in [
        (LimitKind::Memory, "--memory", &given.memory),
        (LimitKind::Processes, "--processes", &given.processes),
    ] {
        if let Some(given) = given {
            body.insert(Key::from(kind).wire().to_owned(), amount(kind, flag, given)?);
        }
    }
    let made = Client::new(&given.server)?.post("/v1/sandboxes", &Value::Object(body))?;
    Ok(print_reply(given.server.json, &made, made["sandbox_id"].as_str().unwrap_or_default()))
}

fn list(given: &SandboxList) -> Result<ExitCode, CommandFailure> {
    let listed = Client::new(&given.server)?.get("/v1/sandboxes")?;
    if given.server.json {
        render::print(&format!("{listed}\n"));
        return Ok(ExitCode::SUCCESS);
    }
    let line = |[id, template, runs, durability, age]: [&str; 5]| {
        format!("{id:<14}{template:<16}{runs:>4}  {durability:<12}{age}\n")
    };
    let mut text = line(HEAD);
    let now = calendar_milliseconds();
    for sandbox in listed["sandboxes"].as_array().into_iter().flatten() {
        let age = now.saturating_sub(sandbox["created_at_ms"].as_u64().unwrap_or(now)) / 1_000;
        let age = written(LimitKind::Wall.into(), Some(age * 1_000_000_000));
        let field = |name: &str| printable(sandbox[name].as_str().unwrap_or_default());
        let [id, template, durability] = ["sandbox_id", "template", "durability"].map(field);
        text.push_str(&line([&id, &template, &sandbox["runs"].to_string(), &durability, &age]));
    }
    render::print(&text);
    Ok(ExitCode::SUCCESS)
}

fn change(given: &OneSandbox, action: &str, done: &str) -> Result<ExitCode, CommandFailure> {
    let id = checked_sandbox_id(&given.id)?;
    let changed = Client::new(&given.server)?.post(&format!("/v1/sandboxes/{id}/{action}"), &json!({}))?;
    Ok(print_reply(given.server.json, &changed, done))
}

fn extend(given: &SandboxExtend) -> Result<ExitCode, CommandFailure> {
    let (id, by) = (checked_sandbox_id(&given.id)?, added(&given.by)?);
    let body = json!({"by_ms": by.div_ceil(1_000_000)});
    let extended = Client::new(&given.server)?.post(&format!("/v1/sandboxes/{id}/extend"), &body)?;
    let text = match extended["wall_left_ms"].as_u64() {
        Some(left) => {
            // In whole seconds, if that is exact enough.
            let shown = if left < 10_000 { left } else { left - left % 1_000 };
            format!("{} left", written(LimitKind::Wall.into(), Some(shown * 1_000_000)))
        }
        None => "the sandbox has no wall-clock limit".to_owned(),
    };
    Ok(print_reply(given.server.json, &extended, &text))
}

fn delete(given: &OneSandbox) -> Result<ExitCode, CommandFailure> {
    let id = checked_sandbox_id(&given.id)?;
    Client::new(&given.server)?.delete(&format!("/v1/sandboxes/{id}"))?;
    Ok(print_reply(given.server.json, &json!({"sandbox_id": id, "deleted": true}), "deleted"))
}

fn expose(given: &SandboxExpose) -> Result<ExitCode, CommandFailure> {
    let id = checked_sandbox_id(&given.id)?;
    let mut body = json!({"port": given.port});
    if let Some(lifetime) = &given.lifetime {
        body["ttl_ms"] = milliseconds(LimitKind::Wall, "--for", lifetime)?;
    }
    let made = Client::new(&given.server)?.post(&format!("/v1/sandboxes/{id}/expose"), &body)?;
    Ok(print_reply(given.server.json, &made, made["url"].as_str().unwrap_or_default()))
}

fn execute(given: &SandboxExec) -> Result<ExitCode, CommandFailure> {
    let id = checked_sandbox_id(&given.id)?;
    let client = Client::new(&given.server)?;
    let mut body = Map::new();
    body.insert("command".to_owned(), given.command.clone().into());
    body.insert("attached".to_owned(), true.into());
    body.insert("wait_ms".to_owned(), WAIT_MILLISECONDS.into());
    body.insert("errors".to_owned(), "replace".into());
    if let Some(cwd) = &given.cwd {
        body.insert("cwd".to_owned(), cwd.as_str().into());
    }
    if let Some(wall) = &given.wall {
        body.insert("wall_ms".to_owned(), milliseconds(LimitKind::Wall, "--wall", wall)?);
    }
    let mut run = client.post(&format!("/v1/sandboxes/{id}/exec"), &Value::Object(body))?;
    while run["status"] != "ended" {
        let path = format!(
            "/v1/runs/{}?wait_ms={WAIT_MILLISECONDS}&errors=replace",
            run["run_id"].as_str().unwrap_or_default()
        );
        run = client.get(&path)?;
    }
    let outcome: Outcome = serde_json::from_value(run["outcome"].take())
        .map_err(|error| CommandFailure::usage(format!("the server's answer is not an outcome: {error}")))?;
    if given.server.json {
        render::print(&render::outcome_json(&outcome));
    } else {
        render::write(To::Stdout, outcome.stdout.as_bytes());
        render::write(To::Stderr, outcome.stderr.as_bytes());
        let last = if outcome.stderr.is_empty() { &outcome.stdout } else { &outcome.stderr };
        if let Some(verdict) = &outcome.verdict {
            render::verdict(verdict, None, !last.is_empty() && !last.ends_with('\n'));
        } else if let Some(error) = &outcome.error {
            let message = error["message"].as_str().unwrap_or("the run could not continue");
            render::report_error(&match error["code"].as_str() {
                Some("execute_failed") => format!("`{}`: {message}", given.command[0]),
                _ => message.to_owned(),
            });
        }
    }
    Ok(ExitCode::from(exit_code(&outcome)))
}

/// A duration as it was given by a flag.
fn milliseconds(kind: LimitKind, flag: &str, given: &std::ffi::OsStr) -> Result<Value, CommandFailure> {
    limit(kind, flag, given, |nanoseconds| nanoseconds.div_ceil(1_000_000))
}

/// A limit of bytes or pieces, as the server takes it.
fn amount(kind: LimitKind, flag: &str, given: &std::ffi::OsStr) -> Result<Value, CommandFailure> {
    limit(kind, flag, given, |amount| amount)
}

fn limit(
    kind: LimitKind,
    flag: &str,
    given: &std::ffi::OsStr,
    on_wire: impl Fn(u64) -> u64,
) -> Result<Value, CommandFailure> {
    let text =
        given.to_str().ok_or_else(|| CommandFailure::usage(format!("{flag}: the value is not text")))?;
    Ok(match parse_string(flag, Format::flag(kind), text, "the command line")? {
        Setting::At(value) => on_wire(value).into(),
        Setting::Unlimited => "unlimited".into(),
        Setting::Inherit => Value::Null,
    })
}
