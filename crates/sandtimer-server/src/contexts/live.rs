//! Contexts from their beginning to their end.

mod sent_cell;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sandtimer::engine::{CellSpec, ContextSpec, Sandbox};
use sandtimer::model::{RemainingState, Source};
use sandtimer::zygote::Language as Interpreter;
use sandtimer_os::clock::calendar_milliseconds;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::context::{ContextFiles, ContextStart, Directories, LiveContext};
use super::ended_contexts::EndReason;
use super::request::{CellRequest, ContextLanguage, ContextRequest};
use super::service::{CONTEXT_SHARES, ContextService, blocking};
use crate::auth::OwnerId;
use crate::connection::awaited;
use crate::error::{ApiRejection, Code};
use crate::quota::{QuotaKind, QuotaPermit};
use crate::runs::{CLIENT_GONE, LiveRun, QueuedCell, RunInput, UnbegunGuard, drive};
use crate::workspaces::Workspace;
use sent_cell::{MAX_INLINE_DURATION, SentCell};

/// How often contexts are checked for how long they were unused.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(1);
/// Why runs in a context are cancelled that ends.
const CLOSED_REASON: &str = "the context was closed";
/// Of what is executed, what listings show.
const MAX_SHOWN_CHARS: usize = 400;

/// A context on its way to its request. Closes the context if the request has gone, which then
/// cannot.
struct ContextHandover {
    service: Arc<ContextService>,
    context: Option<Arc<LiveContext>>,
}

impl Drop for ContextHandover {
    fn drop(&mut self) {
        if let Some(context) = self.context.take()
            && let Ok(runtime) = Handle::try_current()
        {
            let service = self.service.clone();
            runtime.spawn(async move { close(&service, &context).await });
        }
    }
}

