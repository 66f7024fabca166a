//! What the server keeps for an agent: for all of one owner a workspace and the keys of calls; for
//! each conversation its /tmp, its interpreters, how far it has read, and its budget. Nothing of it
//! ends a run.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use axum::http::request::Parts;
use rmcp::model::Extensions;
use sandtimer::Limits;
use sandtimer::limits::Key;
use sandtimer::model::LimitKind;
use sandtimer::progress::Tracker;
use sandtimer::scope::ScopeId;
use sandtimer::time::Moment;
use sandtimer_agents::budget::{BudgetOptions, Check, TaskError, TaskOf, TurnKind};
use sandtimer_agents::estimate::EstimateAnswer;
use sandtimer_agents::{AgentBudget, BudgetSpec};
use tokio::sync::Mutex as TurnMutex;

use super::render::closing;
use super::service::AgentService;
use crate::auth::OwnerId;
use crate::body::{RequestFields, refused};
use crate::contexts::{self, ContextLanguage, ContextRequest, LiveContext};
use crate::error::{ApiRejection, Code};
use crate::registry::OwnedResource;
use crate::runs::{LiveRun, RunLocation};
use crate::sandboxes::OwnedSandbox;
use crate::settings::ToolNames;
use crate::tasks::Task;
use crate::workspaces::{TemporaryDirectory, Workspace};

/// What the workspace of an owner's agents is called; no client of another interface can.
const WORKSPACE: &str = "/mcp";
/// How long the sandbox of a conversation may be unused; it also ends that of a server that was
/// killed.
const SANDBOX_IDLE: Duration = Duration::from_secs(4 * 3600);
/// Keys of calls that are remembered of one owner; the oldest are forgotten.
const MAX_KEYS: usize = 1000;
/// Runs of which a conversation knows how far it has read.
const MAX_READ_RUNS: usize = 1000;

/// What all conversations of an owner share.
#[derive(Debug)]
pub(crate) struct OwnerState {
    pub service: AgentService,
    pub owner: OwnerId,
    /// One at a time looks for the workspace, or makes it.
    making: TurnMutex<()>,
    /// Held while a call with a key starts its run, so that a second one with it finds that.
    pub keys: TurnMutex<Keys>,
    /// Of clients that have no session.
    common: Arc<ClientState>,
}

impl OwnerState {
    pub fn new(service: AgentService, owner: OwnerId) -> Self {
        OwnerState {
            service,
            owner,
            making: TurnMutex::default(),
            keys: TurnMutex::default(),
            common: Arc::default(),
        }
    }

    /// The id of the workspace that this owner's agents work in unless they were given one. It
    /// outlives the server.
    async fn workspace(&self) -> Result<String, ApiRejection> {
        let _one = self.making.lock().await;
        if let Some(found) = self.service.contexts.runs.workspaces.of_sandbox(&self.owner, WORKSPACE) {
            return Ok(found.id_str().to_owned());
        }
        let (service, owner) = (self.service.clone(), self.owner.clone());
        let made = tokio::task::spawn_blocking(move || {
            service.contexts.runs.workspaces.create(&owner, Some(WORKSPACE))
        })
        .await;
        let made =
            made.map_err(|_| ApiRejection::new(Code::Internal, "the workspace could not be made"))??;
        Ok(made.id_str().to_owned())
    }
}

/// Keys by which a call that is made again is known.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    /// The run and a digest of what was asked for, in the order of time.
    known: Vec<(String, String, Vec<u8>)>,
}

impl Keys {
    /// The run that was started with this key, and whether by the same request.
    pub fn find(&self, key: &str, asked: &[u8]) -> Option<(&str, bool)> {
        let known = self.known.iter().find(|(known, ..)| known == key);
        known.map(|(_, run, before)| (run.as_str(), before == asked))
    }

    pub fn add(&mut self, key: String, run: String, asked: Vec<u8>) {
        if self.known.len() >= MAX_KEYS {
            self.known.remove(0);
        }
        self.known.push((key, run, asked));
    }

    pub fn forget(&mut self, key: &str) {
        self.known.retain(|(known, ..)| known != key);
    }
}

