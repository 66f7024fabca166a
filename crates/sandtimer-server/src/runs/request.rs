//! From the fields of `POST /v1/runs` to a Spec. Everything is checked before anything is started.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use sandtimer::limits::Key;
use sandtimer::model::LimitKind;
use sandtimer::{Limits, Spec, Stdin, script};
use serde_json::Value;

use crate::body::{Fields, refused};
use crate::contexts::LANGUAGES;
use crate::error::{Code, Refusal};

/// The limits of a run.
pub(crate) const LIMITS: [Key; 9] = [
    Key::Kind(LimitKind::Wall),
    Key::Grace,
    Key::Kind(LimitKind::Cpu),
    Key::Kind(LimitKind::Stall),
    Key::Kind(LimitKind::Memory),
    Key::Kind(LimitKind::Processes),
    Key::Kind(LimitKind::Output),
    Key::Kind(LimitKind::Disk),
    Key::Kind(LimitKind::OpenFiles),
];

/// What execve(2) takes of one text, its NUL included, and of all together: a quarter of the usual stack.
const MOST_ONE: usize = 128 * 1024 - 1;
const MOST_ALL: usize = 2 * 1024 * 1024 - 64 * 1024;
/// Bytes of the command that records and listings show.
const SHOWN: usize = 400;

/// What is to be run, and how the caller waits for it.
#[derive(Debug)]
pub(crate) struct RunRequest {
    command: Vec<String>,
    environment: Vec<(String, String)>,
    /// `None`: no stdin. `Some` and `stdin_open`: these bytes, then what is sent later.
    pub stdin: Option<Vec<u8>>,
    pub stdin_open: bool,
    limits: Limits,
    warn: Option<Duration>,
    end_on_output_limit: bool,
    stall_by_progress: bool,
    progress_channel: bool,
    /// `None`: until the run is over.
    pub wait: Option<Duration>,
    pub detach: bool,
    /// The id of what it works in, instead of a workspace of its own.
    pub workspace: Option<String>,
}

impl RunRequest {
    pub fn parse(mut fields: Fields) -> Result<Self, Refusal> {
        let request = RunRequest {
            limits: fields.limits(&LIMITS)?,
            command: command(&mut fields)?,
            environment: environment(&mut fields)?,
            stdin: fields.text("stdin")?.map(String::into_bytes),
            stdin_open: fields.truth("stdin_open")?.unwrap_or(false),
            warn: fields.milliseconds("warn_ms")?,
            end_on_output_limit: fields.word("on_output_limit", &["drop", "end"])? == Some("end"),
            stall_by_progress: fields.word("stall_by", &["output", "progress"])? == Some("progress"),
            progress_channel: fields.truth("progress_channel")?.unwrap_or(false),
            wait: fields.milliseconds("wait_ms")?,
            detach: fields.truth("detach")?.unwrap_or(false),
            workspace: fields.text("workspace")?,
        };
        fields.finish()?;
        request.check_lengths()?;
        Ok(request)
    }

    /// A text for bash, waited for to its end, in a workspace.
    pub fn script(text: String, limits: Limits, workspace: String, detach: bool) -> Result<Self, Refusal> {
        let request = RunRequest {
            command: interpreted("bash", text),
            environment: Vec::new(),
            stdin: None,
            stdin_open: false,
            limits,
            warn: None,
            end_on_output_limit: false,
            stall_by_progress: false,
            progress_channel: false,
            wait: None,
            detach,
            workspace: Some(workspace),
        };
        request.check_lengths()?;
        Ok(request)
    }

    fn check_lengths(&self) -> Result<(), Refusal> {
        let variables = self.environment.iter().map(|(name, value)| name.len() + value.len() + 1);
        let lengths = || self.command.iter().map(String::len).chain(variables.clone());
        let too_long = |what: &str, length: usize, most: usize| {
            Err(Refusal::new(
                Code::TooLong,
                format!("{what} has {length} bytes; the kernel takes at most {most}"),
            )
            .with("length", length)
            .with("most", most))
        };
        if let Some(length) = lengths().find(|length| *length >= MOST_ONE) {
            return too_long("an argument, a variable or the code", length, MOST_ONE - 1);
        }
        // Each one costs a pointer and a NUL as well.
        let all = lengths().map(|length| length + 9).sum();
        if all > MOST_ALL { too_long("the command with its variables", all, MOST_ALL) } else { Ok(()) }
    }

    /// The command as records and listings show it.
    pub fn shown(&self) -> Vec<String> {
        let mut left = SHOWN;
        let mut shown = Vec::new();
        for part in &self.command {
            if left == 0 {
                break;
            }
            let text: String = part.chars().take(left).collect();
            left -= text.chars().count();
            shown.push(text);
        }
        shown
    }

    /// The run itself, in a workspace of its own. `stdin_open` leaves the first bytes to the caller.
    pub fn spec(&mut self) -> Spec {
        let stdin = match (self.stdin_open, &mut self.stdin) {
            (true, _) => Stdin::Piped,
            (false, Some(bytes)) => Stdin::Bytes(std::mem::take(bytes)),
            (false, None) => Stdin::Null,
        };
        let owned = |(name, value): &(String, String)| (OsString::from(name), OsString::from(value));
        Spec {
            command: self.command.iter().map(OsString::from).collect(),
            environment: self.environment.iter().map(owned).collect(),
            private_workspace: true,
            stdin,
            limits: self.limits.clone(),
            warn: self.warn,
            end_on_output_limit: self.end_on_output_limit,
            stall_by_progress: self.stall_by_progress,
            progress_channel: self.progress_channel,
            ..Spec::default()
        }
    }
}

