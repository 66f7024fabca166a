//! What was mapped over a base before the image over it came: those parts of the image need not be
//! mapped again.
//!
//! The process that wrote the base, or took it, has mapped its longer runs from it: in the next
//! table each of them is a segment of its own, and so is the memory between two of them.

use super::*;

/// Where a run comes from that could not be mapped.
pub(super) const NOWHERE: u64 = u64::MAX;

/// Notes the segments that were just laid by the table, as the table of an image over it has them.
pub(super) fn note(scratch: &mut Scratch) {
    let Scratch { table, laid, laid_count, .. } = scratch;
    let mut runs = table.runs[..table.run_count].iter().filter(|run| run.mapped).peekable();
    let mut add = |piece: Segment| {
        if piece.start >= piece.end || piece.kind == kind::MISSING {
            return;
        }
        // Two adjacent parts of one segment are merged.
        if let Some(last) = laid[..*laid_count].last_mut()
            && last.end == piece.start
            && is_part(&piece, last)
        {
            last.end = piece.end;
        } else if *laid_count < laid.len() {
            laid[*laid_count] = piece;
            *laid_count += 1;
        }
    };
    for segment in &table.segments[..table.segment_count] {
        let rest = |start: u64, end: u64| Segment { start, end, offset: segment.offset + (start - segment.start), ..*segment };
        let mut at = segment.start;
        while let Some(run) = runs.next_if(|run| run.start < segment.end) {
            add(rest(at, run.start));
            at = run.start.saturating_add(run.length);
            let kind = if run.at == NOWHERE { kind::MISSING } else { kind::BASE };
            add(Segment { start: run.start, end: at, kind, offset: run.at, ..*segment });
        }
        add(rest(at, segment.end));
    }
}

/// What was laid, in the order of addresses.
pub(super) struct Laid<'a> {
    left: &'a [Segment],
    is_any: bool,
}

impl<'a> Laid<'a> {
    pub(super) fn of(scratch: &'a Scratch) -> Self {
        let left = &scratch.laid[..scratch.laid_count];
        Laid { left, is_any: !left.is_empty() }
    }

    /// Whether a segment is there as it is to be; they are asked for in the order of addresses. An
    /// error where it is to be as it was in the zygote and is not any more: no origin gets back
    /// what it had lost when the base was written, unless it goes back itself, and then nothing is
    /// laid ahead.
    pub(super) fn has(&mut self, segment: &Segment, stack: u64) -> Result<bool, isize> {
        while self.left.first().is_some_and(|laid| laid.end <= segment.start) {
            self.left = &self.left[1..];
        }
        if segment.kind != kind::KEPT {
            return Ok(self.left.first().is_some_and(|laid| is_within(segment, laid)));
        }
        if !self.is_any || (segment.start..segment.end).contains(&stack) {
            // The stack grows where it is written to.
            return Ok(true);
        }
        let mut covered = segment.start;
        for laid in self.left.iter().take_while(|laid| laid.start < segment.end) {
            if laid.kind != kind::KEPT || laid.start > covered {
                return Err(STALE);
            }
            covered = laid.end;
        }
        if covered < segment.end { Err(STALE) } else { Ok(true) }
    }
}

/// What is around the segment is let go, or laid over.
fn is_within(segment: &Segment, laid: &Segment) -> bool {
    laid.start <= segment.start && segment.end <= laid.end && is_part(segment, laid)
}

/// Whether a segment has the same source as another, at the offset that its address has in the
/// other.
fn is_part(segment: &Segment, of: &Segment) -> bool {
    let what = |of: &Segment| (of.kind, of.protection, of.sharing);
    let is_as_far_on = || of.offset.wrapping_add(segment.start - of.start) == segment.offset;
    what(of) == what(segment)
        && match segment.kind {
            kind::FILE => of.file == segment.file && is_as_far_on(),
            kind::BASE => is_as_far_on(),
            _ => true,
        }
}
