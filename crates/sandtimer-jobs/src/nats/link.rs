//! The connection: commands are appended to the log, and the log is followed. Runs in one thread of
//! its own; what it learns goes to [`SharedReplica`].
//!
//! Following is a chain of short-lived consumers of the server: whatever is unclear (a gap,
//! silence, another connection) ends one, and the next begins after the position of the copy of the
//! tables, after a check that this is still part of the server's log.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use sandtimer_os::clock::monotonic_nanoseconds;

use crate::job::StoreError;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, push};
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, DiscardPolicy, Info, RetentionPolicy, StorageType, Stream};
use async_nats::jetstream::{self, Context, ErrorCode};
use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event};
use futures_util::{FutureExt, StreamExt};
use tokio::sync::Notify;

use super::address::NatsAddress;
use super::command::FORMAT;
use super::log_stream::{ID_HEADER, STREAM, id_of};
use super::replica::{Message, Replica};
use super::shared::{SharedReplica, SnapshotThresholds, Trouble};
use super::snapshot;

const SUBJECT: &str = "sandtimer.jobs";
const FORMAT_HEADER: &str = "Sandtimer-Log";
const PART_HEADER: &str = "Sandtimer-Part";
/// For one connection, request or acknowledgement; then it is tried again.
const STEP: Duration = Duration::from_secs(2);
/// Between two tries.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// A server that is silent for twice as long is asked again.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// What is not payload in a message, at most.
const HEADERS: usize = 1024;
/// The server's error codes if it has no room: for the account, the server, the disk, or the
/// stream.
const FULL: [u64; 5] = [10_002, 10_023, 10_028, 10_047, 10_077];

/// The usual reason of a server that is connected and answers no request about its streams.
const NO_JETSTREAM: &str = "the server is connected, and its JetStream does not answer; it stops when its disk is full: free space \
    there, start the server again, and try again";

/// A connection to one server.
#[derive(Debug)]
pub(super) struct Link {
    address: NatsAddress,
    client: Client,
    pub context: Context,
    pub shared: Arc<SharedReplica>,
    /// When the stream was created, in nanoseconds since 1970: another one of its name is another
    /// log.
    created_ns: i128,
    /// Notified when the following is to begin again.
    renew: Arc<Notify>,
    often: SnapshotThresholds,
    /// Receives reports of problems outside calls.
    report_error: fn(&str),
}

/// Its subjects are those of another stream: of the same one, if another process has made it since
/// this one searched for it.
fn overlaps(error: &jetstream::context::CreateStreamError) -> bool {
    use jetstream::context::CreateStreamErrorKind as Kind;
    matches!(error.kind(), Kind::JetStream(why) if why.error_code().0 == 10_065)
}

impl Link {
    pub async fn open(
        address: NatsAddress,
        shared: Arc<SharedReplica>,
        often: SnapshotThresholds,
        report_error: fn(&str),
    ) -> Result<Self, StoreError> {
        let renew = Arc::new(Notify::new());
        let client = connect(&address, &shared, &renew).await?;
        let context = jetstream::context::ContextBuilder::new().timeout(STEP).ack_timeout(STEP);
        let context = context.build(client.clone());
        let mut link = Link { address, client, context, shared, created_ns: 0, renew, often, report_error };
        let config = Config {
            name: STREAM.to_owned(),
            description: Some("the log of commands of sandtimer's store of jobs".to_owned()),
            subjects: vec![SUBJECT.to_owned()],
            storage: StorageType::File,
            retention: RetentionPolicy::Limits,
            // Never the oldest: without them the rest has no meaning.
            discard: DiscardPolicy::New,
            ..Config::default()
        };
        let stream = match link.context.get_or_create_stream(config).await {
            Err(error) if overlaps(&error) => {
                link.context.get_stream(STREAM).await.map_err(|error| link.not_opened(&error))?
            }
            made => made.map_err(|error| link.no_stream(&error))?,
        };
        link.check(stream.cached_info())?;
        link.created_ns = stream.cached_info().created.unix_timestamp_nanos();
        Ok(link)
    }

    /// An error that names the server.
    pub fn unreachable(&self, what: &str) -> StoreError {
        self.address.unreachable(what)
    }

    fn no_stream(&self, error: &jetstream::context::CreateStreamError) -> StoreError {
        use jetstream::context::CreateStreamErrorKind as Kind;
        match error.kind() {
            Kind::JetStreamUnavailable => StoreError::Refused(format!(
                "`{}` is a NATS server without JetStream; start it with `nats-server -js`",
                self.address
            )),
            Kind::JetStream(why) if [10_039, 10_076].contains(&why.error_code().0) => {
                StoreError::Refused(format!(
                    "`{}` has no JetStream for this user ({why}); start it with `nats-server -js`, or enable it \
                     for the account",
                    self.address
                ))
            }
            Kind::JetStream(why) if FULL.contains(&why.error_code().0) => {
                StoreError::Full(format!("{}: {why}", self.address))
            }
            _ => self.not_opened(error),
        }
    }

