//! How a scope's deadline follows from its own wall and from the scopes around it, and which limit
//! is named for it.
//!
//! Scopes are settled from the outside in: a scope's ends are computed from its parent's, never the
//! reverse.

use std::sync::Arc;
use std::time::Duration;

use super::nodes::{NamedBy, ScopeError, ScopeId, ScopeNode, ScopeTree, SettledEnds};
use crate::limits::{Effect, bound_wall, fitting_grace, nanoseconds};
use crate::model::{Layer, LimitKind, Source};
use crate::time::{Moment, TooLate};

/// When a scope must be over, and by whose limit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deadline {
    /// When its ending starts.
    pub wall_end: Moment,
    /// When its tree is killed: wall end plus grace, never after its parent's.
    pub hard_end: Moment,
    /// The limit that bounds it; `value` is the time from the scope's start to its wall end, in
    /// nanoseconds.
    pub effect: Effect,
    /// The limit of the scope that `effect` names, with its extensions and without its pauses: what
    /// a verdict quotes as "the job's wall limit of 2 h".
    pub limit: Duration,
}

/// The next thing to be done about a scope's deadline, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeadlineEvent {
    /// Give notice that the wall is near, then record that with [`ScopeTree::warned`].
    Warn(Moment),
    /// Fire the cell and start the ending.
    Wall(Moment),
    /// Kill the tree.
    Hard(Moment),
}

/// A limit with what names its owner in messages.
pub(super) struct NamedLimit<'a> {
    pub(super) source: Source,
    pub(super) origin: Option<&'a Arc<str>>,
    pub(super) layer: Layer,
    pub(super) scope: &'a str,
    pub(super) limit: Duration,
}

impl ScopeTree {
    /// The scope's deadline; `None` when nothing bounds its wall.
    ///
    /// # Errors
    /// [`ScopeError::Unknown`].
    pub fn deadline(&self, id: ScopeId) -> Result<Option<Deadline>, ScopeError> {
        let node = self.node(id)?;
        Ok(node.ends.map(|ends| {
            let named = self.name(id, ends.named_by);
            let start = node.timing.watch.start();
            Deadline {
                wall_end: ends.wall_end,
                hard_end: ends.hard_end,
                effect: Effect {
                    value: ends.wall_end.as_nanos().saturating_sub(start.as_nanos()),
                    source: named.source,
                    origin: named.origin.cloned(),
                    layer: named.layer,
                    scope: named.scope.to_owned(),
                },
                limit: named.limit,
            }
        }))
    }

    /// What is to be done next about the scope's deadline; `None` when it has none.
    ///
    /// # Errors
    /// [`ScopeError::Unknown`].
    pub fn next_event(&self, id: ScopeId) -> Result<Option<DeadlineEvent>, ScopeError> {
        let node = self.node(id)?;
        let Some(SettledEnds { wall_end, hard_end, .. }) = node.ends else { return Ok(None) };
        let wanted = node.warn.filter(|_| node.warned_of.is_none_or(|warned_of| warned_of < wall_end));
        Ok(Some(match wanted {
            _ if node.cell.is_fired() => DeadlineEvent::Hard(hard_end),
            Some(lead) => DeadlineEvent::Warn(wall_end.before(lead).max(node.timing.watch.start())),
            None => DeadlineEvent::Wall(wall_end),
        }))
    }