/// The limits of all that one conversation starts.
pub(crate) fn limits(fields: &mut RequestFields) -> Result<Limits, ApiRejection> {
    let kinds = [LimitKind::Wall, LimitKind::Turns, LimitKind::Stall];
    fields.limits(&kinds.map(Key::Kind))
}

/// The names under which the client of a request over HTTP sees tools, where it chooses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListedNames(Option<ToolNames>);

impl ListedNames {
    /// `tools`; fails where it is none of the choices.
    pub fn parse(fields: &mut RequestFields) -> Result<Self, ApiRejection> {
        Ok(ListedNames(fields.enumeration("tools", &ToolNames::NAMES)?.and_then(ToolNames::parse)))
    }

    /// The choice of the client that sent a message.
    pub fn of(extensions: &Extensions) -> Option<ToolNames> {
        extensions.get::<Parts>()?.extensions.get::<ListedNames>()?.0
    }
}

/// Which tools a conversation sees, where it chooses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShownTools {
    pub estimates: Option<bool>,
    pub names: Option<ToolNames>,
}

impl ShownTools {
    pub fn parse(fields: &mut RequestFields) -> Result<Self, ApiRejection> {
        let ListedNames(names) = ListedNames::parse(fields)?;
        Ok(ShownTools { estimates: fields.boolean("estimates")?, names })
    }
}

/// What a conversation works in, as its client has chosen.
#[derive(Debug)]
pub(crate) enum ChosenPlace {
    /// The workspace of its owner's agents.
    UsualScale,
    /// A directory of the user's.
    Directory(PathBuf),
    /// A sandbox of its own.
    Sandbox(OwnedSandbox),
}

/// What a conversation is to work in.
pub(crate) async fn place(
    service: &AgentService,
    owner: &OwnerId,
    template: Option<String>,
    directory: Option<PathBuf>,
) -> Result<ChosenPlace, ApiRejection> {
    match (template, directory) {
        (None, Some(directory)) => Ok(ChosenPlace::Directory(directory)),
        (Some(template), Some(_)) => {
            let wanted = "left out with `workspace`, which is not in a sandbox";
            Err(refused("sandbox", &template.into(), wanted))
        }
        (template, None) => sandbox_or_usual(service, owner, template, Limits::new()).await,
    }
}

/// A new sandbox of this template and under these limits; without one, the usual place.
pub(crate) async fn sandbox_or_usual(
    service: &AgentService,
    owner: &OwnerId,
    template: Option<String>,
    limits: Limits,
) -> Result<ChosenPlace, ApiRejection> {
    let Some(template) = template else { return Ok(ChosenPlace::UsualScale) };
    let limits = limits.over(&Limits::new().idle(SANDBOX_IDLE));
    let made = OwnedSandbox::create(service.contexts.clone(), owner.clone(), template, limits).await?;
    Ok(ChosenPlace::Sandbox(made))
}

/// The directory of the user's that a conversation works in.
pub(crate) fn directory(
    service: &AgentService,
    fields: &mut RequestFields,
) -> Result<Option<PathBuf>, ApiRejection> {
    let Some(given) = fields.string("workspace")? else { return Ok(None) };
    // A client with a token may be any user; without tokens it is the user who runs the server.
    if service.contexts.runs.core.tenants.tokens.is_some() {
        let message = "workspace: a server with tokens shows no directory of its host's; leave it out";
        return Err(ApiRejection::new(Code::BadField, message).with("key", "workspace"));
    }
    if !Path::new(&given).is_absolute() {
        return Err(refused("workspace", &given.into(), "the absolute path of a directory"));
    }
    let directory = service.contexts.runs.core.engine.check_workspace(Path::new(&given))?;
    service.contexts.runs.core.engine.cover_credentials(directory.clone());
    Ok(Some(directory))
}

/// Whether all that a conversation starts has the host's network.
pub(crate) fn network(
    service: &AgentService,
    owner: &OwnerId,
    fields: &mut RequestFields,
) -> Result<bool, ApiRejection> {
    let network = fields.boolean("network")?.unwrap_or(false);
    if network {
        service.contexts.runs.core.tenants.check_network(owner, "runs")?;
    }
    Ok(network)
}

