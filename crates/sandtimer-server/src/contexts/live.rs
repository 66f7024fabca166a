//! Contexts from their beginning to their end.

mod sent_cell;

use std::io;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sandtimer::engine::{CellSpec, ContextSpec, Sandbox, Stats};
use sandtimer::model::{Outcome, RemainingState, Source};
use sandtimer::zygote::Language as Interpreter;
use sandtimer_os::clock::calendar_milliseconds;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::context::{ContextFiles, ContextStart, Directories, LiveContext};
use super::ended_contexts::{EndReason, EndedContexts};
use super::images::Images;
use super::pools::Pools;
use super::request::{CellRequest, ContextLanguage, ContextRequest};
use super::shells::Shells;
use crate::auth::OwnerId;
use crate::connection::awaited;
use crate::error::{ApiRejection, Code};
use crate::quota::{QuotaKind, QuotaPermit, Shares};
use crate::registry::Registry;
use crate::runs::{self, CLIENT_GONE, LiveRun, RunInput, UnbegunGuard};
use crate::sandboxes;
use crate::settings::MAX_BLOCKING_THREADS;
use crate::state::SharedApp;
use crate::workspaces::Workspace;
use sent_cell::SentCell;

/// How often contexts are checked for how long they were unused.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(1);
/// What is opened, executed, undone, branched or waits in contexts: each on one of the threads
/// ([`MAX_BLOCKING_THREADS`]) of which the disk needs some, too.
pub(super) static CONTEXT_SHARES: Shares = Shares::of("executions in contexts", MAX_BLOCKING_THREADS * 7 / 8);
/// A cell that takes no longer is executed on the thread that received its request. A context is
/// also left alone this long before it is settled.
const MAX_INLINE_DURATION: Duration = Duration::from_millis(2);
/// Why runs in a context are cancelled that ends.
const CLOSED_REASON: &str = "the context was closed";
/// Of what is executed, what listings show.
const MAX_SHOWN_CHARS: usize = 400;

/// All contexts, and where their interpreters and shells come from.
#[derive(Debug, Default)]
pub(crate) struct LiveContexts {
    registry: Registry<LiveContext>,
    pub(super) pools: Pools,
    images: Images,
    /// Something is executed on a thread of the runtime's own.
    is_one_here: AtomicBool,
    shells: Shells,
    ended: EndedContexts,
}

impl LiveContexts {
    /// Those of a server that begins now.
    ///
    /// # Errors
    /// Where what earlier servers have left in the state directory cannot be read.
    pub fn open(state_directory: &Path) -> io::Result<Self> {
        let ended = EndedContexts::open(state_directory, calendar_milliseconds())?;
        Ok(LiveContexts { ended, ..LiveContexts::default() })
    }

    /// Why one that this owner asks for ended with an earlier server.
    pub fn why_ended(&self, id: &str, owner: &OwnerId) -> Option<ApiRejection> {
        self.ended.reason(id, owner)
    }

    /// Notes one that is open, for a later server. Blocks.
    pub(super) fn note(&self, context: &LiveContext) {
        self.ended.note(context);
    }

    pub fn find(&self, id: &str, owner: &OwnerId) -> Option<Arc<LiveContext>> {
        self.registry.find(id, owner)
    }

    pub fn is_empty(&self) -> bool {
        self.registry.all().is_empty()
    }

    pub fn of(&self, owner: &OwnerId) -> Vec<Arc<LiveContext>> {
        self.registry.of(owner)
    }

    /// Has one that is open found by its owner.
    pub(super) fn add(&self, context: Arc<LiveContext>) {
        self.registry.add(context);
    }

    /// What the pools of each language have done.
    pub fn pool_stats(&self) -> Vec<(&'static str, Stats)> {
        self.pools.stats()
    }

    /// Pre-warm scripts of shells that have failed.
    pub fn shell_prewarm_failures(&self) -> u64 {
        self.shells.failures()
    }
}

/// A context on its way to its request. Closes the context if the request has gone, which then
/// cannot.
struct ContextHandover {
    app: SharedApp,
    context: Option<Arc<LiveContext>>,
}

impl Drop for ContextHandover {
    fn drop(&mut self) {
        if let Some(context) = self.context.take()
            && let Ok(runtime) = Handle::try_current()
        {
            let app = self.app.clone();
            runtime.spawn(async move { close(&app, &context).await });
        }
    }
}

