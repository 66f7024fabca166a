//! Code contexts, and what is executed in them: output as it comes, results at the end, then one
//! event that says how it ended.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Extension, State};
use axum::response::Response;
use axum::routing::{delete, post};
use sandtimer::model::{Ending, Outcome};
use serde_json::{Map, Value, json};

use super::execute::{begin_in, note};
use super::failure::ContainerFailure;
use super::frames::{CommandFrames, respond};
use super::sandbox::{self, SessionRequest, WORKSPACE};
use super::{BodyFields, Caller, success};
use crate::body::Id;
use crate::connection::Connection;
use crate::contexts::{self, CellRequest, ContextLanguage, LiveContext};
use crate::registry::OwnedResource;
use crate::state::SharedApp;

/// What the package calls the kinds of results.
const RESULT_KINDS: [(&str, &str); 9] = [
    ("text/plain", "text"),
    ("text/html", "html"),
    ("image/png", "png"),
    ("image/jpeg", "jpeg"),
    ("image/svg+xml", "svg"),
    ("text/latex", "latex"),
    ("text/markdown", "markdown"),
    ("application/javascript", "javascript"),
    ("application/vnd.dataresource+json", "data"),
];

pub(super) fn routes() -> Router<SharedApp> {
    Router::new()
        .route("/api/contexts", post(create).get(list))
        .route("/api/contexts/{id}", delete(remove))
        .route("/api/execute/code", post(execute))
        .route("/api/interpreter/health", axum::routing::get(super::ping))
}

/// A context with the fields that the package reads back.
#[derive(Debug, Clone)]
pub(super) struct CodeContext {
    context: Arc<LiveContext>,
    name: &'static str,
    directory: String,
}

/// The language that is meant, by its name there and here.
fn language(name: &str) -> Result<(&'static str, ContextLanguage), ContainerFailure> {
    match name.to_ascii_lowercase().as_str() {
        "python" | "python3" => Ok(("python", ContextLanguage::Python)),
        "javascript" | "js" | "node" => Ok(("javascript", ContextLanguage::JavaScript)),
        "typescript" | "ts" => Ok(("typescript", ContextLanguage::TypeScript)),
        other => {
            let shown: String = other.chars().take(60).collect();
            Err(ContainerFailure::invalid(
                "language",
                &format!("`{shown}` is not python, javascript or typescript"),
            ))
        }
    }
}

fn not_found(id: &str) -> ContainerFailure {
    let shown: String = id.chars().take(60).collect();
    ContainerFailure::new(404, "CONTEXT_NOT_FOUND", format!("Context {shown} not found"))
        .with("contextId", shown)
}

fn find(app: &SharedApp, caller: &Caller, id: &str) -> Result<CodeContext, ContainerFailure> {
    let mut contexts = caller.sandbox.contexts();
    let found = contexts.get(id).cloned().ok_or_else(|| not_found(id))?;
    if app.contexts.find(id, found.context.owner()).is_none() {
        // It was not used for too long, or was deleted under its other name.
        contexts.remove(id);
        return Err(not_found(id));
    }
    Ok(found)
}

async fn create(
    State(app): State<SharedApp>,
    caller: Caller,
    BodyFields(mut fields): BodyFields,
) -> Result<Response, ContainerFailure> {
    let (name, language) = language(&fields.string("language")?.unwrap_or_else(|| "python".to_owned()))?;
    let directory = sandbox::directory(&mut fields)?.unwrap_or_else(|| WORKSPACE.to_owned());
    let request = SessionRequest {
        environment: sandbox::variables(&mut fields, "env_vars")?.into_iter().collect(),
        directory: Some(directory.clone()),
        ..SessionRequest::default()
    };
    let context = caller.sandbox.open(&app, language, request).await?;
    let id = context.id_str().to_owned();
    let kept = CodeContext { context, name, directory: directory.clone() };
    caller.sandbox.contexts().insert(id.clone(), kept);
    Ok(success(json!({"contextId": id, "language": name, "cwd": directory})))
}