/// `command` as a list or as a line for a shell, or `code` with its `language`.
fn command(fields: &mut Fields) -> Result<Vec<String>, Refusal> {
    let (command, code, language) =
        (fields.value("command"), fields.text("code")?, fields.word("language", &LANGUAGES)?);
    match (command, code, language) {
        (Some(command), None, None) => explicit(&command),
        (None, Some(code), Some("javascript")) => script(&code, false),
        (None, Some(code), Some("typescript")) => script(&code, true),
        (None, Some(code), Some(language)) => Ok(interpreted(language, code)),
        (None, Some(_), None) => Err(Refusal::new(
            Code::BadField,
            format!("code needs its language: one of {}", LANGUAGES.join(", ")),
        )
        .with("key", "language")),
        (None, None, _) => {
            Err(Refusal::new(Code::BadField, "command is missing; give it, or code and language")
                .with("key", "command"))
        }
        (Some(_), _, _) => {
            Err(Refusal::new(Code::BadField, "give either command, or code and language")
                .with("key", "command"))
        }
    }
}

fn explicit(command: &Value) -> Result<Vec<String>, Refusal> {
    let wrong = || refused("command", command, "a list of texts, or a line for a shell");
    match command {
        Value::String(line) if !line.trim().is_empty() => Ok(interpreted(shell(), line.clone())),
        Value::Array(parts) if !parts.is_empty() => {
            let texts = parts.iter().map(|part| part.as_str().map(str::to_owned));
            let parts: Vec<String> = texts.collect::<Option<_>>().ok_or_else(wrong)?;
            if parts[0].is_empty() { Err(wrong()) } else { Ok(parts) }
        }
        _ => Err(wrong()),
    }
}

/// The shell of a command line: bash where there is one.
fn shell() -> &'static str {
    if is_on_path("bash") { "bash" } else { "sh" }
}

fn interpreted(language: &str, code: String) -> Vec<String> {
    let program = match language {
        "python" if !is_on_path("python3") && is_on_path("python") => "python",
        "python" => "python3",
        other => other,
    };
    vec![program.to_owned(), "-c".to_owned(), code]
}

/// Code for Node.js.
fn script(code: &str, is_typescript: bool) -> Result<Vec<String>, Refusal> {
    // Reading it may take seconds, in which this thread has others to serve.
    let command = tokio::task::block_in_place(|| script::command(code, is_typescript));
    command.map_err(|error| {
        Refusal::new(Code::BadField, format!("code is not TypeScript that can be read: {error}"))
            .with("key", "code")
            .with("line", error.line)
            .with("column", error.column)
    })
}

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .any(|directory: std::path::PathBuf| Path::new(&directory).join(program).is_file())
}

/// `env`: an object of texts.
pub(crate) fn environment(fields: &mut Fields) -> Result<Vec<(String, String)>, Refusal> {
    let Some(given) = fields.value("env") else { return Ok(Vec::new()) };
    let Value::Object(object) = &given else { return Err(refused("env", &given, "an object of texts")) };
    let variable = |(name, value): (&String, &Value)| {
        let text = value.as_str().ok_or_else(|| refused(&format!("env.{name}"), value, "a text"))?;
        if name.is_empty() || name.contains('=') {
            return Err(refused("env", &Value::String(name.clone()), "a variable's name"));
        }
        Ok((name.clone(), text.to_owned()))
    };
    object.iter().map(variable).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(value: Value) -> Result<RunRequest, Refusal> {
        let Value::Object(object) = value else { panic!("an object") };
        RunRequest::parse(Fields::new(object))
    }

    #[test]
    fn a_command_is_a_list_or_a_line_and_code_has_a_language() {
        assert_eq!(parse(json!({"command": ["a", "b"]})).expect("valid").command, ["a", "b"]);
        assert_eq!(parse(json!({"command": "a | b"})).expect("valid").command[1..], ["-c", "a | b"]);
        let bash = parse(json!({"code": "true", "language": "bash"})).expect("valid");
        assert_eq!(bash.command, ["bash", "-c", "true"]);
        for wrong in [
            json!({}),
            json!({"command": []}),
            json!({"command": ""}),
            json!({"command": [""]}),
            json!({"command": ["a", 1]}),
            json!({"command": 1}),
            json!({"code": "x"}),
            json!({"language": "python"}),
            json!({"code": "x", "language": "cobol"}),
            json!({"command": ["a"], "code": "x", "language": "python"}),
        ] {
            assert_eq!(parse(wrong.clone()).expect_err("refused").code, Code::BadField, "{wrong}");
        }
    }

    #[test]
    fn what_the_kernel_would_not_take_is_refused_before_there_is_a_run() {
        let long = "x".repeat(MOST_ONE);
        for wrong in [
            json!({"command": ["a", long]}),
            json!({"command": ["a"], "env": {"A": long}}),
            json!({"command": vec!["x".repeat(100_000); 21]}),
        ] {
            assert_eq!(parse(wrong).expect_err("refused").code, Code::TooLong);
        }
    }

    #[test]
    fn listings_show_the_beginning_of_a_command() {
        let request = parse(json!({"command": ["ä".repeat(300), "b".repeat(300), "c"]})).expect("valid");
        let shown = request.shown();
        assert_eq!((shown.len(), shown[1].len()), (2, 100));
    }
}
