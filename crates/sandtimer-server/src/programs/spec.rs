//! What a program is, and what came of it.

use std::sync::Arc;

use axum::body::Bytes;
use sandtimer::Limits;
use sandtimer::scope::ScopeId;

use super::ending::StageReport;
use super::language::ProgramLanguage;
use crate::runs::LiveRun;
use crate::workspaces::{ScratchWorkspace, Workspace};

/// A file that a program comes with.
#[derive(Debug, Clone)]
pub(crate) struct ProgramFile {
    /// Relative to the directory that the program starts in.
    pub path: String,
    pub content: Bytes,
}

/// The limits of one stage: those of the request, and those of the front door where neither it nor
/// the operator chose.
#[derive(Debug, Clone, Default)]
pub(crate) struct StageLimits {
    pub limits: Limits,
    pub defaults: Limits,
    /// Ends it at its output limit.
    pub ends_at_output_limit: bool,
}

/// Where a program runs.
#[derive(Debug, Clone, Default)]
pub(crate) enum Directory {
    /// In a directory of its own, which has its files if there are any.
    #[default]
    Own,
    /// In a directory of its own that is read after its end.
    Kept,
    /// In this workspace.
    Named(Arc<Workspace>),
}

/// A program to execute.
#[derive(Debug, Clone)]
pub(crate) struct ProgramSpec {
    pub language: &'static ProgramLanguage,
    /// The file that the source is written to; that of the language if it has no name.
    pub file_name: Option<String>,
    pub source: Bytes,
    pub files: Vec<ProgramFile>,
    pub arguments: Vec<String>,
    pub compiler_options: Vec<String>,
    pub stdin: Option<Vec<u8>>,
    pub network: bool,
    pub directory: Directory,
    /// Where a link to its directory is.
    pub directory_link: Option<&'static str>,
    /// One stream, stdout, for all that it writes.
    pub joins_streams: bool,
    /// The size of its stack, if that is not the usual one.
    pub stack_kibibytes: Option<u64>,
    pub compile: StageLimits,
    pub run: StageLimits,
    /// The scope that its runs are in; that of the owner if there is none.
    pub scope: Option<ScopeId>,
}

impl ProgramSpec {
    pub fn new(language: &'static ProgramLanguage, source: impl Into<Bytes>) -> Self {
        ProgramSpec {
            language,
            file_name: None,
            source: source.into(),
            files: Vec::new(),
            arguments: Vec::new(),
            compiler_options: Vec::new(),
            stdin: None,
            network: false,
            directory: Directory::Own,
            directory_link: None,
            joins_streams: false,
            stack_kibibytes: None,
            compile: StageLimits::default(),
            run: StageLimits::default(),
            scope: None,
        }
    }

    pub(super) fn file(&self) -> &str {
        self.file_name.as_deref().unwrap_or(self.language.file)
    }

    /// Its source, if an interpreter may be given it without a file.
    pub(super) fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.source).ok().filter(|text| !text.contains('\0'))
    }

    /// Whether its interpreter may be given it without a file. A workspace with a name has only the
    /// files that belong there.
    pub(super) fn can_run_inline(&self) -> bool {
        let is_alone = self.files.is_empty() && self.arguments.is_empty();
        self.text().is_some()
            && match self.directory {
                Directory::Own => is_alone,
                Directory::Kept => false,
                Directory::Named(_) => true,
            }
    }
}

/// The runs of a program that has been executed.
#[derive(Debug)]
pub(crate) struct ProgramResult {
    /// `None` if nothing had to be compiled.
    pub compile: Option<StageReport>,
    /// The run of the program, which has ended; `None` if it did not compile.
    pub run: Option<Arc<LiveRun>>,
    /// Where it ran, if its directory is read after its end.
    pub workspace: Option<Arc<ScratchWorkspace>>,
}