    fn not_opened(&self, error: &dyn std::fmt::Display) -> StoreError {
        let error = error.to_string();
        let remedy = if error.contains("timed out") { format!(": {NO_JETSTREAM}") } else { String::new() };
        self.unreachable(&format!("the stream {STREAM} cannot be opened: {error}{remedy}"))
    }

    /// The stream of the log that this program has read, or why the server does not name it.
    async fn stream(&self) -> Result<Result<Stream, String>, StoreError> {
        match self.context.get_stream(STREAM).await {
            Ok(stream) if stream.cached_info().created.unix_timestamp_nanos() == self.created_ns => {
                Ok(Ok(stream))
            }
            Ok(_) => Err(self.log_gone("has another one of its name")),
            Err(error) if is_stream_missing(&error) => Err(self.log_gone("has none of its name")),
            Err(error) => Ok(Err(error.to_string())),
        }
    }

    fn log_gone(&self, now: &str) -> StoreError {
        StoreError::Gone(format!(
            "{}: the stream {STREAM} that this program has read is gone, and the server {now}: its store directory was removed or \
             replaced; put the directory back and start the server again, or start this program again to work without those jobs",
            self.address
        ))
    }

    /// Whether the stream keeps what it is given.
    fn check(&self, info: &Info) -> Result<(), StoreError> {
        let config = &info.config;
        let forgets = config.retention != RetentionPolicy::Limits
            || config.discard != DiscardPolicy::New
            || !config.max_age.is_zero();
        if forgets || config.subjects != [SUBJECT] {
            return Err(StoreError::Refused(format!(
                "`{}` has a stream {STREAM} that is not a log of jobs; it needs the subject {SUBJECT}, the retention \
                 `limits`, `discard: new` and no maximum age",
                self.address
            )));
        }
        Ok(())
    }

    /// The last message of the log, asked for until this moment.
    pub async fn last_sequence(&self, until: u64) -> Result<u64, StoreError> {
        loop {
            let why = match self.stream().await? {
                Ok(stream) => return Ok(stream.cached_info().state.last_sequence),
                Err(why) => why,
            };
            self.pause(until, &why).await?;
        }
    }

    /// Appends a command, in as many messages as it takes.
    pub async fn append(&self, id: &str, payload: &[u8], until: u64) -> Result<(), StoreError> {
        let most = self.client.max_payload().saturating_sub(HEADERS).max(HEADERS);
        let of = payload.len().div_ceil(most).max(1);
        for part in 1..=of {
            let piece = &payload[(part - 1) * most..payload.len().min(part * most)];
            let message = PublishMessage::build()
                .payload(piece.to_vec().into())
                // Of two messages with one id the server drops the later one.
                .message_id(format!("{id}.{part}"))
                .header(ID_HEADER, id)
                .header(FORMAT_HEADER, FORMAT.to_string().as_str())
                .header(PART_HEADER, format!("{part}/{of}").as_str());
            self.publish(message, until).await?;
        }
        Ok(())
    }

    async fn publish(&self, message: PublishMessage, until: u64) -> Result<(), StoreError> {
        loop {
            if let Some(why) = self.unverified()? {
                self.pause(until, &why).await?;
                continue;
            }
            let sent = async { self.context.send_publish(SUBJECT, message.clone()).await?.await };
            let why = match sent.await {
                Ok(_) => return Ok(()),
                Err(error) => {
                    let source = std::error::Error::source(&error);
                    let code = source.and_then(|source| source.downcast_ref::<jetstream::Error>());
                    let code: Option<ErrorCode> = code.map(jetstream::Error::error_code);
                    if code.is_some_and(|code| FULL.contains(&code.0)) {
                        return Err(StoreError::Full(format!("{}: {error}", self.address)));
                    }
                    match error.kind() {
                        PublishErrorKind::StreamNotFound => "JetStream does not answer".to_owned(),
                        PublishErrorKind::TimedOut => "no acknowledgement".to_owned(),
                        _ => error.to_string(),
                    }
                }
            };
            self.pause(until, &why).await?;
        }
    }