/// What is kept for one client.
#[derive(Debug, Default)]
struct ClientState {
    /// Its live interpreters, by language; one at a time is searched or opened.
    contexts: TurnMutex<HashMap<&'static str, String>>,
    read: Mutex<HashMap<String, [u64; 2]>>,
    /// The directory of the user's that it works in, instead of its owner's workspace.
    directory: Option<Arc<Workspace>>,
    /// The sandbox that it works in, instead of a directory; it is deleted with this.
    sandbox: Option<OwnedSandbox>,
    /// All that it starts has the host's network.
    network: bool,
    /// Its /tmp and home directory, made with the first call that starts something.
    temporary: TurnMutex<Option<Arc<TemporaryDirectory>>>,
    /// Whether it sees the tools that estimate, and under which names it sees tools, where that is
    /// its own choice.
    estimate_tools: Option<bool>,
    tool_names: Option<ToolNames>,
    /// Opened with the first call, unless it has limits.
    budget: OnceLock<Arc<AgentBudget>>,
    /// What was estimated last and is bound to the next run in the background.
    estimated: Mutex<Option<RegisteredTask>>,
    /// What was reported of tasks.
    reported: Mutex<HashMap<String, Tracker>>,
}

/// A task that waits for its run.
#[derive(Debug)]
pub(super) struct RegisteredTask {
    pub task: Arc<Task>,
    pub answer: EstimateAnswer,
}

/// One client.
#[derive(Debug, Clone)]
pub(crate) struct Conversation {
    pub owner: Arc<OwnerState>,
    kept: Arc<ClientState>,
}

impl Conversation {
    /// One of a session over HTTP, with its choice of names.
    pub fn new(owner: Arc<OwnerState>, names: Option<ToolNames>) -> Self {
        Conversation { owner, kept: Arc::new(ClientState { tool_names: names, ..ClientState::default() }) }
    }

    /// That of all clients without sessions.
    pub fn common(owner: Arc<OwnerState>) -> Self {
        let kept = owner.common.clone();
        Conversation { owner, kept }
    }

    /// One with limits, whose clock begins now, that works in a directory of the user's or a
    /// sandbox where one is given.
    pub fn with(
        owner: Arc<OwnerState>,
        limits: Limits,
        place: ChosenPlace,
        network: bool,
        shown: ShownTools,
    ) -> Result<Self, ApiRejection> {
        let (directory, sandbox) = match place {
            ChosenPlace::UsualScale => (None, None),
            ChosenPlace::Directory(path) => {
                (Some(owner.service.contexts.runs.workspaces.of_directory(&owner.owner, path)), None)
            }
            ChosenPlace::Sandbox(sandbox) => (None, Some(sandbox)),
        };
        // Inside: a run's parent has to be in the scope of its sandbox.
        let scope = sandbox.as_ref().map(OwnedSandbox::scope);
        let budget = OnceLock::from(open_budget(&owner, limits, scope)?);
        let ShownTools { estimates, names } = shown;
        let kept = ClientState {
            budget,
            directory,
            sandbox,
            network,
            estimate_tools: estimates,
            tool_names: names,
            ..ClientState::default()
        };
        Ok(Conversation { owner, kept: Arc::new(kept) })
    }

    /// Whether the tools that estimate are there.
    pub fn estimates(&self) -> bool {
        self.kept.estimate_tools.unwrap_or(self.owner.service.shows_estimates)
    }

    /// The names under which tools are listed.
    pub fn tool_names(&self) -> ToolNames {
        self.kept.tool_names.unwrap_or(self.owner.service.tool_names)
    }

    /// Whether all that it starts has the host's network.
    pub fn has_network(&self) -> bool {
        self.kept.network
    }

    /// The template of the sandbox that it works in.
    pub fn template(&self) -> Option<String> {
        self.kept.sandbox.as_ref().map(OwnedSandbox::template_name)
    }

    /// Whose files all has that it starts.
    pub async fn place(&self) -> Result<RunLocation, ApiRejection> {
        if let Some(sandbox) = &self.kept.sandbox {
            return Ok(RunLocation::Sandbox(sandbox.id().to_owned()));
        }
        let workspace = match &self.kept.directory {
            Some(directory) => directory.id_str().to_owned(),
            None => self.owner.workspace().await?,
        };
        Ok(RunLocation::Workspace(workspace, self.temporary().await?))
    }

