//! Piston's API, version 2: `/api/v2/runtimes` and `/api/v2/execute`, also under `/api/v2/piston`
//! as its public server has them.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use sandtimer::Limits;
use sandtimer::limits::{Key, Setting};
use sandtimer::model::LimitKind;
use sandtimer::supervise::signal_name;
use serde_json::{Map, Value, json};

use super::wire::{decoded, error_response};
use crate::auth::OwnerId;
use crate::body::{self, Object, RequestFields};
use crate::connection::Connection;
use crate::error::{ApiRejection, Code};
use crate::programs::{
    self, ProgramFile, ProgramLanguage, ProgramResult, ProgramService, ProgramSpec, StageEnd, StageLimits,
    StageReport, language,
};
use crate::quota::PermittedValue;

/// The time limits of stages for which neither the request nor the operator sets one, as Piston has
/// them.
const COMPILE_TIMEOUT: Duration = Duration::from_secs(10);
const RUN_TIMEOUT: Duration = Duration::from_secs(3);

/// A language by its names there.
struct Runtime {
    language: &'static ProgramLanguage,
    name: &'static str,
    aliases: &'static [&'static str],
    /// The program that a language of several belongs to.
    runtime: Option<&'static str>,
}

const fn runtime(
    language: &'static ProgramLanguage,
    name: &'static str,
    aliases: &'static [&'static str],
    runtime: Option<&'static str>,
) -> Runtime {
    Runtime { language, name, aliases, runtime }
}

static RUNTIMES: [Runtime; 14] = [
    runtime(&language::PYTHON, "python", &["py", "py3", "python3"], None),
    runtime(&language::JAVASCRIPT, "javascript", &["node-javascript", "node-js", "js", "node"], Some("node")),
    runtime(&language::TYPESCRIPT, "typescript", &["ts", "node-ts", "tsc", "typescript5", "ts5"], None),
    runtime(&language::BASH, "bash", &["sh"], None),
    runtime(&language::C, "c", &["gcc"], Some("gcc")),
    runtime(&language::CPP, "c++", &["cpp", "g++"], Some("gcc")),
    runtime(&language::GO, "go", &["golang"], None),
    runtime(&language::JAVA, "java", &[], None),
    runtime(&language::LUA, "lua", &[], None),
    runtime(&language::PERL, "perl", &["pl"], None),
    runtime(&language::PHP, "php", &["php8", "html"], None),
    runtime(&language::R, "rscript", &["r"], None),
    runtime(&language::RUBY, "ruby", &["ruby3", "rb"], None),
    runtime(&language::RUST, "rust", &["rs"], None),
];

pub(super) fn routes() -> Router<Arc<ProgramService>> {
    Router::new()
        .route("/api/v2/runtimes", get(runtimes))
        .route("/api/v2/execute", post(execute))
        .route("/api/v2/piston/runtimes", get(runtimes))
        .route("/api/v2/piston/execute", post(execute))
}

/// An error on its way to a client: a message.
#[derive(Debug)]
struct PistonFailure {
    status: u16,
    message: String,
}

impl PistonFailure {
    fn bad(message: impl Into<String>) -> Self {
        PistonFailure { status: 400, message: message.into() }
    }
}

impl From<ApiRejection> for PistonFailure {
    fn from(rejection: ApiRejection) -> Self {
        let status = match rejection.code {
            Code::NotFound => return PistonFailure { status: 404, message: "Not Found".to_owned() },
            code => code.status(),
        };
        PistonFailure { status, message: rejection.message }
    }
}

impl IntoResponse for PistonFailure {
    fn into_response(self) -> Response {
        error_response(self.status, &json!({"message": self.message}), "Bearer")
    }
}

pub(super) fn refuse(rejection: ApiRejection) -> Response {
    PistonFailure::from(rejection).into_response()
}

async fn runtimes(State(service): State<Arc<ProgramService>>) -> Response {
    let installed = programs::installed(&service).await;
    let listed = RUNTIMES.iter().filter_map(|runtime| {
        let (_, version) = installed.iter().find(|(language, _)| *language == runtime.language)?;
        let mut view = json!({"language": runtime.name, "version": version, "aliases": runtime.aliases});
        if let Some(name) = runtime.runtime {
            view["runtime"] = name.into();
        }
        Some(view)
    });
    body::json(&listed.collect::<Vec<Value>>())
}

