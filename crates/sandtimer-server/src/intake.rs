//! Memory for what clients send, and for what they are answered: the bytes of all messages that are
//! received, parsed or handled at the moment, and of all answers that are not sent to their end,
//! per owner and in all; and the threads that parse long ones.
//!
//! A short message is not counted: connections bound those. Of a long one all bytes are reserved
//! before they are read, so two that wait for each other's half cannot be. The reservation is held
//! until the handler has answered; what stays in memory for longer, in the queue of a context or on
//! its way to a run's stdin, has one of its own. An answer's is held by its bytes.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::auth::OwnerId;
use crate::error::{ApiRejection, Code};

/// Longer messages are counted, and parsed on a thread that may block.
pub(crate) const MAX_SHORT_BYTES: usize = 64 << 10;
/// Bytes of the long messages of all owners.
const MAX_BYTES: usize = 1 << 30;
/// What is reserved is rounded up to these.
const UNIT_BYTES: usize = 1 << 10;
/// Long messages that are parsed at a time.
static PARSERS: Semaphore = Semaphore::const_new(2);

/// Which messages a budget is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MessageKind {
    Requests,
    Answers,
}

/// Bounds of what clients send and are answered: memory and time.
#[derive(Debug, Clone)]
pub(crate) struct Messages {
    /// Memory for what is received.
    pub requests: Arc<Intake>,
    /// Memory for what is answered.
    pub answers: Arc<Intake>,
    /// How long a client may take for the head of a request, and for its body.
    pub patience: Duration,
    /// How long a stream of events is silent before a comment shows that it lives.
    pub heartbeat: Duration,
}

impl Messages {
    pub fn new(owners: &[OwnerId], patience: Duration, heartbeat: Duration) -> Self {
        let memory = |kind| Arc::new(Intake::of(kind, owners.iter().cloned()));
        Messages {
            requests: memory(MessageKind::Requests),
            answers: memory(MessageKind::Answers),
            patience,
            heartbeat,
        }
    }
}

/// What the owners' messages may take, and take.
#[derive(Debug)]
pub(crate) struct Intake {
    messages: MessageKind,
    all: Arc<Semaphore>,
    /// Half of all for each.
    owners: HashMap<OwnerId, Arc<Semaphore>>,
}

/// A part of it. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Reservation {
    _of_all: OwnedSemaphorePermit,
    _of_owner: OwnedSemaphorePermit,
}

impl Intake {
    fn of(messages: MessageKind, owners: impl IntoIterator<Item = OwnerId>) -> Self {
        let slots = |bytes: usize| Arc::new(Semaphore::new(bytes / UNIT_BYTES));
        let owners = owners.into_iter().map(|owner| (owner, slots(MAX_BYTES / 2))).collect();
        Intake { messages, all: slots(MAX_BYTES), owners }
    }

    fn of_owner(&self, owner: &OwnerId) -> Result<Arc<Semaphore>, ApiRejection> {
        let found = self.owners.get(owner).cloned();
        found.ok_or_else(|| ApiRejection::new(Code::Internal, "the caller is not one of the server's owners"))
    }

    /// Reserves `bytes` for a message of this owner, once others have released them.
    ///
    /// # Errors
    /// When they do not within `patience`.
    pub async fn reserve(
        &self,
        owner: &OwnerId,
        bytes: usize,
        patience: Duration,
    ) -> Result<Reservation, ApiRejection> {
        let of_owner = self.of_owner(owner)?;
        let units = units(bytes);
        // The semaphores are never closed.
        let waited = tokio::time::timeout(patience, of_owner.acquire_many_owned(units)).await;
        let Ok(Ok(of_owner)) = waited else { return Err(self.too_many_of_owner()) };
        let waited = tokio::time::timeout(patience, self.all.clone().acquire_many_owned(units)).await;
        let Ok(Ok(of_all)) = waited else { return Err(self.too_many()) };
        Ok(Reservation { _of_all: of_all, _of_owner: of_owner })
    }

    /// Reserves memory for a long value that stays when its message is answered; `None` for a short
    /// one.
    ///
    /// # Errors
    /// If there is not as much.
    pub fn reserve_long(&self, owner: &OwnerId, bytes: usize) -> Result<Option<Reservation>, ApiRejection> {
        (bytes > MAX_SHORT_BYTES).then(|| self.try_reserve(owner, bytes)).transpose()
    }

    /// The same without waiting.
    ///
    /// # Errors
    /// If there are not as many.
    pub fn try_reserve(&self, owner: &OwnerId, bytes: usize) -> Result<Reservation, ApiRejection> {
        let units = units(bytes);
        let of_owner =
            self.of_owner(owner)?.try_acquire_many_owned(units).map_err(|_| self.too_many_of_owner())?;
        let of_all = self.all.clone().try_acquire_many_owned(units).map_err(|_| self.too_many())?;
        Ok(Reservation { _of_all: of_all, _of_owner: of_owner })
    }
}

/// What is larger than an owner's half takes all of that.
fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.min(MAX_BYTES / 2).div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX)
}

impl Intake {
    fn quota(&self) -> &'static str {
        match self.messages {
            MessageKind::Requests => "request_bytes",
            MessageKind::Answers => "answer_bytes",
        }
    }

    fn too_many_of_owner(&self) -> ApiRejection {
        let limit = MAX_BYTES / 2;
        let message = match self.messages {
            MessageKind::Requests => format!(
                "the requests that you have under way have {limit} bytes together; wait for one to be answered"
            ),
            MessageKind::Answers => format!(
                "the answers that are sent to you have {limit} bytes together; read one to its end, or ask for less"
            ),
        };
        ApiRejection::new(Code::Quota, message).with("quota", self.quota()).with("limit", limit)
    }

    fn too_many(&self) -> ApiRejection {
        let which = match self.messages {
            MessageKind::Requests => "requests that are under way",
            MessageKind::Answers => "answers that are being sent",
        };
        let message = format!("the {which} have {MAX_BYTES} bytes together");
        ApiRejection::new(Code::Capacity, message).with("quota", self.quota()).with("limit", MAX_BYTES)
    }
}

