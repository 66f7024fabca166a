//! The owner of a request, and how it is identified.
//!
//! Without tokens the server admits only the user who runs it, whom the peer's socket identifies;
//! with tokens every client that has one. What a request makes belongs to that [`OwnerId`]; all
//! other owners get 404 for it. Pages of other sites that a browser of the same user shows are kept
//! out by Host and Origin, which they cannot set. A WebSocket of a browser, which can set no
//! header, has its token among the protocols that it offers.

mod grant;
mod origin;
mod owner;
mod quota_kind;
mod tokens;

use axum::http::{HeaderMap, HeaderValue, header};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};

pub(crate) use grant::Grant;
pub(crate) use origin::check as check_origin;
pub use owner::OwnerId;
pub(crate) use quota_kind::QuotaKind;
pub(crate) use tokens::owners;
pub use tokens::{TokenError, Tokens};

/// The protocol that WebSockets speak here, where one is offered.
pub(crate) const PROTOCOL: &str = "sandtimer";

/// The prefix of a token, in base64url, among the protocols that a WebSocket offers.
const TOKEN_PROTOCOL_PREFIX: &str = "sandtimer.token.";

/// The token among the protocols that a WebSocket offers.
pub(crate) fn token_from_protocols(headers: &HeaderMap) -> Option<Vec<u8>> {
    let lists = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|list| list.to_str().ok());
    let token = lists
        .flat_map(|list| list.split(','))
        .find_map(|offer| offer.trim().strip_prefix(TOKEN_PROTOCOL_PREFIX))?;
    BASE64_URL_SAFE_NO_PAD.decode(token).ok()
}

/// Removes the token from the protocols that a WebSocket offers.
pub(crate) fn remove_offered_token(headers: &mut HeaderMap) {
    let lists = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|list| list.to_str().ok());
    let offers = lists.flat_map(|list| list.split(',').map(str::trim));
    let kept: Vec<&str> = offers.filter(|offer| !offer.starts_with(TOKEN_PROTOCOL_PREFIX)).collect();
    let kept = HeaderValue::from_str(&kept.join(", ")).ok().filter(|kept| !kept.is_empty());
    headers.remove(header::SEC_WEBSOCKET_PROTOCOL);
    headers.extend(kept.map(|kept| (header::SEC_WEBSOCKET_PROTOCOL, kept)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_may_be_among_the_protocols_of_a_websocket() {
        let of = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(value));
            token_from_protocols(&headers)
        };
        assert_eq!(of("sandtimer, sandtimer.token.YS9iPys"), Some(b"a/b?+".to_vec()));
        for none in ["sandtimer", "sandtimer.token.", "sandtimer.token.===", "other.token.YQ"] {
            assert_eq!(of(none).filter(|token| !token.is_empty()), None, "{none}");
        }
    }
}