    /// Why it is not known that the server still has the log that this program has read: after a
    /// lost connection the stream of its name may be another one, to which nothing is to be
    /// appended.
    fn unverified(&self) -> Result<Option<String>, StoreError> {
        let trouble = self.shared.lock().trouble.clone().map(|trouble| trouble.error());
        match trouble {
            Some(StoreError::Unreachable(_)) => Ok(Some("the log is not followed".to_owned())),
            Some(error @ StoreError::Gone(_)) => Err(error),
            _ => Ok(None),
        }
    }

    /// Between two tries; an error where there is no time for another one.
    async fn pause(&self, until: u64, why: &str) -> Result<(), StoreError> {
        if monotonic_nanoseconds() + RETRY_INTERVAL.as_nanos() as u64 >= until {
            let remedy = match self.client.connection_state() {
                async_nats::connection::State::Connected => NO_JETSTREAM,
                _ => {
                    "the connection is lost, and is being tried again; see that the server runs, and try again"
                }
            };
            return Err(self.unreachable(&format!("{why}: {remedy}")));
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
        Ok(())
    }

    /// Lets the following begin again, with a check of the server's log.
    pub fn renew(&self) {
        self.renew.notify_one();
    }

    /// Brings the copy of the tables further, as long as the thread lives.
    pub async fn follow(self: Arc<Self>) {
        loop {
            let Err(error) = Arc::clone(&self).follow_once().await;
            self.shared.change(|state| {
                let earlier = state.trouble.take();
                state.trouble = Some(earlier.map_or_else(|| Trouble::new(&error), |one| one.saying(&error)));
            });
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    async fn follow_once(self: Arc<Self>) -> Result<Infallible, StoreError> {
        let lost = |what: &str| self.unreachable(what);
        // Notifications before this moment are covered by what follows.
        let _ = self.renew.notified().now_or_never();
        let stream = self.stream().await?.map_err(|why| lost(&format!("the stream {STREAM}: {why}")))?;
        self.come_to_its_past(&stream).await?;
        let start_sequence = self.shared.lock().replica.position().0 + 1;
        let consumer = stream.create_consumer(push::Config {
            deliver_subject: self.client.new_inbox(),
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence },
            ack_policy: AckPolicy::None,
            idle_heartbeat: HEARTBEAT,
            flow_control: true,
            memory_storage: true,
            num_replicas: 1,
            ..push::Config::default()
        });
        let consumer =
            consumer.await.map_err(|error| lost(&format!("the log is not handed out: {error}")))?;
        let messages = consumer.messages().await;
        let mut messages = messages.map_err(|error| lost(&format!("the log is not handed out: {error}")))?;
        self.shared.change(|state| {
            state.trouble = None;
            state.rounds += 1;
        });
        loop {
            tokio::select! {
                message = messages.next() => match message {
                    Some(Ok(message)) => self.take(&message)?,
                    Some(Err(error)) => return Err(lost(&format!("the log is silent: {error}"))),
                    None => return Err(lost("the connection is lost, and is being tried again")),
                },
                () = self.renew.notified() => return Err(lost("the log is read again")),
            }
        }
    }

    /// The next message of the log.
    fn take(self: &Arc<Self>, message: &jetstream::Message) -> Result<(), StoreError> {
        let info = message.info().map_err(|error| self.unreachable(&error.to_string()))?;
        let at_ms = i64::try_from(info.published.unix_timestamp_nanos() / 1_000_000).unwrap_or(0);
        let headers = message.headers.as_ref();
        let header =
            |name: &str| headers.and_then(|headers| headers.get(name)).map_or("", |value| value.as_str());
        let part = header(PART_HEADER).split_once('/');
        let part = part.and_then(|(part, of)| Some((part.parse().ok()?, of.parse().ok()?)));
        let message = Message {
            sequence: info.stream_sequence,
            at_ms,
            format: header(FORMAT_HEADER).parse().unwrap_or(0),
            id: header(ID_HEADER),
            part: part.unwrap_or((1, 1)),
            payload: &message.payload,
        };
        let snapshot = self.shared.change(|state| {
            let expected = state.replica.position().0 + 1;
            if message.sequence != expected {
                let gap = format!("message {} came where {expected} was due", message.sequence);
                return Err(self.unreachable(&gap));
            }
            if !state.apply(&message, self.often)? {
                return Ok(None);
            }
            state.writing += 1;
            Ok(Some(snapshot::begin(&state.replica)))
        })?;
        if let Some(begun) = snapshot {
            let link = Arc::clone(self);
            tokio::spawn(async move {
                let written = match begun {
                    Ok(snapshot) => snapshot::write(&link.context, &link.address, &snapshot).await,
                    Err(error) => Err(error),
                };
                link.have_written(&written);
            });
        }
        Ok(())
    }

    /// Without a snapshot the log is longer than it need be until the next one.
    fn have_written(&self, written: &Result<(), StoreError>) {
        let is_reportable = self.shared.change(|state| {
            state.writing -= 1;
            state.wrote(written)
        });
        if let Err(error) = written
            && is_reportable
        {
            (self.report_error)(&format!(
                "the log of jobs is not cut, and takes longer and longer to read: {error}"
            ));
        }
    }

    /// Checks that the copy of the tables is a state of this log, and begins the copy again if not.
    async fn come_to_its_past(&self, stream: &Stream) -> Result<(), StoreError> {
        let log = &stream.cached_info().state;
        let (sequence, last) = {
            let state = self.shared.lock();
            let (sequence, last) = state.replica.position();
            (sequence, last.to_owned())
        };
        if sequence > 0 && (log.first_sequence..=log.last_sequence).contains(&sequence) {
            let id = id_of(stream, sequence).await;
            let id =
                id.map_err(|error| self.unreachable(&format!("message {sequence} of the log: {error}")))?;
            if id.as_deref() == Some(last.as_str()) {
                return Ok(());
            }
        }
        let found = snapshot::latest(&self.context, &self.address, stream).await?;
        let replica = match found {
            Some(replica) => replica,
            None if log.first_sequence <= 1 => Replica::empty()?,
            None => {
                return Err(self.unreachable(&format!(
                    "the log begins with message {}, and no snapshot leads there",
                    log.first_sequence
                )));
            }
        };
        self.shared.change(|state| state.begin_with(replica));
        Ok(())
    }
}

fn is_stream_missing(error: &jetstream::context::GetStreamError) -> bool {
    use jetstream::context::GetStreamErrorKind as Kind;
    matches!(error.kind(), Kind::JetStream(why) if why.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

async fn connect(
    address: &NatsAddress,
    shared: &Arc<SharedReplica>,
    renew: &Arc<Notify>,
) -> Result<Client, StoreError> {
    let (events_state, renewal) = (Arc::clone(shared), Arc::clone(renew));
    let lost = Trouble::new(&StoreError::Unreachable(format!(
        "{address}: the connection is lost, and is being tried again; see that the server runs"
    )));
    let handle_event = move |event| {
        match event {
            Event::Disconnected => events_state.change(|state| {
                state.trouble.get_or_insert_with(|| lost.clone().beginning_now());
            }),
            Event::Connected => renewal.notify_one(),
            _ => {}
        }
        std::future::ready(())
    };
    let mut options = ConnectOptions::new()
        .name("sandtimer")
        .connection_timeout(STEP)
        .request_timeout(Some(STEP))
        // A silently lost peer is detected by a ping without an answer.
        .ping_interval(STEP)
        .max_reconnects(None)
        .reconnect_delay_callback(|tries| Duration::from_millis(100 * tries.clamp(1, 10) as u64))
        .event_callback(handle_event);
    if address.is_tls() {
        options = options.require_tls(true);
    } else {
        // What a server names as its peers may be anywhere.
        options = options.ignore_discovered_servers();
    }
    if let Some((user, password)) = &address.login {
        options = options.user_and_password(user.clone(), password.clone());
    }
    if let Some(file) = &address.certificates {
        options = options.add_root_certificates(file.clone());
    }
    if let Some(file) = &address.credentials {
        let unreadable = |error| {
            StoreError::Refused(format!("the credentials in {} cannot be used: {error}", file.display()))
        };
        options = options.credentials_file(file).await.map_err(unreadable)?;
    }
    options.connect(address.url()).await.map_err(|error| refused(address, &error))
}

fn refused(address: &NatsAddress, error: &async_nats::ConnectError) -> StoreError {
    match error.kind() {
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
            StoreError::Refused(format!("`{address}` does not accept these credentials ({error})"))
        }
        kind if kind == ConnectErrorKind::Tls || is_of_tls(error) => StoreError::Refused(format!(
            "`{address}`: no TLS connection that can be trusted ({error}); a certificate that this machine does not \
             know belongs in the file that SANDTIMER_NATS_CA names"
        )),
        ConnectErrorKind::Dns => {
            StoreError::Unreachable(format!("{address}: there is no such host ({error})"))
        }
        _ => StoreError::Unreachable(format!(
            "{address}: nothing that speaks NATS answers there ({error}); start `nats-server -js`, or name another address"
        )),
    }
}

/// What TLS refuses arrives as an error of the connection.
fn is_of_tls(error: &async_nats::ConnectError) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    source.and_then(std::io::Error::get_ref).is_some_and(|inner| inner.is::<async_nats::rustls::Error>())
}
