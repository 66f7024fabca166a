//! One operation of the API, and what the description has of it.

use serde_json::{Map, Value, json};

use super::schema::{reference, string};
use crate::error::Code;
use crate::page;

/// One operation.
pub(super) struct Operation {
    pub method: &'static str,
    pub path: &'static str,
    summary: &'static str,
    /// Parameters of the query: name, schema, meaning.
    query: Vec<(&'static str, Value, &'static str)>,
    /// The schema of the body.
    body: Option<&'static str>,
    /// The body is bytes.
    bytes: bool,
    answer: SuccessAnswer,
    /// What a success answers: status, meaning.
    statuses: Vec<(u16, &'static str)>,
    errors: Vec<Code>,
}

/// The answer of a success. `Operation::answers` has the statuses besides the usual one.
pub(super) enum SuccessAnswer {
    Json(&'static str),
    Content(&'static str),
    Nothing,
    /// The connection is no longer HTTP from then on; the protocol that it has instead.
    Upgrade(&'static str),
}

/// Statuses of successes that come without a body.
const BODILESS: [u16; 3] = [101, 202, 204];
/// What following something answers.
pub(super) const FOLLOW_ANSWERS: &[(u16, &str)] =
    &[(200, "The events."), (204, "There is nothing after Last-Event-ID.")];
const BODY_CODES: &[Code] = &[
    Code::BadJson,
    Code::BadField,
    Code::UnknownField,
    Code::RequestTimeout,
    Code::BodyTooLarge,
    Code::JsonTooLarge,
];
const COMMON_CODES: &[Code] = &[
    Code::BadHttp,
    Code::UriTooLong,
    Code::HeadTooLarge,
    Code::Unauthorized,
    Code::PeerRefused,
    Code::HostRefused,
    Code::OriginRefused,
];

/// Of whatever starts a run.
pub(super) const START_CODES: &[Code] = &[
    Code::BadLimit,
    Code::NulByte,
    Code::TooLong,
    Code::WorkspaceNotFound,
    Code::SandboxNotFound,
    Code::SandboxEnded,
    Code::SandboxPaused,
    Code::SandboxBusy,
    Code::CommandNotFound,
    Code::CommandNotExecutable,
    Code::Refused,
    Code::NetworkRefused,
    Code::AnswerUnavailable,
    Code::Quota,
    Code::Capacity,
    Code::System,
    Code::Storage,
    Code::ShuttingDown,
];

impl Operation {
    pub fn new(
        method: &'static str,
        path: &'static str,
        summary: &'static str,
        answer: SuccessAnswer,
    ) -> Self {
        let usual = match answer {
            SuccessAnswer::Json(_) | SuccessAnswer::Content(_) => (200, "The answer."),
            SuccessAnswer::Nothing => (204, "Done."),
            SuccessAnswer::Upgrade(what) => (101, what),
        };
        Operation {
            method,
            path,
            summary,
            query: Vec::new(),
            body: None,
            bytes: false,
            answer,
            statuses: vec![usual],
            errors: Vec::new(),
        }
    }

    /// All that a success answers, instead of the usual one.
    pub fn answers(mut self, statuses: &[(u16, &'static str)]) -> Self {
        self.statuses = statuses.to_vec();
        self
    }

    pub fn query(mut self, name: &'static str, schema: Value, meaning: &'static str) -> Self {
        self.query.push((name, schema, meaning));
        self
    }

    pub fn body(mut self, schema: &'static str) -> Self {
        self.body = Some(schema);
        self
    }

    pub fn bytes(mut self) -> Self {
        self.bytes = true;
        self
    }

    pub fn errors(mut self, errors: &[Code]) -> Self {
        self.errors.extend_from_slice(errors);
        self
    }

    /// The responses by status, since several codes may have one status.
    fn responses(&self) -> Value {
        let content = match self.answer {
            SuccessAnswer::Json(schema) => json!({"application/json": {"schema": reference(schema)}}),
            SuccessAnswer::Content(kind) => json!({kind: {"schema": string("")}}),
            SuccessAnswer::Nothing | SuccessAnswer::Upgrade(_) => Value::Null,
        };
        let mut responses = Map::new();
        for (status, meaning) in &self.statuses {
            let mut response = json!({"description": meaning});
            if !content.is_null() && !BODILESS.contains(status) {
                response["content"] = content.clone();
            }
            responses.insert(status.to_string(), response);
        }
        let of_body = if self.body.is_some() { BODY_CODES } else { &[] };
        let of_id = match self.path {
            path if !path.contains("{id}") => &[][..],
            path if path.starts_with("/v1/runs") => &[Code::RunNotFound][..],
            path if path.starts_with("/v1/tasks") => &[Code::TaskNotFound][..],
            path if path.starts_with("/v1/jobs") => &[Code::JobNotFound][..],
            path if path.starts_with("/v1/sandboxes") => &[Code::SandboxNotFound, Code::SandboxEnded][..],
            path if path.starts_with("/v1/templates") => &[Code::TemplateNotFound][..],
            path if path.starts_with("/v1/workspaces") => &[Code::WorkspaceNotFound][..],
            _ => &[Code::ContextNotFound, Code::ContextEnded][..],
        };
        let all = self.errors.iter().chain(of_body).chain(of_id).chain(COMMON_CODES);
        for code in Code::ALL.iter().filter(|code| all.clone().any(|other| other == *code)) {
            let description = format!("`{}`", code.name());
            let entry = responses.entry(code.status().to_string()).or_insert_with(|| {
                json!({"description": "", "content": {"application/json": {"schema": reference("Error")}}})
            });
            let known = entry["description"].as_str().unwrap_or_default();
            let joined = if known.is_empty() { description } else { format!("{known}, {description}") };
            entry["description"] = joined.into();
        }
        Value::Object(responses)
    }

    pub fn described(&self) -> Value {
        let mut parameters: Vec<Value> = Vec::new();
        if self.path.contains("{id}") {
            parameters
                .push(json!({"name": "id", "in": "path", "required": true, "schema": string("Its id.")}));
        }
        if self.path.contains("{path}") {
            parameters
                .push(json!({"name": "path", "in": "path", "required": true, "schema": string("Its name.")}));
        }
        for (name, schema, meaning) in &self.query {
            parameters.push(json!({"name": name, "in": "query", "description": meaning, "schema": schema}));
        }
        let mut described = json!({
            "summary": self.summary,
            "operationId": self.id(),
            "parameters": parameters,
            "responses": self.responses(),
        });
        if let Some(schema) = self.body {
            described["requestBody"] =
                json!({"content": {"application/json": {"schema": reference(schema)}}});
        }
        if self.bytes {
            described["requestBody"] = json!({"content": {"application/octet-stream": {}}});
        }
        described
    }

    /// Such as `post_runs_kill`.
    pub fn id(&self) -> String {
        if self.path == page::PATH {
            return format!("{}_page", self.method);
        }
        let parts =
            self.path.split('/').filter(|part| !part.is_empty() && *part != "v1" && !part.starts_with('{'));
        let name = parts.collect::<Vec<_>>().join("_").replace('.', "_");
        let of = match self.path {
            path if path.ends_with('}') => "_one",
            path if BULK_PATHS.contains(&path) => "_all",
            _ => "",
        };
        format!("{}_{name}{of}", self.method)
    }
}

/// Paths whose operation on one thing has the same name.
const BULK_PATHS: [&str; 2] = ["/v1/jobs/cancel", "/v1/jobs/retry"];
