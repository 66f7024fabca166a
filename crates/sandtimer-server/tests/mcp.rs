//! `/mcp` with the official TypeScript client and the inspector's command line, both in Node; each
//! test is a scenario of `mcp/drive.mjs`. Over stdin and stdout: `sandtimer-cli/tests/mcp.rs`; the
//! Python client's tests are in `python/tests`.

use crate::support;

use serde_json::json;
use support::{ServerFixture, node, tokens, wait_until};

fn play(serving: &ServerFixture, scenario: &str, token: &str) {
    node::play("mcp", "@modelcontextprotocol/sdk", &[], scenario, &serving.variables(token));
}

#[test]
fn every_tool() {
    play(&ServerFixture::start(), "every_tool", "");
}

#[test]
fn progress_is_sent_and_extends_the_client_timeout() {
    play(&ServerFixture::start(), "progress_is_sent_and_extends_the_client_timeout", "");
}

#[test]
fn near_limit_is_reported() {
    play(&ServerFixture::start(), "near_limit_is_reported", "");
}

#[test]
fn values_and_figures_are_shown_within_bounds() {
    play(&ServerFixture::start(), "values_and_figures_are_shown_within_bounds", "");
}

#[test]
fn ended_runs_report_their_results() {
    play(&ServerFixture::start(), "ended_runs_report_their_results", "");
}

#[test]
fn arguments_of_models_are_taken_or_named() {
    play(&ServerFixture::start(), "arguments_of_models_are_taken_or_named", "");
}

#[test]
fn a_connection_has_a_temporary_directory_of_its_own() {
    let serving = ServerFixture::start();
    play(&serving, "a_connection_has_a_temporary_directory_of_its_own", "");
    // That of the first is its interpreters', which its session has left open.
    let client = serving.client();
    for context in client.get("/v1/contexts").1["contexts"].as_array().expect("contexts") {
        client.delete(&format!("/v1/contexts/{}", context["context_id"].as_str().expect("an id")));
    }
    let own = serving.state.path().join("workspaces/own");
    let left = || {
        let entries = std::fs::read_dir(&own).expect("a directory").flatten();
        entries.filter(|entry| entry.path().join("a").exists()).count()
    };
    wait_until("they are removed", || left() == 0);
}

#[test]
fn several_bars_are_folded_to_their_last_states() {
    play(&ServerFixture::start(), "several_bars_are_folded_to_their_last_states", "");
}

#[test]
fn a_client_chooses_the_names_of_tools() {
    play(&ServerFixture::start(), "a_client_chooses_the_names_of_tools", "");
}

#[test]
fn sessions_end_with_a_status_that_clients_take() {
    play(&ServerFixture::start(), "sessions_end_with_a_status_that_clients_take", "");
}

#[test]
fn session_is_hidden_from_other_tokens() {
    let serving = ServerFixture::with(|settings| {
        settings.tokens = Some(tokens("one first-secret-token-1234\nother other-secret-token-1234\n"));
    });
    play(&serving, "session_is_hidden_from_other_tokens", "first-secret-token-1234");
}

#[test]
fn tools_of_a_session_share_its_sandbox() {
    play(&ServerFixture::start(), "tools_of_a_session_share_its_sandbox", "");
}

#[test]
fn session_without_its_sandbox_is_refused() {
    play(&ServerFixture::start(), "session_without_its_sandbox_is_refused", "");
}

#[test]
fn sandbox_needs_a_session_that_has_it() {
    play(&ServerFixture::start(), "sandbox_needs_a_session_that_has_it", "");
}

#[test]
fn session_with_a_network_needs_the_right() {
    let serving = ServerFixture::with(|settings| {
        settings.tokens =
            Some(tokens("one first-secret-token-1234\nother other-secret-token-1234 network\n"));
    });
    play(&serving, "session_with_a_network_needs_the_right", "first-secret-token-1234");
}

#[test]
fn stop_deletes_the_sandboxes_of_sessions() {
    let serving = ServerFixture::start();
    play(&serving, "session_stays_open_with_its_sandbox", "");
    let serving = ServerFixture::at(serving.stop(), |_| {});
    assert_eq!(serving.client().get("/v1/sandboxes").1, json!({"sandboxes": []}));
}

#[test]
fn the_inspector() {
    play(&ServerFixture::start(), "the_inspector", "");
}

#[test]
fn host_directories_require_the_server_user() {
    let asked = |client: support::TestClient, directory: &str| {
        let (status, refused) = client.get(&format!("/mcp/stdio?workspace={directory}"));
        assert_eq!((status, &refused["details"]["key"]), (400, &json!("workspace")), "{refused}");
        refused["message"].as_str().expect("a message").to_owned()
    };
    let serving =
        ServerFixture::with(|settings| settings.tokens = Some(tokens("one first-secret-token-1234\n")));
    let message = asked(serving.client_with("first-secret-token-1234"), "/srv");
    assert!(message.contains("a server with tokens shows no directory"), "{message}");
    let serving = ServerFixture::start();
    let message = asked(serving.client(), "srv");
    assert!(message.contains("absolute path"), "{message}");
    for directory in ["/", "/root", "/etc", "/nowhere/at/all"] {
        let (status, refused) = serving.client().get(&format!("/mcp/stdio?workspace={directory}"));
        assert_eq!(status, 400, "{directory}: {refused}");
        assert!(refused["message"].as_str().is_some_and(|message| message.contains(directory)), "{refused}");
    }
}
