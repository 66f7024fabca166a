//! What is asked of contexts, checked before anything is done.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sandtimer::Limits;
use sandtimer::engine::BRANCHES;
use sandtimer::limits::{Key, Setting};
use sandtimer::model::{LimitKind, Source};
use sandtimer::scope::ScopeId;

use crate::body::{RequestFields, refused};
use crate::error::{ApiRejection, Code};
use crate::language::LANGUAGES;
use crate::policy::Defaults;
use crate::runs::{EncodingErrorMode, RunLocation, attached, environment, warn_signal};
use crate::workspaces::TemporaryDirectory;

/// Limits that hold for a context as a whole.
pub(crate) const PER_CONTEXT: [Key; 4] = [
    Key::Kind(LimitKind::Memory),
    Key::Kind(LimitKind::Processes),
    Key::Kind(LimitKind::Disk),
    Key::Kind(LimitKind::OpenFiles),
];
/// Limits of each run in it; a context may have them for all of its runs.
pub(crate) const PER_RUN: [Key; 6] = [
    Key::Kind(LimitKind::Wall),
    Key::Grace,
    Key::Kind(LimitKind::Cpu),
    Key::Kind(LimitKind::Stall),
    Key::Kind(LimitKind::Output),
    Key::Kind(LimitKind::Result),
];
/// How long a context may be unused by default.
const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(3600);
/// The longest source.
const MAX_SOURCE_BYTES: usize = 16 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContextLanguage {
    Python,
    JavaScript,
    TypeScript,
    Bash,
}

impl ContextLanguage {
    pub fn name(self) -> &'static str {
        match self {
            ContextLanguage::Python => "python",
            ContextLanguage::JavaScript => "javascript",
            ContextLanguage::TypeScript => "typescript",
            ContextLanguage::Bash => "bash",
        }
    }

    /// What holds for what is executed in it.
    pub fn defaults(self, defaults: &Defaults) -> &[(Source, Limits)] {
        match self {
            ContextLanguage::Python => &defaults.code,
            ContextLanguage::JavaScript | ContextLanguage::TypeScript => &defaults.javascript,
            ContextLanguage::Bash => &defaults.commands,
        }
    }
}

/// A context as it is asked for.
#[derive(Debug)]
pub(crate) struct ContextRequest {
    pub language: ContextLanguage,
    pub environment: HashMap<String, String>,
    pub directory: Option<String>,
    pub whole: Limits,
    /// The default limits of its runs.
    pub each: Limits,
    /// `None`: it is kept until it is deleted.
    pub idle: Option<Duration>,
    /// The id of what it works in, instead of a workspace of its own.
    pub workspace: Option<String>,
    /// The id of the sandbox that it is in, instead of a workspace.
    pub sandbox: Option<String>,
    /// What is its /tmp, instead of a private one.
    pub temporary: Option<Arc<TemporaryDirectory>>,
    /// Has the host's network.
    pub network: bool,
}

impl ContextRequest {
    /// A request that gives only the language.
    pub fn usual(language: ContextLanguage) -> Self {
        ContextRequest {
            language,
            environment: HashMap::new(),
            directory: None,
            whole: Limits::new(),
            each: Limits::new(),
            idle: Some(DEFAULT_IDLE_TIMEOUT),
            workspace: None,
            sandbox: None,
            temporary: None,
            network: false,
        }
    }

    /// Has it opened at a location.
    pub fn enter(&mut self, location: RunLocation) {
        match location {
            RunLocation::Sandbox(id) => self.sandbox = Some(id),
            RunLocation::Workspace(workspace, temporary) => {
                (self.workspace, self.temporary) = (Some(workspace), Some(temporary));
            }
        }
    }

    /// `language` is known for sessions.
    pub fn parse(mut fields: RequestFields, language: Option<ContextLanguage>) -> Result<Self, ApiRejection> {
        let language = match language {
            Some(language) => language,
            None => match fields.language("language", &LANGUAGES)? {
                Some("bash") => ContextLanguage::Bash,
                Some("javascript") => ContextLanguage::JavaScript,
                Some("typescript") => ContextLanguage::TypeScript,
                _ => ContextLanguage::Python,
            },
        };
        let idle = fields.limits(&[Key::Kind(LimitKind::Idle)])?;
        let request = ContextRequest {
            language,
            environment: environment(&mut fields)?.into_iter().collect(),
            directory: fields.string("cwd")?,
            whole: fields.limits(&PER_CONTEXT)?,
            each: fields.limits(&PER_RUN)?,
            idle: idle_of(&idle),
            workspace: fields.string("workspace")?,
            sandbox: fields.string("sandbox")?,
            temporary: None,
            network: fields.boolean("network")?.unwrap_or(false),
        };
        fields.finish()?;
        if let (Some(workspace), Some(_)) = (&request.workspace, &request.sandbox) {
            let wanted = "left out with `sandbox`, whose /workspace it is";
            return Err(refused("workspace", &workspace.as_str().into(), wanted));
        }
        let variables =
            || request.environment.iter().any(|(name, value)| name.contains('\0') || value.contains('\0'));
        let directory = || request.directory.as_ref().is_some_and(|directory| directory.contains('\0'));
        for (key, has_nul) in [("env", variables()), ("cwd", directory())] {
            if has_nul {
                return Err(
                    ApiRejection::new(Code::NulByte, format!("{key} has a NUL byte")).with("key", key)
                );
            }
        }
        Ok(request)
    }
}

