//! Wording and tables by example; the algebra by property, against definitions written out again.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::model::{Layer, LimitKind, Source};

const SECOND: u64 = 1_000_000_000;
const KINDS: [LimitKind; 12] = [
    LimitKind::Wall,
    LimitKind::Cpu,
    LimitKind::Stall,
    LimitKind::Idle,
    LimitKind::Turns,
    LimitKind::Failures,
    LimitKind::Memory,
    LimitKind::Processes,
    LimitKind::Output,
    LimitKind::Disk,
    LimitKind::OpenFiles,
    LimitKind::Result,
];
const SOURCES: [Source; 5] = [Source::Call, Source::Session, Source::Env, Source::Config, Source::Builtin];

fn location(scope: &str) -> ScopeLocation {
    ScopeLocation { layer: Layer::Run, scope: scope.into() }
}

fn job() -> ScopeLocation {
    ScopeLocation { layer: Layer::Job, scope: "job/7f3".into() }
}

fn own(limits: &Limits) -> ScopeOwnLimits {
    precedence(&[(Source::Call, limits)])
}

fn flag(kind: impl Into<Key>, text: &str) -> Result<Setting, LimitError> {
    parse_string("--flag", Format::flag(kind), text, "the command line")
}

#[test]
fn keys_match_their_indices_and_are_found_by_name() {
    for (index, key) in Key::ALL.into_iter().enumerate() {
        assert_eq!(key.index(), index);
        assert_eq!(Key::from_wire(key.wire()), Some(key));
    }
    assert!(KINDS.into_iter().all(|kind| Key::ALL.contains(&Key::Kind(kind))));
    assert_eq!(Key::from_wire("wall"), None);
}

#[test]
fn durations_of_flags() {
    for (text, nanoseconds) in [
        ("2", 2 * SECOND),
        ("2.5", 5 * SECOND / 2),
        ("2s", 2 * SECOND),
        (" 2 s ", 2 * SECOND),
        ("1.5s", 3 * SECOND / 2),
        ("500ms", SECOND / 2),
        ("1h30m", 5400 * SECOND),
        ("1h 30m", 5400 * SECOND),
        ("1d", 86_400 * SECOND),
        ("0.1s", SECOND / 10),
        ("1us", 1_000),
        ("0.0000000001s", 1),
        ("0h1s", SECOND),
        ("40000d", nanoseconds(FAR_FUTURE)),
        ("999999999999999999999999999999999999999999999d", nanoseconds(FAR_FUTURE)),
    ] {
        assert_eq!(flag(LimitKind::Wall, text), Ok(Setting::At(nanoseconds)), "{text}");
    }
}

#[test]
fn sizes_are_powers_of_1024() {
    for (text, bytes) in [
        ("1", 1),
        ("512M", 512 << 20),
        ("10MB", 10 << 20),
        ("1G", 1 << 30),
        ("1gib", 1 << 30),
        ("64k", 64 << 10),
        ("1.5G", 3 << 29),
        ("7B", 7),
        ("18446744073709551615", u64::MAX),
    ] {
        assert_eq!(flag(LimitKind::Output, text), Ok(Setting::At(bytes)), "{text}");
    }
}

#[test]
fn what_no_command_can_be_started_under_is_refused() {
    let refused = flag(LimitKind::Memory, "4K").unwrap_err().to_string();
    assert_eq!(
        refused,
        "--flag: `4K` is less than any command needs (from the command line); use `1M` or more, or `unlimited`"
    );
    assert_eq!(flag(LimitKind::Memory, "1M"), Ok(Setting::At(1 << 20)));
    let refused = from_json("open_files", &json!(3), "the request").unwrap_err().to_string();
    assert!(
        refused.starts_with("open_files: `3` is less than any command needs (from the request); use `32`")
    );
    assert_eq!(flag(LimitKind::OpenFiles, "32"), Ok(Setting::At(32)));
    assert_eq!(flag(LimitKind::Processes, "1"), Ok(Setting::At(1)));
}

