//! How far a run is, from what it prints or reports, and when it will be done.
//!
//! Everything here is a claim of the job: it may be false, go back, or be a line of a gigabyte. So
//! the input is bounded in bytes and lines, kept in a few kilobytes, and matched in linear time;
//! and progress decides nothing except, if the caller chose that, that a run is not stalled.
//! Explicit reports ([`Tracker::report`]) take precedence over what is found in text.
//!
//! That choice is a limit, and each Outcome has the progress: so the engine owns this module,
//! unlike estimates and budgets, which are policy (`sandtimer-agents`).

mod bars;
mod counters;
mod lines;
mod pace;
mod patterns;
#[cfg(test)]
mod tests;

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::model::Progress;
use crate::time::Moment;

use bars::Bars;
use counters::{CountedProgress, Counters};
use lines::LineParser;
pub use pace::Eta;
use pace::Pace;

/// Of more bytes at once only the last are inspected: a flood costs less than its copying does.
const FLOOD: usize = 8 << 10;
const INSPECTED_BYTES: usize = 4 << 10;
/// Lines of one piece that are inspected.
const MAX_LINES: usize = 64;
/// Bytes of a report.
const MAX_REPORT_BYTES: usize = 4096;
/// Counts above this are none.
const MAX_UNITS: f64 = 1e15;

/// An explicit progress report of a job: a line such as `{"done": 8, "total": 15, "unit":
/// "epoch"}`.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgressReport {
    /// Units that are done.
    pub done: f64,
    /// Units in all; `None` if the total is not known.
    #[serde(default)]
    pub total: Option<f64>,
    /// The name of one unit; reports of different units are separate bars.
    #[serde(default)]
    pub unit: Option<String>,
}

impl ProgressReport {
    /// Reads one line; `None` if it is not a report, or is implausible.
    ///
    /// ```
    /// use sandtimer::progress::ProgressReport;
    ///
    /// let line = br#"{"done": 8, "total": 15, "unit": "epoch"}"#;
    /// let report = ProgressReport::parse(line).unwrap();
    /// assert_eq!((report.done, report.total), (8.0, Some(15.0)));
    /// assert_eq!(ProgressReport::parse(br#"{"done": 16, "total": 15}"#), None);
    /// ```
    pub fn parse(line: &[u8]) -> Option<Self> {
        let report: ProgressReport =
            serde_json::from_slice(line.get(..line.len().min(MAX_REPORT_BYTES + 1))?).ok()?;
        let total = report.total.unwrap_or(report.done.max(1.0));
        let sound = (0.0..=MAX_UNITS).contains(&report.done) && total > 0.0 && total <= MAX_UNITS;
        (sound && report.done <= total && line.len() <= MAX_REPORT_BYTES).then_some(report)
    }

    /// Distinguishes bars of different units.
    fn label(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.unit.hash(&mut hasher);
        hasher.finish()
    }
}

/// The progress of one run.
///
/// ```
/// use std::time::Duration;
/// use sandtimer::progress::{ProgressReport, Tracker};
/// use sandtimer::time::Moment;
///
/// let start = Moment::from_nanos(0);
/// let mut tracker = Tracker::new(start);
/// for done in 1..=4_u32 {
///     let report = ProgressReport { done: f64::from(done), total: Some(8.0), unit: None };
///     tracker.report(report, start.after(Duration::from_secs(10 * u64::from(done))));
/// }
/// let now = start.after(Duration::from_secs(40));
/// assert_eq!(tracker.progress(now).unwrap().done, 4.0);
/// assert_eq!(tracker.advances(), 4);
/// assert!(tracker.eta(now).is_some());
/// ```
#[derive(Debug, Clone)]
pub struct Tracker {
    started: Moment,
    streams: [StreamLines; 2],
    counters: Counters,
    reported: Option<ProgressReport>,
    whole: Option<CountedProgress>,
    pace: Pace,
    bars: Bars,
    advances: u64,
}

#[derive(Debug, Clone, Default)]
struct StreamLines {
    lines: LineParser,
    /// The length of the unfinished line when it was inspected.
    peeked: usize,
}

impl Tracker {
    /// Of a run whose command began at this moment.
    pub fn new(started: Moment) -> Self {
        let (streams, counters) = (Default::default(), Counters::default());
        Tracker {
            started,
            streams,
            counters,
            reported: None,
            whole: None,
            pace: Pace::default(),
            bars: Bars::default(),
            advances: 0,
        }
    }

    /// Declares the total of counters that have none, such as rounds of boosting.
    pub fn declare_total(&mut self, total: f64) {
        if total > 0.0 && total <= MAX_UNITS {
            self.counters.declared = Some(total);
        }
    }

