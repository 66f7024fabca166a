//! A run before anything of it exists: its spec is checked, its scope open, its limits known.
//!
//! The code that opens one either begins a run in it or closes it. A spec that is refused here has
//! cost no process.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use sandtimer_os::clock::monotonic_nanoseconds;

use super::error::{Error, WORKSPACES};
use super::inner::Inner;
use super::sandboxes::{Sandbox, SandboxError, conflicts};
use super::spec::Spec;
use crate::limits::{
    EffectiveLimits, Key, Limits, check_at_least, check_least, nanoseconds, nest, precedence,
};
use crate::model::{Layer, LimitKind, MAX_ARGUMENT_BYTES, Source, argument_name, variable_name};
use crate::scope::{Opening, ScopeId, ScopeTree};
use crate::time::{DeadlineCell, Moment};

/// Bytes that are kept of each captured stream if no scope limits them.
const DEFAULT_OUTPUT: u64 = 10 << 20;
/// What is needed of the disk where the sandbox has a workspace of its own: room to make it in.
pub(super) const MIN_DISK_BYTES: u64 = 64 << 10;

/// Checks a spec and opens its scope.
pub(super) fn open(inner: &Inner, spec: &Spec) -> Result<OpenedRun, Error> {
    open_as(inner, spec, new_run_id())
}

/// The same for a run that was named before.
pub(super) fn open_as(inner: &Inner, spec: &Spec, id: String) -> Result<OpenedRun, Error> {
    let submitted_at = monotonic_nanoseconds();
    if inner.enforcer.has_ended() {
        let source = std::io::ErrorKind::BrokenPipe.into();
        return Err(Error::System { doing: "the engine's enforcer has failed", source });
    }
    validate(spec)?;
    if spec.sandbox.is_some() {
        conflicts::check(spec)?;
    }
    open_scope(inner, spec, id, submitted_at)
}

/// Closes the scope of a run that was not started.
pub(super) fn close(inner: &Inner, scope: ScopeId) {
    inner.scopes.lock().unwrap_or_else(PoisonError::into_inner).close(scope);
}

/// A run's scope, open, and the limits that apply in it.
pub(super) struct OpenedRun {
    pub id: String,
    pub scope: ScopeId,
    pub effective: EffectiveLimits,
    pub submitted_at: u64,
    pub(super) cell: Arc<DeadlineCell>,
    /// The own wall under its ceiling.
    pub wall: Option<u64>,
    /// The chosen grace under its ceiling, before the limits around the run.
    pub(super) requested_grace: Duration,
    /// The limit of the outer scope that bounds the wall, where one does, in nanoseconds from that
    /// scope's start.
    pub outer_wall: Option<u64>,
    pub(super) scope_path: String,
}

impl OpenedRun {
    /// When outer scopes end everything in them, in monotonic nanoseconds.
    pub(super) fn bound(&self) -> Option<u64> {
        self.cell.hard_end().map(Moment::as_nanos)
    }
}

/// An id for a run: 12 hexadecimal digits, by chance.
pub fn new_run_id() -> String {
    let mut bytes = [0u8; 6];
    // The kernel's generator does not fail for so few bytes once the machine is up; zeros would
    // still be an id.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn validate(spec: &Spec) -> Result<(), Error> {
    if spec.command.is_empty() {
        return Err(Error::NoCommand);
    }
    let nul = |what, value: &OsStr| match value.as_bytes().contains(&0) {
        true => Err(Error::Nul { what, value: value.to_string_lossy().replace('\0', "\\0") }),
        false => Ok(()),
    };
    let fits = |bytes: usize, what: &dyn Fn() -> String| match bytes > MAX_ARGUMENT_BYTES {
        true => Err(Error::ArgumentTooLong { what: what(), bytes }),
        false => Ok(()),
    };
    for (index, argument) in spec.command.iter().enumerate() {
        nul("argument", argument)?;
        fits(argument.len(), &|| argument_name(index, &spec.command[0].to_string_lossy()))?;
    }
    for (name, value) in &spec.environment {
        nul("variable", name)?;
        nul("variable", value)?;
        fits(name.len() + 1 + value.len(), &|| variable_name(&name.to_string_lossy()))?;
    }
    if spec.stall_by_progress && !spec.is_followed() {
        return Err(Error::NothingToFollow);
    }
    if let Some(signal) = spec.warn_signal {
        check_notice(spec, signal)?;
    }
    if spec.workspaces.len() > WORKSPACES {
        return Err(Error::Workspaces(spec.workspaces.len()));
    }
    let own = spec.workspace.iter().chain(&spec.temporary);
    for directory in spec.workspaces.iter().chain(&spec.working_directory).chain(own) {
        nul("path", directory.as_os_str())?;
    }
    Ok(())
}

