//! The fields of a submission: all that is wrong is reported, each by its field, as Rails does.

use axum::body::Bytes;
use sandtimer::Limits;
use sandtimer::limits::{Key, Setting};
use sandtimer::model::LimitKind;
use serde_json::{Map, Value, json};

use super::languages::{self, LanguageNumber};
use crate::api::service::FrontDoorService;
use crate::api::wire::{decoded, number};
use crate::auth::OwnerId;
use crate::body::RequestFields;
use crate::programs;

/// The longest options and arguments.
const MAX_OPTIONS: usize = 512;

/// A number of a submission, and what it may be.
#[derive(Debug)]
pub(super) struct FieldBound {
    pub name: &'static str,
    pub usual: f64,
    least: f64,
    most: f64,
    /// The limit that it sets, and that many of the limit's units are one of it.
    limit: Option<(Key, f64)>,
}

const SECOND: f64 = 1e9;
const KIBIBYTE: f64 = 1024.0;

const fn bound(
    name: &'static str,
    least: f64,
    usual: f64,
    most: f64,
    limit: Option<(Key, f64)>,
) -> FieldBound {
    FieldBound { name, usual, least, most, limit }
}

/// The numbers of a submission, with Judge0's own defaults and maxima.
pub(super) static BOUNDS: [FieldBound; 8] = [
    bound("number_of_runs", 1.0, 1.0, 20.0, None),
    bound("cpu_time_limit", 0.0, 5.0, 15.0, Some((Key::Kind(LimitKind::Cpu), SECOND))),
    bound("cpu_extra_time", 0.0, 1.0, 5.0, None),
    bound("wall_time_limit", 1.0, 10.0, 20.0, Some((Key::Kind(LimitKind::Wall), SECOND))),
    bound("memory_limit", 2048.0, 128_000.0, 512_000.0, Some((Key::Kind(LimitKind::Memory), KIBIBYTE))),
    bound("stack_limit", 0.0, 64_000.0, 128_000.0, None),
    bound("max_processes_and_or_threads", 1.0, 60.0, 120.0, Some((Key::Kind(LimitKind::Processes), 1.0))),
    bound("max_file_size", 0.0, 1024.0, 4096.0, Some((Key::Kind(LimitKind::Output), KIBIBYTE))),
];

impl FieldBound {
    /// Returns the maximum of the field, and the reason if it is not Judge0's own: the operator's
    /// ceiling replaces it.
    pub fn most(&self, service: &FrontDoorService, owner: &OwnerId) -> (f64, String) {
        let Some((key, unit)) = self.limit else { return (self.most, String::new()) };
        // The operator has not chosen what protects the machine.
        let is_machines = matches!(key, Key::Kind(LimitKind::Memory | LimitKind::Processes));
        match programs::ceiling(&service.programs, owner, key).map(|ceiling| (ceiling as f64 / unit).floor())
        {
            Some(ceiling) if !is_machines || ceiling < self.most => {
                (ceiling, format!(" (max_{} of this server)", key.wire()))
            }
            _ => (self.most, String::new()),
        }
    }
}

/// A submission as it is asked for.
#[derive(Debug)]
pub(super) struct SubmissionRequest {
    pub language_id: u64,
    pub language: &'static LanguageNumber,
    pub source: Bytes,
    pub stdin: Option<Vec<u8>>,
    pub expected_output: Option<Vec<u8>>,
    pub compiler_options: Option<String>,
    pub arguments: Option<String>,
    pub redirects_stderr: bool,
    pub network: bool,
    /// The numbers by their names, given ones first.
    pub numbers: Map<String, Value>,
    /// The limits that it chose.
    pub chosen: Limits,
    /// Judge0's own for the others.
    pub usual: Limits,
}

impl SubmissionRequest {
    /// One of its numbers.
    pub fn number(&self, name: &str) -> f64 {
        self.numbers.get(name).and_then(Value::as_f64).unwrap_or_default()
    }
}

/// A number as JSON: whole where it is whole.
pub(super) fn written(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 1e15 { json!(number as i64) } else { json!(number) }
}

/// All that is wrong with a submission.
#[derive(Debug, Default)]
pub(super) struct Errors(Map<String, Value>);

impl Errors {
    fn add(&mut self, field: &str, message: impl Into<String>) {
        let messages = self.0.entry(field).or_insert_with(|| json!([]));
        if let Some(messages) = messages.as_array_mut() {
            messages.push(Value::String(message.into()));
        }
    }
}

impl From<Errors> for Value {
    fn from(errors: Errors) -> Self {
        Value::Object(errors.0)
    }
}

