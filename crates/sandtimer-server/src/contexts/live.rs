//! Contexts from their beginning to their end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sandtimer::Limits;
use sandtimer::engine::{Cell, Context, ContextSpec, Contexts, Told};
use sandtimer::model::{Source, State};
use sandtimer::zygote::{Language as Interpreter, Profile};
use sandtimer_os::clock::{calendar_milliseconds, monotonic_nanoseconds};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::request::{CellRequest, ContextRequest, Language};
use crate::Shared;
use crate::auth::Owner;
use crate::error::{Code, Refusal};
use crate::owned::{Owned, Registry};
use crate::runs::{CLIENT_GONE, LiveRun, adopt};

/// Interpreters of one owner that stand ready.
const READY: usize = 2;
/// How long a new context waits for an interpreter, in nanoseconds.
const SPAWN_LIMIT: u64 = 60_000_000_000;
/// How often contexts are looked at for how long they were not used.
const HOUSEKEEPING: Duration = Duration::from_secs(1);
/// Of what is executed, what listings show.
const SHOWN: usize = 400;

/// One context, as the server knows it.
#[derive(Debug)]
pub(crate) struct LiveContext {
    id: String,
    owner: Owner,
    language: Language,
    created_at_ms: u64,
    idle: Option<Duration>,
    each: Limits,
    context: Context,
    /// When it was last used, in monotonic nanoseconds.
    used: AtomicU64,
}

impl Owned for LiveContext {
    fn id(&self) -> &str {
        &self.id
    }

    fn owner(&self) -> &Owner {
        &self.owner
    }
}

impl LiveContext {
    pub fn id_text(&self) -> &str {
        &self.id
    }

    pub fn language(&self) -> Language {
        self.language
    }

    pub fn created_at_ms(&self) -> u64 {
        self.created_at_ms
    }

    pub fn waiting(&self) -> usize {
        self.context.info().waiting
    }

    pub fn interrupt(&self) -> bool {
        self.context.interrupt()
    }

    fn touch(&self) {
        self.used.store(monotonic_nanoseconds(), Ordering::Relaxed);
    }

    /// How long it may still be unused. `None` is without end.
    fn idle_left(&self) -> Option<Duration> {
        let unused = monotonic_nanoseconds().saturating_sub(self.used.load(Ordering::Relaxed));
        self.idle.map(|idle| idle.saturating_sub(Duration::from_nanos(unused)))
    }