    async fn temporary(&self) -> Result<Arc<TemporaryDirectory>, ApiRejection> {
        let mut held = self.kept.temporary.lock().await;
        if let Some(made) = held.as_ref() {
            return Ok(made.clone());
        }
        let (service, owner) = (self.owner.service.clone(), self.owner.owner.clone());
        let made =
            tokio::task::spawn_blocking(move || service.contexts.runs.workspaces.create_temporary(&owner))
                .await;
        let failed = |_| ApiRejection::new(Code::Internal, "the temporary directory could not be made");
        let made = made.map_err(failed)??;
        *held = Some(made.clone());
        Ok(made)
    }

    /// What it may use, and what it works at.
    pub fn budget(&self) -> Result<&Arc<AgentBudget>, ApiRejection> {
        if let Some(budget) = self.kept.budget.get() {
            return Ok(budget);
        }
        let opened = open_budget(&self.owner, Limits::new(), None)?;
        Ok(self.kept.budget.get_or_init(|| opened))
    }

    /// Begins a turn: a call that starts something. What is refused for what it asks for begins
    /// none, so this comes last.
    pub fn begin_turn(&self) -> Result<(), ApiRejection> {
        let (mut budget, now) = self.budget()?.lock();
        if budget.start_turn(now) != TurnKind::Refused {
            return Ok(());
        }
        Err(over(budget.check(now)))
    }

    /// Whether a turn may begin now; begins none.
    pub fn check_turn(&self) -> Result<(), ApiRejection> {
        let (budget, now) = self.budget()?.lock();
        if budget.clone().start_turn(now) != TurnKind::Refused {
            return Ok(());
        }
        Err(over(budget.inspect(now)))
    }

    /// The notice for the client of its budget after a call: limits that were passed, tasks that
    /// take longer than expected, repeated actions.
    pub fn budget_notice(&self) -> Option<Check> {
        let (mut budget, now) = self.kept.budget.get()?.lock();
        budget.note_activity(now);
        let check = budget.check(now);
        (check.message.is_some() || !check.warnings.is_empty()).then_some(check)
    }

    /// Has a run in the background be the task that was estimated before it, from its start to its
    /// end.
    pub fn bind(&self, run: &Arc<LiveRun>) -> Result<Option<String>, ApiRejection> {
        let Some(registered) = self.estimated().take() else { return Ok(None) };
        // A run that has ended already has nothing to be bound to.
        if registered.task.bind(run).is_err() {
            return Ok(None);
        }
        let budget = self.budget()?.clone();
        let name = begin_task(&budget, &registered.answer)?;
        let (run, task) = (run.clone(), name.clone());
        tokio::spawn(async move {
            run.wait_ended(None).await;
            let is_killed = is_killed(&run.summary());
            let (mut budget, now) = budget.lock();
            let _ = match is_killed {
                true => budget.stop_task(Some(&task), now),
                false => budget.complete_task(Some(&task), now),
            };
        });
        Ok(Some(name))
    }

    pub(super) fn estimated(&self) -> MutexGuard<'_, Option<RegisteredTask>> {
        self.kept.estimated.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was reported of a task, which began at this moment if it is the first.
    pub(super) fn with_reported<T>(&self, of: &str, began: Moment, act: impl FnOnce(&mut Tracker) -> T) -> T {
        let mut reported = self.kept.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.len() >= MAX_READ_RUNS && !reported.contains_key(of) {
            reported.clear();
        }
        act(reported.entry(of.to_owned()).or_insert_with(|| Tracker::new(began)))
    }

    /// Its interpreter of a language, opened if there is none or it has ended. An interpreter that
    /// takes longer than a call waits is there for the next call.
    pub async fn context(&self, language: ContextLanguage) -> Result<Arc<LiveContext>, ApiRejection> {
        let conversation = self.clone();
        let opening = tokio::spawn(async move { conversation.found_or_opened(language).await });
        opening.await.map_err(|_| ApiRejection::new(Code::Internal, "the interpreter could not be opened"))?
    }

