//! What an attempt executes: a command, code in a language, or a function of the worker's.

use sandtimer::model::{InterpretedCommand, MAX_ARGUMENT_BYTES, argument_name, too_long};
use serde_json::Value;

use super::error::{SpecError, missing};
use super::table::{SpecTable, nearest, refused};

/// What an attempt executes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobProgram {
    /// A program and its arguments.
    Command(Vec<String>),
    /// The text of a program.
    Code {
        /// The language of the text.
        language: JobLanguage,
        /// The text itself.
        code: String,
    },
    /// A function that the worker has by this name.
    Handler {
        /// The name of the function.
        name: String,
        /// The argument of the function; `null` if the spec has none.
        input: Value,
    },
}

/// The language of [`JobProgram::Code`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobLanguage {
    /// Executed by `python3`.
    Python,
    /// Executed by `bash`.
    Bash,
    /// Executed by Node.js; needs the feature `javascript`.
    JavaScript,
    /// Executed by Node.js after its types are removed; needs the feature `javascript`.
    TypeScript,
}

/// Reads one of them.
pub(super) fn program(table: &mut SpecTable) -> Result<JobProgram, SpecError> {
    let (command_path, code_path, language_path) =
        (table.at("command"), table.at("code"), table.at("language"));
    if table.has("handler") {
        return handler(table);
    }
    // Taken, so that the error for a misspelt key suggests it.
    table.take("handler");
    match (table.strings("command")?, table.string("code")?) {
        (Some(command), None) if command.first().is_some_and(|program| !program.is_empty()) => {
            match command.iter().position(|argument| argument.len() > MAX_ARGUMENT_BYTES) {
                Some(index) => {
                    let problem = too_long(&argument_name(index, &command[0]), command[index].len());
                    Err(SpecError { path: command_path, problem: format!("cannot be executed: {problem}") })
                }
                None => Ok(JobProgram::Command(command)),
            }
        }
        (Some(_), None) => Err(missing(&command_path, "a program and its arguments")),
        (None, Some(code)) => {
            let name = table.string("language")?.ok_or_else(|| missing(&language_path, LANGUAGES))?;
            let language = language(&name).ok_or_else(|| {
                let near = nearest(&name, LANGUAGE_NAMES.into_iter()).unwrap_or_default();
                refused(
                    &language_path,
                    &name.as_str().into(),
                    &format!("{LANGUAGES}; the nearest is `{near}`"),
                )
            })?;
            let program = JobProgram::Code { language, code };
            program.command().map_err(|problem| SpecError { path: code_path, problem })?;
            Ok(program)
        }
        (None, None) => Err(missing(
            &command_path,
            "a program and its arguments, or `code` with `language`, or a `handler`",
        )),
        (Some(_), Some(_)) => Err(SpecError {
            path: code_path,
            problem: "cannot be used together with `command`; use one of them".to_owned(),
        }),
    }
}

fn handler(table: &mut SpecTable) -> Result<JobProgram, SpecError> {
    for other in ["command", "code"] {
        if table.has(other) {
            let problem = "cannot be used together with `handler`; use one of them".to_owned();
            return Err(SpecError { path: table.at(other), problem });
        }
    }
    let name = table.name("handler")?.unwrap_or_default();
    Ok(JobProgram::Handler { name, input: table.take("input").unwrap_or(Value::Null) })
}

const LANGUAGE_NAMES: [&str; 4] = ["python", "bash", "javascript", "typescript"];
const LANGUAGES: &str = "`python`, `bash`, `javascript` or `typescript`";

fn language(name: &str) -> Option<JobLanguage> {
    let languages =
        [JobLanguage::Python, JobLanguage::Bash, JobLanguage::JavaScript, JobLanguage::TypeScript];
    LANGUAGE_NAMES.iter().position(|known| *known == name).map(|index| languages[index])
}

impl JobProgram {
    /// Returns the command that is executed; `None` for TypeScript, which the engine reads first,
    /// and for handlers.
    ///
    /// # Errors
    /// If this build does not have the language, or JavaScript cannot be parsed.
    pub fn command(&self) -> Result<Option<InterpretedCommand>, String> {
        match self {
            JobProgram::Command(command) => Ok(Some(InterpretedCommand::command(command.clone()))),
            JobProgram::Handler { .. } => Ok(None),
            JobProgram::Code { language: JobLanguage::Python, code } => {
                Ok(Some(InterpretedCommand::python("python3", code)))
            }
            JobProgram::Code { language: JobLanguage::Bash, code } => {
                Ok(Some(InterpretedCommand::bash(code)))
            }
            JobProgram::Code { language: JobLanguage::JavaScript, code } => node(code),
            JobProgram::Code { language: JobLanguage::TypeScript, .. } if cfg!(feature = "javascript") => {
                Ok(None)
            }
            JobProgram::Code { language: JobLanguage::TypeScript, .. } => Err(NO_JAVASCRIPT.to_owned()),
        }
    }
}

#[cfg(feature = "javascript")]
fn node(code: &str) -> Result<Option<InterpretedCommand>, String> {
    let program = sandtimer::script::JavaScriptProgram::of(code, false).map_err(|error| error.to_string())?;
    Ok(Some(program.interpreted()))
}

#[cfg(not(feature = "javascript"))]
fn node(_: &str) -> Result<Option<InterpretedCommand>, String> {
    Err(NO_JAVASCRIPT.to_owned())
}

const NO_JAVASCRIPT: &str = "this build has no JavaScript; use `python` or `bash`";