    /// Computes one scope's ends from its own timing and the ends around it, and mirrors them in
    /// its cell.
    ///
    /// Fails when the cell has fired; then the wall end stays, and only the bound is brought up to
    /// date.
    pub(super) fn settle(&mut self, id: ScopeId, now: Moment) -> Result<(), TooLate> {
        let ancestors = self.ancestors(id);
        let stopped_around =
            ancestors.last().is_some_and(|parent| self.nodes[parent].timing.watch.is_paused());
        let hard_ends: Vec<Option<u64>> = ancestors
            .iter()
            .map(|ancestor| self.nodes[ancestor].ends.map(|ends| ends.hard_end.as_nanos()))
            .collect();
        let Some(node) = self.nodes.get_mut(&id) else { return Ok(()) };
        let ceiling = node.ceilings.get(LimitKind::Wall).filter(|_| !node.is_lifted);
        let ceiling = ceiling.map(Duration::from_nanos);

        let stopped = stopped_around || node.timing.pause_asked;
        // Both fail only where there is nothing to do.
        let _ = if stopped { node.timing.watch.pause(now) } else { node.timing.watch.resume(now).map(drop) };

        let start = node.timing.watch.start();
        // A ceiling is the scope's own: it counts from its start, and the wall end stays a grace
        // before it.
        let bound = hard_ends.iter().flatten().min().map(|bound| Moment::from_nanos(*bound));
        let mut bounds = vec![ceiling.map(|ceiling| start.after(ceiling).as_nanos())];
        bounds.extend(hard_ends);

        // While the scope's own clock is stopped, only the scopes around it can end it.
        let own_end = node.timing.own_end(now).filter(|_| !stopped).map(Moment::as_nanos);
        let from_start = |end: u64| end.saturating_sub(start.as_nanos());
        let left = bounds.iter().flatten().min().map(|bound| from_start(*bound));
        let grace = fitting_grace(own_end.map(from_start), nanoseconds(node.grace), left);
        node.cell.set_grace(Duration::from_nanos(grace));
        let ends = bound_wall(own_end, grace, start.as_nanos(), &bounds).map(|walled| SettledEnds {
            wall_end: Moment::from_nanos(walled.wall),
            hard_end: Moment::from_nanos(walled.hard),
            named_by: match walled.bound {
                None => NamedBy::Own,
                Some(0) => NamedBy::Ceiling,
                Some(index) => NamedBy::Ancestor(ancestors[index - 1]),
            },
        });

        // The bound first: a wall that moves later must never be met with the bound that it has
        // left behind.
        node.cell.set_bound(bound);
        let set = node.cell.set(ends.map(|ends| ends.wall_end));
        node.ends = if set.is_ok() { ends } else { fired_ends(node) };
        set
    }

    /// Whose limit it is, followed outwards to the scope that carries it.
    pub(super) fn name(&self, id: ScopeId, named_by: NamedBy) -> NamedLimit<'_> {
        let (mut id, mut named_by, mut source) = (id, named_by, None);
        while let NamedBy::Ancestor(ancestor) = named_by {
            source = Some(Source::Ancestor);
            id = ancestor;
            named_by = self.nodes[&ancestor].ends.map_or(NamedBy::Own, |ends| ends.named_by);
        }
        let node = &self.nodes[&id];
        let own = node.own.get(LimitKind::Wall);
        let own_source = || own.map_or(Source::Builtin, |chosen| chosen.source);
        // What an outer scope was given by is that scope's matter.
        let is_own = source.is_none() && named_by != NamedBy::Ceiling;
        let origin = own.filter(|_| is_own).and_then(|chosen| chosen.origin.as_ref());
        let (source, limit) = match named_by {
            NamedBy::Ceiling => {
                (Source::Ceiling, node.ceilings.get(LimitKind::Wall).map(Duration::from_nanos))
            }
            _ => (source.unwrap_or_else(own_source), node.timing.allowance),
        };
        let limit = limit.unwrap_or_default();
        NamedLimit { source, origin, layer: node.location.layer, scope: &node.location.scope, limit }
    }
}

/// The ends of a scope whose wall can no longer move: only its bound still can.
fn fired_ends(node: &ScopeNode) -> Option<SettledEnds> {
    let hard_end = node.cell.hard_end()?;
    let Some(wall_end) = node.cell.wall_end() else {
        // It was ended for another reason while nothing bounded it; what does now can only be
        // around it.
        let named_by = NamedBy::Ancestor(node.parent?);
        return Some(SettledEnds { wall_end: hard_end, hard_end, named_by });
    };
    let named_by = node.ends?.named_by;
    Some(SettledEnds { wall_end: wall_end.min(hard_end), hard_end, named_by })
}
