//! What the package calls a sandbox: one for each owner and `X-Sandbox-Id`, with files, sessions by
//! name, processes and code contexts.
//!
//! A [`CompatSandbox`] maps the package's names to these, in memory. Its [`SandboxStorage`] is
//! where they run: in a `Sandbox` of the engine, which outlives both, or in a workspace.
//!
//! A session is there from its creation, or its first use, to its deletion, or until it was unused
//! for the server's `idle_ms`.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandtimer::Limits;
use sandtimer::engine::SandboxNetwork;
use sandtimer::limits::{Format, Setting, parse_string};
use sandtimer::model::LimitKind;
use serde_json::Value;
use tokio::sync::{Mutex as TurnMutex, OwnedMutexGuard};

use super::failure::{ContainerFailure, NETWORK_HEADER, header_failure};
use super::process::SandboxProcess;
use super::storage::{OwnDirectories, SandboxStorage, WORKSPACE};
use crate::auth::OwnerId;
use crate::body::RequestFields;
use crate::contexts::{self, ContextLanguage, ContextRequest, ContextService, LiveContext};
use crate::error::{ApiRejection, Code};
use crate::registry::OwnedResource;
use crate::sandboxes::network;

/// Bytes of the name of a sandbox, a session or a process.
pub(super) const MAX_NAME_BYTES: usize = 1024;
/// Sandboxes of one owner and, in each, sessions that are known at a time.
const MAX_ENTRIES: usize = 4096;

/// All sandboxes of the package.
#[derive(Debug, Default)]
pub(super) struct Sandboxes(Mutex<HashMap<(OwnerId, String), Arc<CompatSandbox>>>);

impl Sandboxes {
    /// The sandbox of this owner with this name.
    pub(super) fn of(&self, owner: &OwnerId, name: &str) -> Result<Arc<CompatSandbox>, ContainerFailure> {
        if name.len() > MAX_NAME_BYTES {
            return Err(ContainerFailure::invalid("X-Sandbox-Id", "it is longer than 1024 bytes"));
        }
        let mut sandboxes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (owner.clone(), name.to_owned());
        if let Some(sandbox) = sandboxes.get(&key) {
            return Ok(sandbox.clone());
        }
        let is_full = |sandboxes: &HashMap<(OwnerId, String), Arc<CompatSandbox>>| {
            sandboxes.keys().filter(|(other, _)| other == owner).count() >= MAX_ENTRIES
        };
        if is_full(&sandboxes) {
            sandboxes.retain(|_, sandbox| Arc::strong_count(sandbox) > 1 || !sandbox.is_empty());
        }
        if is_full(&sandboxes) {
            return Err(ContainerFailure::new(
                503,
                "CONTAINER_UNAVAILABLE",
                format!("{MAX_ENTRIES} sandboxes are in use"),
            ));
        }
        let sandbox = Arc::new(CompatSandbox::new(owner.clone(), name.to_owned()));
        sandboxes.insert(key, sandbox.clone());
        Ok(sandbox)
    }
}

/// A session's slot. The request that makes its shell holds the lock until the shell is made.
type SessionSlot = Arc<TurnMutex<Option<Arc<LiveContext>>>>;

/// One sandbox of the package.
#[derive(Debug)]
pub(super) struct CompatSandbox {
    pub owner: OwnerId,
    name: String,
    /// While it has no sandbox of the engine. Locked while either is made, also by a request that
    /// is gone.
    directories: Arc<TurnMutex<Option<OwnDirectories>>>,
    sessions: Mutex<HashMap<String, SessionSlot>>,
    processes: Mutex<HashMap<String, Arc<SandboxProcess>>>,
    /// Ids of processes that are being started.
    claims: Mutex<HashSet<String>>,
    contexts: Mutex<HashMap<String, CodeContext>>,
}

/// A context with the fields that the package reads back.
#[derive(Debug, Clone)]
pub(super) struct CodeContext {
    pub context: Arc<LiveContext>,
    pub name: &'static str,
    pub directory: String,
}

/// How a session is to be.
#[derive(Debug, Default)]
pub(super) struct SessionRequest {
    pub environment: HashMap<String, String>,
    pub directory: Option<String>,
    /// The default limits of each of its commands.
    pub each: Limits,
}

impl CompatSandbox {
    fn new(owner: OwnerId, name: String) -> Self {
        CompatSandbox {
            owner,
            name,
            directories: Arc::default(),
            sessions: Mutex::default(),
            processes: Mutex::default(),
            claims: Mutex::default(),
            contexts: Mutex::default(),
        }
    }

