//! Errors in the shape of the package: `code`, `message`, `context`, `httpStatus`, `timestamp`, and
//! `suggestion`.
//!
//! A rejection of /v1 keeps the message of the registry; its code becomes the nearest for which the
//! package has a class. 503 is only for requests that are worth a retry: the package retries for
//! two minutes.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::answer::now;
use crate::body;
use crate::error::{ApiRejection, Code};

/// An interpreter that did not start in time; the package tries again.
const NOT_READY: &str = "INTERPRETER_NOT_READY";

/// What a sandbox may reach outside, as `network` of `POST /v1/sandboxes`.
pub(super) const NETWORK_HEADER: &str = "X-Sandbox-Network";

/// An error on its way to a client of the package.
#[derive(Debug, Clone)]
pub(super) struct ContainerFailure {
    status: u16,
    code: &'static str,
    message: String,
    context: Map<String, Value>,
    suggestion: Option<&'static str>,
}

impl ContainerFailure {
    pub fn new(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        ContainerFailure { status, code, message: message.into(), context: Map::new(), suggestion: None }
    }

    /// Adds a fact for programs.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.context.insert(key.to_owned(), value.into());
        self
    }

    /// A field that cannot have the value it has.
    pub fn invalid(field: &str, why: &str) -> Self {
        ContainerFailure::new(400, "VALIDATION_FAILED", format!("{field}: {why}")).with("key", field)
    }

    /// As [`ApiRejection::after_execution`]: clients of the package send again what is answered
    /// with 503.
    #[must_use]
    pub fn after_execution(mut self, run_id: Option<&str>) -> Self {
        if matches!(self.status, 429 | 503) {
            self.status = Code::AnswerUnavailable.status();
            self.code = "UNKNOWN_ERROR";
            self.message = format!("the request was carried out, but cannot be answered: {}", self.message);
            self.context.insert("reason".to_owned(), Code::AnswerUnavailable.name().into());
            self.suggestion = Some(Code::AnswerUnavailable.hint());
        }
        match run_id {
            Some(run_id) => self.with("run_id", run_id),
            None => self,
        }
    }

    /// That the sandbox of a name cannot be made now, which the package tries again.
    pub fn no_room(rejection: ApiRejection) -> Self {
        ContainerFailure {
            status: 503,
            code: "CONTAINER_UNAVAILABLE",
            suggestion: Some(
                "send the request again when a sandbox has ended, or delete one: GET /v1/sandboxes lists yours, DELETE \
                 /v1/sandboxes/ID deletes one with its files",
            ),
            ..ContainerFailure::from(rejection)
        }
    }

    pub fn code(&self) -> &'static str {
        self.code
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    pub fn status(&self) -> u16 {
        self.status
    }

    pub fn internal(message: &str) -> Self {
        ContainerFailure::new(500, "INTERNAL_ERROR", message)
    }
}

impl From<ApiRejection> for ContainerFailure {
    fn from(rejection: ApiRejection) -> Self {
        let ApiRejection { code, message, details } = rejection;
        let (status, name) = match code {
            Code::BadJson
            | Code::JsonTooLarge
            | Code::BadField
            | Code::UnknownField
            | Code::BadLimit
            | Code::NulByte
            | Code::TooLong => (400, "VALIDATION_FAILED"),
            Code::PathOutside | Code::FilePermission | Code::NetworkRefused => (403, "PERMISSION_DENIED"),
            Code::Refused => (422, "VALIDATION_FAILED"),
            Code::FileNotFound => (404, "FILE_NOT_FOUND"),
            Code::FileExists => (409, "FILE_EXISTS"),
            Code::FileBusy => (409, "RESOURCE_BUSY"),
            Code::WrongFileType => (400, "NOT_DIRECTORY"),
            Code::DirectoryNotEmpty => (409, "FILESYSTEM_ERROR"),
            Code::FileTooLarge => (413, "FILE_TOO_LARGE"),
            Code::RunNotFound => (404, "PROCESS_NOT_FOUND"),
            Code::ContextNotFound | Code::ContextEnded => (404, "CONTEXT_NOT_FOUND"),
            Code::CommandNotFound => (404, "COMMAND_NOT_FOUND"),
            Code::CommandNotExecutable => (403, "COMMAND_PERMISSION_DENIED"),
            Code::SpawnTimeout => (503, NOT_READY),
            // The next request makes another.
            Code::SandboxNotFound | Code::SandboxEnded => (503, "CONTAINER_UNAVAILABLE"),
            Code::SandboxPaused => (409, "RESOURCE_BUSY"),
            Code::Capacity | Code::ShuttingDown | Code::SandboxBusy => (503, "CONTAINER_UNAVAILABLE"),
            Code::System | Code::Storage | Code::Internal => (500, "INTERNAL_ERROR"),
            other => (other.status(), "UNKNOWN_ERROR"),
        };
        let mut context = details;
        context.insert("reason".to_owned(), code.name().into());
        ContainerFailure { status, code: name, message, context, suggestion: Some(suggestion(code)) }
    }
}

