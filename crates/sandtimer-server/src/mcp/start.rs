//! `bash` and `run_code`: the requests of /v1/runs and /v1/contexts, as tools.

use std::sync::Arc;
use std::time::Duration;

use sandtimer::Limits;
use sandtimer::engine::ScopeHandle;
use sandtimer::limits::{Key, Setting, from_json_as};
use sandtimer::model::LimitKind;
use sandtimer_agents::AgentBudget;

use super::call::{ToolCall, WaitResult};
use super::render::{self, ToolAnswer};
use crate::body::RequestFields;
use crate::contexts::{self, CellRequest, ContextLanguage, LiveContext, PER_RUN};
use crate::error::{ApiRejection, Code};
use crate::language::LANGUAGES;
use crate::registry::OwnedResource;
use crate::runs::{self, LIMITS, LiveRun, LoadedOutcome, RunRequest, warn_of, warn_signal};

/// How long a call waits by default.
pub(super) const DEFAULT_WAIT: Duration = Duration::from_secs(30);
/// How long one in the background waits: for a mistake that shows at once.
const BACKGROUND_WAIT: Duration = Duration::from_millis(0);
/// The longest key.
const MAX_KEY_BYTES: usize = 200;
/// Why a run ended whose call was cancelled.
pub(super) const CANCELLED_REASON: &str = "the client cancelled the call that waited for it";

/// What a command is and how it is waited for.
#[derive(Debug)]
struct CommandCall {
    request: RunRequest,
    wait: Duration,
    background: bool,
    /// It continues when the call is cancelled.
    stays: bool,
}

/// `bash`.
pub(super) async fn bash(call: &ToolCall, mut fields: RequestFields) -> Result<ToolAnswer, ApiRejection> {
    // A digest: keys are kept for long, and what is asked for may have megabytes.
    let arguments_digest = if fields.has("idempotency_key") {
        tokio::task::block_in_place(|| fields.digest())
    } else {
        Vec::new()
    };
    let key = fields.string("idempotency_key")?;
    let details = fields.boolean("details")?.unwrap_or(false);
    let asked = asked(call, fields, key.is_some()).await?;
    let starting = async {
        match key {
            Some(key) => start_once(call, key, arguments_digest, asked.request).await,
            None => start(call, asked.request).await,
        }
    };
    let run = call.within("starting it", starting).await?;
    let task = if asked.background { call.conversation.bind(&run) } else { Ok(None) };
    let (mut answer, outcome) = waited(call, &run, asked.wait, asked.stays, details).await?;
    match task {
        Ok(Some(task)) => {
            answer.text += &format!("\n\n[this run is the task `{task}`]");
            answer.structured["task"] = task.into();
        }
        Ok(None) => {}
        // It continues, and its id must not be lost.
        Err(refused) => answer.text += &format!("\n\n[this run is not a task: {}]", refused.message),
    }
    note(call, outcome, &run.command_line())?;
    Ok(answer)
}

/// Starts a run in the conversation's budget, of which that is a turn.
async fn start(call: &ToolCall, mut request: RunRequest) -> Result<Arc<LiveRun>, ApiRejection> {
    call.conversation.begin_turn()?;
    let budget = call.conversation.budget()?;
    let scope = budget.run_scope(None)?;
    request.parent = Some(scope.id());
    let run = runs::start(call.service().contexts.runs.clone(), call.owner().clone(), request).await?;
    charge(budget, &run, scope);
    Ok(run)
}

/// Has a run that is in this scope count as the agent's, from its beginning to its end.
fn charge(budget: &Arc<AgentBudget>, run: &Arc<LiveRun>, scope: ScopeHandle) {
    let (budget, run) = (budget.clone(), run.clone());
    tokio::spawn(async move {
        if let Ok(running) = run.begun().await {
            budget.watch(&running);
        }
        run.wait_ended(None).await;
        // In a closed scope a run can be moved no more.
        drop(scope);
    });
}

/// Notes the result of an action in the budget, which detects repeated actions.
fn note(call: &ToolCall, outcome: Option<LoadedOutcome>, action: &str) -> Result<(), ApiRejection> {
    let Some(outcome) = outcome else { return Ok(()) };
    let value = outcome.value.as_ref().map(ToString::to_string).unwrap_or_default();
    let observed = format!("{:?} {} {value}", outcome.exit_code, outcome.stdout);
    let (mut budget, now) = call.conversation.budget()?.lock();
    budget.note_action(action, &observed, !outcome.ok, now);
    Ok(())
}

async fn asked(
    call: &ToolCall,
    mut fields: RequestFields,
    has_key: bool,
) -> Result<CommandCall, ApiRejection> {
    fields.string("description")?;
    let background = fields.boolean("background")?.unwrap_or(false);
    let stays = background || has_key;
    let wait = call.wait_of(&mut fields, DEFAULT_WAIT)?;
    let limits = limits(&mut fields, &LIMITS)?;
    let mut request = RunRequest::parse(fields)?;
    request.for_agent(limits, call.conversation.place().await?)?;
    request.detach = stays;
    request.network = call.conversation.has_network();
    Ok(CommandCall { request, wait: if background { BACKGROUND_WAIT } else { wait }, background, stays })
}