#[test]
fn zero_and_its_spellings_are_unlimited() {
    for text in ["0", "0.0", "00", "unlimited", "UNLIMITED", "none", "null", " none "] {
        for kind in KINDS {
            assert_eq!(flag(kind, text), Ok(Setting::Unlimited), "{kind:?} {text}");
        }
    }
    for text in ["0s", "0ms", "0h0m"] {
        assert_eq!(flag(LimitKind::Wall, text), Ok(Setting::Unlimited), "{text}");
    }
    assert_eq!(flag(LimitKind::Memory, "0K"), Ok(Setting::Unlimited));
}

#[test]
fn a_grace_of_zero_is_none_and_has_an_end() {
    for text in ["0", "0s", "none", "null"] {
        assert_eq!(flag(Key::Grace, text), Ok(Setting::At(0)), "{text}");
    }
    assert_eq!(from_json("grace_ms", &json!(null), "the request"), Ok(Setting::At(0)));
    let refused = flag(Key::Grace, "unlimited").unwrap_err().to_string();
    assert!(refused.ends_with("use a positive duration such as `2s`, or `0` for none"), "{refused}");
    let mut limits = Limits::new();
    limits.set(Key::Grace, Setting::Unlimited);
    assert_eq!(limits.get(Key::Grace), Setting::At(0));
}

#[test]
fn a_required_limit_cannot_be_switched_off() {
    let format = Format::required(Unit::Milliseconds);
    let parse = |text| parse_string("INTERPRETER_SPAWN_TIMEOUT_MS", format, text, "the environment");
    assert_eq!(parse("60000"), Ok(Setting::At(60 * SECOND)));
    assert_eq!(
        parse("0").unwrap_err().to_string(),
        "INTERPRETER_SPAWN_TIMEOUT_MS: `0` would leave it without a limit (from the environment); use \
         milliseconds such as `2000`, or a duration such as `2s`; this limit cannot be switched off"
    );
    assert!(parse("unlimited").is_err());
}

#[test]
fn what_is_to_be_a_whole_number_has_no_unit() {
    let parse = |key: &str, kind: LimitKind, text| {
        parse_string(key, Format { whole: true, ..Format::wire(kind) }, text, "the environment")
    };
    assert_eq!(parse("COMMAND_TIMEOUT_MS", LimitKind::Wall, "30000"), Ok(Setting::At(30 * SECOND)));
    assert_eq!(parse("COMMAND_TIMEOUT_MS", LimitKind::Wall, "unlimited"), Ok(Setting::Unlimited));
    assert_eq!(
        parse("COMMAND_TIMEOUT_MS", LimitKind::Wall, "30s").unwrap_err().to_string(),
        "COMMAND_TIMEOUT_MS: `30s` is not a whole number (from the environment); use a whole number of \
         milliseconds such as `2000`, or `unlimited`"
    );
    for (kind, text) in [(LimitKind::Wall, "1.5"), (LimitKind::Output, "10M"), (LimitKind::Output, "1.5")] {
        assert!(parse("IT", kind, text).is_err(), "{text}");
    }
}

#[test]
fn rejections_name_what_would_work() {
    let wall = parse_string("--wall", Format::flag(LimitKind::Wall), "-1s", "the command line").unwrap_err();
    assert_eq!(
        wall.to_string(),
        "--wall: `-1s` is not a duration (from the command line); use a positive duration such as `2s`, or \
         `unlimited`"
    );
    assert_eq!(
        from_json("memory_bytes", &json!(1.5), "the request").unwrap_err().to_string(),
        "memory_bytes: `1.5` is not a whole number (from the request); use a whole number of bytes, or a \
         size such as `512M`, or `unlimited`"
    );
    assert_eq!(
        from_json("processes", &json!(true), "the request").unwrap_err().to_string(),
        "processes: `true` is not a count (from the request); use a whole number such as `64`, or `unlimited`"
    );
    let unknown = from_json("wal_ms", &json!(5), "the request").unwrap_err().to_string();
    assert!(unknown.starts_with("wal_ms: `5` is set, but there is no limit of that name (from the request)"));
    assert!(unknown.contains("wall_ms"), "{unknown}");
}

