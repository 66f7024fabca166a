//! One program from its source to the end of its run.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sandtimer::limits::Setting;
use sandtimer::model::{InterpretedCommand, LimitKind};

use super::compile_cache::{self, CompiledProgram};
use super::ending::{StageEnd, StageReport};
use super::language::{BASH, COMPILED_FILE, JAVASCRIPT, PYTHON, TYPESCRIPT};
use super::service::{
    ProgramService, WaitLimit, enter, enter_queued, report, take_quota_permit, version, wait_ended, write,
};
use super::spec::{Directory, ProgramFile, ProgramResult, ProgramSpec};
use crate::auth::OwnerId;
use crate::connection::unless_dropped;
use crate::error::{ApiRejection, Code};
use crate::files::{FilePath, act};
use crate::quota::{Permit, QuotaPermit};
use crate::runs::{CLIENT_GONE, LiveRun, ProgramRun, RunRequest, drive, interpreted};
use crate::workspaces::ScratchWorkspace;

/// Bytes of each stream of a compiler that are kept.
const MAX_COMPILER_OUTPUT: u64 = 64 << 10;
/// The largest program that a compiler may leave.
const MAX_COMPILED: u64 = 32 << 20;
/// Sets the size of the stack as far as it may be, and becomes the command after it.
const STACK_COMMAND: &str = "ulimit -s \"$1\" 2>/dev/null; shift; exec \"$@\"";

/// Executes a program. Dropped, it cancels what runs.
///
/// # Errors
/// When a run of it cannot be started, or its files cannot be written.
pub(crate) async fn execute(
    service: &ProgramService,
    owner: &OwnerId,
    program: ProgramSpec,
) -> Result<ProgramResult, ApiRejection> {
    ProgramExecution::new(service, owner, program, WaitLimit::OfClient)?.execute().await
}

/// Executes a program that no client waits for, however long it waits for its turn; `note` is
/// called when that has come.
///
/// # Errors
/// As [`execute`].
pub(crate) async fn execute_queued(
    service: &ProgramService,
    owner: &OwnerId,
    program: ProgramSpec,
    note: &(dyn Fn() + Sync),
) -> Result<ProgramResult, ApiRejection> {
    ProgramExecution::new(service, owner, program, WaitLimit::Unlimited(note))?.execute().await
}

/// A program that is being executed.
struct ProgramExecution<'a> {
    service: &'a ProgramService,
    owner: &'a OwnerId,
    program: ProgramSpec,
    wait_limit: WaitLimit<'a>,
    /// Under the owner's quota, for all its runs.
    quota_permit: Option<QuotaPermit>,
    /// `None` before it has come, and once the program has shown that it only waits.
    turn: Option<Permit>,
    /// The turn has not come in time: it is executed without one.
    has_missed_turn: bool,
}

impl<'a> ProgramExecution<'a> {
    fn new(
        service: &'a ProgramService,
        owner: &'a OwnerId,
        program: ProgramSpec,
        wait_limit: WaitLimit<'a>,
    ) -> Result<Self, ApiRejection> {
        if program.network {
            service.runs.core.tenants.check_network(owner, "programs")?;
        }
        Ok(ProgramExecution {
            service,
            owner,
            program,
            wait_limit,
            quota_permit: None,
            turn: None,
            has_missed_turn: false,
        })
    }

    async fn execute(mut self) -> Result<ProgramResult, ApiRejection> {
        let language = self.program.language;
        if !language.is_compiled() {
            self.prepare().await?;
        }
        if language.is_compiled() {
            let compiled = self.compile().await?;
            if !compiled.report.is_success() {
                return Ok(ProgramResult { compile: Some(compiled.report), run: None, workspace: None });
            }
            let program = ProgramFile { path: COMPILED_FILE.to_owned(), content: compiled.program.into() };
            let executed = self.run_in_directory(Some(program)).await?;
            return Ok(ProgramResult { compile: Some(compiled.report), ..executed });
        }
        if language == &TYPESCRIPT && self.program.text().is_some() {
            return self.execute_typescript().await;
        }
        if !self.program.can_run_inline() || ![&PYTHON, &JAVASCRIPT, &BASH].contains(&language) {
            return self.run_in_directory(None).await;
        }
        let text = self.program.text().unwrap_or_default().to_owned();
        let code = interpreted(language.name, &text)?;
        // A warm interpreter has no arguments, and streams of its own.
        let is_plain = self.program.arguments.is_empty() && !self.program.joins_streams;
        let python = Some(text).filter(|_| language == &PYTHON && is_plain);
        self.run_inline(code, python).await
    }

    /// Runs a program that its interpreter is given without a file.
    async fn run_inline(
        &mut self,
        code: InterpretedCommand,
        python: Option<String>,
    ) -> Result<ProgramResult, ApiRejection> {
        let mut request = ProgramRun { python, ..self.request(code) };
        request.code.command.append(&mut self.program.arguments);
        if let Directory::Named(workspace) = &self.program.directory {
            write(workspace, self.files()).await?;
            request.workspace = Some(workspace.id_str().to_owned());
        }
        let run = self.run(request).await?;
        Ok(ProgramResult { compile: None, run: Some(run), workspace: None })
    }

