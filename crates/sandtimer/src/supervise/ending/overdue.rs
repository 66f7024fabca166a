//! When the proof of a death is overdue.
//!
//! ```text
//! killed ── 250 ms ─▶ pending ── 1.75 s, or so long from a later kill ─▶ unkillable
//! ```

/// How long the outcome waits for the proof of death.
const PROOF_LIMIT: u64 = 250_000_000;
/// After this long without the proof a slot counts as unkillable and is not used again. Counted
/// from when the Outcome was given without the proof: if memory is short, neither the thread that
/// checks nor the dying processes may have run before.
const UNKILLABLE_AFTER: u64 = 1_750_000_000;

/// A proof that is waited for. Times are monotonic nanoseconds.
#[derive(Debug, Default)]
pub(super) struct PendingProof {
    pending_since: Option<u64>,
}

impl PendingProof {
    /// Whether the proof is overdue by now, and then whether what was killed last at `killed_at`
    /// counts as unkillable.
    pub fn check(&mut self, killed_at: u64, now: u64) -> Option<bool> {
        let is_due = now >= self.next(killed_at);
        match self.pending_since {
            None if !is_due => None,
            None => {
                self.pending_since = Some(now);
                Some(false)
            }
            Some(_) => Some(is_due),
        }
    }

    /// When the next of the two is due.
    pub fn next(&self, killed_at: u64) -> u64 {
        match self.pending_since {
            None => killed_at.saturating_add(PROOF_LIMIT),
            Some(since) => since.max(killed_at).saturating_add(UNKILLABLE_AFTER),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    /// What is found at each of these times in milliseconds after the first kill, with when the
    /// last one was.
    fn found(checks: &[(u64, u64)]) -> Vec<Option<bool>> {
        let mut overdue = PendingProof::default();
        checks.iter().map(|(kill, now)| overdue.check(kill * MILLISECOND, now * MILLISECOND)).collect()
    }

    #[test]
    fn what_does_not_die_is_pending_then_unkillable() {
        let checks = [(0, 249), (0, 250), (0, 1999), (0, 2000)];
        assert_eq!(found(&checks), [None, Some(false), Some(false), Some(true)]);
    }

    #[test]
    fn late_check_reports_pending_first() {
        let checks = [(0, 60_000), (0, 61_749), (0, 61_750)];
        assert_eq!(found(&checks), [Some(false), Some(false), Some(true)]);
    }

    #[test]
    fn repeated_kill_restarts_timeout() {
        let checks = [(0, 250), (1500, 2000), (1500, 3249), (1500, 3250)];
        assert_eq!(found(&checks), [Some(false), Some(false), Some(false), Some(true)]);
    }

    #[test]
    fn next_check_is_at_next_change() {
        let mut overdue = PendingProof::default();
        assert_eq!(overdue.next(7), 7 + PROOF_LIMIT);
        overdue.check(7, 7 + PROOF_LIMIT);
        assert_eq!(overdue.next(7), 7 + PROOF_LIMIT + UNKILLABLE_AFTER);
    }
}
