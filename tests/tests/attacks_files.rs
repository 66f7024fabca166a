//! Attacks E: files and escape. Nothing outside the allow-list is read, nothing outside the scratch written.

use std::time::Duration;

use sandtimer_tests::attack::check;
use sandtimer_tests::rows::FILES;
use sandtimer_tests::wait::alone;

#[test]
fn every_attack_of_the_table_comes_to_what_it_must() {
    let _alone = alone("files attacks", Duration::from_secs(900));
    check(FILES);
}
