//! The scopes of a tree: what each has, and how it is found.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::limits::{Ceilings, ScopeLocation, ScopeOwnLimits};
use crate::time::{DeadlineCell, Moment, Stopwatch};

/// A scope in a [`ScopeTree`]; never used for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScopeId(pub(super) u64);

/// Why the tree refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScopeError {
    /// The scope was closed, or belongs to another tree.
    #[error("scope {} is not open; it was closed, or belongs to another tree", .0.0)]
    Unknown(ScopeId),
    /// The wall-clock limit was reached before it could be moved.
    #[error("`{scope}` can no longer be moved: the wall of `{over}` has ended; extend or pause before that")]
    TooLate {
        /// The scope that was to be moved.
        scope: String,
        /// The scope that has ended: itself, or one around it.
        over: String,
    },
    /// The end that was asked for is not after the present one.
    #[error(
        "`{scope}`: an end {asked:?} from now is not after the present one, {present}; ask for a later one"
    )]
    NotLater {
        /// The scope that was to be moved.
        scope: String,
        /// Time from now to the end that was asked for.
        asked: Duration,
        /// Time from now to the present end, as text.
        present: String,
    },
    /// The scope is paused already.
    #[error("`{0}` is already paused; resume it first")]
    AlreadyPaused(String),
    /// The scope is not paused by itself.
    #[error("`{0}` is not paused itself; if a scope or sandbox around it is paused, resume that")]
    NotPaused(String),
}

/// What moves a scope's own wall.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    /// The own wall with its extensions; pauses are the watch's.
    pub(super) allowance: Option<Duration>,
    /// Paused itself. The watch is also stopped while a scope around this one is paused.
    pub(super) pause_asked: bool,
    pub(super) watch: Stopwatch,
}

impl Timing {
    /// When the own wall would end if all pauses ended now.
    pub(super) fn own_end(&self, now: Moment) -> Option<Moment> {
        let paused = self.watch.paused(now);
        self.allowance.map(|allowance| self.watch.start().after(allowance.saturating_add(paused)))
    }
}

#[derive(Debug)]
pub(super) struct ScopeNode {
    pub(super) parent: Option<ScopeId>,
    pub(super) children: Vec<ScopeId>,
    pub(super) location: ScopeLocation,
    pub(super) own: ScopeOwnLimits,
    /// Its own and those of the scopes in it.
    pub(super) ceilings: Ceilings,
    /// The ceiling of the wall is for what is inside, and not for the scope itself.
    pub(super) is_lifted: bool,
    /// The chosen grace under its ceiling; that of the cell is what of it fits into the limits
    /// around the scope.
    pub(super) grace: Duration,
    pub(super) timing: Timing,
    pub(super) ends: Option<SettledEnds>,
    pub(super) cell: Arc<DeadlineCell>,
    pub(super) warn: Option<Duration>,
    /// The wall end that has been given notice of.
    pub(super) warned_of: Option<Moment>,
}

/// A scope's settled ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SettledEnds {
    pub(super) wall_end: Moment,
    pub(super) hard_end: Moment,
    pub(super) named_by: NamedBy,
}

/// Whose limit set a wall end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NamedBy {
    Own,
    Ceiling,
    Ancestor(ScopeId),
}

/// All open scopes of an engine, under one set of ceilings.
///
/// ```
/// use std::time::Duration;
/// use sandtimer::limits::{Ceilings, Limits, precedence};
/// use sandtimer::model::{Layer, Source};
/// use sandtimer::scope::{Opening, ScopeTree};
/// use sandtimer::time::Moment;
///
/// let mut tree = ScopeTree::new(Ceilings::none());
/// let opening = |parent, layer, name: &str, seconds| {
///     let own = precedence(&[(Source::Call, &Limits::new().wall(Duration::from_secs(seconds)))]);
///     Opening { parent, layer, name: name.to_owned(), own, warn: None }
/// };
/// let now = Moment::from_nanos(0);
/// let job = tree.open(opening(None, Layer::Job, "job", 10), now)?;
/// let run = tree.open(opening(Some(job), Layer::Run, "run", 60), now)?;
/// // The run has 60 s of its own, and the job that it belongs to ends in 10 s.
/// let deadline = tree.deadline(run)?.unwrap();
/// assert_eq!(deadline.wall_end, now.after(Duration::from_secs(10)));
/// assert_eq!(deadline.effect.source, Source::Ancestor);
/// # Ok::<(), sandtimer::scope::ScopeError>(())
/// ```
#[derive(Debug)]
pub struct ScopeTree {
    pub(super) ceilings: Ceilings,
    pub(super) nodes: HashMap<ScopeId, ScopeNode>,
    pub(super) next: u64,
}

impl ScopeTree {
    /// The scopes around this one, outermost first.
    pub(super) fn ancestors(&self, id: ScopeId) -> Vec<ScopeId> {
        let parent = |id: &ScopeId| self.nodes.get(id).and_then(|node| node.parent);
        let mut chain: Vec<ScopeId> = std::iter::successors(parent(&id), parent).collect();
        chain.reverse();
        chain
    }

    pub(super) fn node(&self, id: ScopeId) -> Result<&ScopeNode, ScopeError> {
        self.nodes.get(&id).ok_or(ScopeError::Unknown(id))
    }

    pub(super) fn node_mut(&mut self, id: ScopeId) -> Result<&mut ScopeNode, ScopeError> {
        self.nodes.get_mut(&id).ok_or(ScopeError::Unknown(id))
    }
}
