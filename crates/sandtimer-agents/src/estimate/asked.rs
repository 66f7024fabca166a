//! A question as it comes in from people, agents and programs, and its answer as they read it.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::answer::{Estimate, LIMIT_RUNS, format_duration};
use super::error::EstimateError;
use super::kind::{Complexity, TaskType};
use super::question::{Conditions, Question};
use super::rung::Rung;

/// A request for an estimate: a type, a command, or both.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EstimateRequest {
    pub task_type: Option<String>,
    pub command: Option<Vec<String>>,
    pub data_size_mb: Option<f64>,
    pub complexity: Option<String>,
    pub context: Option<String>,
    /// How much time is left for it.
    pub budget: Option<Duration>,
}

impl EstimateRequest {
    /// What it means, asked by this owner under these conditions.
    ///
    /// # Errors
    /// If there is neither type nor command, or a name or size is invalid.
    pub fn question(&self, owner: &str, conditions: Conditions) -> Result<Question, EstimateError> {
        let task = self.task_type.as_deref().map(TaskType::parse).transpose()?;
        let command =
            self.command.as_ref().filter(|command| command.iter().any(|part| !part.trim().is_empty()));
        let mut question = match (command, task) {
            (Some(command), None) => Question::command(command),
            (Some(command), Some(task)) => Question::command(command).of_type(task),
            (None, Some(task)) => Question::task(task),
            (None, None) => return Err(EstimateError::NothingAsked),
        };
        if let Some(size) = self.data_size_mb {
            question = question.data_size_mb(size)?;
        }
        if let Some(complexity) = &self.complexity {
            question = question.complexity(Complexity::parse(complexity)?);
        }
        if let Some(context) = &self.context {
            question = question.context(context);
        }
        Ok(question.conditions(conditions).owner(owner))
    }
}

/// An estimate with the request that it answers.
#[derive(Debug, Clone, PartialEq)]
pub struct EstimateAnswer {
    pub asked: EstimateRequest,
    pub question: Question,
    pub estimate: Estimate,
    /// Why runs that there are were left out.
    pub without: Option<String>,
}

impl EstimateAnswer {
    /// The same, as people and agents read it.
    pub fn text(&self) -> String {
        let estimate = &self.estimate;
        let mut text = format!(
            "⏱️ Task Duration Estimate: {}\n\n📊 Estimated Duration:\n   ⚡ Best case:  {}\n   📈 Typical:    {}\n   \
             ⚠️ Worst case: {}\n\n",
            self.name(),
            format_duration(estimate.best_seconds),
            format_duration(estimate.typical_seconds),
            format_duration(estimate.worst_seconds),
        );
        // A String takes everything that is written to it.
        let _ = self.write_rest(&mut text);
        text
    }

    /// What is estimated, for a heading: the type, or the beginning of the command.
    pub fn name(&self) -> String {
        match (self.question.task_type(), &self.asked.command) {
            (Some(task), _) => task.name().to_owned(),
            (None, Some(command)) => command.join(" ").chars().take(60).map(printable).collect(),
            (None, None) => String::new(),
        }
    }

    fn write_rest(&self, text: &mut String) -> std::fmt::Result {
        let (question, estimate) = (&self.question, &self.estimate);
        if let Some(task) = question.task_type() {
            match question.size_mb() {
                Some(size) => writeln!(text, "Data size: {size} MB")?,
                None if estimate.basis == Rung::Prior => {
                    writeln!(text, "Data size: not given, {} MB assumed", task.usual_size_mb())?;
                }
                None => {}
            }
            writeln!(text, "Complexity: {}", question.how_complex().name())?;
        }
        if let Some(context) = &self.asked.context {
            writeln!(text, "Context: {}", context.chars().take(200).map(printable).collect::<String>())?;
        }
        let without = self.without.as_ref().map_or(String::new(), |why| format!("; {why}"));
        writeln!(text, "Basis: {}{without}", basis(estimate))?;
        if let Some(budget) = self.asked.budget {
            let fits = if estimate.fits(budget) { "yes" } else { "no" };
            let chance = 100.0 * estimate.chance_over_by(budget.as_secs_f64(), 0.0);
            let left = format_duration(budget.as_secs_f64());
            writeln!(text, "Fits the remaining {left}: {fits}; over by then with a chance of {chance:.0} %")?;
        }
        write!(text, "Suggested limit: {}", format_duration(estimate.suggested_limit_seconds))?;
        if !estimate.limit_rests_on_runs {
            write!(text, " (a guess: fewer than {LIMIT_RUNS} runs of this very thing are known)")?;
        }
        writeln!(text)
    }

    /// The same for programs, durations in milliseconds.
    pub fn object(&self) -> Value {
        let estimate = &self.estimate;
        let budget = self.asked.budget;
        json!({
            "task_type": self.question.task_type().map(TaskType::name),
            "data_size_mb": self.question.size_mb(),
            "complexity": self.question.how_complex().name(),
            "context": self.asked.context,
            "best_ms": milliseconds(estimate.best_seconds),
            "typical_ms": milliseconds(estimate.typical_seconds),
            "worst_ms": milliseconds(estimate.worst_seconds),
            "runs": estimate.runs,
            "basis": estimate.basis.name(),
            "censored_rate": estimate.censored_rate,
            "coverage": estimate.coverage,
            "fits_budget": budget.map(|budget| estimate.fits(budget)),
            "chance_within_budget": budget.map(|budget| estimate.chance_over_by(budget.as_secs_f64(), 0.0)),
            "suggested_limit_ms": milliseconds(estimate.suggested_limit_seconds),
            "limit_rests_on_runs": estimate.limit_rests_on_runs,
            "text": self.text(),
        })
    }
}

/// At least one: what takes no time at all is not a limit.
fn milliseconds(seconds: f64) -> u64 {
    ((seconds * 1000.0).round() as u64).max(1)
}

/// A line stays one line, whatever is in it.
fn printable(character: char) -> char {
    if character.is_control() { ' ' } else { character }
}

fn basis(estimate: &Estimate) -> String {
    let count = estimate.runs;
    let runs = if count == 1 { "1 run".to_owned() } else { format!("{count} runs") };
    let mut text = match estimate.basis {
        Rung::Exact => format!("{runs} of this very thing"),
        Rung::AnyLoad => format!("{runs} of this very command, under another load"),
        Rung::Template if count == 1 => "1 run of a command that differs in numbers or paths".to_owned(),
        Rung::Template => format!("{runs} of commands that differ in numbers or paths"),
        Rung::Class => format!("{runs} of this type with such a size on such a machine"),
        Rung::Type => format!("{runs} of this type"),
        Rung::Unknown => "unknown: no run of this command, nor of one like it, is known; the range is that of most commands".to_owned(),
        Rung::Prior => "no runs; the figures of a table for this type".to_owned(),
    };
    if estimate.censored_rate > 0.0 {
        // A String takes everything that is written to it.
        let _ = match count {
            1 => write!(text, "; it was stopped before its end"),
            _ => {
                write!(
                    text,
                    "; {:.0} % of them were stopped before their end",
                    100.0 * estimate.censored_rate
                )
            }
        };
    }
    text
}
