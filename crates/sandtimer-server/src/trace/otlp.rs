//! Spans on their way to a collector: OTLP over HTTP, in JSON.
//!
//! A separate thread sends the gathered spans once a second. No other thread waits for it: spans
//! that a collector does not take in time are dropped, and their number is reported.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use sandtimer_os::clock::monotonic_nanoseconds;
use serde_json::{Value, json};

use super::span::{Span, attribute};

/// Spans that wait to be sent; more are dropped.
const MAX_WAITING_SPANS: usize = 4096;
/// Spans that are sent at a time, and how long they gather.
const MAX_BATCH_SPANS: usize = 512;
const GATHER_INTERVAL: Duration = Duration::from_secs(1);
/// How long a collector may take.
const COLLECTOR_TIMEOUT: Duration = Duration::from_secs(10);
/// How often it is logged that a collector does not answer.
const LOG_INTERVAL_NS: u64 = 60_000_000_000;

/// Where spans are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collector {
    endpoint: String,
    headers: Vec<(String, String)>,
    service: String,
}

/// Why a collector cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{variable}: `{value}` {problem}")]
pub struct CollectorError {
    variable: &'static str,
    value: String,
    problem: &'static str,
}

impl Collector {
    /// By the variables of OpenTelemetry; `None` where none of them names an endpoint.
    ///
    /// # Errors
    /// When one of them cannot be used here.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, CollectorError> {
        const EXACT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
        const BASE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
        const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
        let given = |name: &str| variable(name).filter(|value| !value.is_empty());
        let (name, endpoint) = match (given(EXACT), given(BASE)) {
            (Some(exact), _) => (EXACT, exact),
            (None, Some(base)) => (BASE, format!("{}/v1/traces", base.trim_end_matches('/'))),
            (None, None) => return Ok(None),
        };
        if !endpoint.starts_with("http://") {
            let problem = "is not an address that begins with http://; have a collector on this machine pass spans on by TLS";
            return Err(CollectorError { variable: name, value: endpoint, problem });
        }
        let mut headers = Vec::new();
        for pair in given(HEADERS).iter().flat_map(|list| list.split(',')) {
            // The value may be a secret: it is not repeated.
            let problem = "is not name=value";
            let (name, value) = pair.split_once('=').ok_or(CollectorError {
                variable: HEADERS,
                value: "a part of it".to_owned(),
                problem,
            })?;
            headers.push((name.trim().to_owned(), value.trim().to_owned()));
        }
        let service = given("OTEL_SERVICE_NAME").unwrap_or_else(|| "sandtimer".to_owned());
        Ok(Some(Collector { endpoint, headers, service }))
    }

    fn body(&self, spans: &[Value]) -> Value {
        let scope = json!({"name": "sandtimer", "version": env!("CARGO_PKG_VERSION")});
        let resource = json!({"attributes": [attribute("service.name", &self.service.as_str().into())]});
        json!({"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": spans}]}]})
    }
}

/// The way to the collector, if there is one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Traces(Option<SyncSender<Span>>);

impl Traces {
    /// Starts the thread that sends.
    pub fn start(collector: Option<Collector>) -> std::io::Result<Self> {
        let Some(collector) = collector else { return Ok(Traces(None)) };
        let (sender, receiver) = sync_channel(MAX_WAITING_SPANS);
        let send = move || SpanSender::new(collector).serve(&receiver);
        std::thread::Builder::new().name("st-traces".to_owned()).spawn(send)?;
        Ok(Traces(Some(sender)))
    }

    /// Whether spans are exported.
    pub fn are_wanted(&self) -> bool {
        self.0.is_some()
    }

    /// Sends a span, which is made only if spans are exported.
    pub fn emit(&self, span: impl FnOnce() -> Span) {
        if let Some(sender) = &self.0 {
            // If the channel is full, the collector is too slow, which the exporter's thread
            // reports.
            let _ = sender.try_send(span());
        }
    }
}

struct SpanSender {
    collector: Collector,
    agent: ureq::Agent,
    logged_at: Option<u64>,
}

impl SpanSender {
    fn new(collector: Collector) -> Self {
        let agent = ureq::Agent::config_builder().timeout_global(Some(COLLECTOR_TIMEOUT)).build().into();
        SpanSender { collector, agent, logged_at: None }
    }

    /// Runs until the server has ended, and all its spans are sent.
    fn serve(mut self, spans: &Receiver<Span>) {
        let mut gathered: Vec<Value> = Vec::new();
        let mut due = 0;
        loop {
            let now = monotonic_nanoseconds();
            if gathered.is_empty() {
                due = now + GATHER_INTERVAL.as_nanos() as u64;
            }
            let received = spans.recv_timeout(Duration::from_nanos(due.saturating_sub(now)));
            let (is_batch_due, no_more) =
                (received.is_err(), matches!(received, Err(RecvTimeoutError::Disconnected)));
            gathered.extend(received.iter().map(Span::json));
            // It has waited long enough, or nothing more comes.
            if gathered.len() >= MAX_BATCH_SPANS || is_batch_due {
                self.send(&gathered);
                gathered.clear();
            }
            if no_more {
                return;
            }
        }
    }

    fn send(&mut self, spans: &[Value]) {
        if spans.is_empty() {
            return;
        }
        let mut request = self.agent.post(&self.collector.endpoint);
        for (name, value) in &self.collector.headers {
            request = request.header(name, value);
        }
        let Err(error) = request.send_json(self.collector.body(spans)) else { return };
        let now = monotonic_nanoseconds();
        if self.logged_at.is_none_or(|at| now - at > LOG_INTERVAL_NS) {
            self.logged_at = Some(now);
            tracing::warn!(spans = spans.len(), %error, "the collector of traces does not take spans; they are dropped");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_those_of_the_standard_variables() {
        let read = |given: &[(&str, &str)]| {
            let given: Vec<_> =
                given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            Collector::from_variables(|name| {
                given.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone())
            })
        };
        assert_eq!(read(&[]).expect("valid"), None);
        let base = read(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=b, c=d=e"),
        ]);
        let base = base.expect("valid").expect("one");
        assert_eq!(base.endpoint, "http://c:4318/v1/traces");
        assert_eq!(base.headers, [("a".to_owned(), "b".to_owned()), ("c".to_owned(), "d=e".to_owned())]);
        let exact = read(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t/x"),
        ]);
        assert_eq!(exact.expect("valid").expect("one").endpoint, "http://t/x");
        assert!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "https://c")]).is_err());
        let secret =
            read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"), ("OTEL_EXPORTER_OTLP_HEADERS", "hush")]);
        assert!(!secret.expect_err("no pair").to_string().contains("hush"));
    }
}
