//! Prints a server's reply.

use std::process::ExitCode;

use serde_json::Value;

use super::client::printable;
use crate::render;

pub(super) fn print_reply(as_json: bool, answer: &Value, text: &str) -> ExitCode {
    let line = if as_json { answer.to_string() } else { printable(text) };
    render::print(&format!("{line}\n"));
    ExitCode::SUCCESS
}
