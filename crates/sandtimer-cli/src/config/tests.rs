//! Precedence and refusals, on texts; the files themselves are read in the black-box tests.

use std::time::Duration;

use super::*;

fn found(path: &str, text: &str) -> file::Found {
    file::Found { path: path.into(), identity: (0, 0), text: text.to_owned() }
}

fn parse(text: &str) -> Result<file::Parsed, String> {
    file::parse(&found("/f.toml", text)).map_err(|failure| failure.message)
}

fn refused(text: &str) -> String {
    let message = parse(text).expect_err(text);
    assert!(message.contains("/f.toml"), "{message}");
    message
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn the_default_file_is_what_is_built_in() {
    assert_eq!(parse(DEFAULT_FILE).expect("valid"), file::Parsed::default());
    let uncommented: String = DEFAULT_FILE
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(setting) if setting.starts_with(|first: char| first.is_ascii_lowercase()) => {
                format!("{setting}\n")
            }
            _ => format!("{line}\n"),
        })
        .collect();
    let parsed = parse(&uncommented).unwrap_or_else(|message| panic!("{message}"));
    for name in NAMES {
        let built_in = match name.key {
            Key::Kind(LimitKind::Output) => Setting::At(CAPTURED_OUTPUT),
            Key::Grace => Setting::At(0),
            Key::Kind(_) => Setting::Unlimited,
        };
        assert_eq!(parsed.limits.get(name.key), built_in, "{}", name.file);
        assert_ne!(parsed.maxima.get(name.key), Setting::Inherit, "max.{}", name.file);
    }
}

#[test]
fn limits_stand_in_their_table_or_at_the_top() {
    let limits = Limits::new().wall(seconds(2)).memory(512 << 20);
    for text in [
        "wall = \"2s\"\nmemory = \"512M\"",
        "[limits]\nwall = 2\nmemory = 536870912",
        "limits = {wall = 2.0, memory = \"0.5G\"}",
    ] {
        assert_eq!(parse(text).expect(text).limits, limits, "{text}");
    }
    assert_eq!(
        parse("[limits]\ncommand_timeout_ms = 2000").expect("valid").limits,
        Limits::new().wall(seconds(2))
    );
    assert_eq!(parse("[max]\nwall = \"1h\"").expect("valid").maxima, Limits::new().wall(seconds(3600)));
    assert!(refused("wall = 1\n[limits]\nwall = 2").contains("`wall` is set at the top and in [limits]"));
}

#[test]
fn what_a_file_cannot_say_is_refused_by_name() {
    assert!(refused("wal = \"2s\"").contains("unknown key `wal`; the nearest known one is `wall`"));
    assert!(
        refused("[limits]\nmemori = 1").contains("`memori` in [limits]; the nearest known one is `memory`")
    );
    assert!(refused("[limit]\nwall = 1").contains("`limits`"));
    assert!(refused("network = true").contains("`network` cannot be set in a file; give --network"));
    assert!(refused("workspaces = [\"/x\"]").contains("give --workspace "));
    assert!(refused("max = 3").contains("has to be a table"));
    assert!(refused("\n\nwall = = 2").starts_with("/f.toml:3: not TOML"));
    for (text, key, value) in [
        ("wall = \"soon\"", "wall", "`soon`"),
        ("wall = -1", "wall", "`-1`"),
        ("wall = nan", "wall", "`NaN`"),
        ("wall = true", "wall", "`true`"),
        ("wall = [1]", "wall", "`[…]`"),
        ("[max]\nmemory = \"10X\"", "max.memory", "`10X`"),
        ("processes = 1.5", "processes", "`1.5`"),
    ] {
        let message = refused(text);
        assert!(message.starts_with(&format!("{key}: {value}")), "{text}: {message}");
    }
}

#[test]
fn own_variables_win_over_shared_ones() {
    let with = |set: &'static [(&str, &str)]| {
        environment(&move |name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
    };
    assert_eq!(with(&[("COMMAND_TIMEOUT_MS", "2500")]), Ok(Limits::new().wall(Duration::from_millis(2500))));
    assert_eq!(with(&[("COMMAND_TIMEOUT_MS", "0")]), Ok(Limits::new().unlimited(LimitKind::Wall)));
    assert_eq!(
        with(&[("COMMAND_TIMEOUT_MS", "1"), ("SANDTIMER_WALL", "3")]),
        Ok(Limits::new().wall(seconds(3)))
    );
    assert_eq!(with(&[("MAX_OUTPUT_SIZE_BYTES", "100")]), Ok(Limits::new().output(100)));
    let refused = with(&[("SANDTIMER_MEMORY", "lots")]).expect_err("no size").message;
    assert!(
        refused.starts_with("SANDTIMER_MEMORY: `lots` is not a size (from the environment)"),
        "{refused}"
    );
    assert!(with(&[("SANDTIMER_WALL", "")]).is_err());
}

