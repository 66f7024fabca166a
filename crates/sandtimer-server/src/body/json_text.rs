//! JSON of answers, indented if the request asks for that.

use axum::body::Body;
use axum::http::{HeaderValue, Request, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// An answer of JSON.
pub fn json(value: &impl serde::Serialize) -> Response {
    let mut text = Vec::new();
    write_json(&mut text, value);
    of_json(text)
}

tokio::task_local! {
    /// Present in a request whose answer is to be indented.
    static PRETTY: ();
}

/// Writes a value, indented where its request asked for that.
pub(crate) fn write_json(text: impl std::io::Write, value: &impl serde::Serialize) {
    // Plain data with text keys always serialises.
    let _ = match PRETTY.try_with(|()| ()) {
        Ok(()) => serde_json::to_writer_pretty(text, value),
        Err(_) => serde_json::to_writer(text, value),
    };
}

/// Takes `pretty` from the query of a request, on whatever path, and has its JSON answer indented.
pub async fn with_pretty(mut request: Request<Body>, next: Next) -> Response {
    let Some((without, is_pretty)) = take_pretty(request.uri()) else { return next.run(request).await };
    *request.uri_mut() = without;
    if is_pretty { PRETTY.scope((), next.run(request)).await } else { next.run(request).await }
}

/// The address without `pretty`, and whether that is switched on; `None` where it is not there, or
/// has another value, which is refused as every other field that a path does not know.
fn take_pretty(uri: &Uri) -> Option<(Uri, bool)> {
    let of_pretty = |part: &&str| {
        matches!(*part, "pretty" | "pretty=" | "pretty=true" | "pretty=1" | "pretty=false" | "pretty=0")
    };
    let query = uri.query()?;
    let asked = query.split('&').find(of_pretty)?;
    let rest: Vec<&str> = query.split('&').filter(|part| !of_pretty(part)).collect();
    let target =
        if rest.is_empty() { uri.path().to_owned() } else { format!("{}?{}", uri.path(), rest.join("&")) };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(target.parse().ok()?);
    Some((Uri::from_parts(parts).ok()?, !asked.ends_with("false") && !asked.ends_with('0')))
}

/// With a newline at the end, for terminals and files.
pub(crate) fn of_json(mut text: Vec<u8>) -> Response {
    text.push(b'\n');
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pretty_is_taken_from_the_query() {
        let taken = |uri: &str| {
            take_pretty(&uri.parse().expect("an address"))
                .map(|(uri, is_pretty)| (uri.to_string(), is_pretty))
        };
        assert_eq!(taken("/v1/runs?pretty"), Some(("/v1/runs".to_owned(), true)));
        assert_eq!(taken("/v1/runs?limit=3&pretty=1"), Some(("/v1/runs?limit=3".to_owned(), true)));
        assert_eq!(taken("/v1/runs?pretty=false&limit=3"), Some(("/v1/runs?limit=3".to_owned(), false)));
        assert_eq!(
            (taken("/v1/runs"), taken("/v1/runs?pretty=please"), taken("/v1/runs?x=pretty")),
            (None, None, None)
        );
    }
}