    async fn found_or_opened(&self, language: ContextLanguage) -> Result<Arc<LiveContext>, ApiRejection> {
        let mut contexts = self.kept.contexts.lock().await;
        let (service, owner) = (&self.owner.service, &self.owner.owner);
        let known = contexts.get(language.name()).and_then(|id| service.contexts.find(id, owner));
        if let Some(context) = known {
            return Ok(context);
        }
        let opened = self.open(language).await?;
        contexts.insert(language.name(), opened.id().to_owned());
        Ok(opened)
    }

    /// Opens an interpreter in the workspace.
    pub async fn open(&self, language: ContextLanguage) -> Result<Arc<LiveContext>, ApiRejection> {
        let (service, owner) = (self.owner.service.clone(), self.owner.owner.clone());
        let network = self.has_network();
        let mut request = ContextRequest { network, ..ContextRequest::usual(language) };
        request.enter(self.place().await?);
        contexts::open(service.contexts.clone(), owner, request).await
    }

    /// How far it has read a run's streams.
    pub fn cursors(&self, run: &str) -> [u64; 2] {
        let read = self.kept.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.get(run).copied().unwrap_or_default()
    }

    pub fn note_read(&self, run: &str, cursors: [u64; 2]) {
        let mut read = self.kept.read.lock().unwrap_or_else(PoisonError::into_inner);
        if read.len() >= MAX_READ_RUNS && !read.contains_key(run) {
            read.clear();
        }
        read.insert(run.to_owned(), cursors);
    }
}

fn over(check: Check) -> ApiRejection {
    let closing = closing(&check).map(|line| format!("\n{line}")).unwrap_or_default();
    let message = check.message.unwrap_or_else(|| "the budget of this connection is used up".to_owned());
    ApiRejection::new(Code::BudgetOver, message + &closing).with("reason", check.reason)
}

fn open_budget(
    owner: &OwnerState,
    limits: Limits,
    scope: Option<ScopeId>,
) -> Result<Arc<AgentBudget>, ApiRejection> {
    let name = format!("mcp-{}", crate::id::new_id());
    let parent = scope.or_else(|| owner.service.contexts.runs.core.tenants.scope(&owner.owner));
    // No agent starts a new budget here, and clients without sessions share one: a budget that
    // ended with a task must be able to resume. The silence between runs may be the user's; runs
    // are under the stall limit themselves. The server does not see the agent's turns, only the
    // calls that it makes in them.
    let options = BudgetOptions {
        resumes_after_task: true,
        wrap_up_is_timed: true,
        counts_idle_time: false,
        ..BudgetOptions::default()
    };
    let spec = BudgetSpec { name, limits, parent, options, ..BudgetSpec::default() };
    Ok(Arc::new(AgentBudget::open(&owner.service.contexts.runs.core.engine, spec)?))
}

/// Whether a run that has ended was killed, by a limit or by a signal, its last command's included.
fn is_killed(run: &serde_json::Value) -> bool {
    let by_signal = run["exit_code"].as_i64().is_some_and(|code| (129..=192).contains(&code));
    by_signal || !matches!(run["ending"].as_str(), Some("exited" | "returned" | "raised" | "no_result"))
}

/// Begins a task in addition to the active ones, under its name or, if a task of that name is
/// active, a similar one.
fn begin_task(budget: &AgentBudget, answer: &EstimateAnswer) -> Result<String, ApiRejection> {
    let (mut budget, now) = budget.lock();
    let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    let (typical, worst) = (seconds(answer.estimate.typical_seconds), seconds(answer.estimate.worst_seconds));
    let known = answer.name();
    let free = |name: &String| budget.clone().task_status(Some(name), now).is_none();
    let names = (2..).map(|number| format!("{known}-{number}"));
    let name = std::iter::once(known.clone()).chain(names).find(free).unwrap_or_default();
    let ends_after = Some(seconds(answer.estimate.suggested_limit_seconds));
    let task = TaskOf { name: &name, estimated: Some(typical), max: Some(worst), ends_after };
    budget.start_task(task, true, now)?;
    Ok(name)
}

impl From<TaskError> for ApiRejection {
    fn from(error: TaskError) -> Self {
        ApiRejection::new(Code::BadField, error.to_string()).with("key", "label")
    }
}