/// A signal for a notice is one that a process can have a handler for.
fn check_notice(spec: &Spec, signal: i32) -> Result<(), Error> {
    const KILL: i32 = 9;
    const STOP: i32 = 19;
    if !(1..32).contains(&signal) || [KILL, STOP].contains(&signal) {
        return Err(Error::NoticeSignal(signal));
    }
    if spec.warn.is_none() { Err(Error::NoticeTime) } else { Ok(()) }
}

/// The scope that a run is opened in: of the sandbox's and its parent the inner one, by which both
/// bound the run.
fn parent_of(scopes: &ScopeTree, spec: &Spec) -> Result<Option<ScopeId>, Error> {
    let sandbox = spec.sandbox.as_ref().map(Sandbox::scope);
    match (sandbox, spec.parent) {
        (Some(sandbox), Some(parent)) if scopes.is_within(sandbox, parent) => Ok(Some(sandbox)),
        (Some(sandbox), Some(parent)) if !scopes.is_within(parent, sandbox) => {
            let remedy =
                "the two scopes bound it independently; open the parent's scope inside the sandbox's";
            Err(SandboxError::Conflict { field: "parent", remedy }.into())
        }
        (sandbox, parent) => Ok(parent.or(sandbox)),
    }
}

fn open_scope(inner: &Inner, spec: &Spec, id: String, submitted_at: u64) -> Result<OpenedRun, Error> {
    let builtin = Limits::new().output(DEFAULT_OUTPUT);
    let mut layers: Vec<(Source, &Limits)> = vec![(Source::Call, &spec.limits)];
    layers.extend(spec.defaults.iter().map(|(source, limits)| (*source, limits)));
    layers.push((Source::Builtin, &builtin));
    let own = precedence(&layers);
    let now = Moment::from_nanos(submitted_at);
    let mut scopes = inner.scopes.lock().unwrap_or_else(PoisonError::into_inner);
    let parent = parent_of(&scopes, spec)?;
    let opening = Opening {
        parent,
        layer: spec.layer.unwrap_or(Layer::Run),
        name: format!("run-{id}"),
        own: own.clone(),
        warn: spec.warn,
    };
    let ceilings = scopes.ceilings(parent)?.clone();
    let ceiling = ceilings.get(Key::Grace).unwrap_or(u64::MAX);
    let requested_grace = Duration::from_nanos(own.limit(Key::Grace).unwrap_or(0).min(ceiling));
    let scope = scopes.open(opening, now)?;
    let effective = scopes.effective(scope, now)?;
    let disk = if spec.private_workspace { MIN_DISK_BYTES } else { 0 };
    check_least(&effective)
        .and_then(|()| check_at_least(&effective, Key::Kind(LimitKind::Disk), disk))
        .inspect_err(|_| scopes.close(scope))?;
    let deadline = scopes.deadline(scope)?;
    let outer = deadline.filter(|deadline| deadline.effect.source == Source::Ancestor);
    let outer_wall = outer.map(|deadline| nanoseconds(deadline.limit));
    // The own wall begins when the command does; until then only what bounds it from outside
    // counts.
    let cell = scopes.cell(scope)?;
    let _ = cell.set(None);
    let position = scopes.location(scope)?.clone();
    let alone = nest(&position, &own, &[], &ceilings);
    let wall = alone.get(LimitKind::Wall).map(|effect| effect.value);
    Ok(OpenedRun {
        id,
        scope,
        effective,
        submitted_at,
        cell,
        wall,
        requested_grace,
        outer_wall,
        scope_path: position.scope,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argument_longer_than_the_kernel_takes_is_named() {
        let fits = "x".repeat(MAX_ARGUMENT_BYTES);
        validate(&Spec::command(["bash", "-c", &fits])).expect("what the kernel takes is taken");
        let error =
            validate(&Spec::command(["bash", "-c", &format!("{fits}x")])).expect_err("refused").to_string();
        assert!(error.starts_with("argument 2 of `bash` has 131072 bytes"), "{error}");
        assert!(error.contains("write it to a file") && error.contains("`bash -s`"), "{error}");
        let error = validate(&Spec::command(["true"]).env("NAME", &fits)).expect_err("refused").to_string();
        assert!(error.starts_with("the variable `NAME` has 131076 bytes"), "{error}");
    }
}
