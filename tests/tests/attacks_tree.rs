//! Attacks B: the process tree. Whatever it forks, detaches or signals, all of it dies and nothing else does.

use std::time::Duration;

use sandtimer_tests::attack::check;
use sandtimer_tests::rows::TREE;
use sandtimer_tests::wait::alone;

#[test]
fn every_attack_of_the_table_comes_to_what_it_must() {
    let _alone = alone("tree attacks", Duration::from_secs(900));
    check(TREE);
}
