//! `/mcp` with the official TypeScript client and the inspector's command line, both in Node; each test is a scenario of
//! `mcp/drive.mjs`. Over stdin and stdout: `sandtimer-cli/tests/mcp.rs`; the Python client's tests are in `python/tests`.

mod support;

use support::{Serving, node, tokens};

fn play(serving: &Serving, scenario: &str, token: &str) {
    node::play("mcp", "@modelcontextprotocol/sdk", &[], scenario, &serving.variables(token));
}

#[test]
fn every_tool() {
    play(&Serving::start(), "every_tool", "");
}

#[test]
fn progress_is_told_and_extends_the_clients_patience() {
    play(&Serving::start(), "progress_is_told_and_extends_the_clients_patience", "");
}

#[test]
fn another_token_sees_nothing_of_a_session() {
    let serving = Serving::with(|settings| {
        settings.tokens = Some(tokens("one first-secret-token-1234\nother other-secret-token-1234\n"));
    });
    play(&serving, "another_token_sees_nothing_of_a_session", "first-secret-token-1234");
}

#[test]
fn the_inspector() {
    play(&Serving::start(), "the_inspector", "");
}
