//! A sandbox as its owner sees it.

use std::time::Duration;

use sandtimer::engine::{Durability, Sandbox};
use serde_json::{Value, json};

use super::network;

/// A sandbox and what it uses.
/// Waits while its record is being written.
pub(super) fn view(sandbox: &Sandbox) -> Value {
    let (life, usage) = (sandbox.life(), sandbox.usage());
    let milliseconds =
        |time: Option<Duration>| time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    json!({
        "sandbox_id": sandbox.id(),
        "template": sandbox.template_name(),
        "layers": sandbox.layers(),
        "network": network::view(sandbox.network()),
        "created_at_ms": sandbox.created_at_ms(),
        "runs": sandbox.runs(),
        "durability": match sandbox.durability() {
            Durability::Certain => "certain",
            Durability::Uncertain => "uncertain",
        },
        "paused": life.is_paused,
        "idle_ms": milliseconds(life.idle),
        "idle_left_ms": milliseconds(life.idle_left),
        "wall_ms": milliseconds(life.wall),
        "wall_left_ms": milliseconds(life.wall_left),
        "memory_bytes": usage.memory_limit,
        "memory_used_bytes": usage.memory,
        "processes": usage.processes_limit,
        "processes_used": usage.processes,
    })
}
