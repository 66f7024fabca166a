//! Attacks F: kernel surface. System calls no ordinary program needs are refused.

use std::time::Duration;

use sandtimer_tests::attack::check;
use sandtimer_tests::rows::KERNEL;
use sandtimer_tests::wait::alone;

#[test]
fn every_attack_of_the_table_comes_to_what_it_must() {
    let _alone = alone("kernel attacks", Duration::from_secs(900));
    check(KERNEL);
}
