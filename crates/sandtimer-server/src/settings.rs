//! How a server is set up, and why it may not come up.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sandtimer::Limits;
use sandtimer_jobs::job::JobStore;
use sandtimer_records::StoreError;
use serde_json::Value;

use crate::auth::Tokens;
use crate::policy::{Defaults, Interpreters};
use crate::trace::Collector;

/// Threads at a time that build sandboxes, wait for the disk, or for what is executed in a context.
pub(crate) const MAX_BLOCKING_THREADS: usize = 1024;

/// How many ended runs are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// `None` is without end.
    pub runs: Option<u64>,
    pub age: Option<Duration>,
}

impl Default for Retention {
    fn default() -> Self {
        Retention { runs: Some(1_000), age: Some(Duration::from_secs(7 * 24 * 3600)) }
    }
}

/// What only the host program knows.
pub struct HostProgram {
    /// What this machine can enforce. May take seconds.
    pub facts: Box<dyn Fn() -> Value + Send + Sync>,
    /// Each setting with its value and where it came from.
    pub config: Value,
    /// Receives errors that concern no single request.
    pub log_error: Box<dyn Fn(&str) + Send + Sync>,
}

impl std::fmt::Debug for HostProgram {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Host").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Where a server listens: `127.0.0.1:7880`, or `unix:/run/user/1000/sandtimer.sock`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// Port 0 is a free one.
    Address(SocketAddr),
    /// A socket in the file system, which only this user may use. A stale one, on which no server
    /// listens, is replaced.
    Unix(PathBuf),
}

impl std::str::FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            return if path.is_absolute() {
                Ok(Listen::Unix(path))
            } else {
                Err("the path after `unix:` must begin with a slash".to_owned())
            };
        }
        let address = text.parse().map(Listen::Address);
        address.map_err(|_| "use an address such as 127.0.0.1:7880, or `unix:` and a path".to_owned())
    }
}

impl std::fmt::Display for Listen {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Listen::Address(address) => address.fmt(formatter),
            Listen::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

/// How a server executes jobs.
#[derive(Debug, Clone)]
pub struct JobSettings {
    /// Where they are, perhaps with others that work on them; `None` is the state directory.
    pub store: Option<Arc<dyn JobStore>>,
    /// Jobs at a time; 0 leaves them to other workers on the same store.
    pub slots: usize,
    /// The number of bytes that are kept of the files that a job leaves.
    pub file_bytes: u64,
    /// Bytes for the runs of jobs that say how much memory they may have; `None` for as many jobs
    /// as there are slots.
    pub memory: Option<u64>,
    /// Whether webhooks may be sent to addresses that are not public.
    pub private_webhooks: bool,
}

/// Under which names the tools for agents are listed; all of them can be called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ToolNames {
    /// Our own, such as `bash`.
    Ours,
    /// The names that agents were trained on, such as `Bash`, and ours where there is no such name.
    Trained,
    #[default]
    Both,
}

impl ToolNames {
    /// The names of the choices.
    pub const NAMES: [&'static str; 3] = ["ours", "trained", "both"];

    /// The choice of this name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "ours" => Some(ToolNames::Ours),
            "trained" => Some(ToolNames::Trained),
            "both" => Some(ToolNames::Both),
            _ => None,
        }
    }
}

/// How a server is set up.
#[derive(Debug)]
pub struct Settings {
    pub listen: Listen,
    pub state_directory: PathBuf,
    /// Clients with one of these tokens are admitted; without tokens, the server's own user on this
    /// machine.
    pub tokens: Option<Tokens>,
    pub retention: Retention,
    /// Limits from further out than a request.
    pub defaults: Defaults,
    /// The operator's ceilings.
    pub maxima: Limits,
    pub interpreters: Interpreters,
    pub jobs: JobSettings,
    /// Directories that hold root trees for sandboxes, by the names that clients use.
    pub templates: BTreeMap<String, PathBuf>,
    /// How long a client may take for the head of a request, and for its body. It may take nothing
    /// of an answer for twice as long.
    pub patience: Duration,
    /// How long a stream of events is silent before a comment shows that it lives.
    pub heartbeat: Duration,
    /// Where spans of requests and runs are sent, if anywhere.
    pub collector: Option<Collector>,
    /// Agents see the tools that estimate.
    pub estimate_tools: bool,
    /// The names under which agents see tools.
    pub tool_names: ToolNames,
    pub host: HostProgram,
}

/// Why a server did not come up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    #[error(
        "listening on {0}, which others can reach, needs a token file; give --token-file, or listen on 127.0.0.1"
    )]
    Open(SocketAddr),
    #[error("cannot listen on {address}: {source}")]
    Listen { address: Listen, source: io::Error },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    JobService(#[from] sandtimer_jobs::job::StoreError),
    #[error(transparent)]
    Engine(#[from] sandtimer::Error),
    #[error("cannot start threads: {0}")]
    Threads(io::Error),
}

impl StartError {
    /// Whether another server is there already, with these records or at this address.
    pub fn is_in_use(&self) -> bool {
        match self {
            StartError::Store(StoreError::InUse(_)) => true,
            StartError::Listen { source, .. } => source.kind() == io::ErrorKind::AddrInUse,
            _ => false,
        }
    }
}
