//! What happens, for operators: log lines of requests and runs, and their spans for a collector of
//! traces.
//!
//! Neither ever holds what was sent: no token, header, query, code, command or output. A run's span
//! lies in that of the request that asked for it, and that one in the caller's, where it names it
//! (`traceparent`). The spans of a job's scopes are a trace.

mod otlp;

use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::sync::LazyLock;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::Response;
use sandtimer::model::{Layer, Outcome};
use sandtimer::scope::ScopeId;
use sandtimer_jobs::executor::{EndedScope, Observer};
use sandtimer_os::clock::{calendar_milliseconds, monotonic_nanoseconds};
use serde_json::{Map, Value, json};

use crate::SharedApp;
use crate::registry::OwnedResource;
use crate::runs::LiveRun;

pub(crate) use otlp::Traces;
pub use otlp::{Collector, CollectorError};

/// A span's place: its trace, itself, and the span around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpanContext {
    trace: u128,
    span: u64,
    parent: Option<u64>,
}

/// A span that has ended.
#[derive(Debug)]
pub(crate) struct Span {
    context: SpanContext,
    name: String,
    /// The span belongs to the request of a client.
    is_server: bool,
    /// Nanoseconds since 1970.
    start: u64,
    end: u64,
    attributes: Map<String, Value>,
    failed: bool,
}

tokio::task_local! {
    static CURRENT_SPAN: SpanContext;
}

/// The current span.
pub(crate) fn current_span() -> Option<SpanContext> {
    CURRENT_SPAN.try_with(|span_context| *span_context).ok()
}

/// Does something as a part of what is done here, on another thread.
pub(crate) fn within<T>(span_context: Option<SpanContext>, work: impl FnOnce() -> T) -> T {
    match span_context {
        Some(span_context) => CURRENT_SPAN.sync_scope(span_context, work),
        None => work(),
    }
}

fn random<const COUNT: usize>() -> [u8; COUNT] {
    let mut bytes = [0u8; COUNT];
    // The kernel's generator does not fail for so few bytes once the machine is up.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    bytes
}

impl SpanContext {
    /// In the span that the caller names, else in a trace of its own.
    fn of(headers: &HeaderMap) -> Self {
        let named = headers.get("traceparent").and_then(|value| parent(value.to_str().ok()?));
        let (trace, parent) =
            named.map_or_else(|| (u128::from_ne_bytes(random()), None), |(trace, span)| (trace, Some(span)));
        SpanContext { trace, span: u64::from_ne_bytes(random()), parent }
    }

    /// Numbers of scopes are unique within a process: the random part of this one's distinguishes
    /// them from those of others.
    fn of_job(scope: &EndedScope<'_>) -> Self {
        static SCOPE_HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let [high, low] = [0u8, 1].map(|half| {
            let mut hasher = DefaultHasher::new();
            (half, scope.job).hash(&mut hasher);
            u128::from(hasher.finish())
        });
        // No span and no trace has the number 0.
        let span = |id: ScopeId| SCOPE_HASHER.hash_one(id).max(1);
        SpanContext { trace: (high << 64 | low).max(1), span: span(scope.id), parent: scope.parent.map(span) }
    }

    fn inside(self) -> Self {
        SpanContext { trace: self.trace, span: u64::from_ne_bytes(random()), parent: Some(self.span) }
    }
}

/// `00-<trace>-<span>-<flags>`; W3C Trace Context.
fn parent(text: &str) -> Option<(u128, u64)> {
    let parts: Vec<&str> = text.split('-').collect();
    let [version, trace, span, flags, ..] = parts[..] else { return None };
    let lengths = [version.len(), trace.len(), span.len(), flags.len()];
    let (trace, span) = (u128::from_str_radix(trace, 16).ok()?, u64::from_str_radix(span, 16).ok()?);
    (lengths == [2, 32, 16, 2] && version != "ff" && trace != 0 && span != 0).then_some((trace, span))
}

/// The layer in front of all handlers that traces how each request was answered.
pub(crate) async fn observe(State(app): State<SharedApp>, request: Request, next: Next) -> Response {
    let span_context = SpanContext::of(request.headers());
    let method: Method = request.method().clone();
    // The pattern of the path: names and ids of what is asked for stay out.
    let route = request.extensions().get::<MatchedPath>().map_or("-", MatchedPath::as_str).to_owned();
    let (start, began) = (calendar_milliseconds() * 1_000_000, monotonic_nanoseconds());
    let response = CURRENT_SPAN.scope(span_context, next.run(request)).await;
    let took = monotonic_nanoseconds() - began;
    let status = response.status().as_u16();
    tracing::debug!(
        trace = format_args!("{:032x}", span_context.trace),
        method = method.as_str(),
        route,
        status,
        ms = took / 1_000_000,
        "request"
    );
    let mut attributes = Map::new();
    attributes.insert("http.request.method".to_owned(), method.as_str().into());
    attributes.insert("http.route".to_owned(), route.as_str().into());
    attributes.insert("http.response.status_code".to_owned(), status.into());
    let name = format!("{method} {route}");
    app.traces.emit(|| Span {
        context: span_context,
        name,
        is_server: true,
        start,
        end: start + took,
        attributes,
        failed: status >= 500,
    });
    response
}

/// Logs that a run has begun.
pub(crate) fn begun(run: &LiveRun) {
    tracing::info!(run_id = run.id(), owner = run.owner().as_str(), "run began");
}

