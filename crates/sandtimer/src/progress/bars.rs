//! What counts as getting further: a new best of a bar, or the beginning of one. The hard fact: a
//! loop that goes wrong may count to and fro for ever, and must not look as if it got on.

use std::collections::VecDeque;

use super::counters::CountedProgress;
use super::patterns::Form;

/// Bars whose best is remembered; the oldest make room.
const MAX_BARS: usize = 16;
/// How many beginnings of bars count: work with more of them shows their number in another bar.
const MAX_STARTED: u32 = 1000;

#[derive(Debug, Clone, PartialEq)]
struct Bar {
    form: Form,
    label: u64,
    total: f64,
    best: f64,
}

/// The bars of one run.
#[derive(Debug, Clone, Default)]
pub(super) struct Bars {
    known: VecDeque<Bar>,
    begun: u32,
}

impl Bars {
    /// Whether that is further than it ever was.
    pub fn is_further(&mut self, whole: &CountedProgress) -> bool {
        let CountedProgress { done, total, phase: (form, label, _) } = *whole;
        let same = |bar: &&mut Bar| (bar.form, bar.label, bar.total) == (form, label, total);
        match self.known.iter_mut().find(same) {
            Some(bar) if done > bar.best => {
                bar.best = done;
                true
            }
            // Its first unit again: the same loop has begun again.
            Some(bar) if done <= 1.0 && bar.best > 1.0 => {
                bar.best = done;
                self.begins()
            }
            Some(_) => false,
            None => {
                if self.known.len() == MAX_BARS {
                    self.known.pop_front();
                }
                self.known.push_back(Bar { form, label, total, best: done });
                self.begins()
            }
        }
    }

    fn begins(&mut self) -> bool {
        self.begun = self.begun.saturating_add(1);
        self.begun <= MAX_STARTED
    }
}
