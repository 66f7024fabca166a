//! Scopes without a run of their own: what bounds many calls together.

use std::sync::{Arc, PoisonError};

use sandtimer_os::clock::monotonic_nanoseconds;

use super::error::Error;
use super::{Engine, Inner};
use crate::limits::{EffectiveLimits, Limits, precedence};
use crate::model::{Layer, Source};
use crate::scope::{CarriedDeadline, Opening, ScopeId};
use crate::time::Moment;

/// An open scope, which closes when it is dropped. Runs that are still in it keep their bounds.
#[derive(Debug)]
pub struct ScopeHandle {
    inner: Arc<Inner>,
    id: ScopeId,
}

impl Engine {
    /// Opens a scope: its clock begins now, and its limits bound every run inside.
    ///
    /// # Errors
    /// When the outer scope is gone or its time has passed.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sandtimer::{Engine, Layer, Limits, Source, Spec};
    ///
    /// let engine = Engine::new()?;
    /// let limits = Limits::new().wall(Duration::from_millis(300));
    /// let job = engine.open_scope(None, Layer::Job, "job/7", &limits)?;
    /// // However many runs the job has, they have 300 ms together.
    /// let spec = Spec { parent: Some(job.id()), ..Spec::command(["sleep", "3600"]) };
    /// let outcome = engine.run_blocking(spec)?;
    /// let verdict = outcome.verdict.as_ref().unwrap();
    /// assert_eq!((verdict.layer, verdict.source), (Layer::Job, Source::Ancestor));
    /// assert_eq!(verdict.scope, "job/7");
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn open_scope(
        &self,
        parent: Option<ScopeId>,
        layer: Layer,
        name: impl Into<String>,
        limits: &Limits,
    ) -> Result<ScopeHandle, Error> {
        self.open_carried_scope(parent, layer, name, limits, None)
    }

    /// As [`Engine::open_scope`], of a scope that was open before: its clock and its own wall are
    /// those of `carried`.
    ///
    /// # Errors
    /// As [`Engine::open_scope`].
    pub fn open_carried_scope(
        &self,
        parent: Option<ScopeId>,
        layer: Layer,
        name: impl Into<String>,
        limits: &Limits,
        carried: Option<CarriedDeadline>,
    ) -> Result<ScopeHandle, Error> {
        let own = precedence(&[(Source::Call, limits)]);
        let opening = Opening { parent, layer, name: name.into(), own, warn: None };
        ScopeHandle::open(self, opening, carried)
    }

    /// As [`Engine::open_carried_scope`], of work in which there are several runs one after the
    /// other: a ceiling of the wall bounds each of them, and not the work as a whole.
    ///
    /// # Errors
    /// As [`Engine::open_scope`].
    pub fn open_work(
        &self,
        parent: Option<ScopeId>,
        layer: Layer,
        name: impl Into<String>,
        limits: &Limits,
        carried: Option<CarriedDeadline>,
    ) -> Result<ScopeHandle, Error> {
        let scope = self.open_carried_scope(parent, layer, name, limits, carried)?;
        let mut scopes = self.inner.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        scopes.lift_wall_ceiling(scope.id, Moment::from_nanos(monotonic_nanoseconds()))?;
        drop(scopes);
        Ok(scope)
    }

    /// Opens a scope for one of several that share this engine: the ceilings of every run inside
    /// are at most these.
    ///
    /// ```
    /// use sandtimer::{Engine, LimitKind, Limits, Source, Spec};
    ///
    /// let engine = Engine::new()?;
    /// let tenant = engine.open_tenant("team-a", &Limits::new().processes(32))?;
    /// let spec = Spec { parent: Some(tenant.id()), ..Spec::command(["true"]) };
    /// let run = engine.start(spec.limits(Limits::new().processes(1000)))?;
    /// let processes = run.effective().get(LimitKind::Processes).unwrap();
    /// assert_eq!((processes.value, processes.source), (32, Source::Ceiling));
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn open_tenant(&self, name: impl Into<String>, maxima: &Limits) -> Result<ScopeHandle, Error> {
        let scope = self.open_scope(None, Layer::Tenant, name, &Limits::new())?;
        let mut scopes = self.inner.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        scopes.lower_ceilings(scope.id, maxima)?;
        drop(scopes);
        Ok(scope)
    }
}

impl ScopeHandle {
    /// Opens a scope: with a clock that begins now, or with the one that was `carried` over.
    ///
    /// # Errors
    /// As [`Engine::open_scope`].
    pub fn open(engine: &Engine, opening: Opening, carried: Option<CarriedDeadline>) -> Result<Self, Error> {
        let now = Moment::from_nanos(monotonic_nanoseconds());
        let mut scopes = engine.inner.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        let id = match carried {
            Some(carried) => scopes.open_with_deadline(opening, carried, now)?,
            None => scopes.open(opening, now)?,
        };
        drop(scopes);
        Ok(ScopeHandle { inner: engine.inner.clone(), id })
    }

    /// Returns every limit that bounds a run inside it now.
    ///
    /// # Errors
    /// If the scope is gone.
    ///
    /// ```
    /// use sandtimer::{Engine, Layer, LimitKind, Limits};
    ///
    /// let engine = Engine::new()?;
    /// let (small, large) = (Limits::new().memory(512 << 20), Limits::new().memory(1 << 30));
    /// let job = engine.open_scope(None, Layer::Job, "job/7", &small)?;
    /// let turn = engine.open_scope(Some(job.id()), Layer::Turn, "turn-1", &large)?;
    /// // The turn asks for more than the job has.
    /// assert_eq!(turn.effective()?.get(LimitKind::Memory).unwrap().value, 512 << 20);
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn effective(&self) -> Result<EffectiveLimits, Error> {
        let scopes = self.inner.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(scopes.effective(self.id, Moment::from_nanos(monotonic_nanoseconds()))?)
    }

    /// For runs inside it; see [`Spec::parent`](super::Spec::parent).
    pub fn id(&self) -> ScopeId {
        self.id
    }
}

impl Drop for ScopeHandle {
    fn drop(&mut self) {
        if self.inner.is_a_copy() {
            // The scope is another process's, and a lock that a thread held at the fork is held
            // here for good.
            std::mem::forget(self.inner.clone());
            return;
        }
        self.inner.scopes.lock().unwrap_or_else(PoisonError::into_inner).close(self.id);
    }
}