/// Logs and traces how a run ended.
pub(crate) fn ended(app: &SharedApp, run: &LiveRun, outcome: &Outcome, ended_at_ms: u64) {
    let mut facts = Map::new();
    let mut fact = |name: &str, value: Value| {
        if !value.is_null() {
            facts.insert(name.to_owned(), value);
        }
    };
    fact("run_id", run.id().into());
    fact("owner", run.owner().as_str().into());
    fact("ending", wire_value(&outcome.ending));
    fact("ok", outcome.ok.into());
    fact("exit_code", outcome.exit_code.into());
    fact("wall_ms", outcome.usage.wall_ms.into());
    fact("survivors", outcome.tree.survivors.into());
    fact("tier", wire_value(&outcome.isolation.tier));
    if let Some(verdict) = &outcome.verdict {
        fact("limit_kind", wire_value(&verdict.kind));
        fact("limit_ms", verdict.limit_ms.into());
        fact("layer", wire_value(&verdict.layer));
        fact("source", wire_value(&verdict.source));
        fact("late_ms", verdict.late_ms.into());
    }
    let shown =
        |name: &str| facts.get(name).map(|value| value.as_str().map_or(value.to_string(), str::to_owned));
    tracing::info!(
        run_id = run.id(),
        owner = run.owner().as_str(),
        ending = shown("ending"),
        exit_code = outcome.exit_code,
        limit_kind = shown("limit_kind"),
        layer = shown("layer"),
        limit_ms = shown("limit_ms"),
        late_ms = shown("late_ms"),
        wall_ms = outcome.usage.wall_ms,
        survivors = outcome.tree.survivors,
        "run ended"
    );
    app.traces.emit(|| Span {
        context: run.span_context().map_or_else(|| SpanContext::of(&HeaderMap::new()), SpanContext::inside),
        name: "run".to_owned(),
        is_server: false,
        start: run.created_at_ms() * 1_000_000,
        end: ended_at_ms * 1_000_000,
        attributes: facts.into_iter().map(|(name, value)| (format!("sandtimer.{name}"), value)).collect(),
        failed: !outcome.ok,
    });
}

/// The scopes of jobs. All spans of one job are of one trace, whichever server executes it.
impl Observer for Traces {
    fn ended(&self, scope: &EndedScope<'_>) {
        let end = calendar_milliseconds() * 1_000_000;
        let took = u64::try_from(scope.took.as_nanos()).unwrap_or(u64::MAX);
        let layer = wire_value(&scope.layer);
        let name = layer.as_str().unwrap_or_default().to_owned();
        // Of its path no name of the job's author's.
        let number = scope.path.rsplit('-').next().and_then(|number| number.parse::<u64>().ok());
        let number = number.filter(|_| matches!(scope.layer, Layer::Turn | Layer::Attempt));
        let facts = [("job_id", json!(scope.job)), ("layer", layer), ("number", json!(number))];
        let facts = facts.into_iter().filter(|(_, value)| !value.is_null());
        self.emit(|| Span {
            context: SpanContext::of_job(scope),
            name,
            is_server: false,
            start: end.saturating_sub(took),
            end,
            attributes: facts.map(|(name, value)| (format!("sandtimer.{name}"), value)).collect(),
            failed: scope.failed,
        });
    }
}

/// Its name on the wire.
fn wire_value(value: &impl serde::Serialize) -> Value {
    // Plain data always serialises.
    serde_json::to_value(value).unwrap_or_default()
}

/// An attribute as collectors read it.
fn attribute(name: &str, value: &Value) -> Value {
    let value = match value {
        Value::Bool(flag) => json!({"boolValue": flag}),
        Value::Number(number) if number.is_f64() => json!({"doubleValue": number}),
        // 64-bit numbers are texts there.
        Value::Number(number) => json!({"intValue": number.to_string()}),
        Value::String(text) => json!({"stringValue": text}),
        other => json!({"stringValue": other.to_string()}),
    };
    json!({"key": name, "value": value})
}

impl Span {
    /// As collectors read it.
    fn json(&self) -> Value {
        let attributes = self.attributes.iter().map(|(name, value)| attribute(name, value));
        let mut span = json!({
            "traceId": format!("{:032x}", self.context.trace),
            "spanId": format!("{:016x}", self.context.span),
            "name": self.name,
            // SPAN_KIND_SERVER, SPAN_KIND_INTERNAL.
            "kind": if self.is_server { 2 } else { 1 },
            "startTimeUnixNano": self.start.to_string(),
            "endTimeUnixNano": self.end.max(self.start).to_string(),
            "attributes": attributes.collect::<Vec<_>>(),
            // STATUS_CODE_ERROR, STATUS_CODE_UNSET.
            "status": {"code": if self.failed { 2 } else { 0 }},
        });
        if let Some(parent) = self.context.parent {
            span["parentSpanId"] = format!("{parent:016x}").into();
        }
        span
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_names_its_span_by_the_standard_or_not_at_all() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let good = format!("00-{trace}-b7ad6b7169203331-01");
        assert_eq!(parent(&good), Some((0x0af7651916cd43dd8448eb211c80319c, 0xb7ad6b7169203331)));
        for wrong in ["", "00", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0-1-01"] {
            assert_eq!(parent(wrong), None, "{wrong}");
        }
        assert_eq!(parent(&format!("00-{}-b7ad6b7169203331-01", "0".repeat(32))), None);
    }
}