    /// The run of the program itself.
    fn request(&mut self, code: InterpretedCommand) -> ProgramRun {
        let ProgramSpec { stdin, network, run, .. } = &mut self.program;
        ProgramRun {
            code,
            python: None,
            stdin: stdin.take(),
            network: *network,
            limits: run.limits.clone(),
            builtin: run.defaults.clone(),
            end_on_output_limit: run.ends_at_output_limit,
            scratch: None,
            workspace: None,
            workspace_link: self.program.directory_link.map(PathBuf::from),
            joins_streams: self.program.joins_streams,
            quota_permit: None,
            parent: self.program.scope,
        }
    }

    /// TypeScript becomes JavaScript, which is its compiling.
    async fn execute_typescript(mut self) -> Result<ProgramResult, ApiRejection> {
        let text = self.program.text().unwrap_or_default().to_owned();
        let within = match self.program.compile.limits.get(LimitKind::Wall) {
            Setting::At(nanoseconds) => Some(Duration::from_nanos(nanoseconds)),
            _ => None,
        };
        let (engine, scope) = (
            self.service.runs.core.engine.clone(),
            self.program.scope.or_else(|| self.service.runs.core.tenants.scope(self.owner)),
        );
        let read = tokio::task::spawn_blocking(move || engine.typescript(&text, within, scope)).await;
        let read =
            match read.map_err(|_| ApiRejection::new(Code::Internal, "the program could not be read"))? {
                Err(sandtimer::Error::Script(error)) => {
                    let file = self.program.file();
                    let message = format!("{file}:{}:{}: {}", error.line, error.column, error.message);
                    let report = StageReport::unreadable(&message);
                    return Ok(ProgramResult { compile: Some(report), run: None, workspace: None });
                }
                read => read?,
            };
        if self.program.can_run_inline() {
            return self.run_inline(read.interpreted(), None).await;
        }
        self.finish_in_directory(read.file_command(self.program.file()), None).await
    }

    /// Runs the program in a directory with its files.
    async fn run_in_directory(
        &mut self,
        compiled: Option<ProgramFile>,
    ) -> Result<ProgramResult, ApiRejection> {
        let command = self.program.language.command(self.program.file());
        self.finish_in_directory(InterpretedCommand::command(command), compiled).await
    }

    async fn finish_in_directory(
        &mut self,
        InterpretedCommand { mut command, program }: InterpretedCommand,
        compiled: Option<ProgramFile>,
    ) -> Result<ProgramResult, ApiRejection> {
        command.append(&mut self.program.arguments);
        if let Some(stack) = self.program.stack_kibibytes {
            let shell = ["sh", "-c", STACK_COMMAND, "sh", &stack.to_string()].map(str::to_owned);
            command = shell.into_iter().chain(command).collect();
        }
        let scratch = self.make_directory(compiled).await?;
        let mut request = self.request(InterpretedCommand { command, program });
        request.scratch = scratch.clone();
        if let Directory::Named(workspace) = &self.program.directory {
            request.workspace = Some(workspace.id_str().to_owned());
        }
        let run = self.run(request).await?;
        let workspace = scratch.filter(|_| matches!(self.program.directory, Directory::Kept));
        Ok(ProgramResult { compile: None, run: Some(run), workspace })
    }

    /// The directory that the program runs in, with its files; `None` where that is a workspace
    /// with a name, which has them then.
    async fn make_directory(
        &self,
        compiled: Option<ProgramFile>,
    ) -> Result<Option<Arc<ScratchWorkspace>>, ApiRejection> {
        let mut written = self.files();
        written.push(match compiled {
            Some(compiled) => (compiled, 0o755),
            None => (self.source(), 0o644),
        });
        if let Directory::Named(workspace) = &self.program.directory {
            write(workspace, written).await?;
            return Ok(None);
        }
        let scratch = self.make_scratch().await?;
        write(scratch.files(), written).await?;
        Ok(Some(scratch))
    }

    /// The files that the program comes with, and their modes.
    fn files(&self) -> Vec<(ProgramFile, u32)> {
        self.program.files.iter().map(|file| (file.clone(), 0o644)).collect()
    }

    fn source(&self) -> ProgramFile {
        ProgramFile { path: self.program.file().to_owned(), content: self.program.source.clone() }
    }

    async fn make_scratch(&self) -> Result<Arc<ScratchWorkspace>, ApiRejection> {
        let (runs, owner) = (self.service.runs.clone(), self.owner.clone());
        let made = tokio::task::spawn_blocking(move || runs.workspaces.create_scratch(&owner)).await;
        made.map_err(|_| ApiRejection::new(Code::Internal, "the program's directory could not be made"))?
    }