/// Opens a context. If the request no longer waits, the context is not made, or is closed.
pub(crate) async fn open(
    service: Arc<ContextService>,
    owner: OwnerId,
    request: ContextRequest,
) -> Result<Arc<LiveContext>, ApiRejection> {
    if *service.runs.core.closing.borrow() {
        return Err(ApiRejection::new(Code::ShuttingDown, "the server is ending and takes no more contexts"));
    }
    if request.network {
        service.runs.core.tenants.check_network(&owner, "contexts")?;
    }
    let kind =
        if request.language == ContextLanguage::Bash { QuotaKind::Sessions } else { QuotaKind::Contexts };
    let quota_permit = service.runs.core.quotas.take(&owner, kind)?;
    let share = CONTEXT_SHARES.take(&owner)?;
    let (is_awaited, _awaited) = awaited();
    let (making, (reply_sender, reply_receiver)) = (service.clone(), oneshot::channel());
    // A task of its own: if this future were dropped in the middle, there would be a context that
    // no request knows.
    tokio::spawn(async move {
        let made = blocking(move || {
            let _share = share;
            let made = make(&making, owner, request, quota_permit, &is_awaited);
            let resting = made.as_ref().ok().cloned();
            // A context that is not received is dropped, and thereby closed.
            let _ = reply_sender
                .send(made.map(|context| ContextHandover { service: making, context: Some(context) }));
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
    service.add(context.clone());
    Ok(context)
}

/// Makes a context that is not registered yet. Blocks.
fn make(
    service: &Arc<ContextService>,
    owner: OwnerId,
    request: ContextRequest,
    quota_permit: QuotaPermit,
    is_awaited: &dyn Fn() -> bool,
) -> Result<Arc<LiveContext>, ApiRejection> {
    let sandbox = request.sandbox.as_ref().map(|id| service.runs.sandboxes.get(id, &owner)).transpose()?;
    let named = request.workspace.as_ref().map(|id| service.runs.workspaces.get(id, &owner)).transpose()?;
    let using = named.as_ref().map(Workspace::enter).transpose()?;
    let workspace = match (named, request.language) {
        _ if sandbox.is_some() => None,
        // A warm interpreter has one of its own.
        (None, ContextLanguage::Python | ContextLanguage::JavaScript | ContextLanguage::TypeScript) => None,
        (None, ContextLanguage::Bash) => Some(service.runs.workspaces.create_own(&owner)?),
        (named, _) => named,
    };
    let spec = ContextSpec {
        workspace: workspace.as_ref().map(|workspace| workspace.directory().to_owned()),
        temporary: request.temporary.as_ref().map(|temporary| temporary.path().to_owned()),
        sandbox: sandbox.clone(),
        limits: request.whole,
        defaults: request.language.defaults(&service.defaults).to_vec(),
        parent: service.runs.core.tenants.scope(&owner),
        owner: Some(owner.as_str().into()),
        environment: request.environment,
        directory: request.directory,
        network: request.network || sandbox.as_ref().is_some_and(Sandbox::has_network_of_host),
        typescript: request.language == ContextLanguage::TypeScript,
        images: Some(service.images.account(&owner)),
        ..ContextSpec::default()
    };
    let interpreter = |language| service.pools.open(&owner, language, spec.clone(), is_awaited);
    let opened = match request.language {
        ContextLanguage::Bash => service.shells.open(&owner, spec.clone(), is_awaited),
        ContextLanguage::Python => interpreter(Interpreter::Python),
        ContextLanguage::JavaScript | ContextLanguage::TypeScript => interpreter(Interpreter::JavaScript),
    };
    let (context, warnings) = opened.inspect_err(|_| {
        if let Some(own) = workspace.as_ref().filter(|workspace| workspace.is_own()) {
            service.runs.workspaces.remove_own(own, &service.runs.core.host.log_error);
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
    service.note(&context);
    Ok(context)
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
    service: Arc<ContextService>,
    owner: OwnerId,
    context: Arc<LiveContext>,
    mut request: CellRequest,
) -> Result<QueuedExecution, ApiRejection> {
    let share = CONTEXT_SHARES.take(&owner)?;
    let bytes = request.source.len() + request.stdin.as_ref().map_or(0, Vec::len);
    // The request's own is given back with its answer, which may come while this waits.
    let input = service.runs.core.messages.requests.reserve_long(&owner, bytes)?;
    let (reply_sender, reply_receiver) = oneshot::channel();
    let withdrawn = Arc::new(AtomicBool::new(false));
    let shown: String = request.source.chars().take(MAX_SHOWN_CHARS).collect();
    let command = vec![context.language.name().to_owned(), "-c".to_owned(), shown];
    let id = sandtimer::engine::new_run_id();
    let waits = Some(service.runs.core.metrics.queued());
    let has_stdin = request.stdin.is_some();
    let first = request.stdin.take_if(|_| request.stdin_open).map(|bytes| (bytes, None));
    let stdin = RunInput::later(first);
    let waiting = QueuedCell {
        run_id: id.clone(),
        command,
        context_id: context.id.clone(),
        sandbox: context.sandbox().map(str::to_owned),
    };
    let live = drive::queue(&service.runs, &owner, waiting, withdrawn.clone(), stdin);
    let (notes, unsaved) = (Arc::default(), Arc::default());
    let queued = QueuedExecution { run: live.clone(), begun: reply_receiver, notes, unsaved };
    let is_for_here = context.language == ContextLanguage::Python
        && !request.stdin_open
        && request.wait.is_none_or(|wait| wait >= MAX_INLINE_DURATION)
        && service.runs.records.is_quick()
        && context.is_free();
    let mut defaults = vec![(Source::Session, context.each.clone())];
    defaults.extend_from_slice(context.language.defaults(&service.defaults));
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
        service,
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
pub(crate) async fn close(service: &Arc<ContextService>, context: &Arc<LiveContext>) {
    close_because(service, context, CLOSED_REASON).await;
}

/// Ends the contexts in a sandbox that is being deleted.
pub(crate) async fn close_in_sandbox(service: &Arc<ContextService>, id: &str, reason: EndReason) {
    let mut contexts = service.registry.all();
    contexts.retain(|context| context.sandbox() == Some(id));
    for context in contexts {
        service.ended.note_end(&context, id, reason);
        close_because(service, &context, reason.of_run()).await;
    }
}

async fn close_because(service: &Arc<ContextService>, context: &Arc<LiveContext>, reason: &'static str) {
    service.registry.remove(&context.id);
    let (service, closing) = (service.clone(), context.clone());
    let close = move || {
        closing.context.close_because(reason);
        closing.left.lock().unwrap_or_else(PoisonError::into_inner).clear();
        // One whose owner did not close it is asked for again.
        let with_server = service.runs.core.closing.borrow().then(calendar_milliseconds);
        service.ended.close(&closing, with_server);
        closing.using.lock().unwrap_or_else(PoisonError::into_inner).take();
        closing.temporary.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(own) = closing.workspace().filter(|workspace| workspace.is_own()) {
            service.runs.workspaces.remove_own(own, &service.runs.core.host.log_error);
        }
    };
    // A panic there was reported by itself.
    let _ = blocking(close).await;
    drop(context.quota_permit.lock().unwrap_or_else(PoisonError::into_inner).take());
}

/// Ends all of them.
pub(crate) async fn close_all(service: &Arc<ContextService>) {
    let all = service.registry.all();
    futures_util::future::join_all(all.iter().map(|context| close(service, context))).await;
    let ending = service.clone();
    let _ = blocking(move || ending.pools.close()).await;
}

/// Ends contexts that were not used for long enough, until the server ends.
pub(crate) async fn reap_idle(service: Arc<ContextService>) {
    let mut closing = service.runs.core.closing.subscribe();
    loop {
        let closed = closing.wait_for(|closing| *closing);
        if tokio::time::timeout(HOUSEKEEPING_INTERVAL, closed).await.is_ok() {
            return;
        }
        service.pools.log_failures();
        service.shells.log_failures();
        for context in service.registry.all() {
            if context.is_in_paused_sandbox() {
                // Its clock begins again when that is resumed.
                context.touch();
            } else if context.is_free() && context.idle_left() == Some(Duration::ZERO) {
                close(&service, &context).await;
            }
        }
    }
}
