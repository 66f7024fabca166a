//! Reads the durations out of the block of text in which an estimate is told to an agent.

use std::time::Duration;

/// What an estimate's text says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EstimateText {
    pub task_name: String,
    pub typical: Duration,
    pub max: Duration,
}

/// Reads `Task Duration Estimate: NAME`, `Typical: 30m 0s` and `Worst case: 1h 30m`; None where one is missing, or is no
/// duration, or the worst is shorter than the typical.
pub fn parse_estimate(text: &str) -> Option<EstimateText> {
    let value = |label: &str| {
        let (_, rest) = text.split_once(label)?;
        Some(rest.lines().next()?.trim())
    };
    let name = value("Task Duration Estimate:")?;
    let end = name.find(|character: char| !character.is_alphanumeric() && !"_-.".contains(character));
    let task_name = name[..end.unwrap_or(name.len())].to_owned();
    let typical = duration(value("Typical:")?)?;
    let max = duration(value("Worst case:")?)?;
    (!task_name.is_empty() && typical <= max).then_some(EstimateText { task_name, typical, max })
}

/// `1h 30m`, `12m 0s`, `45s`, at the beginning of a text.
fn duration(text: &str) -> Option<Duration> {
    let mut seconds = 0_u64;
    let mut parts = 0;
    for word in text.split_whitespace() {
        let unit = match word.chars().last() {
            Some('h') => 3600,
            Some('m') => 60,
            Some('s') => 1,
            _ => break,
        };
        let Ok(count) = word[..word.len() - 1].parse::<u64>() else { break };
        seconds = seconds.saturating_add(count.saturating_mul(unit));
        parts += 1;
    }
    (parts > 0 && seconds > 0).then(|| Duration::from_secs(seconds).min(crate::limits::FAR_FUTURE))
}
