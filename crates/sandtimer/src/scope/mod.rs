//! The tree of scopes, and the deadline of each.
//!
//! A plain structure without clock, lock or thread: callers lock it and pass the time. It decides
//! when a scope has to end, and never ends anything. Every deadline is an absolute moment, and a
//! scope's hard end (the end of its wall-clock time plus its grace) is never after its parent's,
//! whatever is extended, paused or restarted in between.
//!
//! Each scope's deadline is mirrored in a [`DeadlineCell`], which enforcers read without the lock.

mod deadline;
mod nodes;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::limits::{
    Ceilings, EffectiveLimits, FAR_FUTURE, Key, Limits, ScopeBound, ScopeLocation, ScopeOwnLimits, nest,
};
use crate::model::{Layer, LimitKind, Source};
use crate::time::{DeadlineCell, Moment, Stopwatch};

pub use deadline::{Deadline, DeadlineEvent};
pub use nodes::{ScopeError, ScopeId, ScopeTree};
use nodes::{ScopeNode, Timing};

/// A scope to be opened.
#[derive(Debug, Clone)]
pub struct Opening {
    /// The scope around it; `None` for an outermost one.
    pub parent: Option<ScopeId>,
    /// Its level in the tree.
    pub layer: Layer,
    /// Its part of the path, such as `job/7f3` or `turn-12`.
    pub name: String,
    /// Its own limits, see [`precedence`](crate::limits::precedence).
    pub own: ScopeOwnLimits,
    /// How long before the wall end a notice is wanted.
    pub warn: Option<Duration>,
}

/// What must survive a restart so that a deadline is not reset by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CarriedDeadline {
    /// When the scope was first opened.
    pub start: Moment,
    /// When its own wall ends, extensions and pauses so far included; `None` when its own wall is
    /// unlimited.
    pub own_end: Option<Moment>,
}

/// How a wall is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extension {
    /// This much added to the own wall. An unlimited own wall stays unlimited.
    By(Duration),
    /// The own wall ends then as of now: later pauses move it.
    Until(Moment),
}

impl ScopeTree {
    /// An empty tree.
    pub fn new(ceilings: Ceilings) -> Self {
        Self { ceilings, nodes: HashMap::new(), next: 0 }
    }

    /// Opens a scope whose clock starts now.
    ///
    /// # Errors
    /// [`ScopeError::Unknown`] for a parent that is not open.
    pub fn open(&mut self, opening: Opening, now: Moment) -> Result<ScopeId, ScopeError> {
        let wall = opening.own.limit(LimitKind::Wall).map(Duration::from_nanos);
        let carried = CarriedDeadline { start: now, own_end: wall.map(|wall| now.after(wall)) };
        self.open_with_deadline(opening, carried, now)
    }

    /// Opens a scope that was open before: redelivered, retried under the same deadline, or from
    /// before a restart. Its clock continues from its first start; its own wall ends where it would
    /// have ended.
    ///
    /// # Errors
    /// [`ScopeError::Unknown`] for a parent that is not open.
    pub fn open_with_deadline(
        &mut self,
        opening: Opening,
        carried: CarriedDeadline,
        now: Moment,
    ) -> Result<ScopeId, ScopeError> {
        let id = ScopeId(self.next);
        let scope = match opening.parent {
            Some(parent) => format!("{}/{}", self.node(parent)?.location.scope, opening.name),
            None => opening.name,
        };
        let ceilings = self.ceilings(opening.parent)?.clone();
        let grace = opening.own.limit(Key::Grace).unwrap_or(0);
        let grace = ceilings.get(Key::Grace).map_or(grace, |ceiling| grace.min(ceiling));
        let grace = Duration::from_nanos(grace).min(FAR_FUTURE);
        let node = ScopeNode {
            parent: opening.parent,
            children: Vec::new(),
            location: ScopeLocation { layer: opening.layer, scope },
            own: opening.own,
            ceilings,
            is_lifted: false,
            grace,
            timing: Timing {
                allowance: carried.own_end.map(|end| end.since(carried.start)),
                pause_asked: false,
                watch: Stopwatch::started(carried.start),
            },
            ends: None,
            cell: Arc::new(DeadlineCell::new(grace)),
            warn: opening.warn,
            warned_of: None,
        };
        self.next += 1;
        self.nodes.insert(id, node);
        if let Some(parent) = opening.parent {
            self.node_mut(parent)?.children.push(id);
        }
        self.settle(id, now).expect("a new cell has not fired");
        Ok(id)
    }