/// Limits, of which the wall limit has two names here.
pub(super) fn limits(fields: &mut RequestFields, keys: &[Key]) -> Result<Limits, ApiRejection> {
    let wall = Key::Kind(LimitKind::Wall);
    let timeout = fields.raw("timeout_ms");
    let mut limits = fields.limits(keys)?;
    let Some(timeout) = timeout else { return Ok(limits) };
    if limits.get(wall) != Setting::Inherit {
        let message = "timeout_ms and wall_ms are two names of one limit; give one of them";
        return Err(ApiRejection::new(Code::BadField, message)
            .with("key", "timeout_ms")
            .with("value", timeout));
    }
    limits.set(wall, from_json_as("timeout_ms", wall, &timeout, "the request")?);
    Ok(limits)
}

/// The run of the first call with this key: that one, or the one that this starts.
async fn start_once(
    call: &ToolCall,
    key: String,
    arguments_digest: Vec<u8>,
    request: RunRequest,
) -> Result<Arc<LiveRun>, ApiRejection> {
    if key.is_empty() || key.len() > MAX_KEY_BYTES {
        let message = format!("idempotency_key has {} bytes; give 1 to {MAX_KEY_BYTES}", key.len());
        return Err(ApiRejection::new(Code::BadField, message).with("key", "idempotency_key"));
    }
    let mut keys = call.conversation.owner.keys.lock().await;
    if let Some((run, same)) = keys.find(&key, &arguments_digest) {
        if !same {
            let message =
                format!("idempotency_key: `{key}` was given with another request, whose run is {run}");
            return Err(ApiRejection::new(Code::BadField, message)
                .with("key", "idempotency_key")
                .with("value", key));
        }
        match call.service().contexts.runs.get(run, call.owner()) {
            Ok(run) => return Ok(run),
            // It was forgotten: it is as if there had been none.
            Err(_) => keys.forget(&key),
        }
    }
    let run = start(call, request).await?;
    keys.add(key, run.id().to_owned(), arguments_digest);
    Ok(run)
}

/// Waits for a run and answers with its status, and its Outcome once it has ended. `stays`:
/// cancelling the call does not end it.
async fn waited(
    call: &ToolCall,
    run: &LiveRun,
    wait: Duration,
    stays: bool,
    details: bool,
) -> Result<(ToolAnswer, Option<LoadedOutcome>), ApiRejection> {
    let waited = call.wait(wait, run.wait_ended(None), &[run]).await;
    if waited == WaitResult::Cancelled && !stays {
        run.cancel(CANCELLED_REASON);
    }
    render::with_outcome(run, details).await
}

/// `run_code`.
pub(super) async fn run_code(call: &ToolCall, mut fields: RequestFields) -> Result<ToolAnswer, ApiRejection> {
    let language = match fields.language("language", &LANGUAGES)? {
        Some("bash") => ContextLanguage::Bash,
        Some("javascript") => ContextLanguage::JavaScript,
        Some("typescript") => ContextLanguage::TypeScript,
        _ => ContextLanguage::Python,
    };
    let source = fields.string("code")?.unwrap_or_default();
    let details = fields.boolean("details")?.unwrap_or(false);
    let (named, background) = (fields.string("context_id")?, fields.boolean("background")?.unwrap_or(false));
    let wait = call.wait_of(&mut fields, DEFAULT_WAIT)?;
    let limits = limits(&mut fields, &PER_RUN)?;
    let warn = fields.milliseconds("warn_ms")?.or_else(|| Some(warn_of(&limits)));
    let warn_signal = warn_signal(&mut fields)?;
    fields.finish()?;
    let context = call.within("opening its interpreter", context(call, language, named)).await?;
    call.conversation.begin_turn()?;
    let budget = call.conversation.budget()?;
    let scope = budget.run_scope(None)?;
    let (detach, parent) = (background, Some(scope.id()));
    let request =
        CellRequest { warn, warn_signal, detach, parent, ..CellRequest::of(source.clone(), limits) };
    let mut queued =
        contexts::send(call.service().contexts.clone(), call.owner().clone(), context.clone(), request)?;
    let run = queued.run().clone();
    charge(budget, &run, scope);
    let mut begun = Ok(None);
    let work = async {
        begun = queued.begun(None).await;
        if begun.is_ok() {
            run.wait_ended(None).await;
        }
    };
    let waited = call.wait(if background { BACKGROUND_WAIT } else { wait }, work, &[&*run]).await;
    begun?;
    if waited == WaitResult::Cancelled && !background {
        run.cancel(CANCELLED_REASON);
    }
    let (mut answer, outcome) = render::with_outcome(&run, details).await?;
    answer.structured["context_id"] = context.id_str().into();
    answer.add_notes(queued.notes(outcome.as_ref().map(|outcome| outcome.state)));
    answer.text += &format!("\n[context_id {}]", context.id_str());
    note(call, outcome, &source)?;
    Ok(answer)
}

async fn context(
    call: &ToolCall,
    language: ContextLanguage,
    named: Option<String>,
) -> Result<Arc<LiveContext>, ApiRejection> {
    let context = match named.as_deref() {
        Some(id) if id != "new" => call.service().contexts.get(id, call.owner())?,
        other => {
            // Nothing is opened for what may not begin.
            call.conversation.check_turn()?;
            match other {
                None => call.conversation.context(language).await?,
                Some(_) => call.conversation.open(language).await?,
            }
        }
    };
    if context.language() != language {
        let (is, given) = (context.language().name(), language.name());
        let message =
            format!("language: `{given}` is not that of context {}, which is {is}", context.id_str());
        return Err(ApiRejection::new(Code::BadField, message).with("key", "language").with("value", given));
    }
    contexts::check_waiting(&context)?;
    Ok(context)
}

/// A run's id, without the prefix that agents may give.
pub(super) fn bare(id: &str) -> &str {
    id.strip_prefix("bash_").unwrap_or(id)
}
