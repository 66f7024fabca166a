//! Answers for every name that it does not exist. A sandbox's names are resolved by its proxy: a
//! program that resolves one by itself does not use the proxy, and gets a final answer at once in
//! place of one that it would retry.

use std::io;
use std::net;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::event::{Event, EventSink};
use crate::policy::ProxyPolicy;
use crate::target::Host;

/// The longest query that is read; RFC 6891.
const MAX_QUERY: usize = 4096;
const HEADER: usize = 12;
/// Connections at once; the next one waits.
const MAX_CONNECTIONS: usize = 8;
/// How long a connection may take for a query.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after an error of the socket, such as for want of memory.
const ERROR_PAUSE: Duration = Duration::from_millis(50);

/// The name server of one sandbox. Dropping it closes its sockets.
#[derive(Debug)]
pub struct NameServer {
    tasks: [JoinHandle<()>; 2],
}

impl NameServer {
    /// Starts to serve. Must be called within a Tokio runtime; fails if a socket cannot be
    /// registered with it.
    pub fn start(
        datagrams: net::UdpSocket,
        streams: net::TcpListener,
        policy: ProxyPolicy,
        events: Arc<dyn EventSink>,
    ) -> io::Result<NameServer> {
        datagrams.set_nonblocking(true)?;
        streams.set_nonblocking(true)?;
        let (datagrams, streams) = (UdpSocket::from_std(datagrams)?, TcpListener::from_std(streams)?);
        let reporter = Arc::new(Reporter { policy, events });
        let by_datagrams = tokio::spawn(serve_datagrams(datagrams, Arc::clone(&reporter)));
        Ok(NameServer { tasks: [by_datagrams, tokio::spawn(serve_streams(streams, reporter))] })
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

struct Reporter {
    policy: ProxyPolicy,
    events: Arc<dyn EventSink>,
}

impl Reporter {
    /// The answer to a query, whose name is reported.
    fn answer(&self, query: &[u8]) -> Option<Vec<u8>> {
        let (answer, name) = answer(query)?;
        // Names of addresses are looked up by programs that only print them.
        if let Some(host @ Host::Name(name)) =
            name.as_deref().and_then(|name| Host::parse(name).ok()).as_ref()
            && !name.ends_with(".arpa")
        {
            let is_allowed = self.policy.has_host(host);
            self.events.record(Event::NameAsked { name: name.clone(), is_allowed });
        }
        Some(answer)
    }
}

async fn serve_datagrams(socket: UdpSocket, reporter: Arc<Reporter>) {
    let mut query = [0; MAX_QUERY];
    loop {
        match socket.recv_from(&mut query).await {
            Ok((length, from)) => {
                if let Some(answer) = reporter.answer(&query[..length]) {
                    // A client that has ended gets no answer.
                    let _ = socket.send_to(&answer, from).await;
                }
            }
            Err(_) => tokio::time::sleep(ERROR_PAUSE).await,
        }
    }
}

async fn serve_streams(listener: TcpListener, reporter: Arc<Reporter>) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        // The semaphore is never closed.
        let slot = Arc::clone(&slots).acquire_owned().await;
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                let reporter = Arc::clone(&reporter);
                connections.spawn(async move {
                    let _slot = slot;
                    let _ = serve_stream(stream, &reporter).await;
                });
            }
            Err(_) => tokio::time::sleep(ERROR_PAUSE).await,
        }
    }
}

async fn serve_stream(mut stream: TcpStream, reporter: &Reporter) -> io::Result<()> {
    loop {
        let read = async {
            let mut query = vec![0; usize::from(stream.read_u16().await?).min(MAX_QUERY)];
            stream.read_exact(&mut query).await?;
            Ok::<_, io::Error>(query)
        };
        let Ok(query) = timeout(QUERY_TIMEOUT, read).await else { return Ok(()) };
        let Some(answer) = reporter.answer(&query?) else { return Ok(()) };
        let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
        let message = [&length.to_be_bytes(), answer.as_slice()].concat();
        let Ok(written) = timeout(QUERY_TIMEOUT, stream.write_all(&message)).await else { return Ok(()) };
        written?;
    }
}