#[test]
fn invalid_strings_are_rejected() {
    let durations = [
        "", " ", "-1", "-0", "+1", "nan", "NaN", "inf", "Infinity", "abc", "true", "1e3", "0x10", "1,5",
        "2 3", "5m30", "30m1h", "1s1s", "s", ".5", "5.", "1..5s", "1M", "2 s s", "\u{661}s", "1_000",
    ];
    for text in durations {
        assert!(flag(LimitKind::Wall, text).is_err(), "{text}");
    }
    for text in ["0.3K", "1.5", "1K1", "1M1K", "18446744073709551616", "16777216T", "1s", "-1K", "KB", "1e9"]
    {
        assert!(flag(LimitKind::Memory, text).is_err(), "{text}");
    }
    for text in ["1K", "1.5", "64s", "-3", "99999999999999999999"] {
        assert!(flag(LimitKind::Processes, text).is_err(), "{text}");
    }
}

#[test]
fn json_values() {
    for (key, value, setting) in [
        ("wall_ms", json!(2000), Setting::At(2 * SECOND)),
        ("wall_ms", json!(2.5), Setting::At(2_500_000)),
        ("wall_ms", json!("2s"), Setting::At(2 * SECOND)),
        ("wall_ms", json!("2000"), Setting::At(2 * SECOND)),
        ("wall_ms", json!(1e-9), Setting::At(1)),
        ("wall_ms", json!(9_007_199_254_740_992_u64), Setting::At(nanoseconds(FAR_FUTURE))),
        ("wall_ms", json!(u64::MAX), Setting::At(nanoseconds(FAR_FUTURE))),
        ("wall_ms", json!(1e300), Setting::At(nanoseconds(FAR_FUTURE))),
        ("wall_ms", json!(0), Setting::Unlimited),
        ("wall_ms", json!(0.0), Setting::Unlimited),
        ("cpu_ms", json!(null), Setting::Unlimited),
        ("stall_ms", json!("unlimited"), Setting::Unlimited),
        ("grace_ms", json!(100), Setting::At(SECOND / 10)),
        ("memory_bytes", json!("512M"), Setting::At(512 << 20)),
        ("output_bytes", json!(1024.0), Setting::At(1024)),
        ("turns", json!(100), Setting::At(100)),
    ] {
        assert_eq!(from_json(key, &value, "the request"), Ok(setting), "{key} {value}");
    }
    for (key, value) in [
        ("wall_ms", json!(-1)),
        ("wall_ms", json!(-0.5)),
        ("wall_ms", json!(true)),
        ("wall_ms", json!([1])),
        ("wall_ms", json!({"s": 1})),
        ("wall_ms", json!("")),
        ("output_bytes", json!(1e30)),
        ("disk_bytes", json!(0.5)),
        ("open_files", json!("many")),
        ("failures", json!(i64::MIN)),
    ] {
        assert!(from_json(key, &value, "the request").is_err(), "{key} {value}");
    }
}

#[test]
fn an_object_gives_its_limits_and_keeps_its_other_keys() {
    let body = json!({"command": "true", "wall_ms": 10, "memory_bytes": null, "wait_ms": -1});
    let limits = Limits::from_json_object(body.as_object().unwrap(), "the request").unwrap();
    assert_eq!(limits, Limits::new().wall(Duration::from_millis(10)).unlimited(LimitKind::Memory));
    let bad = json!({"cpu_ms": "soon"});
    assert_eq!(Limits::from_json_object(bad.as_object().unwrap(), "x").unwrap_err().key(), "cpu_ms");
}

#[test]
fn values_in_messages_are_short_and_without_control_characters() {
    let error = flag(LimitKind::Wall, &format!("\u{1b}[31m{}", "x".repeat(1000))).unwrap_err();
    assert!(error.value().starts_with("\\u{1b}[31m"), "{}", error.value());
    assert!(error.value().ends_with('…') && error.value().chars().count() < 80);
}