pub(super) async fn parse(
    service: &FrontDoorService,
    owner: &OwnerId,
    mut fields: RequestFields,
    is_base64: bool,
) -> Result<SubmissionRequest, Errors> {
    let mut errors = Errors::default();
    let source = text(&mut fields, "source_code", is_base64, &mut errors);
    let stdin = text(&mut fields, "stdin", is_base64, &mut errors);
    let expected_output = text(&mut fields, "expected_output", is_base64, &mut errors);
    if source.as_ref().is_none_or(|source| source.trim_ascii().is_empty())
        && !errors.0.contains_key("source_code")
    {
        errors.add("source_code", "can't be blank");
    }
    let (language_id, language) = match fields.value("language_id") {
        None => {
            errors.add("language_id", "can't be blank");
            (0, None)
        }
        Some(value) => language(service, &value, &mut errors).await,
    };
    let mut numbers = Map::new();
    let (mut chosen, mut usual) = (Limits::new(), Limits::new());
    for bound in &BOUNDS {
        let given = bounded(service, owner, &mut fields, bound, &mut errors);
        numbers.insert(bound.name.to_owned(), written(given.unwrap_or(bound.usual)));
        let set = |limits: &mut Limits, value: f64| {
            if let Some((key, unit)) = bound.limit {
                // Without one, as isolate takes it.
                limits.set(
                    key,
                    if value == 0.0 { Setting::Unlimited } else { Setting::At((value * unit) as u64) },
                );
            }
        };
        match given {
            Some(value) => set(&mut chosen, value),
            None => set(&mut usual, bound.usual),
        }
    }
    let compiler_options = options(&mut fields, "compiler_options", &mut errors);
    if compiler_options.is_some() && language.is_some_and(|language| !language.language.is_compiled()) {
        errors.add("compiler_options", "setting compiler options is only allowed for compiled languages");
    }
    let arguments = options(&mut fields, "command_line_arguments", &mut errors);
    let network = is_set(fields.value("enable_network"));
    if network && !service.programs.runs.core.tenants.may_have_network(owner) {
        errors.add("enable_network", "enabling network is not allowed");
    }
    for (field, message) in [
        ("enable_per_process_and_thread_time_limit", "this option cannot be enabled"),
        ("enable_per_process_and_thread_memory_limit", "this option cannot be enabled"),
    ] {
        if is_set(fields.value(field)) {
            errors.add(field, message);
        }
    }
    for (field, message) in [
        ("callback_url", "setting callback is not allowed"),
        ("additional_files", "setting additional files is not allowed"),
    ] {
        if fields.value(field).is_some_and(|value| value != "") {
            errors.add(field, message);
        }
    }
    let redirects_stderr = is_set(fields.value("redirect_stderr_to_stdout"));
    let (Some(source), Some(language), true) = (source, language, errors.0.is_empty()) else {
        return Err(errors);
    };
    Ok(SubmissionRequest {
        language_id,
        language,
        source: source.into(),
        stdin,
        expected_output,
        compiler_options,
        arguments,
        redirects_stderr,
        network,
        numbers,
        chosen,
        usual,
    })
}

fn is_set(value: Option<Value>) -> bool {
    value.is_some_and(|value| value == true || value == "true" || value == 1 || value == "1")
}

/// A text attribute.
fn text(
    fields: &mut RequestFields,
    name: &'static str,
    is_base64: bool,
    errors: &mut Errors,
) -> Option<Vec<u8>> {
    let text = match fields.value(name)? {
        Value::String(text) => text,
        other => other.to_string(),
    };
    if !is_base64 {
        return Some(text.into_bytes());
    }
    let bytes = decoded(&text);
    if bytes.is_none() {
        errors.add(name, "is not valid base64, which base64_encoded=true asks for");
    }
    bytes
}

async fn language(
    service: &FrontDoorService,
    value: &Value,
    errors: &mut Errors,
) -> (u64, Option<&'static LanguageNumber>) {
    let id = number(value).filter(|id| id.fract() == 0.0 && *id >= 0.0).map(|id| id as u64);
    let known = id.and_then(languages::find);
    let is_installed = match known {
        Some(known) => programs::version(&service.programs, known.language).await.is_some(),
        None => false,
    };
    if let (Some(id), true) = (id, is_installed) {
        return (id, known);
    }
    let shown: String = match value {
        Value::String(text) => text.chars().take(60).collect(),
        other => other.to_string().chars().take(60).collect(),
    };
    let reason = match known {
        Some(known) => format!(": this host does not have {}", known.language.title),
        None => String::new(),
    };
    errors.add("language_id", format!("language with id {shown} doesn't exist{reason}"));
    (0, None)
}

fn bounded(
    service: &FrontDoorService,
    owner: &OwnerId,
    fields: &mut RequestFields,
    bound: &'static FieldBound,
    errors: &mut Errors,
) -> Option<f64> {
    let value = fields.value(bound.name).filter(|value| *value != "")?;
    let Some(number) = number(&value) else {
        errors.add(bound.name, "is not a number");
        return None;
    };
    let (most, reason) = bound.most(service, owner);
    if number < bound.least {
        errors.add(bound.name, format!("must be greater than or equal to {}", bound.least));
    } else if number > most {
        errors.add(bound.name, format!("must be less than or equal to {most}{reason}"));
    }
    Some(number)
}

/// Options of a command, without what a shell would interpret.
fn options(fields: &mut RequestFields, name: &'static str, errors: &mut Errors) -> Option<String> {
    let Value::String(text) = fields.value(name)? else {
        errors.add(name, "is not a string");
        return None;
    };
    if text.chars().count() > MAX_OPTIONS {
        errors.add(name, format!("is too long (maximum is {MAX_OPTIONS} characters)"));
    }
    Some(text).filter(|text| !text.trim().is_empty())
}

/// The words of options, in which quotes hold words together; characters that Judge0 removes are
/// removed.
pub(super) fn split_options(text: &str) -> Vec<String> {
    let (mut options, mut option, mut quote) = (Vec::new(), None::<String>, None);
    for letter in
        text.chars().filter(|letter| !matches!(letter, '$' | '&' | ';' | '<' | '>' | '|' | '`' | '\\'))
    {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(letter);
                option.get_or_insert_with(String::new);
            }
            (None, _) if letter.is_whitespace() => options.extend(option.take()),
            _ => option.get_or_insert_with(String::new).push(letter),
        }
    }
    options.extend(option);
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_a_shells_without_its_commands() {
        assert_eq!(split_options("  -O2 'a b' c\"d e\" ''  "), ["-O2", "a b", "cd e", ""]);
        assert_eq!(split_options("a; rm -rf $HOME `x`"), ["a", "rm", "-rf", "HOME", "x"]);
        assert!(split_options(" ").is_empty());
    }
}