async fn list(State(app): State<SharedApp>, caller: Caller) -> Response {
    let mut contexts = caller.sandbox.contexts();
    contexts.retain(|id, kept| app.contexts.find(id, kept.context.owner()).is_some());
    let mut kept: Vec<&CodeContext> = contexts.values().collect();
    kept.sort_by_key(|kept| kept.context.created_at_ms());
    let views = kept
        .iter()
        .map(|kept| json!({"id": kept.context.id_str(), "language": kept.name, "cwd": kept.directory}));
    success(json!({"contexts": views.collect::<Vec<Value>>()}))
}

async fn remove(
    State(app): State<SharedApp>,
    caller: Caller,
    Id(id): Id,
) -> Result<Response, ContainerFailure> {
    let found = find(&app, &caller, &id)?;
    contexts::close(&app.contexts, &found.context).await;
    caller.sandbox.contexts().remove(&id);
    Ok(success(json!({"contextId": id})))
}

async fn execute(
    State(app): State<SharedApp>,
    caller: Caller,
    Extension(connection): Extension<Arc<Connection>>,
    BodyFields(mut fields): BodyFields,
) -> Result<Response, ContainerFailure> {
    let missing = |key: &str| ContainerFailure::invalid(key, "give it as a string");
    let id = fields.string("context_id")?.ok_or_else(|| missing("context_id"))?;
    let source = fields.string("code")?.ok_or_else(|| missing("code"))?;
    let limits = sandbox::timeout(&mut fields, "timeout_ms")?;
    let wanted = fields.string("language")?.map(|name| language(&name)).transpose()?;
    let found = find(&app, &caller, &id)?;
    if wanted.is_some_and(|(name, _)| name != found.name) {
        let message = format!("Context {id} executes {}", found.name);
        return Err(ContainerFailure::new(500, "CODE_EXECUTION_ERROR", message).with("contextId", id));
    }
    let run = begin_in(&app, &found.context, CellRequest::of(source, limits), &connection).await;
    let run = run.map_err(|failure| match find(&app, &caller, &id) {
        Ok(_) => failure,
        Err(gone) => gone,
    })?;
    Ok(respond(CommandFrames::code(run, connection), app.core.messages.heartbeat))
}

/// The frames at the end of a cell: its results, and how it ended.
pub(super) fn end(outcome: &Outcome) -> Vec<Value> {
    let mut frames: Vec<Value> = outcome.results.iter().filter_map(result).collect();
    frames.push(match failed(outcome) {
        Some(error) => error,
        None => json!({"type": "execution_complete", "execution_count": outcome.execution_count}),
    });
    frames
}

/// A result by the names of the package, which knows `json` for what is more than its text says.
fn result(bundle: &Value) -> Option<Value> {
    let bundle = bundle.as_object()?;
    let mut event =
        Map::from_iter([("type".to_owned(), json!("result")), ("metadata".to_owned(), json!({}))]);
    for (kind, name) in RESULT_KINDS {
        if let Some(data) = bundle.get(kind) {
            event.insert(name.to_owned(), data.clone());
        }
    }
    let json = bundle.get("application/json").filter(|json| json.is_object() || json.is_array());
    if let Some(json) = json {
        event.insert("json".to_owned(), json.clone());
    }
    if let Some(Value::Object(mut chart)) = chart(bundle) {
        chart.retain(|_, value| !value.is_null());
        event.insert("chart".to_owned(), chart.into());
    }
    Some(Value::Object(event))
}

/// The data that a plotting library gives of its chart, by the names of the package.
fn chart(bundle: &Map<String, Value>) -> Option<Value> {
    if let Some(figure) = bundle.get("application/vnd.plotly.v1+json") {
        let (first, title) = (&figure["data"][0], &figure["layout"]["title"]);
        let kind = match (first["type"].as_str(), first["mode"].as_str()) {
            (None | Some("scatter"), Some(mode)) if mode.contains("lines") => "line",
            // The default.
            (None, _) => "scatter",
            (Some(kind @ ("bar" | "scatter" | "pie" | "histogram" | "heatmap")), _) => kind,
            _ => "unknown",
        };
        let title = title.get("text").unwrap_or(title);
        return Some(json!({
            "type": kind, "title": title.as_str(), "data": figure["data"], "layout": figure["layout"],
            "config": figure["config"], "library": "plotly",
        }));
    }
    let (_, figure) = bundle.iter().find(|(kind, _)| kind.starts_with("application/vnd.vegalite."))?;
    let (mark, title) = (&figure["mark"], &figure["title"]);
    let kind = match mark.get("type").unwrap_or(mark).as_str() {
        Some(kind @ ("line" | "bar")) => kind,
        Some("point" | "circle" | "square") => "scatter",
        Some("arc") => "pie",
        Some("rect") => "heatmap",
        _ => "unknown",
    };
    let title = title.get("text").unwrap_or(title).as_str();
    Some(json!({"type": kind, "title": title, "data": figure, "library": "altair"}))
}

