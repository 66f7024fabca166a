//! The store of jobs, and the worker of this server.
//!
//! In the state directory's store the worker has a connection of its own, so that it waits for no
//! listing. It is stopped in two steps: first it begins nothing more, then it gives back active
//! jobs, which are queued again with the deadlines they had. A server that was killed did neither:
//! the next one, which has the lock of the state directory, takes back what the dead one had. In a
//! store with other workers it is not known which of them are dead, and the leases expire.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRef;
use sandtimer::engine::Interpreters;
use sandtimer::limits::Limits;
use sandtimer::model::Source;
use sandtimer::scope::ScopeId;
use sandtimer_jobs::SqliteJobs;
use sandtimer_jobs::executor::{Admission, Observer, Worker, WorkerContext, WorkerSettings};
use sandtimer_jobs::job::{JobRecord, JobSpec, JobStore, StoreError};
use tokio::sync::watch;

use super::submission::check_paths;
use super::view::{LOCAL_OWNER, StoreOwner};
use crate::auth::OwnerId;
use crate::error::{ApiRejection, Code};
use crate::intake::Messages;
use crate::service_core::ServiceCore;
use crate::settings::{JobSettings, StartError};
use crate::tenants::Tenants;
use crate::webhook_sender::HttpWebhookSender;

/// The worker's name in the state directory's store: there is one server to it.
const WORKER_NAME: &str = "server";
/// How long a job stays with a worker that no longer renews its lease.
const LEASE_TIMEOUT: Duration = Duration::from_secs(30);

/// Jobs, as the server has them.
#[derive(Debug)]
pub(crate) struct JobService {
    pub(super) core: Arc<ServiceCore>,
    store: Arc<dyn JobStore>,
    /// `None` where the server has no slots: then others work on the store.
    worker: Option<Arc<Worker>>,
    /// True once the worker has ended.
    ended: watch::Sender<bool>,
}

/// What the worker of a server's jobs shares with the rest of the server.
#[derive(Debug)]
pub(crate) struct WorkerResources<'a> {
    pub core: &'a Arc<ServiceCore>,
    pub interpreters: &'a Arc<Interpreters>,
    /// Default limits of commands.
    pub defaults: Vec<(Source, Limits)>,
}

impl JobService {
    /// Opens the store, takes back what a dead server had, and begins to work. The caller must hold
    /// the lock of the directory.
    pub fn start(
        state_directory: &Path,
        resources: WorkerResources<'_>,
        settings: &JobSettings,
    ) -> Result<Self, StartError> {
        let WorkerResources { core, interpreters, defaults } = resources;
        let ServiceCore { engine, tenants, traces, .. } = &**core;
        let OpenedJobStore { store, of_worker, name } = open(state_directory, settings)?;
        let slots = settings.slots;
        let ended = watch::Sender::new(slots == 0);
        let worker = if slots == 0 {
            None
        } else {
            let job_context = WorkerContext::new(engine.clone(), of_worker, state_directory);
            let observer = traces.are_wanted().then(|| Arc::new(traces.clone()) as Arc<dyn Observer>);
            let (interpreters, max_file_bytes) = (interpreters.clone(), settings.file_bytes);
            let job_context =
                WorkerContext { interpreters, defaults, max_file_bytes, observer, ..job_context };
            let webhook_sender = Arc::new(HttpWebhookSender::new(settings.private_webhooks));
            Some(begin(job_context, tenants, webhook_sender, settings, name, ended.clone())?)
        };
        Ok(JobService { core: core.clone(), store, worker, ended })
    }