    pub fn view(&self) -> Value {
        let info = self.context.info();
        let running = self.context.running();
        json!({
            "context_id": self.id,
            "language": self.language.name(),
            "status": if running.is_some() { "busy" } else { "idle" },
            "run_id": running.as_ref().map(|run| run.id()),
            "waiting": info.waiting,
            "executions": info.executions,
            "checkpoint": info.checkpoint.is_ok(),
            "no_checkpoint_because": info.checkpoint.err(),
            "can_undo": info.can_undo,
            "created_at_ms": self.created_at_ms,
            "idle_ms": self.idle.map(milliseconds),
            "idle_left_ms": self.idle_left().map(milliseconds),
        })
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// All contexts, and where their interpreters come from.
#[derive(Debug, Default)]
pub(crate) struct LiveContexts {
    registry: Registry<LiveContext>,
    /// One pool for each owner and interpreter: what one's code has seen of its zygote is nobody else's.
    pools: Mutex<HashMap<(Owner, Interpreter), Arc<Contexts>>>,
}

impl LiveContexts {
    pub fn find(&self, id: &str, owner: &Owner) -> Option<Arc<LiveContext>> {
        self.registry.find(id, owner)
    }

    pub fn of(&self, owner: &Owner) -> Vec<Arc<LiveContext>> {
        self.registry.of(owner)
    }

    fn pool(&self, app: &Shared, owner: &Owner, language: Interpreter) -> Result<Arc<Contexts>, Refusal> {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (owner.clone(), language);
        if let Some(pool) = pools.get(&key) {
            return Ok(pool.clone());
        }
        let interpreter = match language {
            Interpreter::Python => "python3",
            Interpreter::JavaScript => "node",
        };
        let profile = Profile { interpreter: interpreter.into(), language, live: true, ..Profile::default() };
        let pool = Arc::new(app.engine.contexts(profile, READY)?);
        pools.insert(key, pool.clone());
        Ok(pool)
    }
}

/// Opens a context.
pub(crate) async fn open(
    app: Shared,
    owner: Owner,
    request: ContextRequest,
) -> Result<Arc<LiveContext>, Refusal> {
    if *app.closing.borrow() {
        return Err(Refusal::new(Code::ShuttingDown, "the server is ending and takes no more contexts"));
    }
    let opening = move || {
        let spec = ContextSpec {
            limits: request.whole,
            defaults: app.defaults.clone(),
            environment: request.environment,
            directory: request.directory,
            typescript: request.language == Language::TypeScript,
            ..ContextSpec::default()
        };
        let interpreter = match request.language {
            Language::Bash => None,
            Language::Python => Some(Interpreter::Python),
            Language::JavaScript | Language::TypeScript => Some(Interpreter::JavaScript),
        };
        let context = match interpreter {
            None => app.engine.session(spec)?,
            Some(interpreter) => {
                let end = monotonic_nanoseconds() + SPAWN_LIMIT;
                let pool = app.contexts.pool(&app, &owner, interpreter)?;
                pool.open(spec, &mut || monotonic_nanoseconds() >= end)?
            }
        };
        let live = Arc::new(LiveContext {
            id: new_id(),
            owner,
            language: request.language,
            created_at_ms: calendar_milliseconds(),
            idle: request.idle,
            each: request.each,
            context,
            used: AtomicU64::new(monotonic_nanoseconds()),
        });
        app.contexts.registry.add(live.clone());
        Ok(live)
    };
    blocking(opening).await?
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| Refusal::new(Code::Internal, "the context could not be used"))
}

fn new_id() -> String {
    let mut bytes = [0u8; 8];
    // The kernel's generator does not fail for so few bytes once the machine is up.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Something that was sent to a context and may have to wait there.
#[derive(Debug)]
pub(crate) struct Queued {
    begun: oneshot::Receiver<Result<Arc<LiveRun>, Refusal>>,
    withdrawn: Arc<AtomicBool>,
    notes: Arc<Mutex<Vec<String>>>,
}

/// Sends something to a context, which executes it when its turn comes.
pub(crate) fn execute(app: Shared, owner: Owner, context: Arc<LiveContext>, request: CellRequest) -> Queued {
    let (tell, told) = oneshot::channel();
    let withdrawn = Arc::new(AtomicBool::new(false));
    let notes: Arc<Mutex<Vec<String>>> = Arc::default();
    let queued = Queued { begun: told, withdrawn: withdrawn.clone(), notes: notes.clone() };
    let left = withdrawn.clone();
    let shown: String = request.source.chars().take(SHOWN).collect();
    let mut defaults = vec![(Source::Session, context.each.clone())];
    defaults.extend(app.defaults.iter().cloned());
    let cell = Cell {
        source: request.source,
        stdin: request.stdin,
        limits: request.limits,
        defaults,
        warn: request.warn,
        end_on_output_limit: request.end_on_output_limit,
        turn: Some(context.context.queue()),
        withdrawn: Some(withdrawn),
    };
    tokio::task::spawn_blocking(move || {
        context.touch();
        let mut tell = Some(tell);
        let executed = context.context.execute(cell, &mut |told| match told {
            Told::Begun(run) => {
                let command = vec![context.language.name().to_owned(), "-c".to_owned(), shown.clone()];
                let live = adopt(&app, &owner, run, command);
                if let Some(tell) = tell.take()
                    && let Err(Ok(live)) = tell.send(live)
                    && left.load(Ordering::Acquire)
                {
                    live.cancel(CLIENT_GONE);
                }
            }
            Told::Lost(state, reason) => {
                let state = if state == State::RolledBack {
                    "went back to its last checkpoint"
                } else {
                    "began anew"
                };
                notes
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(format!("the context {state}: {reason}"));
            }
            Told::Displayed(_) | Told::Raised(_) => {}
        });
        context.touch();
        // An interpreter that has answered and goes on computing has no checkpoint to show, and is ended.
        context.context.settled_info();
        if let (Err(error), Some(tell)) = (executed, tell) {
            let _ = tell.send(Err(error.into()));
        }
    });
    queued
}

impl Queued {
    /// Has it not executed any more, if its turn has not come.
    pub fn withdrawal(&self) -> impl Fn() + use<> {
        let withdrawn = self.withdrawn.clone();
        move || withdrawn.store(true, Ordering::Release)
    }

    /// The run, once its turn has come; `None` where that is not so within `wait`.
    pub async fn begun(&mut self, wait: Option<Duration>) -> Result<Option<Arc<LiveRun>>, Refusal> {
        let begun = match wait {
            None => (&mut self.begun).await,
            Some(wait) => match tokio::time::timeout(wait, &mut self.begun).await {
                Ok(begun) => begun,
                Err(_) => return Ok(None),
            },
        };
        begun.unwrap_or_else(|_| Err(Refusal::new(Code::Internal, "the context could not be used"))).map(Some)
    }

    /// What happened to the context since the last run.
    pub fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Goes back to the state before the last run.
pub(crate) async fn undo(context: &Arc<LiveContext>) -> Result<(), Refusal> {
    let undoing = context.clone();
    context.touch();
    let undone = blocking(move || undoing.context.undo()).await??;
    let reason = || {
        let why = context.context.info().checkpoint.err();
        why.unwrap_or_else(|| "nothing was executed since the state that it would go back to".to_owned())
    };
    if undone { Ok(()) } else { Err(Refusal::new(Code::NothingToUndo, reason())) }
}

/// Ends a context.
pub(crate) async fn close(app: &Shared, context: &Arc<LiveContext>) {
    app.contexts.registry.remove(&context.id);
    let closing = context.clone();
    // A panic there was reported by itself.
    let _ = blocking(move || closing.context.close()).await;
}

/// Ends all of them.
pub(crate) async fn close_all(app: &Shared) {
    let all = app.contexts.registry.all();
    futures_util::future::join_all(all.iter().map(|context| close(app, context))).await;
    let pools = std::mem::take(&mut *app.contexts.pools.lock().unwrap_or_else(PoisonError::into_inner));
    let _ = blocking(move || drop(pools)).await;
}

/// Ends contexts that were not used for long enough, until the server ends.
pub(crate) async fn keep_house(app: Shared) {
    let mut closing = app.closing.subscribe();
    loop {
        let told = closing.wait_for(|closing| *closing);
        if tokio::time::timeout(HOUSEKEEPING, told).await.is_ok() {
            return;
        }
        for context in app.contexts.registry.all() {
            let is_idle = context.context.running().is_none() && context.waiting() == 0;
            if is_idle && context.idle_left() == Some(Duration::ZERO) {
                close(&app, &context).await;
            }
        }
    }
}
