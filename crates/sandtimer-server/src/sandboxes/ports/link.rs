//! Links by which a port of a sandbox is reached without a token: the time of their end, signed by
//! a key of this server's.
//!
//! A browser that has come by a link gets it as a cookie, for what the page loads. The key is new
//! with each server: the links of an earlier one are not valid any more.

use axum::http::{HeaderMap, Uri, header};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use hmac::{Hmac, KeyInit, Mac};
use sandtimer_os::clock::calendar_milliseconds;
use sha2::Sha256;

use super::address::port_path;
use crate::error::{ApiRejection, Code};

/// The name of a link in a query, and of its cookie.
pub(super) const LINK: &str = "sandtimer_link";

/// What links are signed with.
pub(crate) struct LinkKey([u8; 32]);

impl std::fmt::Debug for LinkKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("LinkKey")
    }
}

impl LinkKey {
    /// A new one.
    ///
    /// # Errors
    /// The kernel has no random bytes.
    pub fn new() -> std::io::Result<Self> {
        let mut key = [0; 32];
        let mut filled = 0;
        while filled < key.len() {
            filled += rustix::rand::getrandom(&mut key[filled..], rustix::rand::GetRandomFlags::empty())?;
        }
        Ok(LinkKey(key))
    }

    fn mac(&self, id: &str, port: u16, expires_at_ms: u64) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        // Ids have no colon.
        mac.update(format!("port:{id}:{port}:{expires_at_ms}").as_bytes());
        Some(mac)
    }

    /// A link to a port of a sandbox.
    pub fn sign(&self, id: &str, port: u16, expires_at_ms: u64) -> String {
        let signature = self.mac(id, port, expires_at_ms).map(|mac| mac.finalize().into_bytes());
        format!("{expires_at_ms}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature.unwrap_or_default()))
    }

    /// Whether a link leads to this port of this sandbox, at this time.
    fn allows(&self, id: &str, port: u16, link: &str, now_ms: u64) -> bool {
        let parts = || {
            let (expires, signature) = link.split_once('.')?;
            let expires: u64 = expires.parse().ok()?;
            let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).ok()?;
            let is_signed = self.mac(id, port, expires)?.verify_slice(&signature).is_ok();
            Some(is_signed && now_ms < expires)
        };
        parts().unwrap_or(false)
    }

    /// The sandbox to a port of which a link allows this request.
    ///
    /// # Errors
    /// The query has a link that does not.
    pub fn linked_sandbox<'a>(
        &self,
        uri: &'a Uri,
        headers: &HeaderMap,
    ) -> Result<Option<&'a str>, ApiRejection> {
        let Some((id, port, _)) = port_path(uri.path()) else { return Ok(None) };
        let Ok(port) = port.parse::<u16>() else { return Ok(None) };
        let now = calendar_milliseconds();
        let given = in_query(uri);
        let is_allowed =
            given.or_else(|| in_cookies(headers)).is_some_and(|link| self.allows(id, port, link, now));
        match (is_allowed, given) {
            (true, _) => Ok(Some(id)),
            (false, Some(_)) => {
                let message =
                    "the link to this port has expired, or is not one of this server's; ask for a new one";
                Err(ApiRejection::new(Code::Unauthorized, message))
            }
            (false, None) => Ok(None),
        }
    }
}

/// The link in the query of a request.
pub(super) fn in_query(uri: &Uri) -> Option<&str> {
    uri.query()?.split('&').find_map(|pair| pair.strip_prefix(LINK)?.strip_prefix('='))
}

fn in_cookies(headers: &HeaderMap) -> Option<&str> {
    let mut cookies = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    cookies.find_map(|cookies| {
        cookies.split(';').find_map(|cookie| cookie.trim().strip_prefix(LINK)?.strip_prefix('='))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_is_for_one_port_and_a_time() {
        let key = LinkKey::new().expect("a key");
        let link = key.sign("abc", 8000, 1_000);
        assert!(key.allows("abc", 8000, &link, 999));
        assert!(!key.allows("abc", 8000, &link, 1_000));
        assert!(!key.allows("abc", 8001, &link, 0) && !key.allows("abd", 8000, &link, 0));
        assert!(!LinkKey::new().expect("a key").allows("abc", 8000, &link, 0));
        let later = link.replacen("1000", "2000", 1);
        for forged in ["", ".", "1000.", "1000", &later, "1000.AAAA", "-1.AAAA"] {
            assert!(!key.allows("abc", 8000, forged, 0), "{forged}");
        }
    }
}
