//! The fields of `POST /v1/judge`. Everything is checked before anything runs.

use std::sync::Arc;
use std::time::Duration;

use sandtimer::Limits;
use sandtimer::limits::Key;
use sandtimer::model::LimitKind;
use serde_json::Value;

use super::StageLimits;
use crate::body::{RequestFields, refused};
use crate::error::{ApiRejection, Code};
use crate::programs::{self, ProgramLanguage, ProgramService, ProgramSpec, language};

/// The limits of each case.
pub(crate) const LIMITS: [Key; 8] = [
    Key::Kind(LimitKind::Wall),
    Key::Kind(LimitKind::Cpu),
    Key::Kind(LimitKind::Stall),
    Key::Kind(LimitKind::Memory),
    Key::Kind(LimitKind::Processes),
    Key::Kind(LimitKind::Output),
    Key::Kind(LimitKind::Disk),
    Key::Kind(LimitKind::OpenFiles),
];
/// Cases of one request.
pub(crate) const MAX_CASES: usize = 1_000;
/// Bytes of each stream in the answer, of one case and of all cases together.
const MAX_STREAM_BYTES_PER_CASE: usize = 64 << 10;
const MAX_STREAM_BYTES_PER_REQUEST: usize = 8 << 20;
/// The clock counts nanoseconds in 64 bits.
const MAX_TOTAL_MS: u64 = u64::MAX / 1_000_000;
/// The limit of compiling, which is not the program's own running.
const COMPILE_TIMEOUT: Duration = Duration::from_secs(30);

/// What a case expects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ExpectedOutput {
    Output(String),
    /// The client compares.
    Nothing,
}

/// One case.
#[derive(Debug)]
pub(super) struct JudgeCase {
    pub stdin: Vec<u8>,
    pub expected: ExpectedOutput,
}

/// What is to be judged.
#[derive(Debug)]
pub(super) struct JudgeRequest {
    pub program: ProgramSpec,
    pub limits: Limits,
    pub cases: Vec<JudgeCase>,
    /// Stops at the first case that is not accepted.
    pub stops_early: bool,
    /// The limit of all cases together.
    pub total: Option<Duration>,
}

impl JudgeRequest {
    pub fn parse(mut fields: RequestFields) -> Result<Self, ApiRejection> {
        let limits = fields.limits(&LIMITS)?;
        let names = language::LANGUAGES.map(|language| language.name);
        let name = fields.language("language", &names)?.unwrap_or(language::PYTHON.name);
        let language = known(name)?;
        let code = fields.string("code")?.filter(|code| !code.is_empty());
        let code = code.ok_or_else(|| missing("code", "the program as text"))?;
        let is_compared = fields.enumeration("checker", &["lines", "none"])? != Some("none");
        let cases = match fields.value("cases") {
            None => return Err(missing("cases", "a list of objects with stdin and expected")),
            Some(given) => cases(given, is_compared)?,
        };
        let stops_early = fields.boolean("stop_early")?.unwrap_or(false);
        let total = total(&mut fields)?;
        fields.finish()?;
        let mut program = ProgramSpec::new(language, code);
        program.compile =
            StageLimits { limits: Limits::new().wall(COMPILE_TIMEOUT), ..StageLimits::default() };
        Ok(JudgeRequest { program, limits, cases, stops_early, total })
    }

    /// Refuses a language that this host does not have.
    pub async fn check_installed(&self, service: &Arc<ProgramService>) -> Result<(), ApiRejection> {
        if programs::version(service, self.program.language).await.is_some() {
            return Ok(());
        }
        let installed: Vec<&str> =
            programs::installed(service).await.iter().map(|(language, _)| language.name).collect();
        let wanted = format!("a language that the server's host has: {}", installed.join(", "));
        Err(refused("language", &self.program.language.name.into(), &wanted))
    }

    /// Bytes of each stream in the answer, of each case.
    pub fn max_stream_bytes(&self) -> usize {
        MAX_STREAM_BYTES_PER_CASE.min(MAX_STREAM_BYTES_PER_REQUEST / self.cases.len().max(1))
    }
}

fn known(name: &str) -> Result<&'static ProgramLanguage, ApiRejection> {
    let found = language::LANGUAGES.into_iter().find(|language| language.name == name);
    found.ok_or_else(|| ApiRejection::new(Code::Internal, "a language is not in the table"))
}

/// The limit of all cases; 0 is none.
fn total(fields: &mut RequestFields) -> Result<Option<Duration>, ApiRejection> {
    let Some(milliseconds) = fields.number("total_ms")?.filter(|total| *total > 0) else { return Ok(None) };
    let wanted = format!("at most {MAX_TOTAL_MS}, or 0 for no limit");
    match milliseconds <= MAX_TOTAL_MS {
        true => Ok(Some(Duration::from_millis(milliseconds))),
        false => Err(refused("total_ms", &milliseconds.into(), &wanted)),
    }
}

