//! The kinds of task that have a name, and how long each takes as far as nothing else is known.
//!
//! The figures are guesses that were made by hand, once, for the size of data that stands with them
//! and for moderate complexity. Those at [`STATED_MEGABYTES`] are the ones that the published
//! description of task-aware timeouts promises; where it gives only a typical time, best and worst
//! have the proportions of its one full example (0.4 and 3). The others are of the tool that it
//! describes, which assumes 1 GB. Asked without a size, a type has its own size here.

use serde::{Deserialize, Serialize};

use super::error::EstimateError;

/// Megabytes of data in the situations of the description.
pub(super) const STATED_MEGABYTES: f64 = 2300.0;
const GIGABYTE: f64 = 1024.0;

/// How durations grow with the size of data until runs show another growth: by this power of it.
pub(super) const GROWTH: f64 = 0.7;
/// The figures are not stretched further than this.
const STRETCH_BOUNDS: (f64, f64) = (0.1, 50.0);
/// Nearest names that a refusal offers.
const MAX_SUGGESTIONS: usize = 3;

/// Best, typical and worst duration in seconds.
pub(super) type Triple = [f64; 3];

#[derive(Debug)]
struct Prior {
    name: &'static str,
    group: &'static str,
    at_mb: f64,
    seconds: Triple,
    /// Whether more data takes longer.
    grows: bool,
}

const fn grows(name: &'static str, group: &'static str, at_mb: f64, seconds: Triple) -> Prior {
    Prior { name, group, at_mb, seconds, grows: true }
}

const fn same(name: &'static str, group: &'static str, seconds: Triple) -> Prior {
    Prior { name, group, at_mb: GIGABYTE, seconds, grows: false }
}

const MINUTE: f64 = 60.0;
const HOUR: f64 = 3600.0;

const PRIORS: [Prior; 29] = [
    grows("load_data", EXPLORATION, GIGABYTE, [1.0, 5.0, 30.0]),
    grows("explore_data", EXPLORATION, STATED_MEGABYTES, [2.0 * MINUTE, 5.0 * MINUTE, 15.0 * MINUTE]),
    grows("data_profiling", EXPLORATION, GIGABYTE, [30.0, 120.0, 600.0]),
    grows("visualize_data", EXPLORATION, GIGABYTE, [20.0, 60.0, 180.0]),
    grows("clean_data", PREPROCESSING, GIGABYTE, [30.0, 180.0, 900.0]),
    grows(
        "feature_engineering",
        PREPROCESSING,
        STATED_MEGABYTES,
        [10.0 * MINUTE, 25.0 * MINUTE, 75.0 * MINUTE],
    ),
    grows("handle_missing_values", PREPROCESSING, GIGABYTE, [20.0, 120.0, 600.0]),
    grows("encode_categorical", PREPROCESSING, GIGABYTE, [10.0, 60.0, 300.0]),
    grows("scale_features", PREPROCESSING, GIGABYTE, [5.0, 30.0, 120.0]),
    grows("train_simple_model", TRAINING, STATED_MEGABYTES, [12.0 * MINUTE, 30.0 * MINUTE, 90.0 * MINUTE]),
    grows("train_complex_model", TRAINING, STATED_MEGABYTES, [12.0 * MINUTE, 30.0 * MINUTE, 90.0 * MINUTE]),
    grows("train_deep_learning", TRAINING, STATED_MEGABYTES, [0.8 * HOUR, 2.0 * HOUR, 6.0 * HOUR]),
    grows("hyperparameter_tuning", TRAINING, GIGABYTE, [300.0, 1800.0, 7200.0]),
    grows("cross_validation", TRAINING, GIGABYTE, [60.0, 300.0, 1800.0]),
    grows("evaluate_model", EVALUATION, GIGABYTE, [5.0, 30.0, 120.0]),
    grows("generate_predictions", EVALUATION, GIGABYTE, [5.0, 30.0, 180.0]),
    grows("calculate_metrics", EVALUATION, GIGABYTE, [5.0, 20.0, 60.0]),
    grows("process_large_dataset", LARGE, GIGABYTE, [120.0, 600.0, 3600.0]),
    grows("merge_large_dataframes", LARGE, GIGABYTE, [30.0, 180.0, 900.0]),
    grows("aggregate_data", LARGE, GIGABYTE, [10.0, 60.0, 300.0]),
    same("write_script", CODE, [60.0, 300.0, 900.0]),
    same("debug_code", CODE, [120.0, 600.0, 1800.0]),
    same("refactor_code", CODE, [60.0, 300.0, 1200.0]),
    same("read_small_file", FILES, [1.0, 2.0, 10.0]),
    grows("read_large_file", FILES, GIGABYTE, [5.0, 30.0, 120.0]),
    grows("write_file", FILES, GIGABYTE, [1.0, 5.0, 30.0]),
    same("understand_competition", COMPETITION, [300.0, 600.0, 1800.0]),
    grows("prepare_submission", COMPETITION, GIGABYTE, [30.0, 120.0, 300.0]),
    grows("ensemble_models", COMPETITION, GIGABYTE, [60.0, 300.0, 1200.0]),
];