async fn execute(
    State(service): State<Arc<ProgramService>>,
    Extension(owner): Extension<OwnerId>,
    Extension(connection): Extension<Arc<Connection>>,
    headers: HeaderMap,
    object: Result<Object, ApiRejection>,
) -> Result<Response, PistonFailure> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if !kind.is_some_and(|kind| kind.starts_with("application/json")) {
        let message = "requests must be of type application/json".to_owned();
        return Err(PistonFailure { status: 415, message });
    }
    let Object(mut fields) = object?;
    let (runtime, version, program) = parse(&service, &owner, &mut fields).await?;
    let executed = programs::attended(&connection, programs::execute(&service, &owner, program)).await?;
    let answer =
        body::long_json(&service.runs.core.messages, &owner, || answer(runtime, &version, &executed)).await;
    answer.map_err(|rejection: ApiRejection| {
        rejection.after_execution(executed.run.as_ref().map(|run| run.id_str())).into()
    })
}

/// A required string.
fn required(fields: &mut RequestFields, name: &'static str) -> Result<String, PistonFailure> {
    match fields.value(name) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text),
        _ => Err(PistonFailure::bad(format!("{name} is required as a string"))),
    }
}

async fn parse(
    service: &Arc<ProgramService>,
    owner: &OwnerId,
    fields: &mut RequestFields,
) -> Result<(&'static Runtime, String, ProgramSpec), PistonFailure> {
    let (name, wanted) = (required(fields, "language")?, required(fields, "version")?);
    let files = files(fields.value("files"))?;
    let unknown = || PistonFailure::bad(format!("{name}-{wanted} runtime is unknown"));
    let known = |runtime: &&Runtime| runtime.name == name || runtime.aliases.contains(&name.as_str());
    let runtime = RUNTIMES.iter().find(known).ok_or_else(unknown)?;
    let version = programs::version(service, runtime.language).await;
    let version = version.filter(|version| satisfies(version, &wanted)).ok_or_else(unknown)?;
    let main = files.iter().position(|(_, is_utf8)| *is_utf8);
    let main = main.ok_or_else(|| PistonFailure::bad("files must include at least one utf8 encoded file"))?;
    let compile = stage(service, owner, fields, "compile", COMPILE_TIMEOUT)?;
    let run = stage(service, owner, fields, "run", RUN_TIMEOUT)?;
    let mut files: Vec<ProgramFile> = files.into_iter().map(|(file, _)| file).collect();
    let ProgramFile { path, content } = files.remove(main);
    let mut stdin = fields.string("stdin")?.unwrap_or_default();
    if !stdin.ends_with('\n') {
        stdin.push('\n');
    }
    let arguments = match fields.value("args") {
        None => Vec::new(),
        Some(Value::Array(list)) => list.iter().map(argument).collect::<Result<_, PistonFailure>>()?,
        Some(_) => return Err(PistonFailure::bad("args is required as an array")),
    };
    let program = ProgramSpec {
        file_name: Some(main_file(runtime.language, path)),
        files,
        arguments,
        stdin: Some(stdin.into_bytes()),
        compile,
        run,
        ..ProgramSpec::new(runtime.language, content)
    };
    Ok((runtime, version, program))
}

fn argument(value: &Value) -> Result<String, PistonFailure> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(PistonFailure::bad(format!("args: {other} is not a string"))),
    }
}

/// The main file under a name by which its compiler knows it.
fn main_file(language: &ProgramLanguage, name: String) -> String {
    let extension =
        name.rsplit('/').next().and_then(|name| name.rsplit_once('.')).map(|(_, extension)| extension);
    let usual = language.file.rsplit_once('.').map_or("", |(_, extension)| extension);
    let is_known =
        extension.is_some_and(|extension| extension == usual || language.extensions.contains(&extension));
    // Java needs the name of its class.
    match (is_known, extension) {
        (true, _) => name,
        (false, Some("code")) if language.is_compiled() => language.file.to_owned(),
        (false, _) if language.is_compiled() => format!("{name}.{usual}"),
        (false, _) => name,
    }
}

