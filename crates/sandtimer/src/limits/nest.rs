//! The two rules. [`precedence`] picks one scope's own limit; [`nest`] bounds it by ancestors and
//! ceilings.
//!
//! They must stay apart: a chosen "unlimited" beats every default, and no ancestor or ceiling. The
//! wall is the one kind that is not a plain minimum, because ancestors bound the moment of death,
//! `wall + grace`.

use std::sync::Arc;

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::key::Key;
use super::set::Limits;
use super::setting::Setting;
use crate::model::{Layer, LimitKind, Source};

/// Share of the machine's memory that one run may have if the operator sets no ceiling, in percent.
const MACHINE_MEMORY_PERCENT: u128 = 80;
/// Processes that one run may have if the operator sets no ceiling.
const MACHINE_PROCESSES: u64 = 4096;

/// One own limit and the place it came from. The setting is never `Inherit`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChosenLimit {
    /// The limit, or that there is explicitly none.
    pub setting: Setting,
    /// The place that set it: call, session, environment, file or built-in.
    pub source: Source,
    /// The variable, flag or line of a file that sets it, if that is known.
    pub origin: Option<Arc<str>>,
}

/// A scope's own limits, before nesting.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScopeOwnLimits {
    chosen: [Option<ChosenLimit>; Key::COUNT],
}

impl ScopeOwnLimits {
    /// What was chosen, if any place chose.
    pub fn get(&self, key: impl Into<Key>) -> Option<&ChosenLimit> {
        self.chosen[key.into().index()].as_ref()
    }

    /// The own limit, in nanoseconds, bytes or pieces; `None` when unlimited.
    pub fn limit(&self, key: impl Into<Key>) -> Option<u64> {
        self.finite(key.into()).map(|(value, _)| value)
    }

    /// Puts another limit in the place of the chosen one, leaving its source.
    pub(crate) fn replace(&mut self, key: impl Into<Key>, limit: Option<u64>) {
        let chosen = &mut self.chosen[key.into().index()];
        let (source, origin) =
            chosen.take().map_or((Source::Builtin, None), |chosen| (chosen.source, chosen.origin));
        *chosen =
            Some(ChosenLimit { setting: limit.map_or(Setting::Unlimited, Setting::At), source, origin });
    }

    fn finite(&self, key: Key) -> Option<(u64, LimitOrigin<'_>)> {
        match self.get(key)? {
            ChosenLimit { setting: Setting::At(value), source, origin } => {
                Some((*value, LimitOrigin { source: *source, origin: origin.as_ref() }))
            }
            _ => None,
        }
    }
}

/// Picks a scope's own limits: for each key the first setting that is not `Inherit`, in the order
/// call, session, environment, config file, built-in. Among places of the same source the earlier
/// in `layers` wins.
///
/// Ceilings and ancestors are not places that choose; settings under those sources are never
/// picked.
///
/// ```
/// use std::time::Duration;
/// use sandtimer::limits::{Limits, precedence};
/// use sandtimer::model::{LimitKind, Source};
///
/// let file = Limits::new().wall(Duration::from_secs(60)).processes(64);
/// let call = Limits::new().wall(Duration::from_secs(2));
/// let own = precedence(&[(Source::Config, &file), (Source::Call, &call)]);
/// assert_eq!(own.limit(LimitKind::Wall), Some(2_000_000_000));
/// assert_eq!(own.get(LimitKind::Processes).unwrap().source, Source::Config);
/// assert_eq!(own.limit(LimitKind::Memory), None);
/// ```
pub fn precedence(layers: &[(Source, &Limits)]) -> ScopeOwnLimits {
    const BY_PRECEDENCE: [Source; 5] =
        [Source::Call, Source::Session, Source::Env, Source::Config, Source::Builtin];
    let chosen = Key::ALL.map(|key| {
        BY_PRECEDENCE
            .iter()
            .flat_map(|wanted| layers.iter().filter(move |(source, _)| source == wanted))
            .find(|(_, limits)| limits.get(key) != Setting::Inherit)
            .map(|(source, limits)| ChosenLimit {
                setting: limits.get(key),
                source: *source,
                origin: limits.origin().cloned(),
            })
    });
    ScopeOwnLimits { chosen }
}

/// A scope by its level and its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScopeLocation {
    /// The level of the scope, such as job or run.
    pub layer: Layer,
    /// Such as `job/7f3/turn-12`.
    pub scope: String,
}

