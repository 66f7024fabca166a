//! The scopes of a job, and which of them ends first.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sandtimer::engine::{Engine, Error, ScopeHandle};
use sandtimer::limits::{FAR_FUTURE, Limits};
use sandtimer::model::{Layer, LimitKind, Source};
use sandtimer::scope::{CarriedDeadline, ScopeId};
use sandtimer::time::Moment;

use super::clock::now;
use super::observing::{Observer, ScopeEndNotifier};
use crate::job::sentences::{self, JobActivity};
use crate::job::{JobPhase, JobVerdict};

/// An open scope of a job. Its deadline is the enforcer's to keep; here it is known for what goes
/// on between runs.
#[derive(Debug)]
pub(super) struct Level {
    scope: ScopeHandle,
    /// Its own and those around it, outermost first.
    bounds: Vec<LevelWall>,
    notifier: ScopeEndNotifier,
}

/// The wall of one level.
#[derive(Debug, Clone)]
pub(super) struct LevelWall {
    pub layer: Layer,
    pub path: String,
    pub begun: Moment,
    pub end: Moment,
}

impl Level {
    /// The job's own, inside its owner's if there is one: its clock began with its submission.
    pub fn job(
        engine: &Engine,
        within: Option<ScopeId>,
        observer: Option<Arc<dyn Observer>>,
        id: &str,
        age: Duration,
        left: Option<Duration>,
    ) -> Result<Self, Error> {
        let now = now();
        let begun = now.before(age);
        let end = left.map(|left| now.after(left));
        let carried = CarriedDeadline { start: begun, own_end: end };
        let limits = limits(end.map(|end| end.since(begun)));
        let path = format!("job/{id}");
        let scope = engine.open_work(within, Layer::Job, path.clone(), &limits, Some(carried))?;
        let bound = end.map(|end| LevelWall { layer: Layer::Job, path: path.clone(), begun, end });
        let (id, parent, failed) = (scope.id(), None, AtomicBool::default());
        let notifier = ScopeEndNotifier { observer, id, parent, layer: Layer::Job, path, begun, failed };
        Ok(Level { scope, bounds: bound.into_iter().collect(), notifier })
    }

    /// One inside it.
    pub fn open(
        &self,
        engine: &Engine,
        layer: Layer,
        name: &str,
        wall: Option<Duration>,
    ) -> Result<Self, Error> {
        let begun = now();
        let name = name.replace('/', "_");
        let scope = engine.open_work(Some(self.scope.id()), layer, name.clone(), &limits(wall), None)?;
        let path = format!("{}/{name}", self.path());
        let mut bounds = self.bounds.clone();
        if let Some(wall) = wall.filter(|wall| *wall < FAR_FUTURE) {
            bounds.push(LevelWall { layer, path: path.clone(), begun, end: begun.after(wall) });
        }
        let (id, parent, failed) = (scope.id(), Some(self.id()), AtomicBool::default());
        let notifier = ScopeEndNotifier {
            observer: self.notifier.observer.clone(),
            id,
            parent,
            layer,
            path,
            begun,
            failed,
        };
        Ok(Level { scope, bounds, notifier })
    }

    /// Milliseconds since its clock began.
    pub fn age_ms(&self) -> u64 {
        milliseconds(now().since(self.notifier.begun))
    }

    /// What is done in it did not succeed.
    pub fn fails(&self) {
        self.notifier.fails();
    }

    /// Such as `job/7f3/loop`.
    pub fn path(&self) -> &str {
        &self.notifier.path
    }

    pub fn id(&self) -> ScopeId {
        self.scope.id()
    }

    /// Splits the level into the scope, for code that begins runs in it, and the notifier of its
    /// end.
    pub fn into_parts(self) -> (ScopeHandle, ScopeEndNotifier) {
        (self.scope, self.notifier)
    }

    /// When the first of its bounds ends.
    pub fn end(&self) -> Option<Moment> {
        self.bounds.iter().map(|bound| bound.end).min()
    }

    /// The bound that ends first; of several the outermost.
    pub fn first(&self) -> Option<&LevelWall> {
        self.bounds.iter().min_by_key(|bound| bound.end)
    }

    /// The outermost bound that has ended.
    pub fn over(&self) -> Option<&LevelWall> {
        let now = now();
        self.bounds.iter().find(|bound| bound.end <= now)
    }

    /// The bound of this layer.
    pub fn bound(&self, layer: Layer) -> Option<&LevelWall> {
        self.bounds.iter().find(|bound| bound.layer == layer)
    }
}

impl fmt::Display for LevelWall {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&sentences::wall_limit(self.layer, milliseconds(self.end.since(self.begun))))
    }
}

impl LevelWall {
    /// The verdict when it has ended a part of the job.
    pub fn verdict(&self, phase: JobPhase, activity: JobActivity<'_>) -> JobVerdict {
        let limit_ms = milliseconds(self.end.since(self.begun));
        JobVerdict {
            kind: LimitKind::Wall,
            layer: self.layer,
            source: Source::Call,
            scope: self.path.clone(),
            phase,
            limit_ms: Some(limit_ms),
            limit: None,
            elapsed_ms: milliseconds(now().since(self.begun)),
            sentence: sentences::wall(self.layer, limit_ms, activity),
        }
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn limits(wall: Option<Duration>) -> Limits {
    wall.map_or_else(Limits::new, |wall| Limits::new().wall(wall))
}
