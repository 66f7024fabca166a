//! The body of a webhook's request: a job's end with its result.

use serde_json::Value;

use super::result::JobResult;
use super::store::JobLine;

/// The longest body; of a longer result the body has only how it ended.
const MAX_BODY_BYTES: usize = 1 << 20;

/// Returns the body of a request: the job's end and its result without the output, which the log
/// has. If that is longer than 1 MiB, the result has only how the job ended, and its files.
pub fn webhook_body(line: &JobLine, result: Option<&JobResult>) -> Vec<u8> {
    let complete = body_with(line, result);
    if complete.len() <= MAX_BODY_BYTES {
        return complete;
    }
    let bare = |result: &JobResult| JobResult {
        verdict: result.verdict.clone(),
        files: result.files.clone(),
        ..JobResult::bare(result.status, result.error.clone())
    };
    body_with(line, result.map(bare).as_ref())
}

fn body_with(line: &JobLine, result: Option<&JobResult>) -> Vec<u8> {
    // Plain data with string keys always serialises.
    let mut result = serde_json::to_value(result).unwrap_or_default();
    if let Some(outcome) = result.get_mut("outcome").and_then(Value::as_object_mut) {
        outcome.remove("stdout");
        outcome.remove("stderr");
    }
    let body = serde_json::json!({
        "id": line.id,
        "name": line.name,
        "state": line.state,
        "ok": line.ok,
        "error": line.error,
        "submitted_ms": line.submitted_ms,
        "ended_ms": line.ended_ms,
        "deliveries": line.deliveries,
        "result": result,
    });
    body.to_string().into_bytes()
}