    /// The ceilings of what is opened in a scope, or in none.
    ///
    /// # Errors
    /// [`ScopeError::Unknown`].
    pub fn ceilings(&self, parent: Option<ScopeId>) -> Result<&Ceilings, ScopeError> {
        match parent {
            Some(parent) => Ok(&self.node(parent)?.ceilings),
            None => Ok(&self.ceilings),
        }
    }

    /// Lowers the ceilings of what will be opened in a scope.
    ///
    /// # Errors
    /// [`ScopeError::Unknown`].
    pub fn lower_ceilings(&mut self, id: ScopeId, maxima: &Limits) -> Result<(), ScopeError> {
        let node = self.node_mut(id)?;
        node.ceilings = node.ceilings.clone().lowered(maxima);
        Ok(())
    }

    /// From now on the ceiling of the wall bounds what is opened in the scope, each by itself, and
    /// not the scope as a whole.
    ///
    /// # Errors
    /// [`ScopeError::Unknown`].
    pub fn lift_wall_ceiling(&mut self, id: ScopeId, now: Moment) -> Result<(), ScopeError> {
        self.node_mut(id)?.is_lifted = true;
        // A scope that has fired keeps its end.
        let _ = self.settle(id, now);
        Ok(())
    }

    /// Forgets a scope and all scopes inside it. Their cells keep their last deadlines, so an
    /// enforcer that still holds one is not misled.
    pub fn close(&mut self, id: ScopeId) {
        let Some(parent) = self.nodes.get(&id).map(|node| node.parent) else { return };
        if let Some(parent) = parent.and_then(|parent| self.nodes.get_mut(&parent)) {
            parent.children.retain(|child| *child != id);
        }
        let mut pending = vec![id];
        while let Some(id) = pending.pop() {
            pending.extend(self.nodes.remove(&id).into_iter().flat_map(|node| node.children));
        }
    }

    /// Whether a scope is another one, or inside it.
    pub fn is_within(&self, inner: ScopeId, outer: ScopeId) -> bool {
        inner == outer || self.ancestors(inner).contains(&outer)
    }

    /// Where the scope is: its level, and its path such as `job/7f3/turn-12/run-3`.
    ///
    /// # Errors
    /// [`ScopeError::Unknown`].
    pub fn location(&self, id: ScopeId) -> Result<&ScopeLocation, ScopeError> {
        Ok(&self.node(id)?.location)
    }

    /// The cell that mirrors the scope's deadline for enforcers.
    ///
    /// # Errors
    /// [`ScopeError::Unknown`].
    pub fn cell(&self, id: ScopeId) -> Result<Arc<DeadlineCell>, ScopeError> {
        Ok(Arc::clone(&self.node(id)?.cell))
    }

    /// What to store so that the scope can be opened again [with its
    /// deadline](Self::open_with_deadline).
    ///
    /// # Errors
    /// [`ScopeError::Unknown`].
    pub fn carried(&self, id: ScopeId, now: Moment) -> Result<CarriedDeadline, ScopeError> {
        let timing = &self.node(id)?.timing;
        Ok(CarriedDeadline { start: timing.watch.start(), own_end: timing.own_end(now) })
    }

    /// How long the scope has stood still, through its own pauses and those around it.
    ///
    /// # Errors
    /// [`ScopeError::Unknown`].
    pub fn paused(&self, id: ScopeId, now: Moment) -> Result<Duration, ScopeError> {
        Ok(self.node(id)?.timing.watch.paused(now))
    }

