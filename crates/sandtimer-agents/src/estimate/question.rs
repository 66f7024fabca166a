//! What a question is about, or what was run: distinguished by fingerprints, so that no command
//! line is kept.
//!
//! From the same question come the keys of all rungs of the ladder, from "this very thing" to
//! "anything".

use serde::{Deserialize, Serialize};

use super::error::{EstimateError, MAX_MEGABYTES};
use super::kind::{Complexity, TaskType};
use super::rung::RUNGS;

/// Characters of a command that its template is made from.
const MAX_TEMPLATE_CHARACTERS: usize = 4096;
/// Runnable processes for each processor from which on a machine is busy, and from which on it is
/// crowded.
const BUSY: f64 = 1.0;
const CROWDED: f64 = 2.0;

/// Work whose duration is asked for.
///
/// It is made from the type of a task, a command, or both; the more it has, the closer are the runs
/// on which an answer rests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Question {
    task: Option<TaskType>,
    command: Option<CommandKey>,
    data_size_mb: Option<f64>,
    complexity: Option<Complexity>,
    /// A fingerprint.
    context: Option<u64>,
    conditions: Conditions,
    owner: u64,
}

/// Fingerprints of a command as it is, and without its numbers and directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct CommandKey {
    exact: u64,
    template: u64,
}

/// Where something runs. Runs on another machine, or under another load, have another key.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// The machine's class, such as processor model, number of processors, accelerator.
    pub hardware: String,
    /// Runnable processes for each processor, if that is known.
    pub load: Option<f64>,
}

impl Question {
    /// Makes a question about a kind of task.
    pub fn task(task: TaskType) -> Self {
        Question::about(Some(task), None)
    }

    fn about(task: Option<TaskType>, command: Option<CommandKey>) -> Self {
        Question {
            task,
            command,
            data_size_mb: None,
            complexity: None,
            context: None,
            conditions: Conditions::default(),
            owner: 0,
        }
    }

    /// Makes a question about a command and its arguments. A line for a shell is the same command
    /// as the words of that line.
    pub fn command<S: AsRef<str>>(command: &[S]) -> Self {
        let parts: Vec<&str> = command.iter().map(AsRef::as_ref).collect();
        let line = match parts[..] {
            ["bash" | "sh", "-c", line] => line.to_owned(),
            _ => parts.join(" "),
        };
        let arguments: Vec<&str> = line.split_whitespace().collect();
        let beginning: String = arguments.join(" ").chars().take(MAX_TEMPLATE_CHARACTERS).collect();
        let (mut exact, mut template) = (Fingerprint::new(), Fingerprint::new());
        arguments.into_iter().for_each(|argument| exact.text(argument));
        template.text(&stripped(&beginning));
        Question::about(None, Some(CommandKey { exact: exact.0, template: template.0 }))
    }

    /// Sets the type.
    #[must_use]
    pub fn of_type(self, task: TaskType) -> Self {
        Question { task: Some(task), ..self }
    }

    /// Takes over the type, size, complexity and context of another question.
    #[must_use]
    pub fn work_of(self, other: &Question) -> Self {
        let Question { task, data_size_mb, complexity, context, .. } = other.clone();
        Question { task, data_size_mb, complexity, context, ..self }
    }

    /// Sets the size of the data in megabytes.
    ///
    /// # Errors
    /// [`EstimateError::BadSize`] if it is negative, above [`MAX_MEGABYTES`], or not a number.
    pub fn data_size_mb(self, size: f64) -> Result<Self, EstimateError> {
        if !(0.0..=MAX_MEGABYTES).contains(&size) {
            return Err(EstimateError::BadSize(size));
        }
        Ok(Question { data_size_mb: Some(size), ..self })
    }

    /// Sets the complexity; by default [`Complexity::Moderate`].
    #[must_use]
    pub fn complexity(self, complexity: Complexity) -> Self {
        Question { complexity: Some(complexity), ..self }
    }

