//! Progress in a line: the forms in which the usual tools write it.
//!
//! Pure: a line in, at most a few sightings out. Matching is linear in the line's length (`regex`),
//! whatever it holds.

use std::sync::LazyLock;

use regex::bytes::{Captures, Regex};

/// Sightings of one line.
pub(super) const MAX_SIGHTINGS: usize = 2;
/// Numbers above this are no counts of anything.
const MAX_UNITS: f64 = 1e15;

/// How a counter is written. Which of two counters is the outer one is a matter of what they count,
/// then of how they move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Form {
    Fold,
    Epoch,
    /// A share of the whole, in hundredths.
    Percent,
    /// Steps, files, `[8/15]`.
    Step,
    /// A bar: of tqdm, keras, cargo. It counts what is done.
    Bar,
}

/// A counter found in a line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sighting {
    pub form: Form,
    /// Distinguishes counters of one form, by the words before them.
    pub name: u64,
    pub done: f64,
    /// None: only what was declared is known.
    pub total: Option<f64>,
    /// The number is that of the unit that is being begun.
    pub is_begun: bool,
}

macro_rules! pattern {
    ($name:ident, $text:expr) => {
        static $name: LazyLock<Regex> = LazyLock::new(|| Regex::new($text).expect("a sound pattern"));
    };
}