/// What went wrong: an exception of the code, or what ended it.
fn failed(outcome: &Outcome) -> Option<Value> {
    if outcome.ending == Ending::Returned {
        return None;
    }
    let error = outcome.error.as_ref();
    let error_field = |key: &str| error.and_then(|error| error[key].as_str()).map(str::to_owned);
    let (name, message) = match (outcome.ending, note(outcome)) {
        (Ending::Raised, _) => (error_field("type"), error_field("message")),
        (Ending::Timeout | Ending::Stalled, Some(note)) => {
            let note = note.replacen("Command timeout", "Execution timeout", 1);
            (Some("TimeoutError".to_owned()), Some(note))
        }
        (Ending::OutOfMemory, note) => (Some("MemoryError".to_owned()), note),
        (_, Some(note)) => (Some("ExecutionEnded".to_owned()), Some(note)),
        (_, None) => {
            let how = match (outcome.exit_code, &outcome.signal) {
                (Some(code), _) => format!("by exit code {code}"),
                (_, Some(signal)) => format!("by {signal}"),
                _ => "without an answer".to_owned(),
            };
            (Some("InterpreterExited".to_owned()), Some(format!("the code ended its interpreter {how}")))
        }
    };
    let traceback: Vec<String> =
        error_field("traceback").unwrap_or_default().lines().map(str::to_owned).collect();
    Some(json!({
        "type": "error",
        "ename": name.unwrap_or_else(|| "Error".to_owned()),
        "evalue": message.unwrap_or_default(),
        "traceback": traceback,
        "state": outcome.state,
        "verdict": outcome.verdict,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_of_known_libraries_have_package_names() {
        let render_chart =
            |kind: &str, figure: Value| result(&json!({"text/plain": "a chart", kind: figure}));
        let plotly = "application/vnd.plotly.v1+json";
        for (trace, kind) in [
            (json!({"type": "bar", "y": [1, 2]}), "bar"),
            (json!({"type": "scatter", "mode": "lines+markers"}), "line"),
            (json!({"mode": "lines"}), "line"),
            (json!({"y": [1]}), "scatter"),
            (json!({"type": "sankey"}), "unknown"),
        ] {
            let figure = json!({"data": [trace], "layout": {"title": {"text": "Sales"}}, "config": {"a": 1}});
            let shown = render_chart(plotly, figure.clone()).expect("a result");
            let chart = &shown["chart"];
            assert_eq!(
                (&chart["type"], &chart["title"], &chart["library"]),
                (&json!(kind), &json!("Sales"), &json!("plotly"))
            );
            assert_eq!(
                (&chart["data"], &chart["layout"], &chart["config"]),
                (&figure["data"], &figure["layout"], &figure["config"])
            );
        }
        for (mark, kind) in
            [(json!("point"), "scatter"), (json!({"type": "bar"}), "bar"), (json!(null), "unknown")]
        {
            let figure = json!({"mark": mark, "title": "Sales", "encoding": {}});
            let shown = render_chart("application/vnd.vegalite.v5+json", figure.clone()).expect("a result");
            let wanted = json!({"type": kind, "title": "Sales", "data": figure, "library": "altair"});
            assert_eq!((&shown["chart"], &shown["text"]), (&wanted, &json!("a chart")));
        }
        assert_eq!(render_chart("text/html", json!("<b>")).expect("a result").get("chart"), None);
    }
}
