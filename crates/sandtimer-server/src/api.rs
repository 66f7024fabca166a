//! The interfaces of other systems that execute programs, for their unmodified clients.
//!
//! ```text
//! fusion     SandboxFusion: /run_code, /run_jupyter
//! piston     Piston: /api/v2
//! judge0     Judge0: /submissions, /languages, /statuses
//! dify       Dify's sandbox: /v1/sandbox/run, /v1/sandbox/dependencies
//! librechat  LibreChat's code API: /librechat
//! ```
//! Each is a thin module: it parses its requests, hands a program to `programs`, and renders what
//! came of it. Limits, quotas, tokens and the end of all processes are those of every other run,
//! and the runs are found under /v1/runs. They are not in /openapi.json: their descriptions are
//! those of the systems, whose unknown fields are ignored.

mod dify;
mod fusion;
mod judge0;
mod librechat;
mod piston;
mod service;
mod wire;

use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, header};
use axum::response::Response;
use base64::prelude::{BASE64_STANDARD, Engine as _};

pub(crate) use dify::HEALTH;
pub(crate) use judge0::Submissions;
pub(crate) use service::FrontDoorService;

use crate::compat;
use crate::error::ApiRejection;

const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(600);

/// A system with an interface of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum System {
    Fusion,
    Piston,
    Judge0,
    Dify,
    LibreChat,
}

impl System {
    /// The system that a path belongs to.
    fn of(path: &str) -> Option<Self> {
        match path {
            "/run_code" | "/run_jupyter" => Some(System::Fusion),
            "/submissions" | "/languages" | "/statuses" | "/about" | "/config_info" => Some(System::Judge0),
            "/v1/sandbox/run" | "/v1/sandbox/dependencies" | "/v1/sandbox/dependencies/refresh" | HEALTH => {
                Some(System::Dify)
            }
            _ if path.starts_with("/api/v2/") => Some(System::Piston),
            _ if path.starts_with("/submissions/") || path.starts_with("/languages/") => Some(System::Judge0),
            _ if path.starts_with(librechat::BASE) => Some(System::LibreChat),
            _ => None,
        }
    }
}

pub(crate) fn routes(service: &FrontDoorService) -> Router {
    Router::new()
        .merge(fusion::routes().with_state(service.clone()))
        .merge(piston::routes().with_state(service.programs.clone()))
        .merge(judge0::routes().with_state(service.clone()))
        .merge(dify::routes().with_state(service.programs.clone()))
        .merge(librechat::routes().with_state(service.programs.clone()))
}

/// Removes what the clients' systems keep only for a time, and records what could not be recorded,
/// until the server ends.
pub(crate) async fn maintain_records(service: FrontDoorService) {
    let mut closing = service.programs.runs.core.closing.subscribe();
    loop {
        let kept = service.clone();
        let work = tokio::task::spawn_blocking(move || {
            if let Err(error) = kept.submissions.maintain_records() {
                (kept.programs.runs.core.host.log_error)(&format!(
                    "records of submissions cannot be kept: {error}"
                ));
            }
            librechat::remove_expired(&kept.programs);
        });
        // A panic there was reported by itself.
        let _ = work.await;
        let ends = closing.wait_for(|closing| *closing);
        if tokio::time::timeout(HOUSEKEEPING_INTERVAL, ends).await.is_ok() {
            return;
        }
    }
}

/// Renders a refusal that was met before a handler, in the shape that the path's clients read.
pub(crate) fn refuse(path: &str, rejection: ApiRejection) -> Response {
    match System::of(path) {
        Some(System::Fusion) => fusion::refuse(rejection),
        Some(System::Piston) => piston::refuse(rejection),
        Some(System::Judge0) => judge0::refuse(rejection),
        Some(System::Dify) => dify::refuse(rejection),
        Some(System::LibreChat) => librechat::refuse(rejection),
        None => compat::refuse(path, rejection),
    }
}

/// The token of a request as the path's clients send it, where that is not `Authorization: Bearer`.
/// The password of an address (`http://any:TOKEN@host`) is one, for clients that can be given
/// nothing else.
pub(crate) fn token(path: &str, headers: &HeaderMap) -> Option<Vec<u8>> {
    let key = match System::of(path)? {
        System::Judge0 => headers.get("x-auth-token"),
        System::Dify | System::LibreChat => headers.get("x-api-key"),
        System::Fusion | System::Piston => None,
    };
    if let Some(key) = key {
        return Some(key.as_bytes().to_vec());
    }
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, encoded) = value.split_at_checked("basic ".len())?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let pair = BASE64_STANDARD.decode(encoded.trim_ascii()).ok()?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    Some(pair[colon + 1..].to_vec())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn password_of_an_address_is_a_token() {
        let of = |path: &str, value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, HeaderValue::from_static(value));
            token(path, &headers)
        };
        assert_eq!(of("/run_code", "Basic YW55OnRva2Vu"), Some(b"token".to_vec()));
        assert_eq!(of("/run_code", "basic OnQ6dQ=="), Some(b"t:u".to_vec()));
        for none in ["Bearer token", "Basic", "Basic ???", "Basic YW55"] {
            assert_eq!(of("/run_code", none), None, "{none}");
        }
        assert_eq!(of("/v1/runs", "Basic YW55OnRva2Vu"), None);
        assert_eq!(of("/api/ping", "Basic YW55OnRva2Vu"), None);
    }

    #[test]
    fn keys_come_in_the_headers_of_each_system() {
        let of = |path: &str, name: &'static str| {
            let headers = HeaderMap::from_iter([(
                header::HeaderName::from_static(name),
                HeaderValue::from_static("k"),
            )]);
            token(path, &headers).is_some()
        };
        assert!(of("/submissions/batch", "x-auth-token") && of("/v1/sandbox/run", "x-api-key"));
        assert!(of("/librechat/exec", "x-api-key"));
        assert!(!of("/v1/runs", "x-api-key") && !of("/run_code", "x-auth-token"));
    }
}