#[test]
fn flags_that_are_no_text_are_refused() {
    use std::os::unix::ffi::OsStringExt;
    let flags =
        LimitFlags { open_files: Some(OsString::from_vec(vec![b'1', 0xff])), ..LimitFlags::default() };
    let message = from_flags(&flags).expect_err("no text").message;
    assert!(
        message.starts_with("--open-files: `1\u{fffd}` is not text (from the command line)"),
        "{message}"
    );
}

fn config(layers: &[(Source, Limits)], ceilings: &[Limits]) -> Config {
    let origin = |source| match source {
        Source::Env => Origin::Environment,
        _ => Origin::File("/f.toml".into()),
    };
    let layered = |(source, limits): &(Source, Limits)| Layered {
        source: *source,
        origin: origin(*source),
        limits: limits.clone(),
    };
    Config {
        layers: layers.iter().map(layered).collect(),
        ceilings: ceilings
            .iter()
            .enumerate()
            .map(|(at, limits)| (format!("/{at}.toml").into(), limits.clone()))
            .collect(),
    }
}

#[test]
fn a_file_of_the_directory_only_tightens() {
    let check = |config: &Config, call: &Limits, text: &str| {
        let found = found("sandtimer.toml", text);
        let bounds = local::bounds(&found).map_err(|failure| failure.message)?;
        local::check(&found.path, &bounds, &config.effective(call, false)).map_err(|failure| failure.message)
    };
    let nothing = config(&[], &[]);
    let call = Limits::new().wall(seconds(10));
    for text in
        ["wall = 10", "wall = \"1s\"", "cpu = \"1h\"", "output = \"1G\"", "grace = 0", "processes = 64"]
    {
        assert_eq!(check(&nothing, &call, text), Ok(()), "{text}");
    }
    let looser = check(&nothing, &call, "wall = \"11s\"").expect_err("looser");
    assert_eq!(
        looser,
        "sandtimer.toml: wall = `11s` would loosen what applies without this file, which is 10s; use 10s or less, or \
         remove the key"
    );
    for text in
        ["wall = 0", "wall = \"unlimited\"", "grace = \"1s\"", "processes = 5000", "memory = \"unlimited\""]
    {
        assert!(check(&nothing, &call, text).is_err(), "{text}");
    }
    let file = config(&[(Source::Config, Limits::new().disk(1 << 20))], &[Limits::new().cpu(seconds(1))]);
    assert!(check(&file, &call, "disk = \"2M\"").is_err());
    assert!(check(&file, &call, "cpu = \"2s\"").is_err());
    assert!(check(&nothing, &call, "[max]\nwall = 1").expect_err("ceilings").contains("[max]"));
}

#[test]
fn the_smallest_ceiling_counts() {
    let machine = Limits::new().wall(seconds(60)).processes(100).unlimited(LimitKind::Memory);
    let user = Limits::new().wall(seconds(90)).unlimited(LimitKind::Processes).memory(1 << 30);
    let maxima = config(&[], &[machine, user]).maxima();
    assert_eq!(maxima, Limits::new().wall(seconds(60)).processes(100).memory(1 << 30));
}

#[test]
fn what_is_shown_says_where_it_comes_from() {
    let layers = [(Source::Config, Limits::new().wall(seconds(5)).unlimited(LimitKind::Cpu))];
    let shown = config(&layers, &[Limits::new().disk(7)]).shown();
    let of = |name: &str| {
        let found = shown.iter().find(|shown| shown.name.file == name).expect("listed");
        (found.limit, found.source, found.origin.as_str())
    };
    assert_eq!(of("wall"), (Some(5_000_000_000), Source::Config, "/f.toml"));
    assert_eq!(of("cpu"), (None, Source::Config, "/f.toml"));
    assert_eq!(of("stall"), (None, Source::Builtin, "built in"));
    assert_eq!(of("disk"), (Some(7), Source::Ceiling, "/0.toml"));
    assert_eq!(of("processes"), (Some(4096), Source::Ceiling, "a ceiling of this machine"));
    assert_eq!(of("output"), (Some(10 << 20), Source::Builtin, "built in"));
}

#[test]
fn limits_are_written_as_one_would_write_them() {
    let cases: [(Key, Option<u64>, &str); 8] = [
        (LimitKind::Wall.into(), Some(2_000_000_000), "2s"),
        (LimitKind::Wall.into(), Some(90_000_000_000), "90s"),
        (LimitKind::Wall.into(), Some(3_600_000_000_000), "1h"),
        (LimitKind::Wall.into(), Some(1_500_000), "1500us"),
        (LimitKind::Memory.into(), Some(512 << 20), "512M"),
        (LimitKind::Disk.into(), Some(1000), "1000"),
        (LimitKind::Processes.into(), Some(64), "64"),
        (LimitKind::Disk.into(), None, "unlimited"),
    ];
    for (key, limit, text) in cases {
        assert_eq!(written(key, limit), text);
        let read = parse_text("key", Format::flag(key), text, "here");
        assert_eq!(read, Ok(limit.map_or(Setting::Unlimited, Setting::At)), "{text}");
    }
}