#[test]
fn operator_ceilings_replace_those_of_the_machine() {
    let machine = Ceilings::for_machine(10 << 30);
    assert_eq!(machine.get(LimitKind::Memory), Some(8 << 30));
    assert_eq!(machine.get(LimitKind::Processes), Some(4096));
    assert_eq!(machine.get(LimitKind::Wall), None);
    let maxima = Limits::new().wall(Duration::from_secs(60)).unlimited(LimitKind::Processes);
    let set = machine.with_operator(&maxima);
    assert_eq!(set.get(LimitKind::Wall), Some(60 * SECOND));
    assert_eq!(set.get(LimitKind::Processes), None);
    assert_eq!(set.get(LimitKind::Memory), Some(8 << 30));
    assert_eq!(Ceilings::for_machine(u64::MAX).get(LimitKind::Memory), Some(u64::MAX / 5 * 4));
}

#[test]
fn ancestors_and_ceilings_bound_the_wall_with_its_grace() {
    let mine = own(&Limits::new().wall(Duration::from_secs(10)).grace(Duration::from_secs(2)));
    let alone = nest(&location("run-1"), &mine, &[], &Ceilings::none());
    assert_eq!(alone.get(LimitKind::Wall).unwrap().value, 10 * SECOND);
    // In half seconds.
    for (left, wall, grace) in
        [(40, 20, 4), (26, 20, 4), (22, 18, 4), (8, 4, 4), (4, 2, 2), (2, 1, 1), (0, 0, 0)]
    {
        let [left, wall, grace] = [left, wall, grace].map(|halves| halves * SECOND / 2);
        let around = if grace < 2 * SECOND { Source::Ancestor } else { Source::Call };
        let bound = ScopeBound::new(job()).with(LimitKind::Wall, left);
        let effective = nest(&location("run-1"), &mine, &[bound], &Ceilings::none());
        assert_eq!(effective.get(LimitKind::Wall).unwrap().value, wall, "{left} left");
        let effect = effective.get(Key::Grace).unwrap();
        assert_eq!((effect.value, effect.source), (grace, around), "{left} left");
        let around = if grace < 2 * SECOND { Source::Ceiling } else { Source::Call };
        let ceiling = Ceilings::none().with_operator(&Limits::new().wall(Duration::from_nanos(left)));
        let effective = nest(&location("run-1"), &mine, &[], &ceiling);
        assert_eq!(effective.get(LimitKind::Wall).unwrap().value, wall, "ceiling {left}");
        let effect = effective.get(Key::Grace).unwrap();
        assert_eq!((effect.value, effect.source), (grace, around), "ceiling {left}");
    }
    // A short wall with a long grace: they fit in as they are, or the grace is cut and the wall
    // stays the scope's own.
    let short = own(&Limits::new().wall(Duration::from_secs(1)).grace(Duration::from_secs(5)));
    for (left, grace, source) in [(7, 5, Source::Call), (4, 2, Source::Ancestor)] {
        let bound = ScopeBound::new(job()).with(LimitKind::Wall, left * SECOND);
        let effective = nest(&location("run-1"), &short, &[bound], &Ceilings::none());
        let wall = effective.get(LimitKind::Wall).unwrap();
        assert_eq!((wall.value, wall.source), (SECOND, Source::Call), "{left} left");
        let effect = effective.get(Key::Grace).unwrap();
        assert_eq!((effect.value, effect.source), (grace * SECOND, source), "{left} left");
    }
}

#[test]
fn effective_limits_as_json() {
    let mine = own(&Limits::new().wall(Duration::from_secs(2)).cpu(Duration::from_micros(1)).processes(9000));
    let bound = ScopeBound::new(job()).with(LimitKind::Output, 100);
    let effective = nest(&location("run-1"), &mine, &[bound], &Ceilings::for_machine(1000));
    assert_eq!(
        serde_json::to_value(&effective).unwrap(),
        json!({
            "wall_ms": {"limit": 2000, "source": "call"},
            "grace_ms": {"limit": 0, "source": "builtin"},
            "cpu_ms": {"limit": 1, "source": "call"},
            "stall_ms": null,
            "idle_ms": null,
            "memory_bytes": {"limit": 800, "source": "ceiling"},
            "processes": {"limit": 4096, "source": "ceiling"},
            "output_bytes": {"limit": 100, "source": "ancestor", "layer": "job", "scope": "job/7f3"},
            "disk_bytes": null,
            "open_files": null,
            "result_bytes": null,
            "turns": null,
            "failures": null,
        })
    );
}

