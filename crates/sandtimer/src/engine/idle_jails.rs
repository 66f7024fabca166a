//! Sandboxes that a job has left as it found them, for the next one.
//!
//! ```text
//! sandbox built ─▶ child sealed ─▶ its one job ─▶ dead ─▶ init finds nothing of it ─▶ vacant ─▶ the next child sealed
//!                                                              └─ anything else: the sandbox dies too
//! ```
//! Walls cost more to build than what they surround. A process still has one job; it is the walls
//! that see several, of one pool, so of one caller and one profile, one after the other.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::process;

use super::error::Error;
use super::park::JailNamespaces;
use super::room;
use super::spawn::Jail;
use crate::isolate::plan::{Plan, StepName};
use crate::model::Tier;
use crate::supervise::run::ReusableJail;

/// What a sandbox shows of the host may be replaced there: it is not used for longer than this.
const MAX_AGE_NANOSECONDS: u64 = 10_000_000_000;
/// Memory that jobs may have left in its group, as pages of files that they read: the next job is
/// charged for it.
const MAX_LEFT_BYTES: u64 = 4 << 20;

/// How a zygote's child comes into a sandbox.
#[derive(Debug)]
pub(super) struct EntryHandles {
    pub namespaces: JailNamespaces,
    pub tasks: Vec<OwnedFd>,
    /// What the child carries out there, its length in bytes, and what its steps do.
    pub program: OwnedFd,
    pub program_length: u32,
    pub names: Vec<StepName>,
    built_at: u64,
    /// What its isolation was before a child added to it, and the memory of its group.
    tier: Tier,
    degraded: usize,
    memory: u64,
}

impl EntryHandles {
    /// Of a sandbox that has just been built.
    pub fn new(
        jail: &Jail,
        namespaces: JailNamespaces,
        tasks: Vec<OwnedFd>,
        sealing: Plan,
    ) -> Result<Self, Error> {
        let program = sealing.program.seal().map_err(Error::system("cannot write a child's program"))?;
        Ok(EntryHandles {
            namespaces,
            tasks,
            program,
            program_length: sealing.program.length(),
            names: sealing.names,
            built_at: monotonic_nanoseconds(),
            tier: jail.plan.tier,
            degraded: jail.plan.degraded.len(),
            memory: jail.slot.memory_now().unwrap_or(0),
        })
    }

    fn is_old(&self) -> bool {
        monotonic_nanoseconds().saturating_sub(self.built_at) > MAX_AGE_NANOSECONDS
    }
}

/// A sandbox with nothing in it but init.
#[derive(Debug)]
pub(super) struct IdleJail {
    pub jail: Jail,
    pub entry_handles: EntryHandles,
}

impl IdleJail {
    /// Whether a child may be put there: the jail is alive, and its counters are at zero.
    pub fn is_fit(&mut self) -> bool {
        let slot = &mut self.jail.slot;
        let little =
            slot.memory_now().unwrap_or(0) <= self.entry_handles.memory.saturating_add(MAX_LEFT_BYTES);
        !process::is_dead(self.jail.pidfd.as_fd()) && little && slot.reset()
    }
}

/// Those of one pool.
#[derive(Debug, Default)]
pub(super) struct IdleJails(Mutex<IdleJailList>);

#[derive(Debug, Default)]
struct IdleJailList {
    jails: Vec<IdleJail>,
    /// How many are held.
    max_jails: usize,
}

impl IdleJails {
    fn lock(&self) -> MutexGuard<'_, IdleJailList> {
        // Poisoning is harmless: every update is a single operation.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one that was left last, of those that are not too old.
    pub fn take(&self) -> Option<IdleJail> {
        let jails = &mut self.lock().jails;
        let index = jails.iter().rposition(|idle_jail| !idle_jail.entry_handles.is_old())?;
        Some(jails.remove(index))
    }

    /// Sets the maximum number of idle jails.
    pub fn hold(&self, most: usize) {
        self.lock().max_jails = most;
    }

    /// Takes the jails that are too old to be used.
    pub fn take_old(&self) -> Vec<IdleJail> {
        self.lock().jails.extract_if(.., |idle_jail| idle_jail.entry_handles.is_old()).collect()
    }

    /// Takes no more. Those there are.
    pub fn close(&self) -> Vec<IdleJail> {
        let mut list = self.lock();
        list.max_jails = 0;
        std::mem::take(&mut list.jails)
    }
}

/// A sandbox while its job is active; what it is to be if that leaves nothing.
#[derive(Debug)]
struct PooledJail {
    idle_jails: Arc<IdleJails>,
    idle_jail: IdleJail,
}

impl ReusableJail for PooledJail {
    fn return_to_pool(self: Box<Self>) -> bool {
        let mut list = self.idle_jails.lock();
        let wanted = list.jails.len() < list.max_jails;
        if wanted {
            list.jails.push(self.idle_jail);
        }
        wanted
    }
}

/// The idle jail that `jail` will be after its job. `None` if it is old, or there is no descriptor
/// left.
pub(super) fn reusable_jail(
    jail: &Jail,
    entry_handles: EntryHandles,
    idle_jails: Arc<IdleJails>,
) -> Option<Box<dyn ReusableJail>> {
    if entry_handles.is_old() || !room::has_room_for_idle_jail() {
        return None;
    }
    let mut jail = jail.again().ok()?;
    jail.plan.tier = entry_handles.tier;
    jail.plan.degraded.truncate(entry_handles.degraded);
    Some(Box::new(PooledJail { idle_jails, idle_jail: IdleJail { jail, entry_handles } }))
}
