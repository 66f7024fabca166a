//! What the interfaces have in common on the wire.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::Value;

use crate::body;

/// An error in a system's own shape. `scheme` is how its clients authenticate, for those without a
/// token.
pub(super) fn error_response(status: u16, error: &Value, scheme: &'static str) -> Response {
    let mut response = body::json(error);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if status == 401 {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(scheme));
    }
    response
}

/// A number, which may be written as text.
pub(super) fn number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number.filter(|number| number.is_finite())
}

/// Base64 with or without line breaks.
pub(super) fn decoded(text: &str) -> Option<Vec<u8>> {
    let compact: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    crate::intake::decode(compact.len(), || BASE64_STANDARD.decode(&compact)).ok()
}