fn any_setting() -> impl Strategy<Value = Setting> {
    prop_oneof![Just(Setting::Inherit), Just(Setting::Unlimited), (0_u64..6).prop_map(Setting::At)]
}

fn any_limits() -> impl Strategy<Value = Limits> {
    proptest::collection::vec(any_setting(), Key::COUNT).prop_map(|settings| {
        let mut limits = Limits::new();
        Key::ALL.into_iter().zip(settings).for_each(|(key, setting)| limits.set(key, setting));
        limits
    })
}

fn any_ceilings() -> impl Strategy<Value = Ceilings> {
    any_limits().prop_map(|limits| Ceilings::none().with_operator(&limits))
}

fn any_bounds() -> impl Strategy<Value = Vec<ScopeBound>> {
    let bound = proptest::collection::vec(proptest::option::of(0_u64..6), KINDS.len());
    proptest::collection::vec(bound, 0..4).prop_map(|bounds| {
        let named = |(depth, values): (usize, Vec<Option<u64>>)| {
            let location = ScopeLocation { layer: Layer::Job, scope: format!("ancestor-{depth}") };
            KINDS.into_iter().zip(values).fold(
                ScopeBound::new(location),
                |bound, (kind, value)| match value {
                    Some(value) => bound.with(kind, value),
                    None => bound,
                },
            )
        };
        bounds.into_iter().enumerate().map(named).collect()
    })
}