    /// Waits for what the program needs before it may run: its place under the owner's quota, then
    /// its turn. Nothing is waited for while it has the turn.
    async fn prepare(&mut self) -> Result<(), ApiRejection> {
        if self.quota_permit.is_none() {
            self.quota_permit = Some(take_quota_permit(self.service, self.owner, self.wait_limit).await?);
        }
        match self.wait_limit {
            _ if self.turn.is_some() || self.has_missed_turn => {}
            WaitLimit::OfClient => {
                self.turn = enter(self.owner).await;
                self.has_missed_turn = self.turn.is_none();
            }
            WaitLimit::Unlimited(note) => {
                self.turn = Some(enter_queued(self.owner).await);
                note();
            }
        }
        Ok(())
    }

    /// Starts a run and waits for its end.
    async fn run(&mut self, mut request: ProgramRun) -> Result<Arc<LiveRun>, ApiRejection> {
        self.prepare().await?;
        request.quota_permit = self.quota_permit.clone();
        let run = drive::start_here(&self.service.runs, self.owner, RunRequest::program(request)?).await?;
        unless_dropped(wait_ended(&run, &mut self.turn), || run.cancel(CLIENT_GONE)).await;
        Ok(run)
    }

    /// Compiles the program, or finds it compiled.
    async fn compile(&mut self) -> Result<CompiledProgram, ApiRejection> {
        let version = version(self.service, self.program.language).await.unwrap_or_default();
        let cache = &self.service.cache;
        let key = compile_cache::key(self.owner, &version, &self.program);
        // Under other limits it may end in another way.
        let gate = cache.gate(&format!("{key} {:?}", self.program.compile));
        let since = gate.results();
        loop {
            let mut latest = gate.enter().await;
            if let Some(found) = gate.result_since(since, &latest) {
                return Ok(found);
            }
            if !cache.has(&key) {
                self.prepare().await?;
                let compiled = self.run_compiler().await?;
                if !self.store(&key, &compiled) {
                    gate.publish(&mut latest, &compiled);
                }
                return Ok(compiled);
            }
            // The others need not wait while this one waits for its turn.
            drop(latest);
            self.prepare().await?;
            if let Some(found) = tokio::task::block_in_place(|| cache.load(&key)) {
                return Ok(found);
            }
            // It was removed in the meantime. The gate is not waited for with a turn.
            (self.quota_permit, self.turn) = (None, None);
        }
    }

    /// Stores what would be compiled to the same again; returns whether it is stored.
    fn store(&self, key: &str, compiled: &CompiledProgram) -> bool {
        if !compiled.report.is_repeatable() {
            return false;
        }
        let stored = tokio::task::block_in_place(|| self.service.cache.store(key, compiled));
        stored.unwrap_or_else(|error| {
            (self.service.runs.core.host.log_error)(&format!("a compiled program is not cached: {error}"));
            false
        })
    }

    /// Runs the compiler in a directory of its own.
    async fn run_compiler(&mut self) -> Result<CompiledProgram, ApiRejection> {
        let scratch = self.make_scratch().await?;
        let mut written = self.files();
        written.push((self.source(), 0o644));
        write(scratch.files(), written).await?;
        let script = self.program.language.compile.unwrap_or_default();
        let options = self.program.compiler_options.iter().cloned();
        let command = ["sh", "-c", script, "sh"].map(str::to_owned).into_iter();
        let command = command.chain(options).chain(sources(&self.program)).collect();
        let mut limits = self.program.compile.limits.clone();
        limits.set(LimitKind::Output, Setting::At(MAX_COMPILER_OUTPUT));
        let request = ProgramRun {
            code: InterpretedCommand::command(command),
            python: None,
            stdin: None,
            network: false,
            limits,
            builtin: self.program.compile.defaults.clone(),
            end_on_output_limit: false,
            scratch: Some(scratch.clone()),
            workspace: None,
            workspace_link: None,
            joins_streams: false,
            quota_permit: None,
            parent: self.program.scope,
        };
        let run = self.run(request).await?;
        let mut report = StageReport::clone(&*report(&run).await?);
        let mut program = Vec::new();
        if report.is_success() {
            let compiled_path = FilePath::parse(COMPILED_FILE)?;
            match act(scratch.files(), move |tree| tree.read(&compiled_path, MAX_COMPILED)).await {
                Ok(bytes) => program = bytes,
                Err(rejection) => {
                    report.end = StageEnd::Exited(1);
                    report.is_limited = true;
                    let note = format!("the compiler left no program: {}\n", rejection.message);
                    report.stderr.extend(note.bytes());
                }
            }
        }
        Ok(CompiledProgram { report, program })
    }
}

/// The files that a compiler is given: the main one, and those of its language.
fn sources(program: &ProgramSpec) -> Vec<String> {
    let extensions = program.language.extensions;
    let is_source = |path: &&str| {
        let extension = path.rsplit_once('.').map(|(_, extension)| extension);
        extension.is_some_and(|extension| extensions.contains(&extension))
    };
    let others = program.files.iter().map(|file| file.path.as_str()).filter(is_source);
    // A name that begins with a dash would be taken for an option.
    let named = |path: &str| if path.starts_with('-') { format!("./{path}") } else { path.to_owned() };
    std::iter::once(program.file()).chain(others).map(named).collect()
}