    /// Whether the scope is paused now, by its own pause or one around it.
    ///
    /// # Errors
    /// [`ScopeError::Unknown`].
    pub fn is_paused(&self, id: ScopeId) -> Result<bool, ScopeError> {
        Ok(self.node(id)?.timing.watch.is_paused())
    }

    /// All limits that apply to the scope. Times count from its start, its pauses so far included;
    /// ancestors' CPU, turns and failures count in full, whatever is already used up of them.
    ///
    /// # Errors
    /// [`ScopeError::Unknown`].
    pub fn effective(&self, id: ScopeId, now: Moment) -> Result<EffectiveLimits, ScopeError> {
        let node = self.node(id)?;
        let start = node.timing.watch.start();
        let mut own = node.own.clone();
        let wall = node.timing.own_end(now).map(|end| end.as_nanos().saturating_sub(start.as_nanos()));
        own.replace(LimitKind::Wall, wall);
        let ancestors: Vec<ScopeBound> =
            self.ancestors(id).into_iter().map(|ancestor| self.bound_by(ancestor, start)).collect();
        let ceilings = node.ceilings.clone();
        let ceilings = if node.is_lifted { ceilings.without(LimitKind::Wall) } else { ceilings };
        Ok(nest(&node.location, &own, &ancestors, &ceilings))
    }

    /// What an ancestor allows a scope that started at `start`.
    fn bound_by(&self, ancestor: ScopeId, start: Moment) -> ScopeBound {
        let node = &self.nodes[&ancestor];
        let mut bound = ScopeBound::new(node.location.clone());
        for key in Key::ALL {
            if let (Key::Kind(kind), Some(value)) = (key, node.own.limit(key))
                && kind != LimitKind::Wall
            {
                bound = bound.with(kind, value);
            }
        }
        if let Some(ends) = node.ends {
            let named = self.name(ancestor, ends.named_by);
            if named.source == Source::Ceiling {
                bound.wall_source = Source::Ceiling;
            }
            let left = ends.hard_end.as_nanos().saturating_sub(start.as_nanos());
            bound = bound.with(LimitKind::Wall, left);
        }
        bound
    }

    /// Moves the scope's own wall later. Returns its deadline, whose `effect` names what bounds it
    /// now; `None` is no deadline at all.
    ///
    /// Its ancestors' deadlines and the ceilings do not move, and continue to bound it.
    ///
    /// # Errors
    /// [`ScopeError::TooLate`] when the wall of the scope or of one around it has ended;
    /// [`ScopeError::NotLater`] for an end that is not after the present own one.
    pub fn extend(
        &mut self,
        id: ScopeId,
        extension: Extension,
        now: Moment,
    ) -> Result<Option<Deadline>, ScopeError> {
        self.refuse_if_over(id, now)?;
        let node = self.node(id)?;
        let mut timing = node.timing;
        timing.allowance = match (extension, timing.own_end(now)) {
            (Extension::By(more), _) => {
                timing.allowance.map(|allowance| allowance.saturating_add(more).min(FAR_FUTURE))
            }
            (Extension::Until(end), Some(present)) if end > present => {
                Some(end.since(timing.watch.start()).saturating_sub(timing.watch.paused(now)))
            }
            (Extension::Until(end), present) => {
                return Err(ScopeError::NotLater {
                    scope: node.location.scope.clone(),
                    asked: end.since(now),
                    present: present.map_or("never".into(), |present| format!("{:?}", present.since(now))),
                });
            }
        };
        self.retime(id, timing, now)?;
        self.deadline(id)
    }