proptest! {
    #[test]
    fn precedence_picks_the_first_that_does_not_inherit(
        layers in proptest::collection::vec((0_usize..5, any_limits()), 0..7),
    ) {
        let given: Vec<(Source, &Limits)> =
            layers.iter().map(|(source, limits)| (SOURCES[*source], limits)).collect();
        let own = precedence(&given);
        let mut ordered = layers.clone();
        ordered.sort_by_key(|(source, _)| *source);
        for key in Key::ALL {
            let first = ordered.iter().find(|(_, limits)| limits.get(key) != Setting::Inherit);
            let expected =
                first.map(|(source, limits)| (limits.get(key), SOURCES[*source]));
            prop_assert_eq!(own.get(key).map(|chosen| (chosen.setting, chosen.source)), expected);
        }
    }

    #[test]
    fn ceilings_and_ancestors_do_not_choose(limits in any_limits()) {
        prop_assert_eq!(
            precedence(&[(Source::Ancestor, &limits), (Source::Ceiling, &limits)]),
            ScopeOwnLimits::default()
        );
    }

    /// Every kind but the wall is the plain minimum, named by the outermost that has it.
    #[test]
    fn nesting_is_the_minimum_and_names_the_outermost(
        limits in any_limits(), bounds in any_bounds(), ceilings in any_ceilings(),
    ) {
        let effective = nest(&location("run-1"), &own(&limits), &bounds, &ceilings);
        for kind in KINDS.into_iter().filter(|kind| *kind != LimitKind::Wall) {
            let key = Key::Kind(kind);
            let mut outside_in = vec![(ceilings.get(kind), Source::Ceiling, "run-1")];
            for bound in &bounds {
                outside_in.push((bound.get(key), Source::Ancestor, &bound.location.scope));
            }
            outside_in.push((own(&limits).limit(kind), Source::Call, "run-1"));
            let least = outside_in.iter().filter_map(|entry| entry.0).min();
            let expected = outside_in.iter().find(|entry| entry.0.is_some() && entry.0 == least);
            let found = effective.get(kind).map(|effect| (Some(effect.value), effect.source, &*effect.scope));
            prop_assert_eq!(found, expected.copied());
        }
    }

    #[test]
    fn a_wall_and_its_grace_stay_within_every_bound(
        limits in any_limits(), bounds in any_bounds(), ceilings in any_ceilings(),
    ) {
        let effective = nest(&location("run-1"), &own(&limits), &bounds, &ceilings);
        let grace = effective.get(Key::Grace).unwrap().value;
        let around = || bounds.iter().map(|bound| bound.get(Key::Kind(LimitKind::Wall)));
        let all = || around().chain([ceilings.get(LimitKind::Wall)]).flatten();
        let Some(wall) = effective.get(LimitKind::Wall) else {
            prop_assert_eq!(all().next(), None);
            prop_assert_eq!(own(&limits).limit(LimitKind::Wall), None);
            return Ok(());
        };
        if let Some(least) = all().min() {
            prop_assert!(wall.value + grace <= least);
        }
        let mine = own(&limits).limit(LimitKind::Wall);
        prop_assert!(mine.is_none_or(|mine| wall.value <= mine));
        match wall.source {
            Source::Call => prop_assert_eq!(Some(wall.value), mine),
            Source::Ceiling => prop_assert_eq!(ceilings.get(LimitKind::Wall), all().min()),
            _ => {
                let named = bounds.iter().position(|bound| bound.location.scope == wall.scope).unwrap();
                prop_assert_eq!(around().nth(named).unwrap(), all().min());
                prop_assert!(around().take(named).flatten().all(|outer| Some(outer) > all().min()));
                prop_assert_ne!(ceilings.get(LimitKind::Wall), all().min());
            }
        }
    }

    /// An explicit "unlimited" gives way to whatever is around it.
    #[test]
    fn unlimited_never_beats_what_is_around(bounds in any_bounds(), ceilings in any_ceilings()) {
        let open = KINDS.into_iter().fold(Limits::new(), Limits::unlimited);
        let effective = nest(&location("run-1"), &own(&open), &bounds, &ceilings);
        for kind in KINDS {
            let mut around = bounds.iter().map(|bound| bound.get(Key::Kind(kind)));
            let bounded = ceilings.get(kind).is_some() || around.any(|value| value.is_some());
            prop_assert_eq!(effective.get(kind).is_some(), bounded);
        }
    }

    #[test]
    fn rejection_names_key_value_and_origin(
        text in "[-+.,a-zA-Z0-9 ]{0,12}", key in 0..Key::COUNT, as_flag in any::<bool>(),
    ) {
        let key = Key::ALL[key];
        let format = if as_flag { Format::flag(key) } else { Format::wire(key) };
        match parse_string("SOME_KEY", format, &text, "some origin") {
            Ok(setting) => prop_assert_ne!(setting, Setting::Inherit),
            Err(error) => {
                let message = error.to_string();
                prop_assert!(message.starts_with("SOME_KEY: "));
                let shown = format!("`{text}`");
                prop_assert!(message.contains(&shown));
                prop_assert!(message.contains("(from some origin); use "));
            }
        }
    }

    #[test]
    fn any_string_is_parsed_or_rejected(text in any::<String>(), key in 0..Key::COUNT) {
        let key = Key::ALL[key];
        if let Ok(Setting::At(0)) = parse_string("key", Format::wire(key), &text, "origin") {
            prop_assert_eq!(key, Key::Grace);
        }
    }

    #[test]
    fn numbers_in_json_and_strings_agree(number in any::<u64>(), key in 0..Key::COUNT) {
        let key = Key::ALL[key];
        let text = parse_string(key.wire(), Format::wire(key), &number.to_string(), "origin");
        prop_assert_eq!(from_json(key.wire(), &json!(number), "origin"), text);
    }

    #[test]
    fn negative_numbers_are_refused(
        number in i64::MIN..0, float in -1e300_f64..-1e-300, key in 0..Key::COUNT,
    ) {
        let key = Key::ALL[key].wire();
        prop_assert!(from_json(key, &json!(number), "origin").is_err());
        prop_assert!(from_json(key, &json!(float), "origin").is_err());
    }
}
