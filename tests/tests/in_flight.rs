//! The same attacks beside honest runs: the attacks come to the same, and the honest runs do not
//! change by a byte.

use std::time::Duration;

use sandtimer_tests::attack::attack;
use sandtimer_tests::attack_list::ALL;
use sandtimer_tests::count;
use sandtimer_tests::honest::Company;
use sandtimer_tests::scene::CanaryScene;
use sandtimer_tests::wait::alone;

#[test]
fn attacks_do_not_affect_concurrent_honest_runs() {
    let _alone = alone("in flight", Duration::from_secs(1500));
    let mut scene = CanaryScene::new();
    let company = Company::of(count(4, 50));
    let mut failures = vec![];
    for spec in ALL.iter().flat_map(|attacks| attacks.iter()) {
        if let Err(error) = attack(spec, &mut scene) {
            failures.push(format!("{} {}: {error}", spec.attack, spec.payload.join(" ")));
        }
    }
    let honest = company.leave();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    honest.unwrap_or_else(|error| panic!("{error}"));
}
