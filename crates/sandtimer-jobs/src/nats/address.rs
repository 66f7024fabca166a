//! The address of a server, and the credentials for it. Nothing is connected here.
//!
//! A client that may write to the server may run any program on every worker, so a server that is
//! not on this machine is used with credentials and over TLS, or not at all.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::job::StoreError;
use async_nats::ServerAddr;

/// The address of a NATS server, with the credentials for it.
///
/// ```
/// use sandtimer_jobs::NatsAddress;
///
/// assert!(NatsAddress::is_meant("nats://localhost:4222") && !NatsAddress::is_meant("/var/lib/jobs"));
/// let address = NatsAddress::parse("tls://user:secret@nats.example.com")?;
/// assert!(!format!("{address:?}").contains("secret"));
/// # Ok::<(), sandtimer_jobs::job::StoreError>(())
/// ```
#[derive(Clone)]
pub struct NatsAddress {
    tls: bool,
    host: String,
    port: u16,
    pub(super) login: Option<(String, String)>,
    pub(super) credentials: Option<PathBuf>,
    pub(super) certificates: Option<PathBuf>,
}

impl NatsAddress {
    /// Whether a text is meant as an address, not as the path of a state directory.
    pub fn is_meant(text: &str) -> bool {
        text.contains("://")
    }

    /// Parses `nats://` or `tls://`, with `[user:password@]host[:port]`; the port is 4222 by
    /// default.
    ///
    /// # Errors
    /// [`StoreError::Refused`] with what is wrong, and what would work.
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let shown = without_login(text);
        let refused = |why: &str| StoreError::Refused(format!("`{shown}`: {why}"));
        let scheme = text.split("://").next().unwrap_or_default();
        if !["nats", "tls"].contains(&scheme) {
            return Err(refused("use nats://HOST, tls://HOST, or a state directory's path"));
        }
        let parsed: ServerAddr = text.parse().map_err(|error| refused(&format!("{error}")))?;
        let rest = text.split("://").nth(1).unwrap_or_default();
        let host = parsed.host().to_owned();
        if host.is_empty() || rest.trim_end_matches('/').contains(['/', '?', '#']) {
            return Err(refused("it is a server's: [USER:PASSWORD@]HOST[:PORT], and nothing after it"));
        }
        let login = match (parsed.username(), parsed.password()) {
            (None, None) => None,
            (Some(user), Some(password)) => Some((decoded(user), decoded(password))),
            _ => return Err(refused("a user needs a password, as in nats://USER:PASSWORD@HOST")),
        };
        let (tls, port) = (parsed.tls_required(), parsed.port());
        Ok(NatsAddress { tls, host, port, login, credentials: None, certificates: None })
    }

    /// Sets a file of credentials, as `nsc generate creds` writes it.
    #[must_use]
    pub fn with_credentials(self, file: Option<PathBuf>) -> Self {
        NatsAddress { credentials: file, ..self }
    }

    /// Sets a file of certificates (PEM) that are trusted besides this machine's.
    #[must_use]
    pub fn with_certificates(self, file: Option<PathBuf>) -> Self {
        NatsAddress { certificates: file, ..self }
    }

    /// As [`parse`](Self::parse), with the files that the variables SANDTIMER_NATS_CREDENTIALS and
    /// SANDTIMER_NATS_CA name.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn with_environment(text: &str) -> Result<Self, StoreError> {
        let named = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Ok(Self::parse(text)?
            .with_credentials(named("SANDTIMER_NATS_CREDENTIALS"))
            .with_certificates(named("SANDTIMER_NATS_CA")))
    }

    /// Returns an error that names the server.
    pub(super) fn unreachable(&self, what: &str) -> StoreError {
        StoreError::Unreachable(format!("{self}: {what}"))
    }

    pub(super) fn url(&self) -> String {
        let scheme = if self.tls { "tls" } else { "nats" };
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{scheme}://{host}:{}", self.port)
    }

    pub(super) fn is_tls(&self) -> bool {
        self.tls
    }

    /// Whether the server is on this machine, by its name alone: a name that DNS resolves may lead
    /// to any machine.
    pub(super) fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    /// Whether it may be used as it is.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let has_credentials = self.login.is_some() || self.credentials.is_some();
        let missing: Vec<&str> = [
            (self.tls, "TLS (tls://HOST instead of nats://HOST)"),
            (has_credentials, "credentials (USER:PASSWORD@HOST, or a file in SANDTIMER_NATS_CREDENTIALS)"),
        ]
        .into_iter()
        .filter_map(|(there, what)| (!there).then_some(what))
        .collect();
        if self.is_loopback() || missing.is_empty() {
            return Ok(());
        }
        Err(StoreError::Refused(format!(
            "`{self}` is not on this machine, and every client that can write there can run commands here; add {}",
            missing.join(" and ")
        )))
    }
}

/// Without its password.
impl fmt::Display for NatsAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.url())
    }
}

/// As it is displayed.
impl fmt::Debug for NatsAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "NatsAddress({self})")
    }
}

fn without_login(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    format!("{scheme}://{host}")
}

/// `%40` and the like, as URLs write what has a meaning in them.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut plain, mut index) = (Vec::new(), 0);
    while index < bytes.len() {
        let digits = text.get(index + 1..index + 3).filter(|_| bytes[index] == b'%');
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => (plain.push(byte), index += 3).0,
            None => (plain.push(bytes[index]), index += 1).0,
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejection_message(text: &str) -> String {
        NatsAddress::parse(text).and_then(|address| address.check()).expect_err("refused").to_string()
    }

    #[test]
    fn what_is_no_servers_url_is_refused_with_what_would_work() {
        for text in ["http://x", "redis://127.0.0.1", "://x", "ws://127.0.0.1"] {
            assert!(rejection_message(text).contains("use nats://HOST"), "{text}");
        }
        for text in ["nats://", "nats://127.0.0.1/jobs", "nats://127.0.0.1?x=1"] {
            assert!(!rejection_message(text).is_empty(), "{text}");
        }
        assert!(rejection_message("nats://me@127.0.0.1").contains("needs a password"));
        assert!(NatsAddress::is_meant("nats://x") && !NatsAddress::is_meant("/var/lib/x"));
    }

    #[test]
    fn off_this_machine_it_takes_tls_and_credentials() {
        let plain = rejection_message("nats://queue.example.org");
        assert!(plain.contains("add TLS") && plain.contains("and credentials"), "{plain}");
        assert!(rejection_message("tls://10.0.0.7").ends_with("SANDTIMER_NATS_CREDENTIALS)"));
        let half = rejection_message("nats://me:secret@10.0.0.7");
        assert!(half.contains("add TLS") && !half.contains("secret"), "{half}");
        for text in ["tls://me:secret@10.0.0.7", "nats://127.0.0.1:1", "nats://[::1]", "nats://localhost"] {
            NatsAddress::parse(text).expect("read").check().expect(text);
        }
        let with_file =
            NatsAddress::parse("tls://10.0.0.7").expect("read").with_credentials(Some("c".into()));
        with_file.check().expect("with a file");
    }

    #[test]
    fn a_password_is_decoded_and_never_shown() {
        let address = NatsAddress::parse("nats://me:p%40s%2Fs@[::1]:4223").expect("read");
        assert_eq!(address.login, Some(("me".to_owned(), "p@s/s".to_owned())));
        assert_eq!(format!("{address} {address:?}"), "nats://[::1]:4223 NatsAddress(nats://[::1]:4223)");
    }
}
