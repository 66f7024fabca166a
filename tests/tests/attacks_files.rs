//! Attacks E: files and escape. Nothing outside the allow-list is read, nothing outside the scratch
//! written.

use std::time::Duration;

use sandtimer_tests::attack::check;
use sandtimer_tests::attack_list::FILES;
use sandtimer_tests::command::RunInvocation;
use sandtimer_tests::wait::alone;

#[test]
fn every_attack_of_the_table_comes_to_what_it_must() {
    let _alone = alone("files attacks", Duration::from_secs(900));
    check(FILES);
}

/// A home may be on the way to an installation; then only that way is there.
#[test]
fn a_home_shows_nothing_but_the_way_to_programs() {
    let _alone = alone("homes", Duration::from_secs(30));
    let inside = RunInvocation::new().flags(&["--wall", "10s"]).command(&[
        "sh",
        "-c",
        "find /root /home -maxdepth 1 -mindepth 1",
    ]);
    let (outcome, _) = inside.outcome().unwrap();
    assert!(outcome.ok() || outcome.exit_code() == Some(1), "find could not run");
    for path in outcome.stdout().lines() {
        let name = path.rsplit('/').next().unwrap_or(path);
        assert!(
            [".pyenv", ".rustup", ".cargo", ".nvm", ".local", ".conda"].contains(&name),
            "{path} is shown"
        );
    }
}
