//! The places of connections: few for those that have shown no token, the others shared out among
//! owners.
//!
//! ```text
//! stranger ─▶ an owner's, at its first request with a token ─▶ idle | busy (a request until its answer is sent, or no longer HTTP)
//! ```
//! A connection that is accepted has a place at once; where there are too many, another one is
//! closed. Of strangers that is the oldest of the address that has most: a client that sends its
//! token right after it has connected is none any more before as many others have come. Of owners'
//! connections only idle ones are closed, the one that is idle longest, of the owner that has most;
//! where none is idle, the request is refused.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::{Notify, watch};

use crate::auth::OwnerId;
use crate::error::{ApiRejection, Code};

/// Connections at a time of owners.
pub(crate) const MAX_CONNECTIONS: usize = 1024;
/// Connections at a time that have shown no token, or are another user's.
const MAX_STRANGERS: usize = 128;

/// All connections.
#[derive(Debug, Clone)]
pub(crate) struct Connections(Arc<ConnectionsInner>);

#[derive(Debug)]
struct ConnectionsInner {
    /// How many an owner may have.
    share: usize,
    slots: Mutex<ConnectionSlots>,
    /// How many are owners'.
    owned: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct ConnectionSlots {
    next: u64,
    /// By number: the order in which they were accepted.
    taken: HashMap<u64, ConnectionSlot>,
}

#[derive(Debug)]
struct ConnectionSlot {
    peer: Option<IpAddr>,
    owner: Option<OwnerId>,
    /// In what order they became idle; `None` while it is busy.
    idle: Option<u64>,
    close: Arc<Notify>,
}

/// A connection's place, for as long as it is open.
#[derive(Debug)]
pub(super) struct Seat {
    number: u64,
    close: Arc<Notify>,
    connections: Weak<ConnectionsInner>,
}

/// The place of a connection that is busy: with a request until its answer is sent, and with what
/// continues with it when it is HTTP no longer.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionPermit(Arc<BusySeat>);

#[derive(Debug)]
struct BusySeat(Arc<Seat>);

impl Connections {
    /// `share`: how many of the owners' connections one owner may have.
    pub fn new(share: usize) -> Self {
        Connections(Arc::new(ConnectionsInner {
            share,
            slots: Mutex::default(),
            owned: watch::Sender::new(0),
        }))
    }

    /// A place for one that was accepted.
    pub(super) fn accept(&self, peer: Option<IpAddr>) -> Arc<Seat> {
        let mut slots = self.0.lock_slots();
        if slots.taken.values().filter(|taken| taken.owner.is_none()).count() >= MAX_STRANGERS {
            slots.close_stranger();
        }
        let number = slots.number();
        let close = Arc::new(Notify::new());
        let idle = Some(number);
        slots.taken.insert(number, ConnectionSlot { peer, owner: None, idle, close: close.clone() });
        Arc::new(Seat { number, close, connections: Arc::downgrade(&self.0) })
    }

    /// Waits until none of an owner is open.
    pub async fn drained(&self) {
        // The sender is in self: the wait cannot fail.
        let _ = self.0.owned.subscribe().wait_for(|owned| *owned == 0).await;
    }

    /// Whether none of an owner is open.
    pub fn are_closed(&self) -> bool {
        *self.0.owned.borrow() == 0
    }
}

impl ConnectionsInner {
    fn lock_slots(&self) -> MutexGuard<'_, ConnectionSlots> {
        // Each change is one call on the map, or one assignment.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_owned(&self, slots: &ConnectionSlots) {
        let owned = slots.taken.values().filter(|taken| taken.owner.is_some()).count();
        self.owned.send_if_modified(|known| std::mem::replace(known, owned) != owned);
    }