/// Opens a context. If the request no longer waits, the context is not made, or is closed.
pub(crate) async fn open(
    app: SharedApp,
    owner: OwnerId,
    request: ContextRequest,
) -> Result<Arc<LiveContext>, ApiRejection> {
    if *app.closing.borrow() {
        return Err(ApiRejection::new(Code::ShuttingDown, "the server is ending and takes no more contexts"));
    }
    if request.network {
        app.tenants.check_network(&owner, "contexts")?;
    }
    let kind =
        if request.language == ContextLanguage::Bash { QuotaKind::Sessions } else { QuotaKind::Contexts };
    let quota_permit = app.quotas.take(&owner, kind)?;
    let share = CONTEXT_SHARES.take(&owner)?;
    let (is_awaited, _awaited) = awaited();
    let (making, (reply_sender, reply_receiver)) = (app.clone(), oneshot::channel());
    // A task of its own: if this future were dropped in the middle, there would be a context that
    // no request knows.
    tokio::spawn(async move {
        let made = blocking(move || {
            let _share = share;
            let made = make(&making, owner, request, quota_permit, &is_awaited);
            let resting = made.as_ref().ok().cloned();
            // A context that is not received is dropped, and thereby closed.
            let _ = reply_sender
                .send(made.map(|context| ContextHandover { app: making, context: Some(context) }));
            if let Some(context) = resting {
                context.context.rest();
            }
        });
        // A panic drops the sender, which the receiver treats as an answer.
        drop(made.await);
    });
    let failed = || ApiRejection::new(Code::Internal, "the context could not be made");
    let mut handover = reply_receiver.await.map_err(|_| failed())??;
    let context = handover.context.take().ok_or_else(failed)?;
    app.contexts.add(context.clone());
    Ok(context)
}

/// Makes a context that is not registered yet. Blocks.
fn make(
    app: &SharedApp,
    owner: OwnerId,
    request: ContextRequest,
    quota_permit: QuotaPermit,
    is_awaited: &dyn Fn() -> bool,
) -> Result<Arc<LiveContext>, ApiRejection> {
    let sandbox = request.sandbox.as_ref().map(|id| sandboxes::find(app, id, &owner)).transpose()?;
    let named = request.workspace.as_ref().map(|id| app.workspaces.get(id, &owner)).transpose()?;
    let using = named.as_ref().map(Workspace::enter).transpose()?;
    let workspace = match (named, request.language) {
        _ if sandbox.is_some() => None,
        // A warm interpreter has one of its own.
        (None, ContextLanguage::Python | ContextLanguage::JavaScript | ContextLanguage::TypeScript) => None,
        (None, ContextLanguage::Bash) => Some(app.workspaces.create_own(&owner)?),
        (named, _) => named,
    };
    let spec = ContextSpec {
        workspace: workspace.as_ref().map(|workspace| workspace.directory().to_owned()),
        temporary: request.temporary.as_ref().map(|temporary| temporary.path().to_owned()),
        sandbox: sandbox.clone(),
        limits: request.whole,
        defaults: request.language.defaults(&app.defaults).to_vec(),
        parent: app.tenants.scope(&owner),
        owner: Some(owner.as_str().into()),
        environment: request.environment,
        directory: request.directory,
        network: request.network || sandbox.as_ref().is_some_and(Sandbox::has_network_of_host),
        typescript: request.language == ContextLanguage::TypeScript,
        images: Some(app.contexts.images.account(&owner)),
        ..ContextSpec::default()
    };
    let interpreter = |language| app.contexts.pools.open(app, &owner, language, spec.clone(), is_awaited);
    let opened = match request.language {
        ContextLanguage::Bash => app.contexts.shells.open(app, &owner, spec.clone(), is_awaited),
        ContextLanguage::Python => interpreter(Interpreter::Python),
        ContextLanguage::JavaScript | ContextLanguage::TypeScript => interpreter(Interpreter::JavaScript),
    };
    let (context, warnings) = opened.inspect_err(|_| {
        if let Some(own) = workspace.as_ref().filter(|workspace| workspace.is_own()) {
            app.workspaces.remove_own(own, &app.host.log_error);
        }
    })?;
    let made = || context.workspace().map(|directory| Workspace::own(owner.clone(), directory.to_owned()));
    let missing = || ApiRejection::new(Code::Internal, "the context has no workspace");
    let files = match sandbox {
        Some(sandbox) => ContextFiles::Sandbox(sandbox),
        None => ContextFiles::Workspace(workspace.or_else(made).ok_or_else(missing)?),
    };
    let begun = ContextStart { language: request.language, idle: request.idle, each: request.each, warnings };
    let directories = Directories { files, using, temporary: request.temporary };
    let context = LiveContext::new(owner, begun, context, directories, quota_permit);
    app.contexts.note(&context);
    Ok(context)
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiRejection> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| ApiRejection::new(Code::Internal, "the context could not be used"))
}

