//! Memory for what clients send: the bytes of all messages that are received, parsed or handled at the moment, per owner and
//! in all, and the threads that parse long ones.
//!
//! A short message is not counted: connections bound those. Of a long one all bytes are reserved before they are read, so two
//! that wait for each other's half cannot be. The reservation is held until the handler has answered; what stays in memory for
//! longer, in the queue of a context or on its way to a run's stdin, has one of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::auth::Owner;
use crate::error::{Code, Refusal};

/// Longer messages are counted, and parsed on a thread that may block.
pub(crate) const MAX_SHORT_BYTES: usize = 64 << 10;
/// Bytes of the long messages of all owners.
const MAX_BYTES: usize = 1 << 30;
/// What is reserved is rounded up to these.
const UNIT_BYTES: usize = 1 << 10;
/// Long messages that are parsed at a time.
static PARSERS: Semaphore = Semaphore::const_new(2);

/// What the owners' messages may take, and take.
#[derive(Debug)]
pub(crate) struct Intake {
    all: Arc<Semaphore>,
    /// Half of all for each.
    owners: HashMap<Owner, Arc<Semaphore>>,
}

/// A part of it. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Reservation {
    _of_all: OwnedSemaphorePermit,
    _of_owner: OwnedSemaphorePermit,
}

impl Intake {
    pub fn of(owners: impl IntoIterator<Item = Owner>) -> Self {
        let places = |bytes: usize| Arc::new(Semaphore::new(bytes / UNIT_BYTES));
        let owners = owners.into_iter().map(|owner| (owner, places(MAX_BYTES / 2))).collect();
        Intake { all: places(MAX_BYTES), owners }
    }

    fn of_owner(&self, owner: &Owner) -> Result<Arc<Semaphore>, Refusal> {
        let found = self.owners.get(owner).cloned();
        found.ok_or_else(|| Refusal::new(Code::Internal, "the caller is not one of the server's owners"))
    }

    /// Reserves so many bytes for a message of this owner, once others have given them back.
    ///
    /// # Errors
    /// When they do not within `patience`.
    pub async fn reserve(
        &self,
        owner: &Owner,
        bytes: usize,
        patience: Duration,
    ) -> Result<Reservation, Refusal> {
        let of_owner = self.of_owner(owner)?;
        let units = units(bytes);
        // The semaphores are never closed.
        let waited = tokio::time::timeout(patience, of_owner.acquire_many_owned(units)).await;
        let Ok(Ok(of_owner)) = waited else { return Err(too_many_of_owner()) };
        let waited = tokio::time::timeout(patience, self.all.clone().acquire_many_owned(units)).await;
        let Ok(Ok(of_all)) = waited else { return Err(too_many()) };
        Ok(Reservation { _of_all: of_all, _of_owner: of_owner })
    }

    /// Reserves memory for something long that stays behind when its message is answered; `None` for what is short.
    ///
    /// # Errors
    /// When there is not so much.
    pub fn reserve_long(&self, owner: &Owner, bytes: usize) -> Result<Option<Reservation>, Refusal> {
        (bytes > MAX_SHORT_BYTES).then(|| self.try_reserve(owner, bytes)).transpose()
    }

    /// The same without waiting.
    ///
    /// # Errors
    /// When there are not so many.
    pub fn try_reserve(&self, owner: &Owner, bytes: usize) -> Result<Reservation, Refusal> {
        let units = units(bytes);
        let of_owner =
            self.of_owner(owner)?.try_acquire_many_owned(units).map_err(|_| too_many_of_owner())?;
        let of_all = self.all.clone().try_acquire_many_owned(units).map_err(|_| too_many())?;
        Ok(Reservation { _of_all: of_all, _of_owner: of_owner })
    }
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX)
}

fn too_many_of_owner() -> Refusal {
    let limit = MAX_BYTES / 2;
    let message = format!(
        "the requests that you have under way have {limit} bytes together; wait for one to be answered"
    );
    Refusal::new(Code::Quota, message).with("quota", "request_bytes").with("limit", limit)
}

fn too_many() -> Refusal {
    let message = format!("the requests that are under way have {MAX_BYTES} bytes together");
    Refusal::new(Code::Capacity, message).with("quota", "request_bytes").with("limit", MAX_BYTES)
}

/// What one request has reserved: with the request, and with the layer that drops it when the request is answered.
#[derive(Debug, Clone, Default)]
pub(crate) struct Held(Arc<Mutex<Vec<Reservation>>>);

impl Held {
    pub fn keep(&self, reservation: Reservation) {
        // Each change is one call on the list.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(reservation);
    }
}

/// Parses a message: where it is long, on a thread that may block, and a few at a time.
pub(crate) async fn parse<B, T>(bytes: B, parse: impl FnOnce(B) -> T + Send + 'static) -> Result<T, Refusal>
where
    B: AsRef<[u8]> + Send + 'static,
    T: Send + 'static,
{
    if bytes.as_ref().len() <= MAX_SHORT_BYTES {
        return Ok(parse(bytes));
    }
    // The semaphore is never closed.
    let turn = PARSERS.acquire().await;
    let parsed = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        parse(bytes)
    });
    parsed.await.map_err(|_| Refusal::new(Code::Internal, "the message could not be parsed"))
}

/// Polls a future that parses a long message until it first waits, as [`parse`] does.
pub(crate) async fn begin<F: Future + Unpin>(mut work: F, bytes: usize) -> F::Output {
    if bytes > MAX_SHORT_BYTES {
        let turn = PARSERS.acquire().await;
        let first = std::future::poll_fn(|context| {
            std::task::Poll::Ready(tokio::task::block_in_place(|| {
                std::pin::Pin::new(&mut work).poll(context)
            }))
        });
        let first = first.await;
        drop(turn);
        if let std::task::Poll::Ready(done) = first {
            return done;
        }
    }
    work.await
}

/// Does what takes long for long content, without holding up what else this thread does.
pub(crate) fn decode<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes > MAX_SHORT_BYTES { tokio::task::block_in_place(work) } else { work() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_has_at_most_half() {
        let [a, b, c] = ["a", "b", "c"].map(Owner::recorded);
        let intake = Intake::of([a.clone(), b.clone(), c.clone()]);
        let code = |owner: &Owner, bytes| intake.try_reserve(owner, bytes).err().map(|refusal| refusal.code);
        let of_a = intake.try_reserve(&a, MAX_BYTES / 2).expect("its half");
        assert_eq!(code(&a, 1), Some(Code::Quota));
        let of_b = intake.try_reserve(&b, MAX_BYTES / 2 - UNIT_BYTES).expect("of the other half");
        assert_eq!((code(&c, UNIT_BYTES), code(&c, 2 * UNIT_BYTES)), (None, Some(Code::Capacity)));
        drop((of_a, of_b));
        assert_eq!(code(&c, MAX_BYTES / 2), None);
    }
}