/// A remedy. The description that /v1 refers to does not cover this interface.
fn suggestion(code: Code) -> &'static str {
    match code {
        Code::BadField | Code::UnknownField => {
            "give it the type that `@cloudflare/sandbox` 0.12 sends; docs/compat.md lists what /api has, /openapi.json only /v1"
        }
        Code::NotFound | Code::MethodNotAllowed => {
            "use a path and method of `@cloudflare/sandbox` 0.12 that docs/compat.md lists for /api; /openapi.json has only /v1"
        }
        Code::SandboxNotFound | Code::SandboxEnded => {
            "send the request again: its sandbox is gone, and the next request makes another"
        }
        Code::NetworkRefused => {
            "leave the header X-Sandbox-Network out, or have the operator add `network`, or `network=HOST,HOST` for lists of hosts, to the token's line in the server's token file"
        }
        other => other.hint(),
    }
}

/// A rejection of the field `network` of /v1 as one of the header that has it here.
pub(super) fn header_failure(mut rejection: ApiRejection) -> ContainerFailure {
    if let Some(why) = rejection.message.strip_prefix("network: ") {
        let why = why.replace("leave `network` out", "leave the header out");
        rejection.message = format!("{NETWORK_HEADER}: {why}");
        rejection.details.insert("key".to_owned(), NETWORK_HEADER.into());
    }
    ContainerFailure::from(rejection)
}

impl IntoResponse for ContainerFailure {
    fn into_response(self) -> Response {
        let mut answer = json!({
            "code": self.code,
            "message": self.message,
            "context": self.context,
            "httpStatus": self.status,
            "timestamp": now(),
            // What the routes of the interpreter call these two.
            "error": self.message,
            "details": self.context,
        });
        if let Some(suggestion) = self.suggestion {
            answer["suggestion"] = suggestion.into();
        }
        let mut response = body::json(&answer);
        // Every status above is one.
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if self.code == NOT_READY {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_room_for_a_sandbox_is_worth_a_retry() {
        for code in [Code::Quota, Code::Capacity] {
            let failure = ContainerFailure::no_room(ApiRejection::new(code, "500 sandboxes"));
            assert_eq!((failure.status(), failure.code()), (503, "CONTAINER_UNAVAILABLE"));
            assert_eq!(failure.message(), "500 sandboxes");
        }
    }

    #[test]
    fn network_of_v1_is_a_header_here() {
        let rejection = ApiRejection::new(Code::NetworkRefused, "network: this token may not");
        let failure = header_failure(rejection.with("key", "network"));
        assert_eq!((failure.status(), failure.code()), (403, "PERMISSION_DENIED"));
        assert_eq!(failure.message(), "X-Sandbox-Network: this token may not");
        assert_eq!(failure.context["key"], NETWORK_HEADER);
        assert!(failure.suggestion.is_some_and(|remedy| remedy.contains(NETWORK_HEADER)));
    }

    #[test]
    fn suggestions_name_the_document_of_this_interface() {
        for code in Code::ALL.iter().filter(|code| code.hint().contains("openapi.json")) {
            assert!(suggestion(*code).contains("docs/compat.md"), "{}", code.name());
        }
    }
}
