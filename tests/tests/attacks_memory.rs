//! Attacks B and C: memory, and what multiplies. Bombs run only once the cage they need has been seen in force.

use std::time::Duration;

use sandtimer_tests::attack::{cage_in_force, check};
use sandtimer_tests::command::Run;
use sandtimer_tests::rows::{BOMBS, MEMORY};
use sandtimer_tests::wait::alone;

#[test]
fn every_attack_of_the_table_comes_to_what_it_must() {
    let _alone = alone("memory attacks", Duration::from_secs(300));
    check(MEMORY);
}

#[test]
fn bombs_stay_inside_their_limits() {
    let _alone = alone("bombs", Duration::from_secs(600));
    cage_in_force().unwrap_or_else(|error| panic!("bombs are not run: {error}"));
    check(BOMBS);
}

#[test]
fn a_fork_bomb_never_has_more_processes_than_its_limit() {
    let _alone = alone("fork bomb count", Duration::from_secs(60));
    cage_in_force().unwrap_or_else(|error| panic!("bombs are not run: {error}"));
    let run = Run::new().flags(&["--wall", "2s", "--processes", "32"]).hostile(&["fork-bomb", "300"]);
    let (outcome, _) = run.outcome().unwrap_or_else(|error| panic!("{error}"));
    let peak = outcome.usage("processes_peak").expect("a count");
    assert!((2..=32).contains(&peak), "peak {peak} under a limit of 32: {}", outcome.0);
    assert_eq!(outcome.survivors(), Some(0), "{}", outcome.0);
}