    /// Takes a piece of output: of stdout (0) or stderr (1).
    pub fn feed(&mut self, stream: usize, bytes: &[u8], now: Moment) {
        let Some(StreamLines { lines, peeked }) = self.streams.get_mut(stream) else { return };
        let mut bytes = bytes;
        if bytes.len() > FLOOD {
            lines.skip();
            *peeked = 0;
            bytes = &bytes[bytes.len() - INSPECTED_BYTES..];
            // What is left of the line that was cut is none.
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            bytes = end.map_or(&[][..], |end| &bytes[end + 1..]);
        }
        let counters = &mut self.counters;
        let mut left = MAX_LINES;
        lines.feed(bytes, |line| {
            if line.len() != std::mem::take(peeked) && left > 0 && patterns::may_match(line) {
                // Whatever it contains: matching is what costs.
                left -= 1;
                let sightings = patterns::sightings(line);
                if sightings[0].is_some() {
                    counters.see(&sightings);
                }
            }
        });
        // A bar's newest frame is ended by the next one: it is whole where it ends with its
        // bracket.
        let open = lines.peek();
        if open.len() != *peeked && matches!(open.last(), Some(b']' | b'%')) {
            *peeked = open.len();
            counters.see(&patterns::sightings(open));
        }
        if self.reported.is_none() {
            let whole = self.counters.whole();
            self.settle(whole, now);
        }
    }

    /// Takes what the job reports. From then on nothing is read out of its output.
    pub fn report(&mut self, report: ProgressReport, now: Moment) {
        let before = self.whole.map_or(0, |whole| whole.phase.2);
        let total = report.total.or(self.counters.declared);
        let again = self.reported.as_ref().is_some_and(|last| {
            report.done < last.done || report.total != last.total || report.unit != last.unit
        });
        let phase = (patterns::Form::Bar, report.label(), before + u32::from(again));
        let done = report.done;
        self.settle(
            total.filter(|total| done <= *total).map(|total| CountedProgress { done, total, phase }),
            now,
        );
        self.reported = Some(report);
    }

    fn settle(&mut self, whole: Option<CountedProgress>, now: Moment) {
        let Some(new) = whole else { return };
        self.advances += u64::from(self.bars.is_further(&new));
        match self.whole {
            Some(old) if old.phase == new.phase && old.total == new.total => {
                if new.done > old.done {
                    self.pace.note(new.done, now);
                }
                // Within a phase nothing goes back; what seems to is a counter that has begun its
                // next unit.
                self.whole = Some(CountedProgress { done: new.done.max(old.done), ..new });
            }
            Some(_) => {
                self.pace.begin(new.done, now);
                self.whole = Some(new);
            }
            None => {
                self.pace.begin(0.0, self.started);
                self.pace.note(new.done, now);
                self.whole = Some(new);
            }
        }
    }

    /// How often it got further than ever. Redrawn frames do not count, nor does what went back and
    /// comes again.
    pub fn advances(&self) -> u64 {
        self.advances
    }

    /// When it will be done; None as long as nothing is known of it.
    pub fn eta(&self, now: Moment) -> Option<Eta> {
        self.pace.eta(self.whole?.total, now)
    }

    /// How likely it is done by then.
    pub fn p_finish_before(&self, deadline: Moment, now: Moment) -> Option<f64> {
        self.eta(now).map(|eta| eta.p_finish_within(deadline.since(now)))
    }

    /// How far it is, and how likely it is done by `deadline`.
    pub fn progress_until(&self, deadline: Option<Moment>, now: Moment) -> Option<Progress> {
        let chance = deadline.and_then(|deadline| self.p_finish_before(deadline, now));
        let rounded = chance.map(|chance| (chance * 1e3).round() / 1e3);
        Some(Progress { p_finish_before_deadline: rounded, ..self.progress(now)? })
    }

    /// How far it is.
    pub fn progress(&self, now: Moment) -> Option<Progress> {
        if let (None, Some(report)) = (self.whole, &self.reported) {
            return Some(Progress {
                done: report.done,
                total: None,
                eta_ms: None,
                p_finish_before_deadline: None,
            });
        }
        let whole = self.whole?;
        let milliseconds = |eta: Eta| u64::try_from(eta.remaining.as_millis()).unwrap_or(u64::MAX);
        Some(Progress {
            done: (whole.done * 1e3).round() / 1e3,
            total: Some(whole.total),
            eta_ms: self.eta(now).map(milliseconds),
            p_finish_before_deadline: None,
        })
    }
}
