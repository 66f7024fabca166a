//! What a request says is to be executed: `command`, or `code` with its `language`.

use std::path::Path;

use sandtimer::model::{InterpretedCommand, ProgramSource};
use sandtimer::script::JavaScriptProgram;
use serde_json::Value;

use crate::body::{RequestFields, refused};
use crate::error::{ApiRejection, Code};
use crate::language::LANGUAGES;
use crate::policy::PYTHON;

/// What is to be executed.
#[derive(Debug, Default)]
pub(super) struct RequestedCommand {
    pub command: Vec<String>,
    pub program: Option<ProgramSource>,
    pub python: Option<String>,
    pub typescript: Option<String>,
}

impl From<InterpretedCommand> for RequestedCommand {
    fn from(InterpretedCommand { command, program }: InterpretedCommand) -> Self {
        RequestedCommand { command, program, ..RequestedCommand::default() }
    }
}

/// `command` as a list or as a line for a shell, or `code` with its `language`.
pub(super) fn command(fields: &mut RequestFields) -> Result<RequestedCommand, ApiRejection> {
    let (command, code, language) =
        (fields.value("command"), fields.string("code")?, fields.language("language", &LANGUAGES)?);
    match (command, code, language) {
        (Some(command), None, None) => explicit(&command),
        // As records show it.
        (None, Some(code), Some("typescript")) => {
            let command = ["typescript", "-c", &code].map(str::to_owned).to_vec();
            Ok(RequestedCommand { command, typescript: Some(code), ..RequestedCommand::default() })
        }
        (None, Some(code), Some("python")) => {
            let requested = interpreted("python", &code)?.into();
            Ok(RequestedCommand { python: Some(code), ..requested })
        }
        (None, Some(code), Some(language)) => Ok(interpreted(language, &code)?.into()),
        (None, Some(_), None) => Err(ApiRejection::new(
            Code::BadField,
            format!("code needs its language: one of {}", LANGUAGES.join(", ")),
        )
        .with("key", "language")),
        (None, None, _) => Err(fields.misnamed(&["command", "code"]).unwrap_or_else(|| {
            ApiRejection::new(Code::BadField, "command is missing; give it, or code and language")
                .with("key", "command")
        })),
        (Some(_), _, _) => {
            Err(ApiRejection::new(Code::BadField, "give either command, or code and language")
                .with("key", "command"))
        }
    }
}

/// What executes code in Python, JavaScript or Bash.
///
/// # Errors
/// When JavaScript cannot be read.
pub(crate) fn interpreted(language: &str, code: &str) -> Result<InterpretedCommand, ApiRejection> {
    match language {
        "python" => Ok(InterpretedCommand::python(python(), code)),
        "javascript" => script(code),
        _ => Ok(InterpretedCommand::bash(code)),
    }
}

fn explicit(command: &Value) -> Result<RequestedCommand, ApiRejection> {
    let wrong = || refused("command", command, "a list of texts, or a line for a shell");
    match command {
        Value::String(line) if !line.trim().is_empty() => Ok(InterpretedCommand::shell(shell(), line).into()),
        Value::Array(parts) if !parts.is_empty() => {
            let texts = parts.iter().map(|part| part.as_str().map(str::to_owned));
            let parts: Vec<String> = texts.collect::<Option<_>>().ok_or_else(wrong)?;
            if parts[0].is_empty() {
                Err(wrong())
            } else {
                Ok(RequestedCommand { command: parts, ..RequestedCommand::default() })
            }
        }
        _ => Err(wrong()),
    }
}

/// The shell of a command line: bash where there is one.
fn shell() -> &'static str {
    if is_on_path("bash") { "bash" } else { "sh" }
}

fn python() -> &'static str {
    if !is_on_path("python3") && is_on_path("python") { "python" } else { PYTHON }
}

/// JavaScript for Node.js.
fn script(code: &str) -> Result<InterpretedCommand, ApiRejection> {
    // Looking whether it is a module may take a moment, in which this thread has others to serve.
    let program = tokio::task::block_in_place(|| JavaScriptProgram::of(code, false));
    Ok(program.map_err(sandtimer::Error::Script)?.interpreted())
}

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .any(|directory: std::path::PathBuf| Path::new(&directory).join(program).is_file())
}