fn missing(name: &'static str, what: &str) -> ApiRejection {
    ApiRejection::new(Code::BadField, format!("{name}: it is missing; give {what}")).with("key", name)
}

fn cases(given: Value, is_compared: bool) -> Result<Vec<JudgeCase>, ApiRejection> {
    let list = match given {
        Value::Array(list) if !list.is_empty() && list.len() <= MAX_CASES => list,
        Value::Array(list) => {
            let message = format!("cases: there are {}; give 1 to {MAX_CASES}", list.len());
            return Err(ApiRejection::new(Code::BadField, message).with("key", "cases"));
        }
        other => return Err(refused("cases", &other, "a list of objects with stdin and expected")),
    };
    list.into_iter()
        .enumerate()
        .map(|(index, given)| {
            case(given, is_compared).map_err(|rejection| ApiRejection {
                message: format!("cases[{index}]: {}", rejection.message),
                ..rejection.with("case", index)
            })
        })
        .collect()
}

fn case(given: Value, is_compared: bool) -> Result<JudgeCase, ApiRejection> {
    let Value::Object(object) = given else {
        return Err(refused("case", &given, "an object with stdin and expected"));
    };
    let mut fields = RequestFields::new(object);
    let stdin = fields.bytes("stdin", "stdin_encoding")?.unwrap_or_default();
    let expected = match (fields.string("expected")?, is_compared) {
        (Some(text), true) => ExpectedOutput::Output(text),
        (None, false) => ExpectedOutput::Nothing,
        (None, true) => return Err(missing("expected", "the expected output, or `checker`: `none`")),
        (Some(text), false) => {
            let shown: String = text.chars().take(40).collect();
            let message = format!("expected: `{shown}` is not compared with `checker`: `none`; remove it");
            return Err(ApiRejection::new(Code::BadField, message).with("key", "expected"));
        }
    };
    fields.finish()?;
    Ok(JudgeCase { stdin, expected })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parsed(request: Value) -> Result<JudgeRequest, ApiRejection> {
        let Value::Object(object) = request else { unreachable!("an object") };
        JudgeRequest::parse(RequestFields::new(object))
    }

    #[test]
    fn bad_requests_name_the_field() {
        let case = json!({"stdin": "1", "expected": "1"});
        for (request, message) in [
            (json!({"cases": [case]}), "code: it is missing"),
            (json!({"code": "x"}), "cases: it is missing"),
            (json!({"code": "x", "cases": []}), "cases: there are 0; give 1 to 1000"),
            (json!({"code": "x", "cases": {"a": 1}}), "cases: `{\\\"a\\\":1}` is not a list"),
            (json!({"code": "x", "cases": [case, 1]}), "cases[1]: case: `1` is not an object"),
            (json!({"code": "x", "cases": [{"stdin": "1"}]}), "cases[0]: expected: it is missing"),
            (
                json!({"code": "x", "cases": [{"stdin": 1, "expected": "1"}]}),
                "cases[0]: stdin: `1` is not a string",
            ),
            (
                json!({"code": "x", "cases": [{"stdin": "%", "stdin_encoding": "base64", "expected": ""}]}),
                "cases[0]: stdin: `%` is not base64",
            ),
            (
                json!({"code": "x", "cases": [{"input": "1", "expected": "1"}]}),
                "cases[0]: unknown field `input`",
            ),
            (
                json!({"code": "x", "cases": [case], "checker": "none"}),
                "cases[0]: expected: `1` is not compared",
            ),
            (json!({"code": "x", "cases": [case], "checker": "json"}), "checker: `json` is not one of"),
            (json!({"code": "x", "cases": [case], "language": "cobol"}), "language: `cobol` is not one of"),
            (json!({"code": "x", "cases": [case], "total_ms": -1}), "total_ms: `-1` is not a whole number"),
            (
                json!({"code": "x", "cases": [case], "total_ms": u64::MAX}),
                "total_ms: `18446744073709551615` is not at most 18446744073709, or 0",
            ),
        ] {
            let rejection = parsed(request.clone()).expect_err("refused");
            assert!(rejection.message.starts_with(message), "{request}: {}", rejection.message);
        }
    }

    #[test]
    fn answers_of_many_cases_have_less_of_each() {
        let of = |count: usize| {
            let cases = vec![json!({"expected": ""}); count];
            parsed(json!({"code": "x", "cases": cases})).expect("a request").max_stream_bytes()
        };
        assert_eq!((of(1), of(1_000)), (64 << 10, (8 << 20) / 1_000));
    }
}