/// The files of a request, and which of them are text.
fn files(given: Option<Value>) -> Result<Vec<(ProgramFile, bool)>, PistonFailure> {
    let Some(Value::Array(list)) = given else {
        return Err(PistonFailure::bad("files is required as an array"));
    };
    let file = |(index, file): (usize, Value)| {
        let Value::String(content) = &file["content"] else {
            return Err(PistonFailure::bad(format!("files[{index}].content is required as a string")));
        };
        let name = file["name"].as_str().filter(|name| !name.is_empty());
        let path = name.map_or_else(|| format!("file{index}.code"), str::to_owned);
        let encoding = file["encoding"].as_str();
        let content = match encoding {
            Some("base64") => decoded(content),
            Some("hex") => hexadecimal(content),
            _ => Some(content.clone().into_bytes()),
        };
        let wrong = || format!("files[{index}].content is not {}", encoding.unwrap_or_default());
        let content = content.ok_or_else(|| PistonFailure::bad(wrong()))?;
        crate::files::FilePath::parse(&path)
            .map_err(|rejection| PistonFailure::bad(format!("files[{index}].name: {}", rejection.message)))?;
        Ok((ProgramFile { path, content: content.into() }, !matches!(encoding, Some("base64" | "hex"))))
    };
    list.into_iter().enumerate().map(file).collect()
}

fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks_exact(2).map(|pair| pair[0] * 16 + pair[1]).collect())
}