/// The answer to a query, and the name that it asks for; `None` if it is not a query. RFC 1035,
/// 4.1.
fn answer(query: &[u8]) -> Option<(Vec<u8>, Option<String>)> {
    const IS_ANSWER: u8 = 0x80;
    const OPERATION: u8 = 0x78;
    const RECURSION_DESIRED: u8 = 0x01;
    const RECURSION_AVAILABLE: u8 = 0x80;
    const MALFORMED: u8 = 1;
    const NO_NAME: u8 = 3;
    const NOT_IMPLEMENTED: u8 = 4;
    if query.len() < HEADER || query[2] & IS_ANSWER != 0 {
        return None;
    }
    let has_one_question = query[4..6] == [0, 1];
    let question = if has_one_question { question(query) } else { None };
    let code = match &question {
        _ if query[2] & OPERATION != 0 => NOT_IMPLEMENTED,
        Some(_) => NO_NAME,
        None => MALFORMED,
    };
    let mut answer = vec![query[0], query[1]];
    answer.push(IS_ANSWER | query[2] & (OPERATION | RECURSION_DESIRED));
    answer.push(RECURSION_AVAILABLE | code);
    answer.extend([0, u8::from(question.is_some()), 0, 0, 0, 0, 0, 0]);
    if let Some((end, _)) = &question {
        answer.extend_from_slice(&query[HEADER..*end]);
    }
    Some((answer, question.map(|(_, name)| name)))
}

/// Where the question of a query ends, and its name.
fn question(query: &[u8]) -> Option<(usize, String)> {
    let (mut at, mut labels) = (HEADER, Vec::new());
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1;
        match length {
            0 => break,
            1..=63 => labels.push(String::from_utf8_lossy(query.get(at..at + length)?)),
            // A pointer: there is nothing before the question that it could lead to.
            _ => return None,
        }
        at += length;
    }
    // Its type and its class.
    let end = at + 4;
    (query.len() >= end && at - HEADER <= 255).then(|| (end, labels.join(".")))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn query(name: &str) -> Vec<u8> {
        let mut query = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            query.push(label.len() as u8);
            query.extend_from_slice(label.as_bytes());
        }
        query.extend([0, 0, 1, 0, 1]);
        query
    }

    #[test]
    fn every_name_does_not_exist() {
        let (answer, name) = answer(&query("evil.example")).expect("a query");
        assert_eq!(name.as_deref(), Some("evil.example"));
        assert_eq!(answer[..12], [7, 9, 0x81, 0x83, 0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(answer[12..], query("evil.example")[12..]);
    }

    #[test]
    fn damaged_queries_are_answered_or_dropped() {
        let whole = query("a.example");
        for length in 0..whole.len() {
            let expected = (length >= HEADER).then_some(0x81);
            assert_eq!(answer(&whole[..length]).map(|(answer, _)| answer[3]), expected, "{length}");
        }
        let mut pointer = whole.clone();
        pointer[12] = 0xc0;
        assert_eq!(answer(&pointer).expect("an answer").0[3], 0x81);
        let mut reply = whole.clone();
        reply[2] |= 0x80;
        assert_eq!(answer(&reply), None);
        let mut update = whole;
        update[2] |= 5 << 3;
        assert_eq!(answer(&update).expect("an answer").0[3], 0x84);
    }

    #[tokio::test]
    async fn both_transports_answer_and_report() {
        let datagrams = net::UdpSocket::bind("127.0.0.1:0").expect("bound");
        let streams = net::TcpListener::bind("127.0.0.1:0").expect("bound");
        let (by_datagrams, by_streams) =
            (datagrams.local_addr().expect("bound"), streams.local_addr().expect("bound"));
        let names = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&names);
        let events = move |event| {
            if let Event::NameAsked { name, is_allowed } = event {
                kept.lock().expect("whole").push((name, is_allowed));
            }
        };
        let policy = ProxyPolicy::parse(["pypi.org"]).expect("an entry");
        let _server = NameServer::start(datagrams, streams, policy, Arc::new(events)).expect("started");
        let client = UdpSocket::bind("127.0.0.1:0").await.expect("bound");
        client.send_to(&query("evil.example"), by_datagrams).await.expect("sent");
        let mut answer = [0; 512];
        let length =
            timeout(QUERY_TIMEOUT, client.recv(&mut answer)).await.expect("in time").expect("an answer");
        assert_eq!((length, answer[3]), (query("evil.example").len(), 0x83));
        let mut stream = TcpStream::connect(by_streams).await.expect("connected");
        for _ in 0..2 {
            let query = query("pypi.org");
            stream.write_u16(query.len() as u16).await.expect("sent");
            stream.write_all(&query).await.expect("sent");
            let length =
                timeout(QUERY_TIMEOUT, stream.read_u16()).await.expect("in time").expect("an answer");
            stream.read_exact(&mut answer[..usize::from(length)]).await.expect("an answer");
            assert_eq!(answer[3], 0x83);
        }
        let expected = [("evil.example", false), ("pypi.org", true), ("pypi.org", true)];
        assert_eq!(*names.lock().expect("whole"), expected.map(|(name, is)| (name.to_owned(), is)));
    }
}
