//! How the shells of sessions are prepared.
//!
//! No shell is warm: each session's shell runs the pre-warm script itself, in the session's own
//! jail. A failed script is logged once, counted, and not run again for that owner; sessions start
//! without it and report so.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandtimer::engine::{Context, ContextSpec, ShellPrewarm};
use sandtimer::zygote::Prewarm;

use crate::auth::OwnerId;
use crate::error::ApiRejection;
use crate::policy::Interpreters;
use crate::runs::RunService;

/// One owner's script.
#[derive(Debug)]
struct Script {
    prewarm: Arc<ShellPrewarm>,
    /// Whether the operator knows that it has failed.
    is_reported: AtomicBool,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Shells {
    runs: Arc<RunService>,
    interpreters: Arc<Interpreters>,
    scripts: Mutex<HashMap<OwnerId, Script>>,
}

impl Shells {
    pub fn new(runs: Arc<RunService>, interpreters: Arc<Interpreters>) -> Self {
        Shells { runs, interpreters, scripts: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<OwnerId, Script>> {
        self.scripts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, owner: &OwnerId) -> Option<Arc<ShellPrewarm>> {
        let source = self.interpreters.shell_prewarm.as_ref()?;
        let new = || {
            let script = Prewarm { source: source.clone(), limit: self.interpreters.prewarm_limit };
            Script { prewarm: ShellPrewarm::new(script), is_reported: AtomicBool::new(false) }
        };
        Some(self.lock().entry(owner.clone()).or_insert_with(new).prewarm.clone())
    }

    /// A session of this owner's, and what is to be known of how it came to be.
    pub fn open(
        &self,
        owner: &OwnerId,
        spec: ContextSpec,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<(Context, Vec<String>), ApiRejection> {
        let prewarm = self.of(owner);
        let spec = ContextSpec { prewarm: prewarm.clone(), ..spec };
        let opened = self.runs.core.engine.session_unless(spec, &|| !is_wanted());
        self.log_failures();
        let context = opened?;
        let failure = prewarm.as_ref().and_then(|prewarm| prewarm.failure());
        let warning = context.not_prewarmed().or(failure).map(not_prewarmed);
        Ok((context, warning.into_iter().collect()))
    }

    /// Logs scripts that have failed, for the operator.
    pub fn log_failures(&self) {
        for script in self.lock().values() {
            if let Some(reason) = script.prewarm.failure()
                && !script.is_reported.swap(true, Ordering::Relaxed)
            {
                (self.runs.core.host.log_error)(&not_prewarmed(reason));
            }
        }
    }

    /// How many have failed.
    pub fn failures(&self) -> u64 {
        self.lock().values().filter(|script| script.prewarm.failure().is_some()).count() as u64
    }
}

fn not_prewarmed(reason: &str) -> String {
    format!("prewarm.bash did not run: {reason}; sessions are served without it")
}
