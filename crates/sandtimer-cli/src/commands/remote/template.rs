//! `sandtimer template`, and `sandtimer sandbox snapshot` and `fork`.

use std::process::ExitCode;

use sandtimer::model::LimitKind;
use sandtimer_os::clock::calendar_milliseconds;
use serde_json::{Value, json};

use super::super::CommandFailure;
use super::archive;
use super::arguments::{checked_sandbox_id, checked_template_name};
use super::client::{Client, printable};
use super::reply::print_reply;
use crate::args::template::{
    SandboxFork, SandboxSnapshot, TemplateAction, TemplateArguments, TemplateDelete, TemplateList,
};
use crate::config::written;
use crate::render;

const HEAD: [&str; 5] = ["NAME", "KIND", "OWNER", "SIZE", "AGE"];

pub(crate) fn main(given: &TemplateArguments) -> Result<ExitCode, CommandFailure> {
    match &given.action {
        TemplateAction::Import(given) => archive::import(given),
        TemplateAction::List(given) => list(given),
        TemplateAction::Delete(given) => delete(given),
    }
}

pub(super) fn snapshot(given: &SandboxSnapshot) -> Result<ExitCode, CommandFailure> {
    let id = checked_sandbox_id(&given.id)?;
    let body = given.name.as_ref().map_or(json!({}), |name| json!({"name": name}));
    let made = Client::new(&given.server)?.post(&format!("/v1/sandboxes/{id}/snapshot"), &body)?;
    Ok(print_reply(given.server.json, &made, made["name"].as_str().unwrap_or_default()))
}

pub(super) fn fork(given: &SandboxFork) -> Result<ExitCode, CommandFailure> {
    let id = checked_sandbox_id(&given.id)?;
    let body = json!({"count": given.count});
    let made = Client::new(&given.server)?.post(&format!("/v1/sandboxes/{id}/fork"), &body)?;
    let ids = made["sandboxes"].as_array().into_iter().flatten();
    let ids: Vec<&str> = ids.filter_map(|sandbox| sandbox["sandbox_id"].as_str()).collect();
    Ok(print_reply(given.server.json, &made, &ids.join("\n")))
}

fn list(given: &TemplateList) -> Result<ExitCode, CommandFailure> {
    let listed = Client::new(&given.server)?.get("/v1/templates")?;
    if given.server.json {
        render::print(&format!("{listed}\n"));
        return Ok(ExitCode::SUCCESS);
    }
    let line = |[name, kind, owner, size, age]: [&str; 5]| {
        format!("{name:<20}{kind:<11}{owner:<14}{size:>9}  {age}\n")
    };
    let mut text = line(HEAD);
    let now = calendar_milliseconds();
    for template in listed["templates"].as_array().into_iter().flatten() {
        let field = |name: &str| printable(template[name].as_str().unwrap_or("-"));
        let age = template["created_at_ms"].as_u64().map(|made| now.saturating_sub(made) / 1_000);
        let age = age.map(|age| written(LimitKind::Wall.into(), Some(age * 1_000_000_000)));
        let size = size(&template["size_bytes"]);
        let [name, kind, owner] = ["name", "kind", "owner"].map(field);
        text.push_str(&line([&name, &kind, &owner, &size, age.as_deref().unwrap_or("-")]));
    }
    render::print(&text);
    Ok(ExitCode::SUCCESS)
}

/// Bytes, for a column.
fn size(bytes: &Value) -> String {
    match bytes.as_u64() {
        None => "-".to_owned(),
        Some(bytes) if bytes < 1 << 20 => format!("{}K", bytes.div_ceil(1 << 10)),
        Some(bytes) => format!("{}M", bytes.div_ceil(1 << 20)),
    }
}

fn delete(given: &TemplateDelete) -> Result<ExitCode, CommandFailure> {
    let name = checked_template_name(&given.name)?;
    Client::new(&given.server)?.delete(&format!("/v1/templates/{name}"))?;
    Ok(print_reply(given.server.json, &json!({"template": name, "deleted": true}), "deleted"))
}
