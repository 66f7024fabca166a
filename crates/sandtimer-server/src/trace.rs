//! What happens, for operators: log lines of requests and runs, and their spans for a collector of
//! traces.
//!
//! Neither ever holds what was sent: no token, header, query, code, command or output. A run's span
//! lies in that of the request that asked for it, and that one in the caller's, where it names it
//! (`traceparent`). The spans of a job's scopes are a trace.

mod otlp;
mod span;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::Response;
use sandtimer::model::{Layer, Outcome};
use sandtimer_jobs::executor::{EndedScope, Observer};
use sandtimer_os::clock::{calendar_milliseconds, monotonic_nanoseconds};
use serde_json::{Map, Value, json};

use span::Span;

pub(crate) use otlp::Traces;
pub use otlp::{Collector, CollectorError};
pub(crate) use span::SpanContext;

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

/// The layer in front of all handlers that traces how each request was answered.
pub(crate) async fn observe(State(traces): State<Traces>, request: Request, next: Next) -> Response {
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
    traces.emit(|| Span {
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

/// What a run's log lines and its span have of it besides its Outcome.
#[derive(Debug)]
pub(crate) struct RunSpan<'a> {
    pub run_id: &'a str,
    pub owner: &'a str,
    /// The request that asked for it.
    pub requested_in: Option<SpanContext>,
    pub created_at_ms: u64,
}

impl RunSpan<'_> {
    /// Logs that the run has begun.
    pub fn begun(&self) {
        tracing::info!(run_id = self.run_id, owner = self.owner, "run began");
    }

    /// Logs and traces how the run ended.
    pub fn ended(&self, traces: &Traces, outcome: &Outcome, ended_at_ms: u64) {
        let mut facts = Map::new();
        let mut fact = |name: &str, value: Value| {
            if !value.is_null() {
                facts.insert(name.to_owned(), value);
            }
        };
        fact("run_id", self.run_id.into());
        fact("owner", self.owner.into());
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
            run_id = self.run_id,
            owner = self.owner,
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
        traces.emit(|| Span {
            context: self
                .requested_in
                .map_or_else(|| SpanContext::of(&HeaderMap::new()), SpanContext::inside),
            name: "run".to_owned(),
            is_server: false,
            start: self.created_at_ms * 1_000_000,
            end: ended_at_ms * 1_000_000,
            attributes: facts.into_iter().map(|(name, value)| (format!("sandtimer.{name}"), value)).collect(),
            failed: !outcome.ok,
        });
    }
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