    /// Stops the own clocks of the scope and of all scopes inside it: their walls end later by the
    /// length of the pause. Deadlines around it and ceilings stay where they are, and fire in a
    /// pause too.
    ///
    /// # Errors
    /// [`ScopeError::AlreadyPaused`], [`ScopeError::TooLate`].
    pub fn pause(&mut self, id: ScopeId, now: Moment) -> Result<Option<Deadline>, ScopeError> {
        self.refuse_if_over(id, now)?;
        let node = self.node(id)?;
        if node.timing.pause_asked {
            return Err(ScopeError::AlreadyPaused(node.location.scope.clone()));
        }
        self.retime(id, Timing { pause_asked: true, ..node.timing }, now)?;
        self.deadline(id)
    }

    /// Ends a scope's own pause. Its clocks continue unless a scope around it is paused.
    ///
    /// # Errors
    /// [`ScopeError::NotPaused`], [`ScopeError::TooLate`].
    pub fn resume(&mut self, id: ScopeId, now: Moment) -> Result<Option<Deadline>, ScopeError> {
        let node = self.node(id)?;
        if !node.timing.pause_asked {
            return Err(ScopeError::NotPaused(node.location.scope.clone()));
        }
        self.refuse_if_over(id, now)?;
        self.retime(id, Timing { pause_asked: false, ..node.timing }, now)?;
        self.deadline(id)
    }

    /// Marks that the scope's ending has begun, for whatever reason: its wall moves no more.
    /// Returns whether this was the first to mark it; false if an enforcer has fired the cell.
    ///
    /// # Errors
    /// [`ScopeError::Unknown`].
    pub fn fired(&mut self, id: ScopeId) -> Result<bool, ScopeError> {
        Ok(self.node(id)?.cell.seal())
    }

    /// Marks that notice was given of the present wall end. A later wall end gets its own notice.
    ///
    /// # Errors
    /// [`ScopeError::Unknown`].
    pub fn warned(&mut self, id: ScopeId) -> Result<(), ScopeError> {
        let node = self.node_mut(id)?;
        node.warned_of = node.ends.map(|ends| ends.wall_end);
        Ok(())
    }

    /// Lets a scope's own clock start later than it was opened: building its run does not count
    /// against its limits. Only before its first pause; deadlines around it stay where they are.
    ///
    /// # Errors
    /// [`ScopeError::TooLate`] once its ending has begun.
    pub fn begin(&mut self, id: ScopeId, start: Moment) -> Result<(), ScopeError> {
        let timing = self.node(id)?.timing;
        if timing.pause_asked || timing.watch.paused(start) > Duration::ZERO || timing.watch.start() >= start
        {
            return Ok(());
        }
        self.node(id)?.cell.note_begun();
        self.retime(id, Timing { watch: Stopwatch::started(start), ..timing }, start)
    }

    /// Puts new timing in force for a scope and everything inside it.
    fn retime(&mut self, id: ScopeId, timing: Timing, now: Moment) -> Result<(), ScopeError> {
        let before = std::mem::replace(&mut self.node_mut(id)?.timing, timing);
        if self.settle(id, now).is_err() {
            let node = self.node_mut(id)?;
            node.timing = before;
            let scope = node.location.scope.clone();
            return Err(ScopeError::TooLate { over: scope.clone(), scope });
        }
        let mut pending = self.node(id)?.children.clone();
        while let Some(id) = pending.pop() {
            // A scope that has fired keeps its wall: that is no reason to refuse the one around it.
            let _ = self.settle(id, now);
            pending.extend(&self.node(id)?.children);
        }
        Ok(())
    }

    /// An enforcer that is a little late has not fired yet; its limit has passed all the same.
    fn refuse_if_over(&self, id: ScopeId, now: Moment) -> Result<(), ScopeError> {
        let scope = &self.node(id)?.location.scope;
        for around in self.ancestors(id).into_iter().chain([id]) {
            let node = self.node(around)?;
            if node.cell.is_fired() || node.ends.is_some_and(|ends| ends.wall_end <= now) {
                return Err(ScopeError::TooLate { scope: scope.clone(), over: node.location.scope.clone() });
            }
        }
        Ok(())
    }
}