    /// Has the connection belong to this owner.
    fn claim(&self, number: u64, owner: &OwnerId) -> Result<(), ApiRejection> {
        let mut slots = self.lock_slots();
        if slots.taken.get(&number).is_none_or(|taken| taken.owner.as_ref() == Some(owner)) {
            return Ok(());
        }
        let count = |slots: &ConnectionSlots, of: &dyn Fn(&OwnerId) -> bool| {
            slots.taken.values().filter(|taken| taken.owner.as_ref().is_some_and(of)).count()
        };
        if count(&slots, &|other| other == owner) >= self.share && !slots.close_idle(owner) {
            let message = format!(
                "the server has {MAX_CONNECTIONS} connections, of which one owner may have {}",
                self.share
            );
            return Err(ApiRejection::new(Code::Quota, message)
                .with("quota", "connections")
                .with("limit", self.share));
        }
        if count(&slots, &|_| true) >= MAX_CONNECTIONS && !slots.close_any_idle() {
            let message = format!("all {MAX_CONNECTIONS} connections of this server are taken");
            return Err(ApiRejection::new(Code::Capacity, message)
                .with("quota", "connections")
                .with("limit", MAX_CONNECTIONS));
        }
        if let Some(taken) = slots.taken.get_mut(&number) {
            taken.owner = Some(owner.clone());
        }
        self.count_owned(&slots);
        Ok(())
    }
}

impl ConnectionSlots {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Closes the oldest stranger of the address that has most.
    fn close_stranger(&mut self) {
        let mut by_peer: HashMap<Option<IpAddr>, (usize, u64)> = HashMap::new();
        for (number, taken) in self.taken.iter().filter(|(_, taken)| taken.owner.is_none()) {
            let (count, oldest) = by_peer.entry(taken.peer).or_insert((0, *number));
            (*count, *oldest) = (*count + 1, (*oldest).min(*number));
        }
        if let Some((_, oldest)) =
            by_peer.into_values().max_by_key(|(count, oldest)| (*count, u64::MAX - oldest))
        {
            self.close(oldest);
        }
    }

    /// Closes the connection of an owner that is idle longest, and has its place free at once;
    /// whether there is one.
    fn close_idle(&mut self, owner: &OwnerId) -> bool {
        let of_owner = self.taken.iter().filter(|(_, taken)| taken.owner.as_ref() == Some(owner));
        let idle = of_owner.filter_map(|(number, taken)| Some((taken.idle?, *number)));
        let Some((_, number)) = idle.min() else { return false };
        self.close(number);
        true
    }

    /// The same of the owner that has most, of those with an idle one.
    fn close_any_idle(&mut self) -> bool {
        let mut owners: HashMap<&OwnerId, (usize, bool)> = HashMap::new();
        for taken in self.taken.values() {
            if let Some(owner) = &taken.owner {
                let (count, has_idle) = owners.entry(owner).or_default();
                (*count, *has_idle) = (*count + 1, *has_idle || taken.idle.is_some());
            }
        }
        let owner =
            owners.into_iter().filter(|(_, (_, has_idle))| *has_idle).max_by_key(|(_, (count, _))| *count);
        owner.map(|(owner, _)| owner.clone()).is_some_and(|owner| self.close_idle(&owner))
    }

    fn close(&mut self, number: u64) {
        if let Some(taken) = self.taken.remove(&number) {
            taken.close.notify_one();
        }
    }
}

impl Seat {
    fn set_idle(&self, is_idle: bool) {
        let Some(connections) = self.connections.upgrade() else { return };
        let mut slots = connections.lock_slots();
        let since = slots.number();
        if let Some(taken) = slots.taken.get_mut(&self.number) {
            taken.idle = is_idle.then_some(since);
        }
    }

    /// Waits until others need its place.
    pub async fn closed(&self) {
        self.close.notified().await;
    }

    /// Whether it has shown no token so far.
    pub fn is_stranger(&self) -> bool {
        let Some(connections) = self.connections.upgrade() else { return true };
        let slots = connections.lock_slots();
        slots.taken.get(&self.number).is_none_or(|taken| taken.owner.is_none())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some(connections) = self.connections.upgrade() else { return };
        let mut slots = connections.lock_slots();
        slots.taken.remove(&self.number);
        connections.count_owned(&slots);
    }
}