/// What an ancestor allows the scopes inside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScopeBound {
    /// The ancestor that bounds.
    pub location: ScopeLocation,
    /// [`Source::Ancestor`], or [`Source::Ceiling`] when the ancestor's own wall is set by a
    /// ceiling.
    pub wall_source: Source,
    limits: [Option<u64>; Key::COUNT],
}

impl ScopeBound {
    /// An ancestor that bounds nothing yet.
    pub fn new(location: ScopeLocation) -> Self {
        Self { location, wall_source: Source::Ancestor, limits: [None; Key::COUNT] }
    }

    /// Adds what it allows of one kind; for the wall, the nanoseconds left until everything inside
    /// it must be dead.
    #[must_use]
    pub fn with(mut self, kind: LimitKind, value: u64) -> Self {
        self.limits[Key::Kind(kind).index()] = Some(value);
        self
    }

    pub(super) fn get(&self, key: Key) -> Option<u64> {
        self.limits[key.index()]
    }

    /// What it allows of one kind, as it applies to the scopes inside it.
    pub fn effect(&self, kind: LimitKind) -> Option<Effect> {
        self.get(Key::Kind(kind))
            .map(|value| effect(value, LimitOrigin::of(Source::Ancestor), &self.location))
    }
}

/// What the operator and the machine allow any single scope.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ceilings {
    limits: [Option<u64>; Key::COUNT],
}

impl Ceilings {
    /// No ceiling of any kind.
    pub fn none() -> Self {
        Self::default()
    }

    /// What protects the host: 80 % of its memory, 4096 processes. `total_memory_bytes` is the
    /// machine's, or its container's.
    pub fn for_machine(total_memory_bytes: u64) -> Self {
        let memory = u128::from(total_memory_bytes) * MACHINE_MEMORY_PERCENT / 100;
        let mut ceilings = Self::none();
        ceilings.limits[Key::Kind(LimitKind::Memory).index()] = u64::try_from(memory).ok();
        ceilings.limits[Key::Kind(LimitKind::Processes).index()] = Some(MACHINE_PROCESSES);
        ceilings
    }

    /// Applies the operator's `max_*` settings: `Inherit` leaves a ceiling as it is, `Unlimited`
    /// removes it.
    ///
    /// ```
    /// use sandtimer::limits::{Ceilings, Limits};
    /// use sandtimer::model::LimitKind;
    ///
    /// let machine = Ceilings::for_machine(10 << 30);
    /// assert_eq!(machine.get(LimitKind::Memory), Some(8 << 30));
    /// let maxima = Limits::new().memory(1 << 30).unlimited(LimitKind::Processes);
    /// let ceilings = machine.with_operator(&maxima);
    /// assert_eq!(ceilings.get(LimitKind::Memory), Some(1 << 30));
    /// assert_eq!(ceilings.get(LimitKind::Processes), None);
    /// ```
    #[must_use]
    pub fn with_operator(mut self, maxima: &Limits) -> Self {
        for key in Key::ALL {
            match maxima.get(key) {
                Setting::Inherit => {}
                Setting::Unlimited => self.limits[key.index()] = None,
                Setting::At(value) => self.limits[key.index()] = Some(value),
            }
        }
        self
    }

    /// Lowered to these, where they are lower: what is given to a part cannot pass the whole.
    #[must_use]
    pub fn lowered(mut self, maxima: &Limits) -> Self {
        for key in Key::ALL {
            if let Setting::At(value) = maxima.get(key) {
                let ceiling = &mut self.limits[key.index()];
                *ceiling = Some(ceiling.map_or(value, |ceiling| ceiling.min(value)));
            }
        }
        self
    }

    /// The others.
    #[must_use]
    pub fn without(mut self, key: impl Into<Key>) -> Self {
        self.limits[key.into().index()] = None;
        self
    }

    /// The ceiling in nanoseconds, bytes or pieces.
    pub fn get(&self, key: impl Into<Key>) -> Option<u64> {
        self.limits[key.into().index()]
    }
}

/// One limit that applies, and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Effect {
    /// Nanoseconds, bytes or pieces, counted from the scope's own start.
    pub value: u64,
    /// The place that set it; [`Source::Ancestor`] or [`Source::Ceiling`] if nesting made it
    /// smaller.
    pub source: Source,
    /// The variable, flag or line of a file that sets it, where that is known.
    pub origin: Option<Arc<str>>,
    /// The level of the scope whose limit it is.
    pub layer: Layer,
    /// The path of that scope.
    pub scope: String,
}

