//! The same attacks beside honest runs: the attacks come to the same, and the honest runs do not
//! change by a byte.

use std::time::Duration;

use sandtimer_tests::attack::{AttackSpec, attack};
use sandtimer_tests::attack_list::ALL;
use sandtimer_tests::count;
use sandtimer_tests::honest::Company;
use sandtimer_tests::scene::CanaryScene;
use sandtimer_tests::side_by_side::{AT_ONCE, side_by_side};
use sandtimer_tests::wait::alone;

#[test]
fn attacks_do_not_affect_concurrent_honest_runs() {
    let _alone = alone("in flight", Duration::from_secs(1500));
    let mut scenes: Vec<CanaryScene> = (0..AT_ONCE).map(|_| CanaryScene::new()).collect();
    let company = Company::of(count(4, 50));
    let mut failures = vec![];
    let specs: Vec<&AttackSpec> = ALL.iter().copied().flatten().collect();
    for group in specs.chunks(AT_ONCE) {
        failures.extend(side_by_side(group.iter().zip(&mut scenes), |(spec, scene)| {
            attack(spec, scene).map_err(|error| format!("{}: {error}", spec.name()))
        }));
    }
    let honest = company.leave();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    honest.unwrap_or_else(|error| panic!("{error}"));
}
