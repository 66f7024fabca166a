//! How a call is carried out: the way that is wanted, its retries, and the fallbacks.

use std::time::Duration;

use sandtimer::limits::Limits;
use sandtimer::model::Outcome;
use sandtimer_agents::resilience::{Backoff, Retry};
use serde_json::Value;

use super::error::SpecError;
use super::program::{JobProgram, program};
use super::table::{SpecTable, refused};

/// One call: the preferred way, then the fallbacks.
#[derive(Debug, Clone)]
pub struct Action {
    /// The ways, at least one, in the order in which they are tried.
    pub ways: Vec<WaySpec>,
    /// The wall-clock limit of the whole call, with retries and fallbacks; `None` is unlimited.
    pub wall: Option<Duration>,
}

/// One way to make a call: a program with its retries.
#[derive(Debug, Clone)]
pub struct WaySpec {
    /// What each attempt executes.
    pub program: JobProgram,
    /// How often it is tried, and with which pauses; by default once.
    pub retry: Retry,
    /// The key of its breaker, such as `name:action`; without a key it has none.
    pub key: Option<String>,
    /// Exit codes from 0 to 255 that are not failures.
    pub expected: Vec<i32>,
    /// Failures after which it is not tried again.
    pub not_retried: RetryExclusions,
    /// The limits of each run, which take precedence over those of the job.
    pub limits: Limits,
}

/// Failures after which no further attempt of a way is made: a fallback is next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetryExclusions {
    /// Exit codes from 1 to 255.
    pub exit_codes: Vec<i32>,
    /// Names of the exceptions of handlers, without their modules.
    pub exceptions: Vec<String>,
}

impl RetryExclusions {
    /// Whether it names this failure.
    pub fn names(&self, outcome: &Outcome) -> bool {
        let exception = outcome.error.as_ref().and_then(|error| error["exception"].as_str());
        let name = exception.and_then(|name| name.rsplit('.').next());
        outcome.exit_code.is_some_and(|code| self.exit_codes.contains(&code))
            || name.is_some_and(|name| self.exceptions.iter().any(|named| named == name))
    }
}

pub(super) fn action(table: &mut SpecTable) -> Result<Action, SpecError> {
    let wall = table.wall()?.flatten();
    Ok(Action { ways: ways(table)?, wall })
}

/// The way that is wanted, in the table itself, and the fallbacks in their list.
pub(super) fn ways(table: &mut SpecTable) -> Result<Vec<WaySpec>, SpecError> {
    // A job's own limits have been taken by then: they are those of each run anyway.
    let mut ways = vec![way(table)?];
    for mut fallback in table.tables("fallback")? {
        ways.push(way(&mut fallback)?);
        fallback.done()?;
    }
    Ok(ways)
}

fn way(table: &mut SpecTable) -> Result<WaySpec, SpecError> {
    let program = program(table)?;
    let mut retry = Retry::jittered(table.small("attempts", 1)?.unwrap_or(1));
    if let Some(pauses) = table.times("backoff_ms")? {
        retry.backoff = Backoff::Fixed(pauses);
    }
    if let Some(useful) = table.span("useful_ms")? {
        retry.useful = useful;
    }
    let key = table.name("key")?;
    let expected = expected(table)?;
    let not_retried = not_retried(table)?;
    Ok(WaySpec { program, retry, key, expected, not_retried, limits: table.limits("limits")? })
}

fn expected(table: &mut SpecTable) -> Result<Vec<i32>, SpecError> {
    let path = table.at("expected");
    let Some(value) = table.take("expected") else { return Ok(Vec::new()) };
    let code = |code: &Value| code.as_i64().filter(|code| (0..=255).contains(code)).map(|code| code as i32);
    let codes = value.as_array().and_then(|list| list.iter().map(code).collect());
    codes.ok_or_else(|| refused(&path, &value, "a list of exit codes from 0 to 255"))
}

fn not_retried(table: &mut SpecTable) -> Result<RetryExclusions, SpecError> {
    let path = table.at("not_retried");
    let mut read = RetryExclusions::default();
    let Some(value) = table.take("not_retried") else { return Ok(read) };
    let wrong = || {
        refused(
            &path,
            &value,
            "a list of exit codes from 1 to 255 and names of exceptions, such as `ValueError`",
        )
    };
    for each in value.as_array().ok_or_else(wrong)? {
        match (each.as_i64(), each.as_str()) {
            (Some(code @ 1..=255), _) => read.exit_codes.push(code as i32),
            (None, Some(name)) if is_name(name) => read.exceptions.push(name.to_owned()),
            _ => return Err(wrong()),
        }
    }
    Ok(read)
}

/// Whether it can be the name of a class in Python.
fn is_name(name: &str) -> bool {
    let is_letter = |letter: char| letter.is_alphanumeric() || letter == '_';
    name.chars().all(is_letter) && !name.starts_with(|first: char| first.is_ascii_digit()) && !name.is_empty()
}
