//! The page at `/`: its headers, and its use by a person, in a real browser.
//!
//! Each browser test is a scenario of `page/scenarios.mjs` or `page/sections.mjs`. `cargo xtask
//! npm` installs what drives the browser; without Node or Chromium they are skipped.
#![allow(clippy::disallowed_macros, reason = "a test says what it skips; it is not part of the product")]

use crate::support;

use std::path::Path;

use support::{ServerFixture, node, raw, read_to_end, tokens};

const CHROMIUM: &str = "/usr/bin/chromium";

fn drive(serving: &ServerFixture, scenario: &str, token: &str) {
    if !Path::new(CHROMIUM).exists() {
        println!("skipped: there is no {CHROMIUM}");
        return;
    }
    node::play("page", "playwright-core", &[], scenario, &serving.variables(token));
}

macro_rules! scenarios {
    ($($name:ident)+) => {
        $(#[test]
        fn $name() {
            drive(&ServerFixture::start(), stringify!($name), "");
        })+
    };
}

scenarios! {
    a_run_is_watched_extended_and_killed
    what_runs_print_stays_text
    progress_and_colours_are_folded
    several_bars_are_folded
    contexts_show_what_they_run_and_who_waits
    output_goes_on_after_the_server_was_gone
    only_the_end_of_long_output_is_fetched
    nothing_is_asked_while_nobody_looks
    sections_are_reached_and_searched_by_keyboard
    runs_are_paused_resumed_interrupted_and_forgotten
    the_layers_of_a_run_are_a_timeline
    queued_cells_have_a_line_and_are_cancelled
    results_of_cells_are_shown_and_stay_harmless
    jobs_are_shown_cancelled_retried_and_purged
    dead_letters_are_requeued
    a_store_that_is_away_leaves_the_rest
    addresses_reach_nothing_but_ids
    runs_forgotten_elsewhere_leave_the_list
    long_lists_draw_what_is_in_view
    narrow_windows_show_one_thing_at_a_time
    schedules_are_shown_and_removed
    sandboxes_are_shown_and_deleted
    queued_jobs_show_why_no_worker_has_them
    runs_show_their_contexts_and_how_long_they_waited
    lists_beyond_a_part_are_read_by_the_cursor
}

const TOKENS: &str = "one first-secret-token-1234\n";

#[test]
fn a_token_is_asked_for_once() {
    let serving = ServerFixture::with(|settings| settings.tokens = Some(tokens(TOKENS)));
    drive(&serving, "a_token_is_asked_for_once", "first-secret-token-1234");
}

/// The answer to a request for the page under this name.
fn page(serving: &ServerFixture, host: &str) -> String {
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    read_to_end(raw(serving.address, request.as_bytes()))
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let rest = text.split_once(before).unwrap_or_else(|| panic!("{before} is not in {text}")).1;
    rest.split_once(after).expect("it has an end").0
}

#[test]
fn its_policy_lets_its_own_script_run_and_nothing_else() {
    let serving = ServerFixture::with(|settings| settings.tokens = Some(tokens(TOKENS)));
    let answer = page(&serving, "localhost");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let policy = between(&answer, "content-security-policy: ", "\r\n");
    for part in ["default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"] {
        assert!(policy.contains(part), "{part}: {policy}");
    }
    assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
    let nonce = between(policy, "script-src 'nonce-", "'");
    assert_eq!(nonce.len(), 32);
    assert!(answer.contains(&format!("<script nonce=\"{nonce}\">")) && !answer.contains("{nonce}"));
    let again = page(&serving, "localhost");
    assert_ne!(between(&again, "script-src 'nonce-", "'"), nonce);
    // Nothing is fetched from other origins, and no attribute has content that the policy would
    // refuse.
    for foreign in [" src=", " onclick=", " style=", "<link rel=\"stylesheet\""] {
        assert!(!answer.contains(foreign), "{foreign}");
    }
}

#[test]
fn it_is_for_this_host_only() {
    let serving = ServerFixture::start();
    assert!(page(&serving, "evil.example").contains("\"host_refused\""));
    let (status, answer) = serving.client().post("/", &serde_json::json!({}));
    assert_eq!((status, answer["code"].as_str()), (405, Some("method_not_allowed")), "{answer}");
}
