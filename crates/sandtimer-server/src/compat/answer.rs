//! Answers in the shape of that interface.

use axum::response::Response;
use sandtimer::time::instant;
use sandtimer_os::clock::calendar_milliseconds;
use serde_json::Value;

use crate::body;

/// An answer of this interface: the given fields, that it went well, and when.
pub(super) fn success(fields: Value) -> Response {
    body::json(&completed(fields))
}

/// The fields of such an answer.
pub(super) fn completed(mut fields: Value) -> Value {
    if fields.get("success").is_none() {
        fields["success"] = true.into();
    }
    fields["timestamp"] = now().into();
    fields
}

pub(super) fn now() -> String {
    instant(calendar_milliseconds())
}
