//! The counters of a run: which of them are believed, and what they come to together.
//!
//! A counter is believed once it was found twice with the same total and without going back. A
//! counter that goes back begins a new phase. Counters nest: the whole is the outermost one, and
//! what is done of its unit under way comes from the next.

use super::patterns::{Form, Sighting};

/// Counters that are kept; the one that was absent for longest makes room.
const MAX_COUNTERS: usize = 8;
/// How deep counters nest.
const MAX_DEPTH: usize = 3;
/// Sightings until a counter is believed.
const MIN_SIGHTINGS: u32 = 2;

#[derive(Debug, Clone)]
struct Counter {
    form: Form,
    name: u64,
    done: f64,
    total: Option<f64>,
    is_begun: bool,
    consistent: u32,
    /// How often it began again.
    resets: u32,
    /// Lines in which it was found first, moved last, and was found last.
    first: u64,
    moved: u64,
    last: u64,
}

impl Counter {
    /// Units that are done.
    fn completed(&self) -> f64 {
        if self.is_begun { (self.done - 1.0).max(0.0) } else { self.done }
    }
}

/// What the counters come to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct CountedProgress {
    pub done: f64,
    pub total: f64,
    /// Changes with the counter that it is of, and when that begins again.
    pub phase: (Form, u64, u32),
}

#[derive(Debug, Clone, Default)]
pub(super) struct Counters {
    counters: Vec<Counter>,
    /// Lines in which a counter was found.
    lines: u64,
    /// The total of counters that have none.
    pub declared: Option<f64>,
}

impl Counters {
    /// Takes the counters of one line.
    pub(super) fn see(&mut self, sightings: &[Option<Sighting>]) {
        self.lines += 1;
        for sighting in sightings.iter().flatten() {
            self.see_one(*sighting);
        }
    }

    fn see_one(&mut self, sighting: Sighting) {
        let line = self.lines;
        let total = sighting.total.or(self.declared);
        if total.is_some_and(|total| sighting.done > total) {
            return;
        }
        let same = |counter: &&mut Counter| (counter.form, counter.name) == (sighting.form, sighting.name);
        let Some(counter) = self.counters.iter_mut().find(same) else {
            self.make_room();
            self.counters.push(Counter {
                form: sighting.form,
                name: sighting.name,
                done: sighting.done,
                total,
                is_begun: sighting.is_begun,
                consistent: 1,
                resets: 0,
                first: line,
                moved: line,
                last: line,
            });
            return;
        };
        if counter.total != total {
            counter.consistent = 1;
            counter.resets += 1;
            counter.total = total;
        } else if sighting.done < counter.done {
            counter.resets += 1;
        } else {
            counter.consistent = counter.consistent.saturating_add(1);
        }
        if counter.done != sighting.done {
            counter.moved = line;
        }
        (counter.done, counter.is_begun, counter.last) = (sighting.done, sighting.is_begun, line);
    }

    fn make_room(&mut self) {
        if self.counters.len() < MAX_COUNTERS {
            return;
        }
        let oldest = self.counters.iter().enumerate().min_by_key(|(_, counter)| counter.last);
        if let Some((index, _)) = oldest {
            self.counters.swap_remove(index);
        }
    }

    /// What they come to; None as long as none is believed.
    pub(super) fn whole(&self) -> Option<CountedProgress> {
        let newest = self.counters.iter().map(|counter| counter.last).max()?;
        let believed = |counter: &&Counter| counter.consistent >= MIN_SIGHTINGS && counter.total.is_some();
        // A complete counter is no evidence about what came after it.
        let is_over = |counter: &Counter| counter.last < newest && counter.total == Some(counter.completed());
        let mut nested: Vec<&Counter> =
            self.counters.iter().filter(believed).filter(|counter| !is_over(counter)).collect();
        nested.sort_by_key(|counter| (counter.form, counter.resets, counter.first));
        let outer = *nested.first()?;
        let total = outer.total?;
        let done = (outer.completed() + fraction(outer, &nested[1..])).min(total);
        Some(CountedProgress { done, total, phase: (outer.form, outer.name, outer.resets) })
    }
}

/// The share that is done of the unit of `outer` which is active, from the counters inside it.
fn fraction(outer: &Counter, inside: &[&Counter]) -> f64 {
    // A counter that was last found before the outer one moved belongs to the unit before.
    let current = inside.iter().take(MAX_DEPTH - 1).position(|counter| counter.last >= outer.moved);
    let Some(index) = current else { return 0.0 };
    let inner = inside[index];
    let Some(total) = inner.total else { return 0.0 };
    if !outer.is_begun && inner.completed() >= total {
        // That unit is reported as done next.
        return 1.0 - f64::EPSILON;
    }
    ((inner.completed() + fraction(inner, &inside[index + 1..])) / total).min(1.0)
}
