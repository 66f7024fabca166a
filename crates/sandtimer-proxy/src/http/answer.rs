//! Answers of the proxy's own.

use crate::denial::{Denial, DenialReason};
use crate::dial::DialFailure;
use crate::event::shortened;

/// A request that is not carried because of its form.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) status: u16,
    pub(crate) message: String,
}

impl Rejection {
    pub(crate) fn new(status: u16, message: impl Into<String>) -> Rejection {
        Rejection { status, message: shortened(message.into()) }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Rejection {
        Rejection::new(400, message)
    }
}

/// The last response of a connection, with a sentence or two as its body.
pub(crate) struct FinalResponse {
    status: u16,
    reason: &'static str,
    /// The error type of RFC 9209.
    error: &'static str,
    message: String,
    is_head: bool,
}

impl FinalResponse {
    pub(crate) fn denial(denial: &Denial, is_head: bool) -> FinalResponse {
        let error = match denial.reason {
            DenialReason::Address { .. } => "destination_ip_prohibited",
            _ => "http_request_denied",
        };
        // Many clients show this line and nothing else of the answer to CONNECT.
        let reason = match denial.reason {
            DenialReason::Operator => "Not in the operator's network allow-list",
            DenialReason::BytesUsed => "The sandbox has used the bytes of its network",
            _ => "Not in the sandbox's network allow-list",
        };
        FinalResponse { status: 403, reason, error, message: denial.to_string(), is_head }
    }

    pub(crate) fn unreachable(failure: DialFailure, message: String, is_head: bool) -> FinalResponse {
        let (status, reason, error) = match failure {
            DialFailure::Name => (502, "Bad Gateway", "dns_error"),
            DialFailure::Refused => (502, "Bad Gateway", "connection_refused"),
            DialFailure::Timeout => (504, "Gateway Timeout", "connection_timeout"),
            DialFailure::Network => (502, "Bad Gateway", "destination_ip_unroutable"),
            DialFailure::Other => (502, "Bad Gateway", "destination_unavailable"),
        };
        FinalResponse { status, reason, error, message, is_head }
    }

    /// A server that did not answer, or not with HTTP.
    pub(crate) fn gateway(status: u16, message: String, is_head: bool) -> FinalResponse {
        let (reason, error) = match status {
            403 => ("The sandbox has used the bytes of its network", "http_request_denied"),
            504 => ("Gateway Timeout", "http_response_timeout"),
            _ => ("Bad Gateway", "http_protocol_error"),
        };
        FinalResponse { status, reason, error, message, is_head }
    }

    pub(crate) fn rejection(rejection: &Rejection, is_head: bool) -> FinalResponse {
        let reason = match rejection.status {
            408 => "Request Timeout",
            431 => "Request Header Fields Too Large",
            501 => "Not Implemented",
            _ => "Bad Request",
        };
        let message = rejection.message.clone();
        FinalResponse { status: rejection.status, reason, error: "http_request_error", message, is_head }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let FinalResponse { status, reason, error, message, is_head } = self;
        let body = if *is_head { "" } else { message };
        // With the line's end.
        let length = message.len() + 1;
        let end = if *is_head { "" } else { "\n" };
        format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n\
             Proxy-Status: sandtimer; error={error}\r\nConnection: close\r\n\r\n{body}{end}"
        )
        .into_bytes()
    }
}
