//! `/`: a page for people, which asks this same server for everything else that it shows.
//!
//! It is one document, joined from the files of `page/`, without anything from elsewhere. Its
//! policy lets nothing run but its own script, which carries a nonce of this answer: what a run
//! prints or is called stays text, whatever it is. The page itself has no data of any owner and
//! asks for no token; what it shows needs one.

use axum::Router;
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::id::new_id;

/// Where it is.
pub(crate) const PATH: &str = "/";

/// Its parts in their order: markup around one style and one script.
const PAGE: &str = concat!(
    include_str!("page/head.html"),
    include_str!("page/style.css"),
    include_str!("page/body.html"),
    include_str!("page/words.js"),
    include_str!("page/server.js"),
    include_str!("page/rows.js"),
    include_str!("page/terminal.js"),
    include_str!("page/results.js"),
    include_str!("page/chosen.js"),
    include_str!("page/run.js"),
    include_str!("page/jobs.js"),
    include_str!("page/schedules.js"),
    include_str!("page/sandboxes.js"),
    include_str!("page/sections.js"),
    include_str!("page/keys.js"),
    include_str!("page/foot.html"),
);
/// The placeholder of the nonce in the file.
const NONCE: &str = "{nonce}";

pub(crate) fn routes() -> Router {
    Router::new().route(PATH, get(page))
}

async fn page() -> Response {
    let nonce = new_id() + &new_id();
    let headers: [(HeaderName, &str); 5] = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        // With its nonce it is good for one time.
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CONTENT_SECURITY_POLICY, &policy(&nonce)),
    ];
    (headers, PAGE.replace(NONCE, &nonce)).into_response()
}

/// The policy: no content of other origins, no script but the one with the nonce, no markup from
/// text, and no frame of any site.
fn policy(nonce: &str) -> String {
    format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
         trusted-types 'none'"
    )
}