/// All limits that apply to a scope. Serialises under the wire keys, `null` for unlimited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectiveLimits {
    effects: [Option<Effect>; Key::COUNT],
}

impl EffectiveLimits {
    /// The limit that applies; `None` is unlimited. The grace always has a value, 0 unless chosen.
    pub fn get(&self, key: impl Into<Key>) -> Option<&Effect> {
        self.effects[key.into().index()].as_ref()
    }
}

/// Bounds a scope's own limits by its ancestors, outermost first, and by the ceilings, which are
/// outermost of all. Each kind gets the minimum; of equal limits the outermost is named.
///
/// ```
/// use sandtimer::limits::{Ceilings, Limits, ScopeBound, ScopeLocation, nest, precedence};
/// use sandtimer::model::{Layer, LimitKind, Source};
///
/// let location = |layer, scope: &str| ScopeLocation { layer, scope: scope.to_owned() };
/// let call = Limits::new().memory(8 << 30).unlimited(LimitKind::Processes);
/// let own = precedence(&[(Source::Call, &call)]);
/// let job = ScopeBound::new(location(Layer::Job, "job/7")).with(LimitKind::Memory, 1 << 30);
/// let ceilings = Ceilings::none().with_operator(&Limits::new().processes(64));
/// let effective = nest(&location(Layer::Run, "job/7/run-1"), &own, &[job], &ceilings);
/// let memory = effective.get(LimitKind::Memory).unwrap();
/// assert_eq!((memory.value, memory.source), (1 << 30, Source::Ancestor));
/// let processes = effective.get(LimitKind::Processes).unwrap();
/// assert_eq!((processes.value, processes.source), (64, Source::Ceiling));
/// ```
pub fn nest(
    here: &ScopeLocation,
    own: &ScopeOwnLimits,
    ancestors: &[ScopeBound],
    ceilings: &Ceilings,
) -> EffectiveLimits {
    let (wall, grace) = nest_wall(here, own, ancestors, ceilings);
    let effects = Key::ALL.map(|key| match key {
        Key::Kind(LimitKind::Wall) => wall.clone(),
        Key::Grace => Some(grace.clone()),
        Key::Kind(_) => nest_kind(key, here, own, ancestors, ceilings),
    });
    EffectiveLimits { effects }
}

fn nest_kind(
    key: Key,
    here: &ScopeLocation,
    own: &ScopeOwnLimits,
    ancestors: &[ScopeBound],
    ceilings: &Ceilings,
) -> Option<Effect> {
    let ceiling = ceilings.get(key).map(|value| (value, LimitOrigin::of(Source::Ceiling), here));
    let ancestor = LimitOrigin::of(Source::Ancestor);
    let around =
        ancestors.iter().filter_map(|bound| bound.get(key).map(|value| (value, ancestor, &bound.location)));
    let chosen = own.finite(key).map(|(value, origin)| (value, origin, here));
    // `min_by_key` keeps the first of equals, and the outermost comes first.
    let (value, from, location) =
        ceiling.into_iter().chain(around).chain(chosen).min_by_key(|entry| entry.0)?;
    Some(effect(value, from, location))
}

fn nest_wall(
    here: &ScopeLocation,
    own: &ScopeOwnLimits,
    ancestors: &[ScopeBound],
    ceilings: &Ceilings,
) -> (Option<Effect>, Effect) {
    let wall_key = Key::Kind(LimitKind::Wall);
    let (asked, asked_from) = own_grace(own, ceilings);
    let mut bounds = vec![ceilings.get(wall_key)];
    bounds.extend(ancestors.iter().map(|bound| bound.get(wall_key)));
    // The source of the bound of this index, and the scope it belongs to.
    let named = |index: usize| match index.checked_sub(1) {
        None => (LimitOrigin::of(Source::Ceiling), here),
        Some(index) => (LimitOrigin::of(ancestors[index].wall_source), &ancestors[index].location),
    };
    let tightest = tightest(&bounds);
    let grace = fitting_grace(own.limit(wall_key), asked, tightest.map(|(_, bound)| bound));
    let effective_grace = match tightest {
        Some((index, _)) if grace < asked => {
            let (from, location) = named(index);
            effect(grace, from, location)
        }
        _ => effect(grace, asked_from, here),
    };
    let Some(walled) = bound_wall(own.limit(wall_key), grace, 0, &bounds) else {
        return (None, effective_grace);
    };
    let chosen = own.get(wall_key);
    let chosen_from = || {
        chosen.map_or(LimitOrigin::of(Source::Builtin), |chosen| LimitOrigin {
            source: chosen.source,
            origin: chosen.origin.as_ref(),
        })
    };
    let (from, location) = walled.bound.map_or_else(|| (chosen_from(), here), named);
    (Some(effect(walled.wall, from, location)), effective_grace)
}