// `Epoch 3:  53%|█████▎    | 8/15 [00:12<00:10, 1.50s/it]`
pattern!(
    TQDM,
    r"(?-u)^(?P<name>.*?)(?:\d+%\|[^|]*\|)?\s*(?P<done>[\d.]+[kMGT]?)/(?P<total>[\d.]+[kMGT]?) \[(?:\d+:)?\d+:\d\d<"
);
// `Epoch 8/15`, `Epoch: 8 of 15`, `Epoch [8/15]`, `step 800/1500`, `Fold 2/5`; not `date: 3/4`
pattern!(
    UNIT_COUNTER,
    r"(?i-u)\b(?P<word>epoch|fold|step|iter|iteration|batch|round|trial|chunk|file|test|sample|episode|generation|stage|task|item|image|layer|seed)s?\s*[:#=]?\s*[\[(]?\s*(?P<done>\d+)\s*(?:/|of|out of)\s*(?P<total>\d+)\b(?P<rest>.{0,24})"
);
// `Epoch: [0][ 10/391]`, whose epochs have no total.
pattern!(BATCHES, r"(?i-u)\bepoch:?\s*\[\d+\]\s*\[\s*(?P<done>\d+)/(?P<total>\d+)\]");
// `[8/15]`, `[345/512] Building`
pattern!(BRACKETS, r"(?-u)^\s*\[\s*(?P<done>\d+)\s*/\s*(?P<total>\d+)\s*\](?P<rest>.{0,24})");
// `469/469 [=====>....]`, `469/469 ━━━━━━ 2s`, `Building [=====>  ] 345/512: serde`
pattern!(KERAS, r"(?-u)^\s*(?P<done>\d+)/(?P<total>\d+)\s+(?:\[[=>.]|\xE2\x94\x81)");
pattern!(CARGO, r"(?-u)^\s*(?P<name>[A-Z][a-z]+) \[[=> ]*\]\s*(?P<done>\d+)/(?P<total>\d+)");
// `[100]\ttrain-rmse:0.3`, `[100]\tvalid_0's l2: 0.3`
pattern!(BOOSTING, r"(?-u)^\s*\[(?P<done>\d+)\]\s+\S+.*?:\s*[\d.eE+-]+");
// `{'loss': 0.5, 'learning_rate': 2e-5, 'epoch': 1.5}`
pattern!(LOGGED, r#"(?-u)^\s*\{.*['"]epoch['"]:\s*(?P<done>\d+(?:\.\d+)?)"#);
// `tests/test_x.py ..... [ 45%]`, `[ 45%] Building CXX object`, `53%`, `Progress: 53%`, `53%
// complete`
pattern!(
    PERCENT,
    r"(?i-u)(?:^\s*\[?\s*|\[\s*|\b(?:progress|complete|completed|done|processed|finished|downloaded|downloading|uploading)\b[^%\d]{0,24})(?P<done>\d{1,3}(?:\.\d+)?)\s?%"
);
pattern!(PERCENT_DONE, r"(?i-u)(?P<done>\d{1,3}(?:\.\d+)?)\s?% (?:complete|completed|done|finished)\b");

/// Whether a line may hold any of them, at a glance.
pub(super) fn may_match(line: &[u8]) -> bool {
    line.iter().any(u8::is_ascii_digit)
        && (line.iter().any(|byte| matches!(byte, b'/' | b'%'))
            || matches!(line.trim_ascii_start().first(), Some(b'[' | b'{'))
            || line.windows(4).any(|window| window == b" of " || window == b" out"))
}

/// Returns the counters of a line: the outer one first if there are two.
pub(super) fn sightings(line: &[u8]) -> [Option<Sighting>; MAX_SIGHTINGS] {
    if !may_match(line) {
        return [None; MAX_SIGHTINGS];
    }
    if let Some(found) = TQDM.captures(line) {
        let name = found.name("name").map_or(&b""[..], |name| name.as_bytes());
        // Its description may hold the counter around it, and numbers that change.
        let outer = find_unit(name).map(|outer| Sighting { is_begun: true, ..outer });
        let bar = counter(&found, Form::Bar, hashed(name));
        return if outer.is_some() { [outer, bar] } else { [bar, None] };
    }
    if let Some(found) = UNIT_COUNTER.captures(line) {
        let first = unit_sighting(&found);
        let rest_start = found.get(0).map_or(line.len(), |all| all.end() - rest_length(&found));
        let second = find_unit(&line[rest_start..])
            .filter(|second| first.is_some_and(|first| first.name != second.name));
        // A counter within a unit is printed while the unit is active.
        return [
            first.map(|first| Sighting { is_begun: first.is_begun || second.is_some(), ..first }),
            second,
        ];
    }
    for (pattern, form) in
        [(&BATCHES, Form::Bar), (&BRACKETS, Form::Step), (&KERAS, Form::Bar), (&CARGO, Form::Bar)]
    {
        if let Some(found) = pattern.captures(line) {
            let name = found.name("name").map_or(&b"-"[..], |name| name.as_bytes());
            return [counter(&found, form, hashed(name)), None];
        }
    }
    if let Some(found) = PERCENT.captures(line).or_else(|| PERCENT_DONE.captures(line)) {
        let share = number(&found, "done").filter(|share| *share <= 100.0);
        return [share.map(|done| sighting(Form::Percent, 0, done, Some(100.0))), None];
    }
    if let Some(found) = BOOSTING.captures(line) {
        return [number(&found, "done").map(|done| sighting(Form::Step, 1, done + 1.0, None)), None];
    }
    if let Some(found) = LOGGED.captures(line) {
        return [number(&found, "done").map(|done| sighting(Form::Epoch, 1, done, None)), None];
    }
    [None; MAX_SIGHTINGS]
}

fn sighting(form: Form, name: u64, done: f64, total: Option<f64>) -> Sighting {
    Sighting { form, name, done, total, is_begun: false }
}

/// A counter of units that are named.
fn find_unit(text: &[u8]) -> Option<Sighting> {
    unit_sighting(&UNIT_COUNTER.captures(text)?)
}

fn unit_sighting(found: &Captures<'_>) -> Option<Sighting> {
    let unit = found.name("word")?.as_bytes().to_ascii_lowercase();
    let form = match &unit[..] {
        b"fold" => Form::Fold,
        b"epoch" => Form::Epoch,
        _ => Form::Step,
    };
    let found_counter = counter(found, form, hashed(&unit))?;
    // A unit's results follow its name; a name alone is a heading.
    let rest = found.name("rest").map_or(&b""[..], |rest| rest.as_bytes());
    let is_begun = !rest.iter().any(|byte| byte.is_ascii_digit());
    Some(Sighting { is_begun, ..found_counter })
}

fn rest_length(found: &Captures<'_>) -> usize {
    found.name("rest").map_or(0, |rest| rest.len())
}

fn counter(found: &Captures<'_>, form: Form, name: u64) -> Option<Sighting> {
    let (done, total) = (number(found, "done")?, number(found, "total")?);
    (total > 0.0 && done <= total).then(|| sighting(form, name, done, Some(total)))
}

/// `800`, `1.5`, `1.2k`.
fn number(found: &Captures<'_>, name: &str) -> Option<f64> {
    let text = std::str::from_utf8(found.name(name)?.as_bytes()).ok()?;
    let (digits, scale) = match text.as_bytes().last()? {
        b'k' => (&text[..text.len() - 1], 1e3),
        b'M' => (&text[..text.len() - 1], 1e6),
        b'G' => (&text[..text.len() - 1], 1e9),
        b'T' => (&text[..text.len() - 1], 1e12),
        _ => (text, 1.0),
    };
    digits.parse::<f64>().ok().map(|number| number * scale).filter(|number| *number <= MAX_UNITS)
}

/// The name of a counter: its words without its numbers. FNV-1a, for names need only be
/// distinguished.
fn hashed(name: &[u8]) -> u64 {
    let letters = name.iter().filter(|byte| !byte.is_ascii_digit() && !byte.is_ascii_whitespace());
    letters.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