/// Something that was sent to a context and may have to wait there.
#[derive(Debug)]
pub(crate) struct QueuedExecution {
    run: Arc<LiveRun>,
    begun: oneshot::Receiver<Result<(), ApiRejection>>,
    notes: Arc<Mutex<Vec<String>>>,
    /// Why there was no state to go back to when it began.
    unsaved: Arc<Mutex<Option<String>>>,
}

/// Sends something to a context, which executes it when its turn comes. What ends soon has ended
/// when this returns.
pub(crate) fn execute(
    app: SharedApp,
    owner: OwnerId,
    context: Arc<LiveContext>,
    mut request: CellRequest,
) -> Result<QueuedExecution, ApiRejection> {
    let share = CONTEXT_SHARES.take(&owner)?;
    let bytes = request.source.len() + request.stdin.as_ref().map_or(0, Vec::len);
    // The request's own is given back with its answer, which may come while this waits.
    let input = app.messages.requests.reserve_long(&owner, bytes)?;
    let (reply_sender, reply_receiver) = oneshot::channel();
    let withdrawn = Arc::new(AtomicBool::new(false));
    let shown: String = request.source.chars().take(MAX_SHOWN_CHARS).collect();
    let command = vec![context.language.name().to_owned(), "-c".to_owned(), shown];
    let id = sandtimer::engine::new_run_id();
    let waits = Some(app.metrics.queued());
    let has_stdin = request.stdin.is_some();
    let first = request.stdin.take_if(|_| request.stdin_open).map(|bytes| (bytes, None));
    let stdin = RunInput::later(first);
    let waiting = runs::QueuedCell {
        run_id: id.clone(),
        command,
        context_id: context.id.clone(),
        sandbox: context.sandbox().map(str::to_owned),
    };
    let live = runs::queue(&app, &owner, waiting, withdrawn.clone(), stdin);
    let (notes, unsaved) = (Arc::default(), Arc::default());
    let queued = QueuedExecution { run: live.clone(), begun: reply_receiver, notes, unsaved };
    let is_for_here = context.language == ContextLanguage::Python
        && !request.stdin_open
        && request.wait.is_none_or(|wait| wait >= MAX_INLINE_DURATION)
        && app.runs.is_quick()
        && context.is_free();
    let mut defaults = vec![(Source::Session, context.each.clone())];
    defaults.extend_from_slice(context.language.defaults(&app.defaults));
    let cell = CellSpec {
        source: request.source,
        stdin: request.stdin,
        stdin_open: request.stdin_open,
        limits: request.limits,
        defaults,
        warn: request.warn,
        warn_signal: request.warn_signal,
        end_on_output_limit: request.end_on_output_limit,
        parent: request.parent,
        turn: Some(context.context.queue()),
        withdrawn: Some(withdrawn),
        run_id: Some(id),
    };
    let sent = SentCell {
        app,
        live: UnbegunGuard::new(live),
        context,
        reply_sender: Some(reply_sender),
        waits,
        begun: None,
        notes: queued.notes.clone(),
        unsaved: queued.unsaved.clone(),
        has_stdin,
        input,
        share,
    };
    if is_for_here {
        sent.here(cell);
    } else {
        sent.on_a_thread(cell);
    }
    Ok(queued)
}

/// Whether it may have left processes running.
fn left_something(outcome: &Outcome) -> bool {
    outcome.state == RemainingState::Kept && outcome.tree.survivors.is_none()
}

impl QueuedExecution {
    /// The run, which may wait for its turn.
    pub fn run(&self) -> &Arc<LiveRun> {
        &self.run
    }

    /// Cancels it because the client that sent it went away.
    pub fn withdrawal(&self) -> impl Fn() + use<> {
        let run = self.run.clone();
        move || run.cancel(CLIENT_GONE)
    }