    /// Asks the store something, on a thread that may block.
    pub async fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn JobStore) -> Result<T, ApiRejection> + Send + 'static,
    ) -> Result<T, ApiRejection> {
        let store = self.store.clone();
        let asked = tokio::task::spawn_blocking(move || work(&*store)).await;
        asked.unwrap_or_else(|_| {
            Err(ApiRejection::new(Code::Internal, "the store of jobs could not be asked"))
        })
    }

    /// A job of this owner, or that there is none.
    pub(super) async fn find(&self, store_owner: &StoreOwner, id: &str) -> Result<JobRecord, ApiRejection> {
        let (id, owner) = (id.to_owned(), store_owner.name().to_owned());
        self.ask(move |store| {
            store.sweep()?;
            let found = store.get(&id)?.filter(|record| record.owner == owner);
            found.ok_or_else(|| StoreError::Unknown(id.chars().take(60).collect()).into())
        })
        .await
    }

    /// How many are executed here.
    pub fn running(&self) -> usize {
        self.worker.as_ref().map_or(0, |worker| worker.jobs())
    }

    /// Begins nothing more.
    pub fn drain(&self) {
        self.worker.iter().for_each(|worker| worker.drain());
    }

    /// Ends what is active and gives it back.
    pub fn give_back(&self) {
        self.worker.iter().for_each(|worker| worker.give_back());
    }

    /// Waits until the worker has ended.
    pub async fn ended(&self) {
        // The sender is here.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }
}

impl FromRef<Arc<JobService>> for Messages {
    fn from_ref(service: &Arc<JobService>) -> Self {
        service.core.messages.clone()
    }
}

impl Drop for JobService {
    fn drop(&mut self) {
        // A server that was not stopped gives its jobs back, too.
        self.give_back();
    }
}

/// The store, for requests and for the worker, and the worker's name in it.
struct OpenedJobStore {
    store: Arc<dyn JobStore>,
    of_worker: Arc<dyn JobStore>,
    name: String,
}

fn open(state_directory: &Path, settings: &JobSettings) -> Result<OpenedJobStore, StoreError> {
    if let Some(shared) = &settings.store {
        let name = WorkerSettings::new(log_error).name;
        return Ok(OpenedJobStore { store: shared.clone(), of_worker: shared.clone(), name });
    }
    let store = Arc::new(SqliteJobs::open(state_directory)?);
    store.take_back(WORKER_NAME)?;
    let of_worker = Arc::new(SqliteJobs::open(state_directory)?);
    Ok(OpenedJobStore { store, of_worker, name: WORKER_NAME.to_owned() })
}

fn log_error(message: &str) {
    tracing::error!("{message}");
}

fn begin(
    job_context: WorkerContext,
    tenants: &Arc<Tenants>,
    webhook_sender: Arc<HttpWebhookSender>,
    settings: &JobSettings,
    name: String,
    ended: watch::Sender<bool>,
) -> Result<Arc<Worker>, StartError> {
    let JobSettings { slots, memory, .. } = *settings;
    let settings =
        WorkerSettings { name, slots, memory, lease: LEASE_TIMEOUT, ..WorkerSettings::new(log_error) };
    let admission: Arc<dyn Admission> = tenants.clone();
    let worker =
        Arc::new(Worker::new(job_context, settings).admitting(admission).with_webhook_sender(webhook_sender));
    let works = worker.clone();
    let end = EndNotice(ended);
    let working = move || {
        let _end = end;
        works.work();
    };
    std::thread::Builder::new().name("st-jobs".to_owned()).spawn(working).map_err(StartError::Threads)?;
    Ok(worker)
}

/// Notifies of the worker's end when it is dropped, after a panic as well: what waits for it would
/// wait for ever.
struct EndNotice(watch::Sender<bool>);

impl Drop for EndNotice {
    fn drop(&mut self) {
        if std::thread::panicking() {
            log_error(
                "the worker failed (the log on stderr has the reason): this server executes no jobs until it is restarted",
            );
        }
        self.0.send_replace(true);
    }
}

impl Admission for Tenants {
    /// Checked again when a job is executed: the server may have got another file of tokens since
    /// its submission.
    fn admit(&self, owner: &str, spec: &JobSpec) -> Result<Option<ScopeId>, String> {
        if owner == LOCAL_OWNER {
            return Ok(None);
        }
        let owner = OwnerId::recorded(owner);
        if !self.knows(&owner) {
            return Err("its owner's token is not in the server's file any more".to_owned());
        }
        if spec.network && !self.may_have_network(&owner) {
            return Err("`network`: its owner's token may not give jobs the host's network".to_owned());
        }
        check_paths(spec).map_err(|error| error.to_string())?;
        Ok(self.scope(&owner))
    }
}