/// What is reserved for an answer, among its extensions: until its last byte is sent.
#[derive(Debug, Clone)]
pub(crate) struct AnswerReservation {
    _reservation: Arc<Reservation>,
}

impl AnswerReservation {
    pub fn new(reservation: Reservation) -> Self {
        AnswerReservation { _reservation: Arc::new(reservation) }
    }
}

/// An answer's body each frame of which is changed on its way. What the function holds is held
/// until the body is dropped.
pub(crate) struct MappedBody<F> {
    body: Body,
    map: F,
}

impl<F> MappedBody<F> {
    pub fn new(body: Body, map: F) -> Self {
        MappedBody { body, map }
    }
}

impl<F> hyper::body::Body for MappedBody<F>
where
    F: FnMut(Frame<Bytes>) -> Result<Frame<Bytes>, axum::Error> + Unpin,
{
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(frame.map(|frame| frame.and_then(|frame| (self.map)(frame))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Has each piece of an answer hold what is reserved for it: the HTTP library keeps pieces that it
/// cannot send.
struct PieceReserver {
    answers: Arc<Intake>,
    owner: OwnerId,
    /// What is reserved for all of it. Without it each long piece is counted as it comes.
    reserved: Option<AnswerReservation>,
}

impl PieceReserver {
    /// A piece that holds what is reserved for it. If no memory is left for it the body ends with
    /// an error.
    fn hold(&self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, axum::Error> {
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        let reserved = match &self.reserved {
            Some(reserved) => Some(reserved.clone()),
            None => {
                let reserved = self.answers.reserve_long(&self.owner, bytes);
                let refused =
                    |rejection: ApiRejection| axum::Error::new(std::io::Error::other(rejection.message));
                reserved.map_err(refused)?.map(AnswerReservation::new)
            }
        };
        let Some(reserved) = reserved else { return Ok(frame) };
        let hold = |bytes| Bytes::from_owner(ReservedBytes { bytes, _reserved: reserved });
        Ok(frame.map_data(hold))
    }
}

/// Bytes that give back what is reserved for them.
struct ReservedBytes {
    bytes: Bytes,
    _reserved: AnswerReservation,
}

impl AsRef<[u8]> for ReservedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Takes what is reserved for an answer from its extensions. A long answer without a reservation is
/// counted now.
///
/// # Errors
/// If no memory is left for it.
pub(crate) fn take_reserved(
    answers: &Intake,
    owner: &OwnerId,
    answer: &mut Response,
) -> Result<Option<AnswerReservation>, ApiRejection> {
    if let Some(reserved) = answer.extensions_mut().remove::<AnswerReservation>() {
        return Ok(Some(reserved));
    }
    // What has no known length is made as it is sent.
    let bytes = hyper::body::Body::size_hint(answer.body()).exact();
    let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0);
    Ok(answers.reserve_long(owner, bytes)?.map(AnswerReservation::new))
}

/// Has an answer's bytes hold what is reserved for them.
///
/// # Errors
/// As [`take_reserved`].
pub(crate) fn hold(
    answers: &Arc<Intake>,
    owner: &OwnerId,
    mut answer: Response,
) -> Result<Response, ApiRejection> {
    let reserved = take_reserved(answers, owner, &mut answer)?;
    let is_short = reserved.is_none() && hyper::body::Body::size_hint(answer.body()).exact().is_some();
    if is_short {
        return Ok(answer);
    }
    let reserver = PieceReserver { answers: answers.clone(), owner: owner.clone(), reserved };
    Ok(answer.map(|body| Body::new(MappedBody::new(body, move |frame| reserver.hold(frame)))))
}

/// What one request has reserved: with the request, and with the layer that drops it when the
/// request is answered.
#[derive(Debug, Clone, Default)]
pub(crate) struct HeldReservations(Arc<Mutex<Vec<Reservation>>>);

impl HeldReservations {
    pub fn keep(&self, reservation: Reservation) {
        // Each change is one call on the list.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(reservation);
    }
}

/// Parses a message: where it is long, on a thread that may block, and a few at a time.
pub(crate) async fn parse<B, T>(
    bytes: B,
    parse: impl FnOnce(B) -> T + Send + 'static,
) -> Result<T, ApiRejection>
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
    parsed.await.map_err(|_| ApiRejection::new(Code::Internal, "the message could not be parsed"))
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
    fn owner_never_exceeds_half() {
        let [a, b, c] = ["a", "b", "c"].map(OwnerId::recorded);
        let intake = Intake::of(MessageKind::Requests, [a.clone(), b.clone(), c.clone()]);
        let code =
            |owner: &OwnerId, bytes| intake.try_reserve(owner, bytes).err().map(|rejection| rejection.code);
        let of_a = intake.try_reserve(&a, MAX_BYTES / 2).expect("its half");
        assert_eq!(code(&a, 1), Some(Code::Quota));
        let of_b = intake.try_reserve(&b, MAX_BYTES / 2 - UNIT_BYTES).expect("of the other half");
        assert_eq!((code(&c, UNIT_BYTES), code(&c, 2 * UNIT_BYTES)), (None, Some(Code::Capacity)));
        drop((of_a, of_b));
        drop(intake.try_reserve(&b, 2 * MAX_BYTES).expect("its half, for what is larger"));
        assert_eq!(code(&c, MAX_BYTES / 2), None);
    }
}