/// The limits of a stage, in milliseconds and bytes.
fn stage(
    service: &Arc<ProgramService>,
    owner: &OwnerId,
    fields: &mut RequestFields,
    stage: &str,
    timeout: Duration,
) -> Result<StageLimits, PistonFailure> {
    let names: [(&'static str, Key, u64); 3] = match stage {
        "compile" => [
            ("compile_memory_limit", LimitKind::Memory.into(), 1),
            ("compile_timeout", LimitKind::Wall.into(), 1_000_000),
            ("compile_cpu_time", LimitKind::Cpu.into(), 1_000_000),
        ],
        _ => [
            ("run_memory_limit", LimitKind::Memory.into(), 1),
            ("run_timeout", LimitKind::Wall.into(), 1_000_000),
            ("run_cpu_time", LimitKind::Cpu.into(), 1_000_000),
        ],
    };
    let mut limits = Limits::new();
    for (name, key, unit) in names {
        let Some(value) = fields.value(name) else { continue };
        let number = match &value {
            Value::Number(number) => number.as_f64(),
            _ => None,
        };
        let number =
            number.ok_or_else(|| PistonFailure::bad(format!("If specified, {name} must be a number")))?;
        // In Piston -1 is no memory limit, and 0 the usual one.
        if number == 0.0 || (number == -1.0 && key == LimitKind::Memory.into()) {
            continue;
        }
        if number < 0.0 {
            return Err(PistonFailure::bad(format!("{name} must be non-negative")));
        }
        let wanted = number * unit as f64;
        if let Some(ceiling) = programs::ceiling(service, owner, key)
            && wanted > ceiling as f64
        {
            let shown = ceiling / unit;
            let message = format!(
                "{name} cannot exceed the configured limit of {shown} (max_{} of this server)",
                key.wire()
            );
            return Err(PistonFailure::bad(message));
        }
        limits.set(key, Setting::At(wanted as u64));
    }
    Ok(StageLimits { limits, defaults: Limits::new().wall(timeout), ends_at_output_limit: true })
}

/// Whether a version is one of a range of npm: `*`, `3.x`, `3.11.7`, `^3.10`, `~3.11.2`, `>=3.8
/// <4`, `3.9 || 3.10`.
fn satisfies(version: &str, range: &str) -> bool {
    let numbers = |text: &str| -> Vec<u64> { text.split('.').map_while(|part| part.parse().ok()).collect() };
    let version = numbers(version);
    let one = |comparator: &str| {
        let at = comparator.find(|letter: char| letter.is_ascii_digit() || matches!(letter, 'x' | 'X' | '*'));
        let (operator, wanted) = comparator.split_at(at.unwrap_or(comparator.len()));
        let given = numbers(wanted.trim());
        let is_wild = given.is_empty() && wanted.starts_with(['x', 'X', '*']);
        if given.is_empty() {
            return is_wild && operator.is_empty();
        }
        let same = |count: usize| version.iter().take(count).eq(given.iter().take(count));
        let padded: Vec<u64> = given.iter().copied().chain([0, 0, 0]).take(3).collect();
        match operator.trim() {
            "" | "=" | "v" => same(given.len()),
            "^" => {
                let fixed =
                    given.iter().position(|number| *number > 0).map_or(given.len(), |first| first + 1);
                same(fixed) && version >= padded
            }
            "~" => same(given.len().min(2)) && version >= padded,
            ">=" => version >= padded,
            ">" => version > padded && !same(given.len()),
            "<" => version < padded,
            "<=" => version <= padded || same(given.len()),
            _ => false,
        }
    };
    range.split("||").any(|alternative| {
        let mut comparators = alternative.split_whitespace().peekable();
        comparators.peek().is_some() && comparators.all(one)
    })
}

async fn answer(
    runtime: &Runtime,
    version: &str,
    executed: &ProgramResult,
) -> Result<PermittedValue<Value>, ApiRejection> {
    let base = |compile: Option<&StageReport>, run: Map<String, Value>| {
        let mut answer = json!({"run": run, "language": runtime.name, "version": version});
        if let Some(compile) = compile {
            answer["compile"] = stage_result(compile).into();
        }
        answer
    };
    let compile = executed.compile.as_ref();
    match (&executed.run, compile) {
        (Some(run), compile) => {
            let report = programs::report(run).await?;
            let value = base(compile, stage_result(&report));
            Ok(report.map(|_| value))
        }
        // As its clients expect where nothing was run.
        (None, Some(report)) => Ok(PermittedValue::new(base(compile, stage_result(report)), None)),
        (None, None) => Err(ApiRejection::new(Code::Internal, "the program was not run")),
    }
}

fn stage_result(report: &StageReport) -> Map<String, Value> {
    let because = |description: &str| {
        let sentence = report.sentence.as_deref().unwrap_or_default();
        Some(if sentence.is_empty() { description.to_owned() } else { format!("{description}: {sentence}") })
    };
    let signal = report.signal().map(signal_name);
    let (status, message) = match report.end {
        StageEnd::Exited(0) => (None, None),
        StageEnd::Exited(code) => (Some("RE"), because(&format!("Exited with error status {code}"))),
        StageEnd::Signaled(number) => (Some("SG"), because(&format!("Caught fatal signal {number}"))),
        StageEnd::TimeLimit if report.is_cpu_limit => (Some("TO"), because("Time limit exceeded")),
        StageEnd::TimeLimit => (Some("TO"), because("Time limit exceeded (wall clock)")),
        StageEnd::MemoryLimit => (Some("SG"), because("Caught fatal signal 9")),
        StageEnd::OutputLimit if report.stderr.len() > report.stdout.len() => {
            (Some("EL"), because("stderr length exceeded"))
        }
        StageEnd::OutputLimit => (Some("OL"), because("stdout length exceeded")),
        StageEnd::OtherLimit => (Some("SG"), because("Caught fatal signal 9")),
        StageEnd::Failed => (Some("XX"), because("Internal error")),
    };
    let (stdout, stderr) = (report.stdout_lossy(), report.stderr_lossy());
    let fields = json!({
        "output": format!("{stdout}{stderr}"),
        "stdout": stdout,
        "stderr": stderr,
        "code": report.exit_code(),
        "signal": signal,
        "message": message,
        "status": status,
        "cpu_time": report.cpu_ms,
        "wall_time": report.wall_ms,
        "memory": report.memory_bytes,
    });
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ranges_as_npm_has_them() {
        for range in [
            "*",
            "x",
            "3",
            "3.x",
            "3.11",
            "3.11.*",
            "3.11.7",
            "=3.11.7",
            "^3.10.0",
            "^3",
            "~3.11.2",
            ">=3.8 <4",
            "2 || 3",
            "> 3.10".replace(' ', "").as_str(),
        ] {
            assert!(satisfies("3.11.7", range), "{range}");
        }
        for range in ["", "4", "3.10.0", "^4", "^2.9", "~3.10", "<3.11", ">3.11", "3.11.7 4", "python", "||"]
        {
            assert!(!satisfies("3.11.7", range), "{range}");
        }
        assert!(satisfies("0.2.5", "^0.2.3") && !satisfies("0.3.0", "^0.2.3"));
    }

    #[test]
    fn main_files_have_names_that_compilers_know() {
        let name = |language: &ProgramLanguage, name: &str| main_file(language, name.to_owned());
        assert_eq!(name(&language::CPP, "file0.code"), "main.cpp");
        assert_eq!(name(&language::CPP, "a.cc"), "a.cc");
        assert_eq!(name(&language::C, "solution"), "solution.c");
        assert_eq!(name(&language::JAVA, "Solution.java"), "Solution.java");
        assert_eq!(name(&language::PYTHON, "file0.code"), "file0.code");
    }
}
