//! The webhook sender: sends the end of a job as one POST of JSON, over HTTP.
//!
//! Addresses come from the clients that submit jobs, so they are not trusted: a name is resolved
//! once, the addresses are checked, and only those are connected to. Unless the operator allows it,
//! only public addresses are reached: a delivery to any other address is returned for another
//! worker. No redirect is followed, no proxy used, and of the answer only its status is read.
//!
//! A request has an id, a time and, with a secret, a signature of both and the body, as
//! <https://www.standardwebhooks.com> defines them, so that receivers can reject what was sent long
//! ago. `Sandtimer-Signature` is of the body alone.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sandtimer_jobs::executor::{SendResult, WebhookSender};
use sandtimer_jobs::job::{Delivery, hexadecimal, signing_key};
use sandtimer_os::clock::calendar_milliseconds;
use sha2::Sha256;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, Error};

/// For a whole request, and for parts of it.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_HEAD_BYTES: usize = 16 << 10;

/// A courier over HTTP and HTTPS.
#[derive(Debug)]
pub struct HttpWebhookSender {
    agent: Agent,
}

impl HttpWebhookSender {
    /// `private`: loopback, private and link-local addresses may be reached too.
    pub fn new(private: bool) -> Self {
        let config = Agent::config_builder()
            .timeout_global(Some(REQUEST_TIMEOUT))
            .timeout_resolve(Some(CONNECT_TIMEOUT))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .max_response_header_size(MAX_HEAD_BYTES)
            .max_idle_connections(0)
            .proxy(None)
            .user_agent(concat!("sandtimer/", env!("CARGO_PKG_VERSION")))
            .build();
        let resolver = CheckedResolver { private, names: DefaultResolver::default() };
        HttpWebhookSender { agent: Agent::with_parts(config, DefaultConnector::default(), resolver) }
    }
}

impl WebhookSender for HttpWebhookSender {
    fn send(&self, delivery: &Delivery, body: &[u8]) -> SendResult {
        let (to, id) = (&delivery.webhook, &delivery.id);
        let mut request = self.agent.post(&to.url);
        for (name, value) in &to.headers {
            request = request.header(name, value);
        }
        request = request.header("Content-Type", "application/json").header("Sandtimer-Job", id);
        // The receiver compares it with its own calendar.
        let (message, seconds) = (delivery.message_id(), calendar_milliseconds() / 1_000);
        request = request.header("webhook-id", &message).header("webhook-timestamp", seconds.to_string());
        if let Some(secret) = &to.secret {
            request = request
                .header("webhook-signature", standard_signature(secret, &message, seconds, body))
                .header("Sandtimer-Signature", signature(secret, body));
        }
        match request.send(body) {
            Ok(answer) => taken(answer.status().as_u16()),
            Err(Error::BadUri(why)) => SendResult::Refused(format!("the address cannot be used: {why}")),
            Err(Error::Other(error)) if error.is::<PrivateAddressError>() => {
                SendResult::Forbidden(error.to_string())
            }
            Err(error) => {
                tracing::debug!("the webhook of the job {id} failed: {error}");
                SendResult::Failed(class_of(&error).to_owned())
            }
        }
    }
}

/// What kind of failure it was. Only that: the error itself may name addresses that only this
/// machine's resolver knows.
fn class_of(error: &Error) -> &'static str {
    use std::io::ErrorKind;
    match error {
        Error::HostNotFound => "its name has no address",
        Error::Timeout(_) => "it did not answer in time",
        Error::Io(error) => match error.kind() {
            ErrorKind::ConnectionRefused => "the connection was refused",
            ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe => {
                "the connection was closed before the answer"
            }
            ErrorKind::UnexpectedEof => "the connection was closed before the answer",
            ErrorKind::TimedOut => "it did not answer in time",
            ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => "it cannot be reached",
            _ => "the connection failed",
        },
        Error::ConnectionFailed => "the connection failed",
        Error::Tls(_) | Error::Rustls(_) | Error::Pem(_) => {
            "its certificate is not accepted, or it does not speak TLS"
        }
        Error::Protocol(_) | Error::LargeResponseHeader(..) => "its answer is none of HTTP",
        _ => "it could not be sent",
    }
}

/// Such as `sha256=…`: HMAC-SHA256 of the body, in hexadecimal digits.
fn signature(secret: &str, body: &[u8]) -> String {
    format!("sha256={}", hexadecimal(&digest(secret.as_bytes(), &[body])))
}

/// Such as `v1,…`: HMAC-SHA256 of the message's id, its time and the body, in base64.
fn standard_signature(secret: &str, message: &str, seconds: u64, body: &[u8]) -> String {
    let head = format!("{message}.{seconds}.");
    format!("v1,{}", BASE64_STANDARD.encode(digest(&signing_key(secret), &[head.as_bytes(), body])))
}

fn digest(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    // A key of any length is taken.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return Vec::new() };
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}

