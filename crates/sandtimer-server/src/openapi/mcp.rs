//! The Model Context Protocol: what its tools take and answer is not HTTP's, and is in
//! `spec/mcp-tools.json`.

use super::operation::{Operation, SuccessAnswer};
use super::schema::{boolean, enumeration, number, string};
use crate::error::Code;

pub(super) fn operations() -> Vec<Operation> {
    let milliseconds = || number("Milliseconds; 0 is none.");
    vec![
        Operation::new(
            "post",
            "/mcp",
            "One message of the Model Context Protocol, over streamable HTTP; GET and DELETE belong to its sessions",
            SuccessAnswer::Content("application/json"),
        )
        .bytes()
        .query("tools", enumeration(&crate::settings::ToolNames::NAMES), "Which names of tools this client is listed; all of them can be called. As the server is set unless given.")
        .query("sandbox", string(""), "The template, such as `host`, of a sandbox that `initialize` makes for its session; it is deleted with the session. The header `Sandtimer-Sandbox` is the same.")
        .query("idle_ms", number("Milliseconds, more than 0."), "How long that sandbox may be unused; 4 h unless given.")
        .query("memory_bytes", number("Bytes; 0 is none."), "Memory of all that runs in that sandbox together.")
        .query("processes", number("0 is none."), "Processes and threads of all that runs in that sandbox together.")
        .query("network", boolean(""), "Whether all that the session starts has the host's network.")
        .answers(&[(200, "The answer to it."), (202, "It asks for no answer.")])
        .errors(&[Code::BadField, Code::UnknownField, Code::Capacity, Code::BodyTooLarge, Code::JsonTooLarge, Code::RequestTimeout]),
        Operation::new(
            "get",
            "/mcp/stdio",
            "The Model Context Protocol as a stream of lines, for programs that carry a client's stdin and stdout; asked for \
             with `Upgrade: sandtimer-mcp`",
            SuccessAnswer::Upgrade("Lines of JSON, one message each, both ways."),
        )
        .query("wall_ms", milliseconds(), "Longest time for all that this connection starts.")
        .query("stall_ms", milliseconds(), "Longest time that something it started may neither write nor compute.")
        .query("turns", number("Calls of tools; 0 is none."), "Most turns of this connection.")
        .query("workspace", string(""), "The absolute path of the directory that it works in; only where the server has no tokens.")
        .query("estimates", boolean(""), "Whether the tools for estimates of durations are listed.")
        .query("tools", enumeration(&crate::settings::ToolNames::NAMES), "Which names of tools are listed; all of them can be called.")
        .errors(&[Code::BadField, Code::UnknownField, Code::BadLimit]),
    ]
}
