//! What a run executes: a command, or code in a language.

use super::spec::{SpecError, missing};
use super::table::{Table, nearest, refused};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    Command(Vec<String>),
    Code { language: Language, code: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    Python,
    Bash,
    JavaScript,
    TypeScript,
}

/// Reads one of both.
pub(super) fn program(table: &mut Table) -> Result<Program, SpecError> {
    let (command_path, code_path, language_path) =
        (table.at("command"), table.at("code"), table.at("language"));
    match (table.texts("command")?, table.text("code")?) {
        (Some(command), None) if !command.is_empty() => Ok(Program::Command(command)),
        (Some(_), None) => Err(missing(&command_path, "a program and its arguments")),
        (None, Some(code)) => {
            let name = table.text("language")?.ok_or_else(|| missing(&language_path, LANGUAGES))?;
            let language = language(&name).ok_or_else(|| {
                let near = nearest(&name, LANGUAGE_NAMES.into_iter()).unwrap_or_default();
                refused(
                    &language_path,
                    &name.as_str().into(),
                    &format!("{LANGUAGES}; the nearest is `{near}`"),
                )
            })?;
            let program = Program::Code { language, code };
            program.command().map_err(|problem| SpecError { path: code_path, problem })?;
            Ok(program)
        }
        (None, None) => Err(missing(&command_path, "a program and its arguments, or `code` with `language`")),
        (Some(_), Some(_)) => {
            Err(SpecError { path: code_path, problem: "stands beside `command`; use one of them".to_owned() })
        }
    }
}

const LANGUAGE_NAMES: [&str; 4] = ["python", "bash", "javascript", "typescript"];
const LANGUAGES: &str = "`python`, `bash`, `javascript` or `typescript`";

fn language(name: &str) -> Option<Language> {
    let languages = [Language::Python, Language::Bash, Language::JavaScript, Language::TypeScript];
    LANGUAGE_NAMES.iter().position(|known| *known == name).map(|index| languages[index])
}

impl Program {
    /// What is executed.
    ///
    /// # Errors
    /// Code that is not of its language, where that is known beforehand.
    pub fn command(&self) -> Result<Vec<String>, String> {
        let texts = |parts: &[&str]| Ok(parts.iter().map(|part| (*part).to_owned()).collect());
        match self {
            Program::Command(command) => Ok(command.clone()),
            Program::Code { language: Language::Python, code } => texts(&["python3", "-c", code]),
            Program::Code { language: Language::Bash, code } => texts(&["bash", "-c", code, "bash"]),
            Program::Code { language, code } => node(code, *language == Language::TypeScript),
        }
    }
}

#[cfg(feature = "javascript")]
fn node(code: &str, is_typescript: bool) -> Result<Vec<String>, String> {
    crate::script::command(code, is_typescript)
        .map_err(|error| format!("line {}, column {}: {}", error.line, error.column, error.message))
}

#[cfg(not(feature = "javascript"))]
fn node(_: &str, _: bool) -> Result<Vec<String>, String> {
    Err("this build has no JavaScript; use `python` or `bash`".to_owned())
}