/// Branches as they are asked for.
#[derive(Debug)]
pub(crate) struct BranchRequest {
    pub count: usize,
    /// The limits of each branch as a whole, and of its runs; where unset, the origin's apply.
    pub whole: Limits,
    pub each: Limits,
    pub idle: Limits,
}

impl BranchRequest {
    pub fn parse(mut fields: RequestFields) -> Result<Self, ApiRejection> {
        let count = fields.number("count")?.unwrap_or(1);
        let request = BranchRequest {
            count: usize::try_from(count).unwrap_or(usize::MAX),
            whole: fields.limits(&PER_CONTEXT)?,
            each: fields.limits(&PER_RUN)?,
            idle: fields.limits(&[Key::Kind(LimitKind::Idle)])?,
        };
        fields.finish()?;
        if !(1..=BRANCHES).contains(&request.count) {
            return Err(refused("count", &count.into(), &format!("a number from 1 to {BRANCHES}")));
        }
        Ok(request)
    }
}

pub(super) fn idle_of(limits: &Limits) -> Option<Duration> {
    match limits.get(LimitKind::Idle) {
        Setting::At(nanoseconds) => Some(Duration::from_nanos(nanoseconds)),
        Setting::Unlimited => None,
        Setting::Inherit => Some(DEFAULT_IDLE_TIMEOUT),
    }
}

/// Something to execute in a context.
#[derive(Debug)]
pub(crate) struct CellRequest {
    pub source: String,
    pub stdin: Option<Vec<u8>>,
    /// What is sent later follows `stdin`.
    pub stdin_open: bool,
    pub limits: Limits,
    pub warn: Option<Duration>,
    pub warn_signal: Option<i32>,
    pub end_on_output_limit: bool,
    /// What becomes of output that is not UTF-8 in the answer.
    pub errors: EncodingErrorMode,
    /// `None`: until it has ended.
    pub wait: Option<Duration>,
    /// For its turn, where that is longer than `wait`. `None`: as long as `wait`.
    pub turn: Option<Duration>,
    /// Cancelled once no client waits for it any more.
    pub attached: bool,
    pub detach: bool,
    /// What bounds it from further out, instead of what bounds the context.
    pub parent: Option<ScopeId>,
}

impl CellRequest {
    /// A source and its limits, waited for to its end.
    pub fn of(source: String, limits: Limits) -> Self {
        CellRequest {
            source,
            stdin: None,
            stdin_open: false,
            limits,
            warn: None,
            warn_signal: None,
            end_on_output_limit: false,
            errors: EncodingErrorMode::default(),
            wait: None,
            turn: None,
            attached: false,
            detach: false,
            parent: None,
        }
    }

    pub fn parse(mut fields: RequestFields, language: ContextLanguage) -> Result<Self, ApiRejection> {
        let name = if language == ContextLanguage::Bash { "command" } else { "code" };
        let source = match (fields.string("code")?, fields.string("command")?) {
            (Some(source), None) => source,
            (None, Some(source)) if language == ContextLanguage::Bash => source,
            _ => {
                return Err(ApiRejection::new(Code::BadField, format!("{name}: give it as a string"))
                    .with("key", name));
            }
        };
        if source.len() > MAX_SOURCE_BYTES {
            return Err(ApiRejection::new(
                Code::TooLong,
                format!("{name} has {} bytes; at most {MAX_SOURCE_BYTES} are taken", source.len()),
            )
            .with("key", name));
        }
        let (attached, detach) = attached(&mut fields)?;
        let request = CellRequest {
            source,
            stdin: fields.bytes("stdin", "stdin_encoding")?,
            stdin_open: fields.boolean("stdin_open")?.unwrap_or(false),
            limits: fields.limits(&PER_RUN)?,
            warn: fields.milliseconds("warn_ms")?,
            warn_signal: warn_signal(&mut fields)?,
            end_on_output_limit: fields.enumeration("on_output_limit", &["drop", "end"])? == Some("end"),
            errors: EncodingErrorMode::parse(&mut fields)?,
            wait: fields.milliseconds("wait_ms")?,
            turn: fields.milliseconds("turn_ms")?,
            attached,
            detach,
            parent: None,
        };
        fields.finish()?;
        if request.stdin_open && language == ContextLanguage::JavaScript {
            let message = "stdin_open: code in JavaScript is given all of its input with `stdin`";
            return Err(ApiRejection::new(Code::BadField, message).with("key", "stdin_open"));
        }
        Ok(request)
    }
}
