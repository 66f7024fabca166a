//! Attacks A: time and CPU. Whatever the code does, the verdict comes at the deadline and nothing
//! is left.

use std::time::Duration;

use sandtimer_tests::attack::check;
use sandtimer_tests::attack_list::TIME;
use sandtimer_tests::wait::alone;

#[test]
fn every_attack_of_the_table_comes_to_what_it_must() {
    let _alone = alone("time attacks", Duration::from_secs(900));
    check(TIME);
}
