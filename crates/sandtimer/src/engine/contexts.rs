//! Contexts: live interpreters, each in a jail that serves many runs, one after the other.
//!
//! ```text
//! caller ── waits for its turn ─▶ readies the interpreter ─▶ a cell is a run in the live jail ─▶ Outcome
//!                                    (checkpoint, see docs/design/contexts.md)      kept · rolled back · reset
//! ```
//! The context owns the jail between runs; during a run it shares the jail with the enforcer, which
//! ends every run that it has inspected; a run that was answered before that is ended by the thread
//! that took the answer. The thread that executes the cell drives the interpreter's channel; no
//! deadline depends on it.

mod branch;
mod cell;
mod channel;
mod context;
mod displays;
mod execution;
mod heard;
mod image_account;
mod images;
mod interpreter;
mod prewarm;
mod prewarm_script;
mod shell;
mod shell_handle;
mod spec;
mod turns;

use super::Engine;
use super::calls::Calls;
use super::error::Error;
use super::pre_warmer::Stats;
use super::sandboxes::{self, SandboxError};
use crate::zygote::{Language, Profile};
pub use branch::BranchSpec;
pub use cell::{CellEvent, CellSpec};
use context::begun;
pub use context::{Context, ContextInfo};
pub use execution::{Execution, ExecutionAttempt};
pub use image_account::ImageAccount;
use interpreter::LiveInterpreter;
pub use prewarm_script::ShellPrewarm;
pub use spec::ContextSpec;
pub use turns::ContextTurn;

/// A pool of warm interpreters, from which contexts are opened. When it is dropped, the warm
/// interpreters end; open contexts continue, but can no longer be branched.
#[derive(Debug)]
pub struct Contexts {
    calls: Calls,
}

impl Engine {
    /// A pool of `size` interpreters of this profile, being filled.
    ///
    /// # Errors
    /// As [`Engine::calls`]; JavaScript where this was built without the feature `javascript`.
    ///
    /// ```
    /// use sandtimer::{CellSpec, ContextSpec, Engine, Profile};
    ///
    /// let engine = Engine::new()?;
    /// let profile = Profile { interpreter: "python3".into(), ..Profile::default() };
    /// let contexts = engine.contexts(profile, 1)?;
    /// let context = contexts.open(ContextSpec::default(), &mut || false)?;
    /// let cell = |source: &str| CellSpec { source: source.to_owned(), ..CellSpec::default() };
    /// context.execute(cell("x = 40"), &mut |_| {})?;
    /// let outcome = context.execute(cell("x + 2"), &mut |_| {})?;
    /// assert_eq!(outcome.results[0]["text/plain"], "42");
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn contexts(&self, profile: Profile, size: usize) -> Result<Contexts, Error> {
        if cfg!(not(feature = "javascript")) && profile.language == Language::JavaScript {
            return Err(Error::Interpreter(
                "is not in this build (its feature `javascript` is off)".to_owned(),
            ));
        }
        Ok(Contexts { calls: self.calls(Profile { live: true, ..profile }, size)? })
    }

    /// Opens a session: a context whose interpreter is bash, and whose cells are commands.
    ///
    /// # Errors
    /// Only what stops Sandtimer before a session exists; see [`Error`].
    ///
    /// ```
    /// use sandtimer::{CellSpec, ContextSpec, Engine};
    ///
    /// let session = Engine::new()?.session(ContextSpec::default())?;
    /// let command = |line: &str| CellSpec { source: line.to_owned(), ..CellSpec::default() };
    /// session.execute(command("cd /usr; greeting=hello"), &mut |_| {})?;
    /// let outcome = session.execute(command("echo $greeting from $PWD"), &mut |_| {})?;
    /// assert_eq!(outcome.stdout, "hello from /usr\n");
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn session(&self, spec: ContextSpec) -> Result<Context, Error> {
        self.session_unless(spec, &|| false)
    }

    /// As [`Engine::session`], for a caller that may have left before the session's script has run.
    ///
    /// # Errors
    /// As [`Engine::session`].
    pub fn session_unless(
        &self,
        spec: ContextSpec,
        is_withdrawn: &dyn Fn() -> bool,
    ) -> Result<Context, Error> {
        let session = Context::new(self.inner.clone(), None, in_sandbox(spec, None)?, None);
        let standing = session.shell(is_withdrawn)?;
        session.note(&standing);
        *session.standing() = Some(standing);
        Ok(session)
    }
}

impl Contexts {
    /// Opens a context with a warm interpreter, or waits for the next one. `is_cancelled` is called
    /// now and then during the wait.
    ///
    /// # Errors
    /// Only what stops Sandtimer before a context exists; see [`Error`].
    pub fn open(&self, spec: ContextSpec, is_cancelled: &mut dyn FnMut() -> bool) -> Result<Context, Error> {
        let spec = in_sandbox(spec, Some(self.calls.shared().profile.language))?;
        let source = self.calls.shared().clone();
        let mut standing = LiveInterpreter::take(&source, &spec, is_cancelled)?;
        begun(&mut standing, &spec)?;
        let spec =
            ContextSpec { workspace: spec.workspace.or_else(|| standing.own_workspace.take()), ..spec };
        Ok(Context::new(source.inner.clone(), Some(source), spec, Some(standing)))
    }

    /// Waits until `count` interpreters are warm.
    ///
    /// # Errors
    /// As [`Calls::warm`].
    pub fn warm(&self, count: usize, is_cancelled: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        self.calls.warm(count, is_cancelled)
    }

    /// What the pool has done so far.
    pub fn stats(&self) -> Stats {
        self.calls.stats()
    }
}

/// The spec of a context in a sandbox with what the sandbox's user has by default; any other as it
/// is. `language`: of an interpreter.
fn in_sandbox(mut spec: ContextSpec, language: Option<Language>) -> Result<ContextSpec, Error> {
    let Some(sandbox) = &spec.sandbox else { return Ok(spec) };
    let conflict = |field, remedy| Err(SandboxError::Conflict { field, remedy }.into());
    if spec.workspace.is_some() || spec.temporary.is_some() {
        return conflict("workspace", "its files are the sandbox's");
    }
    if language == Some(Language::Python) && !sandbox.has_programs_of_host() {
        return conflict("language", "use a session, or a sandbox of the template `host`");
    }
    for (name, value) in sandboxes::user_variables() {
        spec.environment.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    }
    for (name, value) in sandbox.network_variables() {
        spec.environment.entry((*name).to_owned()).or_insert_with(|| (*value).to_owned());
    }
    spec.network |= sandbox.has_network_of_host();
    Ok(spec)
}