    /// Sets keywords that distinguish it from other work of its type. They are compared, not
    /// understood.
    #[must_use]
    pub fn context(self, keywords: &str) -> Self {
        let mut fingerprint = Fingerprint::new();
        keywords.split_whitespace().for_each(|keyword| fingerprint.text(&keyword.to_lowercase()));
        Question { context: Some(fingerprint.0), ..self }
    }

    /// Sets the machine and its load; by default both are unknown.
    #[must_use]
    pub fn conditions(self, conditions: Conditions) -> Self {
        Question { conditions, ..self }
    }

    /// Sets the owner, from whose runs alone it is answered.
    #[must_use]
    pub fn owner(self, owner: &str) -> Self {
        let mut fingerprint = Fingerprint::new();
        fingerprint.text(owner);
        Question { owner: fingerprint.0, ..self }
    }

    /// Returns the type, if one was given.
    pub fn task_type(&self) -> Option<TaskType> {
        self.task
    }

    pub(super) fn is_command(&self) -> bool {
        self.command.is_some()
    }

    /// Returns the size of the data in megabytes, if it was given.
    pub fn size_mb(&self) -> Option<f64> {
        self.data_size_mb
    }

    /// Returns the complexity, as given or assumed.
    pub fn how_complex(&self) -> Complexity {
        self.complexity.unwrap_or_default()
    }

    /// The logarithm of the size, where more data takes longer.
    pub(super) fn log_size(&self) -> Option<f32> {
        let task = self.task.filter(|task| task.grows())?;
        // The size of a command's data is unknown unless it is given.
        let assumed = if self.command.is_none() { Some(task.usual_size_mb()) } else { None };
        let size = self.data_size_mb.or(assumed)?;
        (size > 0.0).then(|| size.ln() as f32)
    }

    /// 0 where the load is not known, else from 1, quiet, to 3, crowded.
    pub(super) fn load_class(&self) -> usize {
        self.conditions.load_class()
    }

    /// The keys of its rungs, from the closest on; `None` for a rung that does not apply.
    pub(super) fn keys(&self) -> [Option<u64>; RUNGS] {
        let key = |rung: u64| {
            let mut key = Fingerprint::new();
            key.number(rung);
            key.number(self.owner);
            key
        };
        let task = self.task.map(|task| {
            let mut key = Fingerprint::new();
            key.text(task.name());
            key.number(self.how_complex() as u64);
            key.0
        });
        let add_hardware = |key: &mut Fingerprint| key.text(&self.conditions.hardware);
        let same = |rung: u64, load: u64| {
            let mut key = key(rung);
            // For a command its type adds nothing.
            key.number(self.command.map_or(task.unwrap_or(0), |command| command.exact));
            key.number(self.data_size_mb.map_or(0, digits));
            key.number(self.context.unwrap_or(0));
            add_hardware(&mut key);
            key.number(load);
            key.0
        };
        let template = self.command.map(|command| {
            let mut key = key(2);
            key.number(command.template);
            add_hardware(&mut key);
            key.0
        });
        let class = task.map(|task| {
            let mut key = key(3);
            key.number(task);
            key.number(self.log_size().map_or(0, |log| (f64::from(log) / 4_f64.ln()).floor() as i64 as u64));
            add_hardware(&mut key);
            key.0
        });
        let of_type = task.map(|task| {
            let mut key = key(4);
            key.number(task);
            key.0
        });
        let exact = same(0, self.load_class() as u64);
        [Some(exact), Some(same(1, 0)), template, class, of_type]
    }
}

impl Conditions {
    fn load_class(&self) -> usize {
        match self.load {
            None => 0,
            Some(load) if load < BUSY => 1,
            Some(load) if load < CROWDED => 2,
            Some(_) => 3,
        }
    }
}

