//! Pools of warm interpreters, and how those are pre-warmed.
//!
//! One pool for each owner: owners must not share what code can read of its zygote. Pools are made
//! when the server starts, or when a context is first requested. A pre-warm script that fails is
//! the operator's matter: each failure is logged once, counted, and noted in the contexts that
//! start without it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandtimer::engine::{Context, ContextSpec, Contexts, Stats};
use sandtimer::limits::nanoseconds;
use sandtimer::zygote::{Language, Prewarm, Profile};
use sandtimer_os::clock::monotonic_nanoseconds;

use crate::auth::OwnerId;
use crate::error::{ApiRejection, spawn_timeout};
use crate::policy::{Interpreters, PoolSettings};
use crate::runs::RunService;

/// Owners whose interpreters are made ready when the server starts; for others when they first ask.
const MAX_OWNERS_AT_START: usize = 16;
/// Beyond its limits, how long a caller waits for the pool's reply about the interpreter.
const POOL_REPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// One owner's interpreters of one language.
#[derive(Debug)]
struct OwnerPool {
    contexts: Contexts,
    /// Failures of the pre-warm script that the operator knows of.
    reported_failures: AtomicU64,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Pools {
    runs: Arc<RunService>,
    interpreters: Arc<Interpreters>,
    pools: Mutex<HashMap<PoolKey, Arc<OwnerPool>>>,
}

/// What the interpreters of one pool are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PoolKey {
    owner: OwnerId,
    language: Language,
    has_network: bool,
}

impl Pools {
    pub fn new(runs: Arc<RunService>, interpreters: Arc<Interpreters>) -> Self {
        Pools { runs, interpreters, pools: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PoolKey, Arc<OwnerPool>>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(
        &self,
        owner: &OwnerId,
        language: Language,
        has_network: bool,
    ) -> Result<Arc<OwnerPool>, ApiRejection> {
        let mut pools = self.lock();
        let key = PoolKey { owner: owner.clone(), language, has_network };
        if let Some(pool) = pools.get(&key) {
            return Ok(pool.clone());
        }
        let (interpreter, settings) = self.settings(language);
        let limit = self.interpreters.prewarm_limit;
        let profile = Profile {
            interpreter: interpreter.into(),
            language,
            live: true,
            workspaces: Some(self.runs.workspaces.own_directory().to_owned()),
            prewarm: settings.prewarm.clone().map(|source| Prewarm { source, limit }),
            owner: Some(owner.as_str().into()),
            network: has_network,
            ..Profile::default()
        };
        // Contexts with the network are rare.
        let ready = if has_network { settings.ready.min(1) } else { settings.ready };
        let contexts = self.runs.core.engine.contexts(profile, ready)?;
        let pool = Arc::new(OwnerPool { contexts, reported_failures: AtomicU64::new(0) });
        pools.insert(key, pool.clone());
        Ok(pool)
    }

    /// A context of this owner's, and what is to be known of how it came to be.
    pub fn open(
        &self,
        owner: &OwnerId,
        language: Language,
        spec: ContextSpec,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<(Context, Vec<String>), ApiRejection> {
        let pool = self.of(owner, language, spec.network)?;
        let limits = &self.interpreters;
        let has_prewarm = self.settings(language).1.prewarm.is_some();
        let prewarm = if has_prewarm { limits.prewarm_limit } else { Duration::ZERO };
        let most = limits.spawn_limit.saturating_add(prewarm).saturating_add(POOL_REPLY_TIMEOUT);
        let end = monotonic_nanoseconds().saturating_add(nanoseconds(most));
        let mut over = false;
        let opened = pool.contexts.open(spec, &mut || {
            over = monotonic_nanoseconds() >= end;
            over || !is_wanted()
        });
        self.log_failures();
        match opened {
            Ok(context) => {
                let reason = pool.contexts.stats().not_prewarmed;
                let warning = reason.map(|reason| not_prewarmed(language, &reason));
                Ok((context, warning.into_iter().collect()))
            }
            Err(_) if over => Err(spawn_timeout(limits.spawn_limit)),
            Err(error) => Err(error.into()),
        }
    }

    /// The program that a language's interpreters are, and how they are made ready.
    fn settings(&self, language: Language) -> (&'static str, &PoolSettings) {
        match language {
            Language::Python => ("python3", &self.interpreters.python),
            Language::JavaScript => ("node", &self.interpreters.javascript),
        }
    }

    /// Makes the first interpreters ready: Python's, and JavaScript's where they have something to
    /// do before. Blocks.
    pub fn fill(&self, owners: &[OwnerId]) {
        let (python, javascript) = (&self.interpreters.python, &self.interpreters.javascript);
        let is_script = javascript.ready > 0 && javascript.prewarm.is_some();
        let wanted = [(python.ready > 0, Language::Python), (is_script, Language::JavaScript)];
        for (_, language) in wanted.into_iter().filter(|(is_wanted, _)| *is_wanted) {
            for owner in owners.iter().take(MAX_OWNERS_AT_START) {
                if let Err(rejection) = self.of(owner, language, false) {
                    (self.runs.core.host.log_error)(&format!(
                        "no interpreters can be made ready: {}",
                        rejection.message
                    ));
                    break;
                }
            }
        }
    }

    /// Logs pre-warm scripts that have failed, for the operator.
    pub fn log_failures(&self) {
        for (key, pool) in self.lock().iter() {
            let stats = pool.contexts.stats();
            if pool.reported_failures.swap(stats.prewarm_failures, Ordering::Relaxed) < stats.prewarm_failures
                && let Some(reason) = &stats.not_prewarmed
            {
                (self.runs.core.host.log_error)(&not_prewarmed(key.language, reason));
            }
        }
    }

    /// What all pools of a language have done, by language.
    pub fn stats(&self) -> Vec<(&'static str, Stats)> {
        let pools = self.lock();
        let of = |language: Language| {
            let mut sum = Stats::default();
            for (_, pool) in pools.iter().filter(|(key, _)| key.language == language) {
                let stats = pool.contexts.stats();
                sum.ready += stats.ready;
                sum.calls += stats.calls;
                sum.cold += stats.cold;
                sum.prewarm_failures += stats.prewarm_failures;
            }
            sum
        };
        vec![("python", of(Language::Python)), ("javascript", of(Language::JavaScript))]
    }

    /// Ends all of them. Blocks.
    pub fn close(&self) {
        let all = std::mem::take(&mut *self.lock());
        // Without the lock: it takes a moment.
        drop(all);
    }
}

fn not_prewarmed(language: Language, reason: &str) -> String {
    let key = match language {
        Language::Python => "prewarm.python",
        Language::JavaScript => "prewarm.javascript",
    };
    format!("{key} did not run: {reason}; contexts are served without it")
}
