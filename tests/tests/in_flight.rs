//! The same attacks beside honest runs: the attacks come to the same, and the honest runs do not change by a byte.

use std::time::Duration;

use sandtimer_tests::attack::attack;
use sandtimer_tests::count;
use sandtimer_tests::honest::Company;
use sandtimer_tests::rows::ALL;
use sandtimer_tests::scene::Scene;
use sandtimer_tests::wait::alone;

#[test]
fn attacks_do_not_touch_honest_runs_beside_them() {
    let _alone = alone("in flight", Duration::from_secs(1500));
    let mut scene = Scene::new();
    let company = Company::of(count(4, 50));
    let mut failures = vec![];
    for row in ALL.iter().flat_map(|rows| rows.iter()) {
        if let Err(error) = attack(row, &mut scene) {
            failures.push(format!("{} {}: {error}", row.attack, row.payload.join(" ")));
        }
    }
    let honest = company.leave();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    honest.unwrap_or_else(|error| panic!("{error}"));
}
