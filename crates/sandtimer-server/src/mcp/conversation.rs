//! What the server keeps for an agent: for all of one owner a workspace and the keys of calls; for each conversation its
//! interpreters, how far it has read, and its budget. Nothing of it ends a run.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use sandtimer::Limits;
use sandtimer::engine::Scope;
use sandtimer::limits::Key;
use sandtimer::model::{Layer, LimitKind};
use sandtimer::scope::ScopeId;
use tokio::sync::Mutex as TurnMutex;

use crate::Shared;
use crate::auth::Owner;
use crate::body::Fields;
use crate::contexts::{self, ContextRequest, Language, LiveContext};
use crate::error::{Code, Refusal};
use crate::owned::Owned;

/// What the workspace of an owner's agents is called; no client of another interface can.
const WORKSPACE: &str = "/mcp";
/// Keys of calls that are remembered of one owner; the oldest are forgotten.
const MOST_KEYS: usize = 1000;
/// Runs of which a conversation knows how far it has read.
const MOST_READ: usize = 1000;

/// What all conversations of an owner share.
#[derive(Debug)]
pub(crate) struct OwnerState {
    pub app: Shared,
    pub owner: Owner,
    /// One at a time looks for the workspace, or makes it.
    making: TurnMutex<()>,
    /// Held while a call with a key starts its run, so that a second one with it finds that.
    pub keys: TurnMutex<Keys>,
    /// Of clients that have no session.
    common: Arc<Kept>,
}

impl OwnerState {
    pub fn new(app: Shared, owner: Owner) -> Self {
        OwnerState {
            app,
            owner,
            making: TurnMutex::default(),
            keys: TurnMutex::default(),
            common: Arc::default(),
        }
    }

    /// The id of the workspace that this owner's agents work in. It outlives the server.
    pub async fn workspace(&self) -> Result<String, Refusal> {
        let _one = self.making.lock().await;
        if let Some(found) = self.app.workspaces.of_sandbox(&self.owner, WORKSPACE) {
            return Ok(found.id_text().to_owned());
        }
        let (app, owner) = (self.app.clone(), self.owner.clone());
        let made = tokio::task::spawn_blocking(move || app.workspaces.create(&owner, Some(WORKSPACE))).await;
        let made = made.map_err(|_| Refusal::new(Code::Internal, "the workspace could not be made"))??;
        Ok(made.id_text().to_owned())
    }
}

/// Keys by which a call that is made again is known.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    /// The run and what was asked for, in the order of time.
    known: Vec<(String, String, String)>,
}

impl Keys {
    /// The run that was started with this key, and whether by the same request.
    pub fn find(&self, key: &str, asked: &str) -> Option<(&str, bool)> {
        let known = self.known.iter().find(|(known, ..)| known == key);
        known.map(|(_, run, before)| (run.as_str(), before == asked))
    }

    pub fn add(&mut self, key: String, run: String, asked: String) {
        if self.known.len() >= MOST_KEYS {
            self.known.remove(0);
        }
        self.known.push((key, run, asked));
    }

    pub fn forget(&mut self, key: &str) {
        self.known.retain(|(known, ..)| known != key);
    }
}

/// What bounds all that one conversation starts.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    limits: Limits,
}

impl Budget {
    pub fn parse(fields: &mut Fields) -> Result<Self, Refusal> {
        Ok(Budget { limits: fields.limits(&[Key::Kind(LimitKind::Wall), Key::Kind(LimitKind::Stall)])? })
    }
}

/// What is kept for one client.
#[derive(Debug, Default)]
struct Kept {
    /// Its live interpreters, by language; one at a time is looked for or opened.
    contexts: TurnMutex<HashMap<&'static str, String>>,
    read: Mutex<HashMap<String, [u64; 2]>>,
    /// Bounds all of its runs.
    scope: Option<Scope>,
}

/// One client.
#[derive(Debug, Clone)]
pub(crate) struct Conversation {
    pub owner: Arc<OwnerState>,
    kept: Arc<Kept>,
}

impl Conversation {
    pub fn new(owner: Arc<OwnerState>) -> Self {
        Conversation { owner, kept: Arc::default() }
    }

    /// That of all clients without sessions.
    pub fn common(owner: Arc<OwnerState>) -> Self {
        let kept = owner.common.clone();
        Conversation { owner, kept }
    }

    /// Its clock begins now.
    pub fn with_budget(owner: Arc<OwnerState>, budget: &Budget) -> Result<Self, Refusal> {
        let name = format!("mcp-{}", crate::new_id());
        let parent = owner.app.tenants.scope(&owner.owner);
        let scope = owner.app.engine.open_scope(parent, Layer::Loop, name, &budget.limits)?;
        Ok(Conversation { owner, kept: Arc::new(Kept { scope: Some(scope), ..Kept::default() }) })
    }

    /// The scope that bounds its runs.
    pub fn scope(&self) -> Option<ScopeId> {
        self.kept.scope.as_ref().map(Scope::id)
    }

    /// Its interpreter of a language, opened where there is none or it has ended.
    pub async fn context(&self, language: Language) -> Result<Arc<LiveContext>, Refusal> {
        let mut contexts = self.kept.contexts.lock().await;
        let (app, owner) = (&self.owner.app, &self.owner.owner);
        let known = contexts.get(language.name()).and_then(|id| app.contexts.find(id, owner));
        if let Some(context) = known {
            return Ok(context);
        }
        let opened = self.open(language).await?;
        contexts.insert(language.name(), opened.id().to_owned());
        Ok(opened)
    }

    /// Opens an interpreter in the workspace.
    pub async fn open(&self, language: Language) -> Result<Arc<LiveContext>, Refusal> {
        let (app, owner) = (self.owner.app.clone(), self.owner.owner.clone());
        let workspace = Some(self.owner.workspace().await?);
        contexts::open(app, owner, ContextRequest { workspace, ..ContextRequest::usual(language) }).await
    }

    /// How far it has read a run's streams.
    pub fn cursors(&self, run: &str) -> [u64; 2] {
        let read = self.kept.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.get(run).copied().unwrap_or_default()
    }

    pub fn note_read(&self, run: &str, cursors: [u64; 2]) {
        let mut read = self.kept.read.lock().unwrap_or_else(PoisonError::into_inner);
        if read.len() >= MOST_READ && !read.contains_key(run) {
            read.clear();
        }
        read.insert(run.to_owned(), cursors);
    }
}