const EXPLORATION: &str = "data exploration";
const PREPROCESSING: &str = "data preprocessing";
const TRAINING: &str = "model training";
const EVALUATION: &str = "model evaluation";
const LARGE: &str = "large data";
const CODE: &str = "code";
const FILES: &str = "files";
const COMPETITION: &str = "competitions";

/// A kind of task that has a name, such as `train_complex_model`.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(into = "&'static str", try_from = "String")]
pub struct TaskType(&'static Prior);

impl TaskType {
    /// Returns all types, group by group.
    pub fn all() -> impl Iterator<Item = TaskType> {
        PRIORS.iter().map(TaskType)
    }

    /// Returns the type of this name; case does not matter, and spaces and dashes may stand for
    /// `_`.
    ///
    /// # Errors
    /// [`EstimateError::UnknownTask`] if there is none, with the nearest names, which are never
    /// used in its place.
    pub fn parse(text: &str) -> Result<Self, EstimateError> {
        let name: String = text.trim().chars().take(100).map(normal).collect();
        TaskType::all().find(|known| known.name() == name).ok_or_else(|| EstimateError::UnknownTask {
            given: text.chars().take(60).collect(),
            nearest: nearest(&name),
        })
    }

    /// Returns the name, such as `train_complex_model`.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Returns the kind of work it belongs to, such as `model training`, for listings.
    pub fn group(self) -> &'static str {
        self.0.group
    }

    /// Returns the size of data, in megabytes, that is assumed if none is given.
    pub fn usual_size_mb(self) -> f64 {
        self.0.at_mb
    }

    pub(super) fn grows(self) -> bool {
        self.0.grows
    }

    /// Best, typical and worst as far as no runs are known.
    pub(super) fn prior(self, size_mb: Option<f64>, complexity: Complexity) -> Triple {
        let ratio = size_mb.filter(|_| self.0.grows).unwrap_or(self.0.at_mb) / self.0.at_mb;
        let stretch = ratio.powf(GROWTH).clamp(STRETCH_BOUNDS.0, STRETCH_BOUNDS.1);
        let mut seconds = self.0.seconds;
        for (value, factor) in seconds.iter_mut().zip(complexity.factors()) {
            *value *= stretch * factor;
        }
        seconds
    }
}

impl std::fmt::Debug for TaskType {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name())
    }
}

impl PartialEq for TaskType {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for TaskType {}

impl From<TaskType> for &'static str {
    fn from(kind: TaskType) -> Self {
        kind.name()
    }
}

impl TryFrom<String> for TaskType {
    type Error = EstimateError;

    fn try_from(name: String) -> Result<Self, EstimateError> {
        TaskType::parse(&name)
    }
}

/// Of an unknown name, what is compared with the known ones.
const MAX_COMPARED_CHARACTERS: usize = 64;

fn normal(character: char) -> char {
    if matches!(character, ' ' | '-') { '_' } else { character.to_ascii_lowercase() }
}

fn nearest(name: &str) -> Vec<&'static str> {
    // How long a comparison takes grows with the name.
    let name: String = name.chars().take(MAX_COMPARED_CHARACTERS).collect();
    let mut names: Vec<(f64, &'static str)> =
        TaskType::all().map(|known| (strsim::jaro_winkler(&name, known.name()), known.name())).collect();
    names.sort_by(|one, other| other.0.total_cmp(&one.0));
    names.into_iter().take(MAX_SUGGESTIONS).map(|(_, name)| name).collect()
}

/// How much there is to a task, as the caller rates it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Complexity {
    /// Shorter than usual: 0.7 times the typical duration.
    Simple,
    /// As the figures of the type assume.
    #[default]
    Moderate,
    /// Longer than usual: twice the typical duration.
    Complex,
}

impl Complexity {
    /// All of them, the shortest work first.
    pub const ALL: [Complexity; 3] = [Complexity::Simple, Complexity::Moderate, Complexity::Complex];

    /// Returns the name, such as `moderate`.
    pub fn name(self) -> &'static str {
        match self {
            Complexity::Simple => "simple",
            Complexity::Moderate => "moderate",
            Complexity::Complex => "complex",
        }
    }

    /// Returns the complexity of this name; case does not matter.
    ///
    /// # Errors
    /// [`EstimateError::UnknownComplexity`] if there is none.
    pub fn parse(text: &str) -> Result<Self, EstimateError> {
        let found = Self::ALL.into_iter().find(|known| known.name().eq_ignore_ascii_case(text.trim()));
        found.ok_or_else(|| EstimateError::UnknownComplexity(text.chars().take(60).collect()))
    }

    fn factors(self) -> Triple {
        match self {
            Complexity::Simple => [0.6, 0.7, 0.8],
            Complexity::Moderate => [1.0, 1.0, 1.0],
            Complexity::Complex => [1.5, 2.0, 2.5],
        }
    }
}