    /// The run, once its turn has come, or it has ended before; `None` where that is not so within
    /// `wait`.
    pub async fn begun(&mut self, wait: Option<Duration>) -> Result<Option<Arc<LiveRun>>, ApiRejection> {
        let turn = async {
            tokio::select! {
                biased;
                begun = &mut self.begun => Some(begun),
                () = self.run.wait_ended(None) => None,
            }
        };
        let begun = match wait {
            None => turn.await,
            Some(wait) => match tokio::time::timeout(wait, turn).await {
                Ok(begun) => begun,
                Err(_) => return Ok(None),
            },
        };
        if let Some(begun) = begun {
            begun.map_err(|_| ApiRejection::new(Code::Internal, "the context could not be used"))??;
        }
        Ok(Some(self.run.clone()))
    }

    /// What happened to the context since the last run, and why this one, which left this of it,
    /// left nothing.
    pub fn notes(&self, left: Option<RemainingState>) -> Vec<String> {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let unsaved = self.unsaved.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(reason) = unsaved.filter(|_| left == Some(RemainingState::Reset)) {
            notes.push(format!("the context starts again, without a checkpoint to roll back to: {reason}"));
        }
        notes
    }
}

/// Goes back to the state before the last run when the context's turn has come. Dropped before
/// that, it does nothing.
pub(crate) async fn undo(context: &Arc<LiveContext>) -> Result<(), ApiRejection> {
    let (is_awaited, _awaited) = awaited();
    let share = CONTEXT_SHARES.take(&context.owner)?;
    let (undoing, turn) = (context.clone(), context.context.queue());
    context.touch();
    let undo = move || {
        // For as long as it keeps this thread, whether or not the caller is there.
        let _share = share;
        undoing.context.undo_unless(turn, &|| !is_awaited())
    };
    let undone = blocking(undo).await??;
    let reason = || {
        let why = context.context.info().checkpoint.err();
        why.unwrap_or_else(|| "nothing was executed since the state that it would go back to".to_owned())
    };
    if undone { Ok(()) } else { Err(ApiRejection::new(Code::NothingToUndo, reason())) }
}

/// Ends a context.
pub(crate) async fn close(app: &SharedApp, context: &Arc<LiveContext>) {
    close_because(app, context, CLOSED_REASON).await;
}

/// Ends the contexts in a sandbox that is being deleted.
pub(crate) async fn close_in_sandbox(app: &SharedApp, id: &str, reason: EndReason) {
    let mut contexts = app.contexts.registry.all();
    contexts.retain(|context| context.sandbox() == Some(id));
    for context in contexts {
        app.contexts.ended.note_end(&context, id, reason);
        close_because(app, &context, reason.of_run()).await;
    }
}

async fn close_because(app: &SharedApp, context: &Arc<LiveContext>, reason: &'static str) {
    app.contexts.registry.remove(&context.id);
    let (app, closing) = (app.clone(), context.clone());
    let close = move || {
        closing.context.close_because(reason);
        closing.left.lock().unwrap_or_else(PoisonError::into_inner).clear();
        // One whose owner did not close it is asked for again.
        let with_server = app.closing.borrow().then(calendar_milliseconds);
        app.contexts.ended.close(&closing, with_server);
        closing.using.lock().unwrap_or_else(PoisonError::into_inner).take();
        closing.temporary.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(own) = closing.workspace().filter(|workspace| workspace.is_own()) {
            app.workspaces.remove_own(own, &app.host.log_error);
        }
    };
    // A panic there was reported by itself.
    let _ = blocking(close).await;
    drop(context.quota_permit.lock().unwrap_or_else(PoisonError::into_inner).take());
}

/// Ends all of them.
pub(crate) async fn close_all(app: &SharedApp) {
    let all = app.contexts.registry.all();
    futures_util::future::join_all(all.iter().map(|context| close(app, context))).await;
    let ending = app.clone();
    let _ = blocking(move || ending.contexts.pools.close()).await;
}

/// Ends contexts that were not used for long enough, until the server ends.
pub(crate) async fn reap_idle(app: SharedApp) {
    let mut closing = app.closing.subscribe();
    loop {
        let closed = closing.wait_for(|closing| *closing);
        if tokio::time::timeout(HOUSEKEEPING_INTERVAL, closed).await.is_ok() {
            return;
        }
        app.contexts.pools.log_failures(&app);
        app.contexts.shells.log_failures(&app);
        for context in app.contexts.registry.all() {
            if context.is_in_paused_sandbox() {
                // Its clock begins again when that is resumed.
                context.touch();
            } else if context.is_free() && context.idle_left() == Some(Duration::ZERO) {
                close(&app, &context).await;
            }
        }
    }
}
