//! The messages of a job in a live jail, as far as its Outcome waits for them.

/// Values of JSON that a cell may show in all, and that one thing it displays may have: enough for
/// the 100,000 cells of a table.
pub(crate) const MAX_SHOWN_VALUES: usize = 2_000_000;

/// The messages of an active job in a live jail: what it displays, and its progress.
pub(crate) trait DisplaySource: std::fmt::Debug + Send + Sync {
    /// The displays that were received so far. `last`: none counts after this call.
    fn displayed(&self, last: bool) -> DisplayedValues;

    /// Whether all displays that count were received. Does not wait.
    fn is_drained(&self) -> bool;

    /// Receives the remaining displays of a dead job, and passes on each report of its progress;
    /// none counts after this call. The job determines how long this takes.
    fn receive_rest(&self, on_report: &mut dyn FnMut(&[u8]));
}

/// What a job has displayed, up to its result limit.
#[derive(Debug, Clone, Default)]
pub(crate) struct DisplayedValues {
    pub values: Vec<serde_json::Value>,
    /// Of those and of what was dropped.
    pub bytes: u64,
    pub dropped: u64,
}