impl ConnectionPermit {
    /// A request has come.
    pub(super) fn of(seat: &Arc<Seat>) -> Self {
        seat.set_idle(false);
        ConnectionPermit(Arc::new(BusySeat(seat.clone())))
    }

    /// Has the connection belong to the owner of a request.
    ///
    /// # Errors
    /// When the owner has its share, or all are taken, and none of them is idle.
    pub fn claim(&self, owner: &OwnerId) -> Result<(), ApiRejection> {
        let Seat { number, connections, .. } = &*self.0.0;
        connections.upgrade().map_or(Ok(()), |connections| connections.claim(*number, owner))
    }
}

impl Drop for BusySeat {
    fn drop(&mut self) {
        self.0.set_idle(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> OwnerId {
        OwnerId::recorded(name)
    }

    fn busy(connections: &Connections, name: &str) -> Result<ConnectionPermit, Code> {
        let connection_permit = ConnectionPermit::of(&connections.accept(None));
        connection_permit.claim(&owner(name)).map(|()| connection_permit).map_err(|rejection| rejection.code)
    }

    fn is_open(connections: &Connections, seat: &Seat) -> bool {
        connections.0.lock_slots().taken.contains_key(&seat.number)
    }

    #[test]
    fn owner_never_exceeds_its_share() {
        let connections = Connections::new(MAX_CONNECTIONS / 2);
        let of_a: Vec<ConnectionPermit> =
            (0..MAX_CONNECTIONS / 2).map(|_| busy(&connections, "a").expect("its share")).collect();
        assert_eq!(busy(&connections, "a").err(), Some(Code::Quota));
        let of_b: Vec<ConnectionPermit> =
            (0..MAX_CONNECTIONS / 2).map(|_| busy(&connections, "b").expect("the others")).collect();
        assert_eq!(busy(&connections, "c").err(), Some(Code::Capacity));
        drop(of_a);
        assert!(busy(&connections, "c").is_ok() && !connections.are_closed());
        drop(of_b);
        assert!(connections.are_closed());
    }

    #[test]
    fn idle_connections_make_room() {
        let connections = Connections::new(MAX_CONNECTIONS / 2);
        let idle = |_| {
            let seat = connections.accept(None);
            ConnectionPermit::of(&seat).claim(&owner("a")).expect("its share");
            seat
        };
        let seats: Vec<_> = (0..MAX_CONNECTIONS / 2).map(idle).collect();
        let first = busy(&connections, "a").expect("in place of the one that is idle longest");
        assert!(!is_open(&connections, &seats[0]) && is_open(&connections, &seats[1]));
        let of_b: Vec<ConnectionPermit> =
            (0..MAX_CONNECTIONS / 2).map(|_| busy(&connections, "b").expect("the others")).collect();
        let of_c = busy(&connections, "c").expect("in place of an idle one of another owner");
        assert!(!is_open(&connections, &seats[1]));
        drop((first, of_b, of_c));
    }

    #[test]
    fn address_with_the_largest_count_of_strangers_yields() {
        let connections = Connections::new(MAX_CONNECTIONS / 2);
        let address = |last: u8| Some(IpAddr::from([10, 0, 0, last]));
        let alone = connections.accept(address(1));
        let many: Vec<_> = (0..2 * MAX_STRANGERS).map(|_| connections.accept(address(2))).collect();
        assert!(is_open(&connections, &alone) && !is_open(&connections, &many[0]));
        assert!(is_open(&connections, &many[2 * MAX_STRANGERS - 1]));
        assert_eq!(connections.0.lock_slots().taken.len(), MAX_STRANGERS);
        ConnectionPermit::of(&alone).claim(&owner("a")).expect("a place of an owner's");
        assert!(!alone.is_stranger() && many[0].is_stranger());
    }
}
