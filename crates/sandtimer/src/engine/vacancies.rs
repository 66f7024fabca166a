//! Sandboxes that a job has left as it found them, for the next one.
//!
//! ```text
//! sandbox built ─▶ child sealed ─▶ its one job ─▶ dead ─▶ init finds nothing of it ─▶ vacant ─▶ the next child sealed
//!                                                              └─ anything else: the sandbox dies too
//! ```
//! Walls cost more to build than what they surround. A process still has one job; it is the walls that see several, of one
//! pool, so of one caller and one profile, one after the other.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::process;

use super::error::Error;
use super::park::Namespaces;
use super::room;
use super::start::Sandbox;
use crate::isolate::plan::{Plan, StepName};
use crate::model::Tier;
use crate::supervise::run::Vacancy;

/// What a sandbox shows of the host may be replaced there: it is not used for longer than this.
const AGE: u64 = 10_000_000_000;
/// Memory that jobs may have left in its group, as pages of files that they read: it is on the next one's bill.
const MOST_LEFT: u64 = 4 << 20;

/// How a zygote's child comes into a sandbox.
#[derive(Debug)]
pub(super) struct Entrance {
    pub namespaces: Namespaces,
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

impl Entrance {
    /// Of a sandbox that has just been built.
    pub fn new(
        sandbox: &Sandbox,
        namespaces: Namespaces,
        tasks: Vec<OwnedFd>,
        sealing: Plan,
    ) -> Result<Self, Error> {
        let program = sealing.program.seal().map_err(Error::system("cannot write a child's program"))?;
        Ok(Entrance {
            namespaces,
            tasks,
            program,
            program_length: sealing.program.length(),
            names: sealing.names,
            built_at: monotonic_nanoseconds(),
            tier: sandbox.plan.tier,
            degraded: sandbox.plan.degraded.len(),
            memory: sandbox.slot.memory_now().unwrap_or(0),
        })
    }

    fn is_old(&self) -> bool {
        monotonic_nanoseconds().saturating_sub(self.built_at) > AGE
    }
}

/// A sandbox with nothing in it but init.
#[derive(Debug)]
pub(super) struct Vacant {
    pub sandbox: Sandbox,
    pub entrance: Entrance,
}

impl Vacant {
    /// Whether a child may be put there: it stands, and counts from nothing.
    pub fn is_fit(&mut self) -> bool {
        let slot = &mut self.sandbox.slot;
        let little = slot.memory_now().unwrap_or(0) <= self.entrance.memory.saturating_add(MOST_LEFT);
        !process::is_dead(self.sandbox.pidfd.as_fd()) && little && slot.start_anew()
    }
}

/// Those of one pool.
#[derive(Debug, Default)]
pub(super) struct Vacancies(Mutex<Stock>);

#[derive(Debug, Default)]
struct Stock {
    places: Vec<Vacant>,
    /// How many are held.
    most: usize,
}

impl Vacancies {
    fn lock(&self) -> MutexGuard<'_, Stock> {
        // A list and a word; whole whatever happened to the thread that held them.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one that was left last, of those that are not too old.
    pub fn take(&self) -> Option<Vacant> {
        let places = &mut self.lock().places;
        let index = places.iter().rposition(|place| !place.entrance.is_old())?;
        Some(places.remove(index))
    }

    /// Holds no more than so many.
    pub fn hold(&self, most: usize) {
        self.lock().most = most;
    }

    /// Those that are too old to be used.
    pub fn take_old(&self) -> Vec<Vacant> {
        self.lock().places.extract_if(.., |place| place.entrance.is_old()).collect()
    }

    /// Takes no more. Those there are.
    pub fn close(&self) -> Vec<Vacant> {
        let mut stock = self.lock();
        stock.most = 0;
        std::mem::take(&mut stock.places)
    }
}

/// A sandbox while its job goes on; what it is to be if that leaves nothing.
#[derive(Debug)]
struct Left {
    vacancies: Arc<Vacancies>,
    place: Vacant,
}

impl Vacancy for Left {
    fn offer(self: Box<Self>) -> bool {
        let mut stock = self.vacancies.lock();
        let wanted = stock.places.len() < stock.most;
        if wanted {
            stock.places.push(self.place);
        }
        wanted
    }
}

/// The vacancy that there will be in `sandbox`. None where it is old, or there is no descriptor left.
pub(super) fn after(
    sandbox: &Sandbox,
    entrance: Entrance,
    vacancies: Arc<Vacancies>,
) -> Option<Box<dyn Vacancy>> {
    if entrance.is_old() || !room::has_room_for_vacancy() {
        return None;
    }
    let mut sandbox = sandbox.again().ok()?;
    sandbox.plan.tier = entrance.tier;
    sandbox.plan.degraded.truncate(entrance.degraded);
    Some(Box::new(Left { vacancies, place: Vacant { sandbox, entrance } }))
}