/// A size by its first two digits, so that what differs by less is the same size.
fn digits(size: f64) -> u64 {
    if size <= 0.0 { 1 } else { (size.log10() * 50.0).round() as i64 as u64 }
}

/// A command's text without what differs between runs of the same work: numbers, long hexadecimal
/// names, directories.
fn stripped(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    for token in text.split_whitespace() {
        let name = token.rsplit('/').find(|part| !part.is_empty()).unwrap_or("/");
        for part in name.split_inclusive(|character: char| !character.is_alphanumeric() && character != '.') {
            let bare = part.trim_end_matches(|character: char| !character.is_alphanumeric());
            let is_hexadecimal =
                bare.len() >= 8 && bare.chars().all(|character| character.is_ascii_hexdigit());
            if is_hexadecimal && bare.chars().any(|character| character.is_ascii_digit()) {
                kept.push('#');
            } else {
                push_without_numbers(&mut kept, part);
            }
        }
        kept.push(' ');
    }
    kept
}

fn push_without_numbers(kept: &mut String, part: &str) {
    let mut in_number = false;
    for character in part.chars() {
        let goes_on = character.is_ascii_digit() || (in_number && character == '.');
        if !goes_on {
            kept.push(character);
        } else if !in_number {
            kept.push('#');
        }
        in_number = goes_on;
    }
}

/// FNV-1a, which is the same on every machine and in every version. A caller that makes two things
/// collide only spoils its own estimates.
struct Fingerprint(u64);

impl Fingerprint {
    fn new() -> Self {
        Fingerprint(0xcbf2_9ce4_8422_2325)
    }

    fn byte(&mut self, byte: u8) {
        self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }

    fn text(&mut self, text: &str) {
        text.bytes().for_each(|byte| self.byte(byte));
        // No text has this byte: where one ends and the next begins counts.
        self.byte(0xff);
    }

    fn number(&mut self, number: u64) {
        number.to_le_bytes().into_iter().for_each(|byte| self.byte(byte));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_seeds_and_directories_are_not_in_a_template() {
        for (one, other) in [
            ("python /tmp/a1/train.py --seed 7 --epochs=15", "python train.py --seed 12345 --epochs=3"),
            ("tool --id deadbeef01 x", "tool --id 0123456789abcdef x"),
            ("fit --rate 0.01 out_3.csv", "fit --rate 0.5 /data/out_12.csv"),
        ] {
            assert_eq!(stripped(one), stripped(other));
        }
        for (one, other) in
            [("cp a b", "mv a b"), ("train --deep", "train --flat"), ("cat a.csv", "cat a.txt")]
        {
            assert_ne!(stripped(one), stripped(other));
        }
    }

    #[test]
    fn keys_differ_only_where_questions_differ() {
        let quiet = |load| Conditions { hardware: "a".to_owned(), load: Some(load) };
        let asked = Question::command(&["python", "train.py", "--seed", "1"]).conditions(quiet(0.1));
        let seed = Question::command(&["python", "train.py", "--seed", "2"]).conditions(quiet(0.1));
        assert!(asked.keys()[0] != seed.keys()[0] && asked.keys()[1] != seed.keys()[1]);
        assert_eq!(asked.keys()[2], seed.keys()[2]);
        let loaded = asked.clone().conditions(quiet(3.0));
        assert_ne!(asked.keys()[0], loaded.keys()[0]);
        assert_eq!(asked.keys()[1..], loaded.keys()[1..]);
        assert_eq!(asked.clone().conditions(quiet(0.2)).keys(), asked.keys());
        let other = asked.clone().owner("somebody");
        for (own, others) in asked.keys().into_iter().zip(other.keys()) {
            assert!(own.is_none() || own != others);
        }
        assert_eq!(Question::command(&["bash", "-c", " a  b"]), Question::command(&["a", "b"]));
        assert_ne!(Question::command(&["ab"]), Question::command(&["a", "b"]));
    }
}
