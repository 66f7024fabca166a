//! What several tests of sandboxes need: the sandboxes of an engine, and waiting.

use std::path::Path;

use sandtimer::engine::{SandboxNetwork, SandboxSpec, Sandboxes, Template};
use sandtimer::{Engine, Limits};

pub use crate::waiting::wait_until;

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