    fn is_empty(&self) -> bool {
        let is_being_made = Arc::strong_count(&self.directories) > 1;
        !is_being_made && self.slots().is_empty() && self.processes().is_empty() && self.contexts().is_empty()
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<String, SessionSlot>> {
        // Each change is one call on the map; so for the others.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn processes(&self) -> MutexGuard<'_, HashMap<String, Arc<SandboxProcess>>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn claims(&self) -> MutexGuard<'_, HashSet<String>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn contexts(&self) -> MutexGuard<'_, HashMap<String, CodeContext>> {
        self.contexts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the slot of the session of this name, so that no other request makes or ends the
    /// session while it is held.
    async fn hold(
        &self,
        service: &Arc<ContextService>,
        name: &str,
    ) -> Result<OwnedMutexGuard<Option<Arc<LiveContext>>>, ContainerFailure> {
        loop {
            let slot = self.slot(service, name)?;
            let held = slot.clone().lock_owned().await;
            // A request that ends a session removes its slot.
            if self.slots().get(name).is_some_and(|known| Arc::ptr_eq(known, &slot)) {
                return Ok(held);
            }
        }
    }

    fn slot(&self, service: &Arc<ContextService>, name: &str) -> Result<SessionSlot, ContainerFailure> {
        let mut slots = self.slots();
        if slots.len() >= MAX_ENTRIES && !slots.contains_key(name) {
            slots.retain(|_, slot| {
                slot.try_lock().map_or(true, |held| alive(service, held.as_ref()).is_some())
            });
        }
        if slots.len() >= MAX_ENTRIES && !slots.contains_key(name) {
            return Err(ContainerFailure::new(
                503,
                "CONTAINER_UNAVAILABLE",
                format!("{MAX_ENTRIES} sessions are open"),
            ));
        }
        Ok(slots.entry(name.to_owned()).or_default().clone())
    }

    /// Makes it with this network if it is not there yet.
    ///
    /// # Errors
    /// It has another network since it was made, or may not have this one.
    pub async fn require_network(
        &self,
        service: &Arc<ContextService>,
        network: SandboxNetwork,
    ) -> Result<(), ContainerFailure> {
        let storage = self.storage_with(service, network.clone()).await?;
        let present = storage.network();
        if present == network {
            return Ok(());
        }
        let [present, wanted] = [&present, &network].map(network::header_text);
        let SandboxStorage::Sandbox(sandbox) = storage else {
            let why = format!(
                "the files of this name are in a workspace, whose commands have no network, so it cannot be `{wanted}`; leave the \
                 header out, or use another X-Sandbox-Id"
            );
            return Err(ContainerFailure::invalid(NETWORK_HEADER, &why));
        };
        let id = sandbox.id();
        let why = format!(
            "the sandbox `{id}` was made with `{present}`, which is not `{wanted}`; leave the header out, use another X-Sandbox-Id, or \
             delete the sandbox with its files by DELETE /v1/sandboxes/{id}"
        );
        Err(ContainerFailure::invalid(NETWORK_HEADER, &why).with("sandbox_id", id))
    }

    /// Where its files are, which outlive the server.
    pub async fn storage(&self, service: &Arc<ContextService>) -> Result<SandboxStorage, ContainerFailure> {
        self.storage_with(service, SandboxNetwork::None).await
    }

    async fn storage_with(
        &self,
        service: &Arc<ContextService>,
        network: SandboxNetwork,
    ) -> Result<SandboxStorage, ContainerFailure> {
        if let Some(sandbox) = service.runs.sandboxes.named(&self.owner, &self.name) {
            return Ok(SandboxStorage::Sandbox(sandbox));
        }
        let mut held = self.directories.clone().lock_owned().await;
        if let Some(directories) = held.as_ref().filter(|held| held.is_there(service)) {
            return Ok(SandboxStorage::Directories(directories.clone()));
        }
        let (making, owner, name) = (service.clone(), self.owner.clone(), self.name.clone());
        // The lock is the work's: if the client leaves, no other request makes a second one.
        let made = tokio::task::spawn_blocking(move || {
            let made = SandboxStorage::find_or_make(&making, &owner, &name, network)?;
            *held = match &made {
                SandboxStorage::Directories(directories) => Some(directories.clone()),
                SandboxStorage::Sandbox(_) => None,
            };
            Ok(made)
        });
        let made = made.await.map_err(|_| ContainerFailure::internal("the sandbox could not be made"))?;
        made.map_err(|rejection: ApiRejection| match rejection.code {
            Code::Quota | Code::Capacity => ContainerFailure::no_room(rejection),
            _ => header_failure(rejection),
        })
    }

    /// Opens a context here.
    pub async fn open(
        &self,
        service: &Arc<ContextService>,
        language: ContextLanguage,
        request: SessionRequest,
    ) -> Result<Arc<LiveContext>, ContainerFailure> {
        let request = ContextRequest {
            environment: request.environment,
            directory: Some(request.directory.unwrap_or_else(|| WORKSPACE.to_owned())),
            each: request.each,
            ..ContextRequest::usual(language)
        };
        let request = self.storage(service).await?.context(request);
        Ok(contexts::open(service.clone(), self.owner.clone(), request).await?)
    }

    /// The session of this name, where it is there.
    pub async fn open_session(&self, service: &Arc<ContextService>, name: &str) -> Option<Arc<LiveContext>> {
        let slot = self.slots().get(name).cloned()?;
        let held = slot.lock().await;
        alive(service, held.as_ref())
    }

    /// The session of this name, made where it is not there.
    pub async fn session(
        &self,
        service: &Arc<ContextService>,
        name: &str,
    ) -> Result<Arc<LiveContext>, ContainerFailure> {
        let mut held = self.hold(service, name).await?;
        if let Some(session) = alive(service, held.as_ref()) {
            return Ok(session);
        }
        let session = self.open(service, ContextLanguage::Bash, SessionRequest::default()).await?;
        *held = Some(session.clone());
        Ok(session)
    }

    /// Makes a session that is not there.
    pub async fn create(
        &self,
        service: &Arc<ContextService>,
        name: &str,
        request: SessionRequest,
    ) -> Result<(), ContainerFailure> {
        let mut held = self.hold(service, name).await?;
        if alive(service, held.as_ref()).is_some() {
            return Err(ContainerFailure::new(
                409,
                "SESSION_ALREADY_EXISTS",
                format!("Session '{name}' already exists"),
            )
            .with("sessionId", name)
            .with("containerPlacementId", Value::Null));
        }
        *held = Some(self.open(service, ContextLanguage::Bash, request).await?);
        Ok(())
    }

    /// Ends a session, and returns whether there was one.
    pub async fn delete(&self, service: &Arc<ContextService>, name: &str) -> bool {
        let Some(slot) = self.slots().get(name).cloned() else { return false };
        let mut held = slot.lock().await;
        self.slots().remove(name);
        let Some(session) = held.take() else { return false };
        let was_there = alive(service, Some(&session)).is_some();
        contexts::close(service, &session).await;
        was_there
    }

    pub async fn names(&self, service: &Arc<ContextService>) -> Vec<String> {
        let slots: Vec<(String, SessionSlot)> =
            self.slots().iter().map(|(name, slot)| (name.clone(), slot.clone())).collect();
        let mut names = Vec::new();
        for (name, slot) in slots {
            if alive(service, slot.lock().await.as_ref()).is_some() {
                names.push(name);
            }
        }
        names.sort();
        names
    }
}

/// The session, unless it was deleted or was not used for too long.
fn alive(service: &Arc<ContextService>, session: Option<&Arc<LiveContext>>) -> Option<Arc<LiveContext>> {
    session.and_then(|session| service.find(session.id_str(), session.owner()))
}

/// `env` or `env_vars`: an object of texts; what is null is not there.
pub(super) fn variables(
    fields: &mut RequestFields,
    key: &'static str,
) -> Result<Vec<(String, String)>, ContainerFailure> {
    let Some(given) = fields.value(key) else { return Ok(Vec::new()) };
    let Value::Object(object) = given else {
        return Err(ContainerFailure::invalid(key, "it is not an object of texts"));
    };
    let mut variables = Vec::new();
    for (name, value) in object {
        let is_name = name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
            && name.bytes().next().is_some_and(|first| !first.is_ascii_digit());
        match value {
            Value::Null => {}
            Value::String(value) if is_name && !value.contains('\0') => variables.push((name, value)),
            Value::String(_) if is_name => {
                return Err(ContainerFailure::invalid(key, &format!("`{name}` has a NUL byte")));
            }
            Value::String(_) => {
                return Err(ContainerFailure::invalid(key, &format!("`{name}` is not a variable's name")));
            }
            _ => {
                return Err(ContainerFailure::invalid(
                    key,
                    &format!("the value of `{name}` is not a string"),
                ));
            }
        }
    }
    Ok(variables)
}

/// `cwd`.
pub(super) fn directory(fields: &mut RequestFields) -> Result<Option<String>, ContainerFailure> {
    let directory = fields.string("cwd")?.filter(|directory| !directory.is_empty());
    match directory {
        Some(directory) if directory.contains('\0') => {
            Err(ContainerFailure::invalid("cwd", "it has a NUL byte"))
        }
        directory => Ok(directory),
    }
}

/// A limit of wall time by the name that it has here: absent inherits, 0 is unlimited.
pub(super) fn timeout(fields: &mut RequestFields, key: &'static str) -> Result<Limits, ContainerFailure> {
    let mut limits = Limits::new();
    let setting = match fields.value(key) {
        None => Setting::Inherit,
        Some(Value::Number(number)) => parsed(key, &number.to_string())?,
        Some(Value::String(text)) => parsed(key, &text)?,
        Some(_) => return Err(ContainerFailure::invalid(key, "it is not a number of milliseconds")),
    };
    limits.set(LimitKind::Wall, setting);
    Ok(limits)
}

fn parsed(key: &str, text: &str) -> Result<Setting, ApiRejection> {
    Ok(parse_string(key, Format::wire(LimitKind::Wall), text, "the request")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_owner_does_not_exhaust_the_slots_of_others() {
        let (sandboxes, [one, other]) = (Sandboxes::default(), ["token:a", "token:b"].map(OwnerId::recorded));
        for index in 0..MAX_ENTRIES {
            let sandbox = sandboxes.of(&one, &index.to_string()).expect("a sandbox");
            sandbox.slots().insert(String::new(), SessionSlot::default());
        }
        assert!(sandboxes.of(&one, "another").is_err());
        sandboxes.of(&other, "first").expect("a sandbox");
        sandboxes.of(&one, "0").expect("one that is there");
    }
}
