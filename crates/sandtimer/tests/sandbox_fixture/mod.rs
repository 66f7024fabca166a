//! What several tests of sandboxes need: the sandboxes of an engine, and waiting.
#![allow(clippy::disallowed_methods)] // waits for what has no descriptor

use std::path::Path;
use std::time::Duration;

use sandtimer::engine::{SandboxNetwork, SandboxSpec, Sandboxes, Template};
use sandtimer::{Engine, Limits};

pub const OWNER: &str = "token-a";

pub fn open(engine: &Engine, directory: &Path) -> Sandboxes {
    engine.sandboxes(directory, &|_| None, &|reason| panic!("{reason}")).expect("the sandboxes")
}

pub fn spec_with(limits: Limits) -> SandboxSpec {
    SandboxSpec {
        template: Template::Host,
        template_name: "host".to_owned(),
        owner: OWNER.to_owned(),
        parent: None,
        network: SandboxNetwork::None,
        limits,
    }
}

#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1_000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("not within ten seconds: {what}");
}
