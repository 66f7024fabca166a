//! Contexts that ended with a server: the error that their owners get when they request one of them
//! later.
//!
//! ```text
//! contexts/ID   written when a context is opened; removed when it is closed, unless the server is what ends it
//! ```
//! A file that is still there when a server starts is of a context that the server before it took
//! along.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use sandtimer::time::instant;
use serde_json::{Value, json};

use super::context::LiveContext;
use super::request::ContextLanguage;
use crate::auth::OwnerId;
use crate::error::{ApiRejection, Code};
use crate::registry::OwnedResource;

/// How many are known; older ones are forgotten.
const MAX_ENDED: usize = 4096;
/// The longest file that is read.
const MAX_FILE_BYTES: u64 = 4096;

/// Contexts of earlier servers.
#[derive(Debug, Default)]
pub(super) struct EndedContexts {
    /// `None` where nothing is kept.
    directory: Option<PathBuf>,
    found: HashMap<String, EndedContext>,
    /// The latest contexts that ended with their sandbox.
    with_sandbox: Mutex<VecDeque<EndedWithSandbox>>,
    /// When this server began: by then the one before had ended.
    started_at_ms: u64,
}

#[derive(Debug)]
struct EndedContext {
    owner: OwnerId,
    is_session: bool,
    workspace: Option<String>,
    sandbox: Option<String>,
    /// As the server noted that took it along; `None` where it was killed.
    ended_at_ms: Option<u64>,
}

/// A context of this server that ended with its sandbox.
#[derive(Debug)]
struct EndedWithSandbox {
    id: String,
    owner: OwnerId,
    is_session: bool,
    sandbox: String,
    reason: EndReason,
}

/// Why a sandbox ends, and with it what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndReason {
    /// Its owner deleted it.
    Deleted,
    /// It reached a limit of its own, which its id names.
    Limit,
}

impl EndReason {
    /// What ended a run in it.
    pub fn of_run(self) -> &'static str {
        match self {
            EndReason::Deleted => "its sandbox was deleted",
            EndReason::Limit => "its sandbox reached a limit",
        }
    }

    fn verb(self) -> &'static str {
        match self {
            EndReason::Deleted => "was deleted",
            EndReason::Limit => "reached a limit",
        }
    }
}

impl EndedContexts {
    /// Reads what the servers before this one have left.
    ///
    /// # Errors
    /// Where the directory cannot be made or read.
    pub fn open(state_directory: &Path, started_at_ms: u64) -> io::Result<Self> {
        let directory = state_directory.join("contexts");
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let mut files = Vec::new();
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            // A file that is gone or cannot be read belongs to no context that its owner could
            // request.
            let modified = fs::metadata(&path).and_then(|data| data.modified()).unwrap_or(UNIX_EPOCH);
            files.push((modified, path));
        }
        files.sort_by(|one, other| other.cmp(one));
        let mut found = HashMap::new();
        for (_, path) in files {
            let id = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            match read(&path).filter(|_| found.len() < MAX_ENDED) {
                Some(ended) => drop(found.insert(id, ended)),
                None => drop(fs::remove_file(&path)),
            }
        }
        Ok(EndedContexts { directory: Some(directory), found, started_at_ms, ..EndedContexts::default() })
    }

    /// Notes one that was opened, before its owner knows its id. Blocks.
    pub fn note(&self, context: &LiveContext) {
        self.write(context, None);
    }

    /// Forgets one that was closed, or notes when the server took it along. Blocks.
    pub fn close(&self, context: &LiveContext, with_server_at_ms: Option<u64>) {
        match (&self.directory, with_server_at_ms) {
            (Some(directory), None) => drop(fs::remove_file(directory.join(context.id()))),
            (_, at) => self.write(context, at),
        }
    }

    /// Notes why one ends whose sandbox ends.
    pub fn note_end(&self, context: &LiveContext, sandbox: &str, reason: EndReason) {
        let mut ended = self.with_sandbox.lock().unwrap_or_else(PoisonError::into_inner);
        ended.push_back(EndedWithSandbox {
            id: context.id().to_owned(),
            owner: context.owner().clone(),
            is_session: context.language() == ContextLanguage::Bash,
            sandbox: sandbox.to_owned(),
            reason,
        });
        if ended.len() > MAX_ENDED {
            ended.pop_front();
        }
    }

    /// Why one is gone that was in a sandbox.
    fn deletion(&self, id: &str, owner: &OwnerId) -> Option<ApiRejection> {
        let ended = self.with_sandbox.lock().unwrap_or_else(PoisonError::into_inner);
        let found = ended.iter().find(|ended| ended.id == id && ended.owner == *owner)?;
        let kind = if found.is_session { "session" } else { "context" };
        let message = format!(
            "the {kind} `{id}` ended when its sandbox `{}` {}; what remains are the records of its runs",
            found.sandbox,
            found.reason.verb()
        );
        Some(ApiRejection::new(Code::ContextEnded, message).with("sandbox", found.sandbox.as_str()))
    }

    /// What cannot be written costs the owner the explanation.
    fn write(&self, context: &LiveContext, ended_at_ms: Option<u64>) {
        let Some(directory) = &self.directory else { return };
        let workspace = context.named_workspace().map(|workspace| workspace.id_str());
        let record = json!({
            "owner": context.owner().as_str(),
            "is_session": context.language() == ContextLanguage::Bash,
            "workspace": workspace,
            "sandbox": context.sandbox(),
            "ended_at_ms": ended_at_ms,
        });
        let _ = fs::write(directory.join(context.id()), record.to_string());
    }

    /// Why one of this owner's is not there any more; `None` for ids that were never this owner's.
    pub fn reason(&self, id: &str, owner: &OwnerId) -> Option<ApiRejection> {
        if let Some(deletion) = self.deletion(id, owner) {
            return Some(deletion);
        }
        let ended = self.found.get(id).filter(|ended| ended.owner == *owner)?;
        let kind = if ended.is_session { "session" } else { "context" };
        let when = match ended.ended_at_ms {
            Some(at) => format!("with the server at {}", instant(at)),
            None => format!("with a server that was killed before {}", instant(self.started_at_ms)),
        };
        let files = match (&ended.workspace, &ended.sandbox) {
            (Some(workspace), _) => format!("the files of its workspace `{workspace}`"),
            (_, Some(sandbox)) => format!("the files of its sandbox `{sandbox}`"),
            _ => "no files (it had a workspace of its own)".to_owned(),
        };
        let message =
            format!("the {kind} `{id}` ended {when}; what remains are the records of its runs and {files}");
        Some(
            ApiRejection::new(Code::ContextEnded, message)
                .with("ended_at_ms", ended.ended_at_ms.map_or(Value::Null, Value::from))
                .with("workspace", ended.workspace.clone().map_or(Value::Null, Value::from)),
        )
    }
}

fn read(path: &Path) -> Option<EndedContext> {
    fs::symlink_metadata(path).ok().filter(|data| data.is_file() && data.len() <= MAX_FILE_BYTES)?;
    let record: Value = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    Some(EndedContext {
        owner: OwnerId::recorded(record["owner"].as_str()?),
        is_session: record["is_session"].as_bool()?,
        workspace: record["workspace"].as_str().map(ToOwned::to_owned),
        sandbox: record["sandbox"].as_str().map(ToOwned::to_owned),
        ended_at_ms: record["ended_at_ms"].as_u64(),
    })
}