fn taken(status: u16) -> SendResult {
    let message = format!("it answered {status}");
    match status {
        200..=299 => SendResult::Accepted,
        300..=399 => {
            SendResult::Refused(format!("{message}, and redirects are not followed; use the final address"))
        }
        408 | 425 | 429 | 500.. => SendResult::Failed(message),
        _ => SendResult::Refused(message),
    }
}

/// An address that is not to be reached. It is not named: what a name means inside is none of the
/// owner's business.
#[derive(Debug, thiserror::Error)]
#[error(
    "{name} leads to an address that is not allowed: none of the public Internet; the operator of the worker may allow such \
     ones with `--private-webhooks`"
)]
struct PrivateAddressError {
    name: String,
}

/// Resolves names, and refuses those that lead to what is not public.
#[derive(Debug)]
struct CheckedResolver {
    private: bool,
    names: DefaultResolver,
}

impl Resolver for CheckedResolver {
    fn resolve(
        &self,
        uri: &Uri,
        config: &ureq::config::Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let found = self.names.resolve(uri, config, timeout)?;
        // A single private address is enough to refuse: an honest name does not mix public and
        // private ones.
        if self.private || found.iter().all(|found| is_public(found.ip())) {
            return Ok(found);
        }
        let name = uri.host().unwrap_or_default().to_owned();
        Err(Error::Other(Box::new(PrivateAddressError { name })))
    }
}

/// Whether an address is one of the public Internet: what the registries of special addresses (RFC
/// 6890) have is none.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || address.is_multicast()
        || matches!(
            (a, b, c),
            (0 | 240.., ..) | (100, 64..=127, _) | (192, 0, 0) | (192, 88, 99) | (198, 18 | 19, _)
        );
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        // An IPv4 address in another dress: mapped, translated, 6to4.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        [0x2002, high, low, ..] => embedded(high, low),
        // Teredo, benchmarking, ORCHID and others; documentation, twice.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, ..=0xfff, ..] => false,
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use sandtimer_jobs::job::Webhook;

    use super::*;

    #[test]
    fn only_public_addresses_are_public() {
        let is = |text: &str| is_public(text.parse().expect(text));
        for public in [
            "1.1.1.1",
            "93.184.216.34",
            "100.63.0.1",
            "2606:4700::1111",
            "::ffff:8.8.8.8",
            "2002:0808:0808::1",
        ] {
            assert!(is(public), "{public}");
        }
        for special in [
            "127.0.0.1",
            "127.1.2.3",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
            "192.0.0.8",
            "198.18.0.1",
            "203.0.113.9",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "fec0::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::1",
            "2001::1",
            "2001:db8::1",
            "::7f00:1",
        ] {
            assert!(!is(special), "{special}");
        }
    }

    #[test]
    fn a_body_is_signed_as_rfc_4231_has_it() {
        let header = signature("Jefe", b"what do ya want for nothing?");
        assert_eq!(header, "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }

    #[test]
    fn standard_signature_is_that_of_the_reference() {
        // Of the reference's own tests: the key is what follows the prefix, decoded.
        let (message, seconds) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330);
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let signed = standard_signature(secret, message, seconds, br#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        let plain = standard_signature("Jefe", "what do ya want", 1, b"for nothing?");
        let expected = digest(b"Jefe", &[b"what do ya want.1.for nothing?"]);
        assert_eq!(plain, format!("v1,{}", BASE64_STANDARD.encode(expected)));
    }

    fn to(url: String) -> Delivery {
        let webhook = Webhook { url, headers: Vec::new(), secret: None, events: Vec::new() };
        Delivery {
            id: "j".to_owned(),
            owner: "a".to_owned(),
            claim: 1,
            webhook,
            attempts: 1,
            returns: 0,
            age: Duration::ZERO,
            ended_ms: 0,
            body: None,
        }
    }

    #[test]
    fn failures_are_classes_without_addresses() {
        let sender = HttpWebhookSender::new(true);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        drop(listener);
        let refused = sender.send(&to(format!("http://localhost:{}/", address.port())), b"{}");
        assert_eq!(refused, SendResult::Failed("the connection was refused".to_owned()));
    }

    #[test]
    fn what_is_not_public_is_refused_and_names_the_remedy() {
        for (url, host) in [
            ("http://127.0.0.1:9/", "127.0.0.1"),
            ("http://localhost:9/", "localhost"),
            ("http://[::1]:9/", "[::1]"),
            ("http://169.254.169.254/latest", "169.254.169.254"),
        ] {
            match HttpWebhookSender::new(false).send(&to(url.to_owned()), b"{}") {
                SendResult::Forbidden(why) => {
                    assert!(why.contains("--private-webhooks"), "{url}: {why}");
                    // What `localhost` resolves to must not be there.
                    let rest = why.replace(host, "");
                    assert!(!rest.contains("127.0.0.1") && !rest.contains("::1"), "{url}: {why}");
                }
                other => panic!("{url}: {other:?}"),
            }
        }
    }
}
