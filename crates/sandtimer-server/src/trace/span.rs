//! One span, its place among the others, and its form for collectors.

use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::sync::LazyLock;

use axum::http::HeaderMap;
use sandtimer::scope::ScopeId;
use sandtimer_jobs::executor::EndedScope;
use serde_json::{Map, Value, json};

/// A span's place: its trace, itself, and the span around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpanContext {
    pub trace: u128,
    span: u64,
    parent: Option<u64>,
}

/// A span that has ended.
#[derive(Debug)]
pub(crate) struct Span {
    pub context: SpanContext,
    pub name: String,
    /// The span belongs to the request of a client.
    pub is_server: bool,
    /// Nanoseconds since 1970.
    pub start: u64,
    pub end: u64,
    pub attributes: Map<String, Value>,
    pub failed: bool,
}

fn random<const COUNT: usize>() -> [u8; COUNT] {
    let mut bytes = [0u8; COUNT];
    // The kernel's generator does not fail for so few bytes once the machine is up.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    bytes
}

impl SpanContext {
    /// In the span that the caller names, else in a trace of its own.
    pub fn of(headers: &HeaderMap) -> Self {
        let named = headers.get("traceparent").and_then(|value| parent(value.to_str().ok()?));
        let (trace, parent) =
            named.map_or_else(|| (u128::from_ne_bytes(random()), None), |(trace, span)| (trace, Some(span)));
        SpanContext { trace, span: u64::from_ne_bytes(random()), parent }
    }

    /// Numbers of scopes are unique within a process: the random part of this one's distinguishes
    /// them from those of others.
    pub fn of_job(scope: &EndedScope<'_>) -> Self {
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

    pub fn inside(self) -> Self {
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

/// An attribute as collectors read it.
pub(super) fn attribute(name: &str, value: &Value) -> Value {
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
    pub fn json(&self) -> Value {
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
