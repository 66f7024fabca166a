//! Reads the durations out of the block of text in which an agent receives an estimate.

use std::time::Duration;

/// Characters of a name.
const MAX_NAME_CHARACTERS: usize = 60;

/// The durations that [`parse_estimate`] reads from the text of an estimate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedEstimate {
    /// The name after `Task Duration Estimate:`, of which 60 characters are kept.
    pub task_name: String,
    /// The typical duration.
    pub typical: Duration,
    /// The worst case, which is at least the typical duration.
    pub max: Duration,
    /// The suggested wall-clock limit, if the text has one.
    pub suggested_limit: Option<Duration>,
}

/// Reads `Task Duration Estimate: NAME`, and after it `Typical: 30m 0s`, `Worst case: 1h 30m` and
/// perhaps `Suggested limit: 6h 0m`, anywhere in a text. Returns `None` if one of the first three
/// is missing or not a duration, or the worst case is shorter than the typical.
///
/// ```
/// use std::time::Duration;
/// use sandtimer_agents::budget::parse_estimate;
///
/// let text = "Task Duration Estimate: train\nTypical: 30m 0s\nWorst case: 1h 30m\n";
/// let parsed = parse_estimate(text).expect("the text has a name and two durations");
/// assert_eq!(parsed.task_name, "train");
/// assert_eq!(parsed.max, Duration::from_secs(5400));
/// ```
pub fn parse_estimate(text: &str) -> Option<ParsedEstimate> {
    let (_, block) = text.split_once("Task Duration Estimate:")?;
    let value = |label: &str| Some(block.split_once(label)?.1.lines().next()?.trim());
    let name = block.lines().next()?.trim();
    let task_name: String =
        name.chars().filter(|letter| !letter.is_control()).take(MAX_NAME_CHARACTERS).collect();
    let typical = duration(value("Typical:")?)?;
    let max = duration(value("Worst case:")?)?;
    let suggested_limit = value("Suggested limit:").and_then(duration);
    let is_sound = task_name.contains(char::is_alphanumeric) && typical <= max;
    is_sound.then_some(ParsedEstimate { task_name, typical, max, suggested_limit })
}

/// A duration at the beginning of a text, in the forms that answers have: `1h 30m`, `45s`, `6.5s`,
/// `205ms`, `1 m 30 s`.
fn duration(text: &str) -> Option<Duration> {
    let (mut seconds, mut rest) = (0.0, text);
    while let Some((part, remainder)) = one_part(rest) {
        seconds += part;
        rest = remainder.trim_start();
    }
    let most = sandtimer::limits::FAR_FUTURE;
    (seconds > 0.0).then(|| Duration::try_from_secs_f64(seconds).map_or(most, |duration| duration.min(most)))
}

/// A number with its unit, in seconds, and the rest of the text.
fn one_part(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
    let count: f64 = text[..end].parse().ok()?;
    let suffix = text[end..].trim_start();
    let end = suffix.find(|letter: char| !letter.is_alphanumeric()).unwrap_or(suffix.len());
    let unit = match &suffix[..end] {
        // A shorter duration is shown as 0 ms.
        "ms" => return Some((count.max(1.0) / 1000.0, &suffix[end..])),
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Some((count * unit, &suffix[end..]))
}