/// A scope's grace under its ceiling, before what its outer limits leave shortens it. 0 unless
/// chosen.
fn own_grace<'a>(own: &'a ScopeOwnLimits, ceilings: &Ceilings) -> (u64, LimitOrigin<'a>) {
    let (grace, from) = own.finite(Key::Grace).unwrap_or((0, LimitOrigin::of(Source::Builtin)));
    match ceilings.get(Key::Grace) {
        Some(ceiling) if grace > 0 && ceiling <= grace => (ceiling, LimitOrigin::of(Source::Ceiling)),
        _ => (grace, from),
    }
}

/// The place that set a limit.
#[derive(Clone, Copy)]
struct LimitOrigin<'a> {
    source: Source,
    /// The place's own name, such as a file and a line.
    origin: Option<&'a Arc<str>>,
}

impl LimitOrigin<'_> {
    const fn of(source: Source) -> Self {
        LimitOrigin { source, origin: None }
    }
}

fn effect(value: u64, from: LimitOrigin<'_>, location: &ScopeLocation) -> Effect {
    let origin = from.origin.cloned();
    Effect { value, source: from.source, origin, layer: location.layer, scope: location.scope.clone() }
}

/// A wall after its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BoundWall {
    pub(crate) wall: u64,
    /// When everything is dead: at most `wall + grace`, never after any bound.
    pub(crate) hard: u64,
    /// Which bound set the wall; `None` is the own limit.
    pub(crate) bound: Option<usize>,
}

/// The grace of a scope to which its outer limits leave `left`: as it was chosen where the own wall
/// and it fit in, else at most half of what is left, so that the other half is for what the scope
/// is to do.
pub(crate) fn fitting_grace(own: Option<u64>, grace: u64, left: Option<u64>) -> u64 {
    match left {
        Some(left) if own.is_none_or(|own| own.saturating_add(grace) > left) => grace.min(left / 2),
        _ => grace,
    }
}

/// The least of the bounds and its index; of equals the outermost.
fn tightest(bounds: &[Option<u64>]) -> Option<(usize, u64)> {
    let each = bounds.iter().enumerate().filter_map(|(index, bound)| Some((index, (*bound)?)));
    each.min_by_key(|(_, bound)| *bound)
}

/// Bounds an own wall so that `wall + grace` stays within every bound; outermost bound first.
///
/// Works on durations (`floor` 0) and on moments (`floor` the start) alike. When a bound leaves
/// less than the grace after `floor`, the grace is what shrinks.
pub(crate) fn bound_wall(
    own: Option<u64>,
    grace: u64,
    floor: u64,
    bounds: &[Option<u64>],
) -> Option<BoundWall> {
    let Some((index, bound)) = tightest(bounds) else {
        return own.map(|wall| BoundWall { wall, hard: wall.saturating_add(grace), bound: None });
    };
    let capped = bound.saturating_sub(grace).max(floor).min(bound);
    let (wall, by) = match own {
        Some(own) if own < capped => (own, None),
        _ => (capped, Some(index)),
    };
    Some(BoundWall { wall, hard: wall.saturating_add(grace).min(bound), bound: by })
}

impl Serialize for EffectiveLimits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(Key::COUNT))?;
        for key in Key::ALL {
            map.serialize_entry(key.wire(), &self.get(key).map(|effect| Echo { key, effect }))?;
        }
        map.end()
    }
}

/// One entry of a serialised [`EffectiveLimits`]. Only a limit from another scope has that scope.
struct Echo<'a> {
    key: Key,
    effect: &'a Effect,
}

impl Serialize for Echo<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("limit", &self.key.to_wire(self.effect.value))?;
        map.serialize_entry("source", &self.effect.source)?;
        if let Some(origin) = &self.effect.origin {
            map.serialize_entry("origin", &**origin)?;
        }
        if self.effect.source == Source::Ancestor {
            map.serialize_entry("layer", &self.effect.layer)?;
            map.serialize_entry("scope", &self.effect.scope)?;
        }
        map.end()
    }
}
