//! Precedence and refusals, on texts; the files themselves are read in the black-box tests.

use std::ffi::OsString;
use std::time::Duration;

use sandtimer::limits::{Format, Key, Limits, Setting, parse_string};
use sandtimer::model::{LimitKind, Source};

use super::contexts::ContextSettings;
use super::given::environment;
use super::layers::LayeredLimits;
use super::loaded::CAPTURED_OUTPUT;
use super::*;
use crate::args::{LimitFlags, PolicyFlags};

fn found(path: &str, text: &str) -> file::ConfigFile {
    file::ConfigFile { path: path.into(), identity: (0, 0), text: text.to_owned() }
}

fn parse(text: &str) -> Result<file::ParsedFile, String> {
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
    assert_eq!(parse(DEFAULT_FILE).expect("valid"), file::ParsedFile::default());
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
        assert_eq!(parsed.limits().get(name.key), built_in, "{}", name.file);
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
        assert_eq!(parse(text).expect(text).limits(), limits, "{text}");
    }
    assert_eq!(
        parse("[limits]\ncommand_timeout_ms = 2000").expect("valid").limits(),
        Limits::new().wall(seconds(2))
    );
    assert_eq!(parse("[max]\nwall = \"1h\"").expect("valid").maxima, Limits::new().wall(seconds(3600)));
    assert!(refused("wall = 1\n[limits]\nwall = 2").contains("`wall` is set at the top and in [limits]"));
}

#[test]
fn file_rejects_unknown_keys_by_name() {
    assert!(refused("wal = \"2s\"").contains("unknown key `wal`; the nearest known one is `wall`"));
    assert!(
        refused("[limits]\nmemori = 1").contains("`memori` in [limits]; the nearest known one is `memory`")
    );
    assert!(refused("[limit]\nwall = 1").contains("`limits`"));
    assert!(refused("network = true").contains("`network` cannot be set in a file; give --network"));
    assert!(refused("workspaces = [\"/x\"]").contains("give --workspace "));
    assert!(refused("max = 3").contains("has to be a table"));
    assert!(refused("\n\nwall = = 2").starts_with("/f.toml:3: not TOML"));
    assert!(refused("\n[limits]\nwal = 2").starts_with("/f.toml:3: unknown key `wal`"));
    assert!(refused("\ncpu = -2").contains("(from /f.toml:2)"));
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
        let layers = environment(&move |name| {
            set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
        });
        layers.map(|layers| Config { layers, ..Config::default() })
    };
    let wall = |set, uses| {
        let own = with(set).expect("valid").own(uses, &Limits::new(), false);
        own.get(LimitKind::Wall).map(|chosen| (chosen.setting, chosen.origin.as_deref().map(str::to_owned)))
    };
    let at = |milliseconds: u64, origin: &str| {
        Some((Setting::At(milliseconds * 1_000_000), Some(origin.to_owned())))
    };
    let command = &[("COMMAND_TIMEOUT_MS", "2500")];
    assert_eq!(wall(command, Uses::Commands), at(2500, "COMMAND_TIMEOUT_MS"));
    assert_eq!((wall(command, Uses::Code), wall(command, Uses::JavaScript)), (None, None));
    let unlimited = wall(&[("COMMAND_TIMEOUT_MS", "0")], Uses::Commands).expect("said");
    assert_eq!(unlimited.0, Setting::Unlimited);
    let both = &[("COMMAND_TIMEOUT_MS", "1"), ("SANDTIMER_WALL", "3")];
    assert_eq!(wall(both, Uses::Commands), at(3000, "SANDTIMER_WALL"));
    let output = with(&[("MAX_OUTPUT_SIZE_BYTES", "100")]).expect("valid");
    assert_eq!(output.own(Uses::Code, &Limits::new(), false).limit(LimitKind::Output), Some(100));
    let refused = with(&[("SANDTIMER_MEMORY", "lots")]).expect_err("no size").message;
    assert!(
        refused.starts_with("SANDTIMER_MEMORY: `lots` is not a size (from the environment)"),
        "{refused}"
    );
    assert!(with(&[("SANDTIMER_WALL", "")]).is_err());
}

#[test]
fn flags_that_are_not_utf8_are_rejected() {
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
    let layered = |(source, limits): &(Source, Limits)| LayeredLimits {
        source: *source,
        uses: Uses::Everything,
        limits: limits.clone().with_origin("/f.toml:1"),
    };
    Config {
        layers: layers.iter().map(layered).collect(),
        ceilings: ceilings
            .iter()
            .enumerate()
            .map(|(at, limits)| (format!("/{at}.toml").into(), limits.clone()))
            .collect(),
        ..Config::default()
    }
}

#[test]
fn a_file_of_the_directory_only_tightens() {
    let check = |config: &Config, call: &Limits, text: &str| {
        let found = found("sandtimer.toml", text);
        let bounds = local::bounds(&found).map_err(|failure| failure.message)?;
        local::check(&found, &bounds, &config.effective(Uses::Commands, call, false))
            .map_err(|failure| failure.message)
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
        "sandtimer.toml:1: wall = `11s` would loosen what applies without this file, which is 10s; use 10s or less, or \
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
    let ceilings = check(&nothing, &call, "cpu = 1\n[max]\nwall = 1").expect_err("ceilings");
    assert!(ceilings.starts_with("sandtimer.toml:2: [max] is read only"), "{ceilings}");
}

#[test]
fn the_smallest_ceiling_counts() {
    let machine = Limits::new().wall(seconds(60)).processes(100).unlimited(LimitKind::Memory);
    let user = Limits::new().wall(seconds(90)).unlimited(LimitKind::Processes).memory(1 << 30);
    let maxima = config(&[], &[machine, user]).maxima();
    assert_eq!(maxima, Limits::new().wall(seconds(60)).processes(100).memory(1 << 30));
}

#[test]
fn shown_settings_name_their_origin() {
    let layers = [(Source::Config, Limits::new().wall(seconds(5)).unlimited(LimitKind::Cpu))];
    let shown = config(&layers, &[Limits::new().disk(7)]).shown();
    let of = |name: &str| {
        let found = shown.iter().find(|shown| shown.name == name).expect("listed");
        match found.value {
            SettingValue::Limit(_, limit) => (limit, found.source, found.origin.as_str()),
            _ => panic!("{found:?}"),
        }
    };
    assert_eq!(of("wall"), (Some(5_000_000_000), Source::Config, "/f.toml:1"));
    assert_eq!(of("cpu"), (None, Source::Config, "/f.toml:1"));
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
        let read = parse_string("key", Format::flag(key), text, "here");
        assert_eq!(read, Ok(limit.map_or(Setting::Unlimited, Setting::At)), "{text}");
    }
}

#[test]
fn smaller_javascript_limit_counts_and_is_named() {
    let chosen = |set: &'static [(&str, &str)], file: &str| {
        let layers = environment(&move |name| {
            set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
        });
        let mut config = Config { layers: layers.expect("valid"), ..Config::default() };
        config.layers.extend(parse(file).expect("valid").layers);
        let own = config.own(Uses::JavaScript, &Limits::new(), false);
        own.get(LimitKind::Wall).cloned().map(|chosen| {
            let limit = match chosen.setting {
                Setting::At(limit) => Some(limit / 1_000_000),
                _ => None,
            };
            (limit, chosen.source, chosen.origin.expect("known").to_string())
        })
    };
    let expected = |limit, source, origin: &str| Some((limit, source, origin.to_owned()));
    let (code, vm) = ("INTERPRETER_EXECUTION_TIMEOUT_MS", "VM_EXECUTION_TIMEOUT_MS");
    let both = &[("INTERPRETER_EXECUTION_TIMEOUT_MS", "5000"), ("VM_EXECUTION_TIMEOUT_MS", "2000")];
    assert_eq!(chosen(both, ""), expected(Some(2000), Source::Env, vm));
    let other = &[("INTERPRETER_EXECUTION_TIMEOUT_MS", "1000"), ("VM_EXECUTION_TIMEOUT_MS", "2000")];
    assert_eq!(chosen(other, ""), expected(Some(1000), Source::Env, code));
    // Each is picked by precedence, and only then are they compared.
    let file = "\nvm_execution_timeout_ms = 700";
    assert_eq!(
        chosen(&[("INTERPRETER_EXECUTION_TIMEOUT_MS", "5000")], file),
        expected(Some(700), Source::Config, "/f.toml:2")
    );
    assert_eq!(chosen(&[("VM_EXECUTION_TIMEOUT_MS", "0")], file), expected(None, Source::Env, vm));
    assert_eq!(
        chosen(&[("INTERPRETER_EXECUTION_TIMEOUT_MS", "0")], file),
        expected(Some(700), Source::Config, "/f.toml:2")
    );
    assert_eq!(chosen(&[], ""), None);
}

#[test]
fn what_cannot_be_a_timeout_is_refused_by_name_value_and_remedy() {
    let names = SHARED_NAMES.map(|name| name.variable).into_iter().chain(STARTS.map(|start| start.variable));
    for variable in names {
        let with = |value: &'static str| {
            let variable_value = move |name: &str| (name == variable).then(|| value.into());
            environment(&variable_value)
                .map(drop)
                .and_then(|()| ContextSettings::given(&PolicyFlags::default(), &variable_value).map(drop))
        };
        for value in ["abc", "-1", "1e99", "1.5", "", "NaN", "true", "0x10"] {
            let message = with(value).expect_err(value).message;
            assert!(message.starts_with(&format!("{variable}: `{value}` ")), "{message}");
            assert!(message.contains("(from the environment); use "), "{message}");
        }
        assert_eq!(with("250"), Ok(()), "{variable}");
        let is_start = STARTS.iter().any(|start| start.variable == variable);
        for value in ["0", "unlimited"] {
            assert_eq!(with(value).is_err(), is_start, "{variable}={value}");
        }
    }
    let zero = ContextSettings::given(&PolicyFlags::default(), &|name| {
        (name == "INTERPRETER_SPAWN_TIMEOUT_MS").then(|| "0".into())
    });
    let message = zero.expect_err("required").message;
    assert!(
        message.starts_with("INTERPRETER_SPAWN_TIMEOUT_MS: `0` ")
            && message.contains("cannot be switched off"),
        "{message}"
    );
    assert!(refused("command_timeout_ms = 1e99").contains("command_timeout_ms: `1e99`"));
    assert!(refused("interpreter_prewarm_timeout_ms = 0").contains("cannot be switched off"));
}

#[test]
fn file_sets_prewarm_scripts_and_pools() {
    let parsed = parse(
        "[limits]\ninterpreter_spawn_timeout_ms = 500\n\n[pool]\npython = 5\n[prewarm]\npython = \"/p.py\"\nbash = \"/p.sh\"",
    );
    let mut contexts = ContextSettings::default();
    contexts.add(parsed.expect("valid").contexts);
    let [spawn, prewarm] = contexts.starts();
    assert_eq!((spawn.value, spawn.origin.as_str()), (Duration::from_millis(500), "/f.toml:2"));
    assert_eq!((prewarm.value, prewarm.origin.as_str()), (seconds(30), "built in"));
    assert_eq!((contexts.pool("python").value, contexts.pool("python").origin.as_str()), (5, "/f.toml:5"));
    assert_eq!(contexts.prewarm("python").map(|set| set.origin.as_str()), Some("/f.toml:7"));
    assert_eq!(contexts.prewarm("bash").map(|set| set.origin.as_str()), Some("/f.toml:8"));
    for (text, expected) in [
        ("[pool]\npython = 65", "pool.python: `65`"),
        ("[pool]\npython = -1", "pool.python: `-1`"),
        (
            "[pool]\nbash = 1",
            "pool.bash: `bash` is not one of the languages of this setting (from /f.toml:2); use one of python, javascript",
        ),
        ("[prewarm]\ncobol = \"/p\"", "use one of python, javascript, bash"),
        ("[prewarm]\npython = \"p.py\"", "prewarm.python: `p.py` is not an absolute path"),
        ("[prewarm]\npython = 3", "prewarm.python: `3`"),
        ("pool = 3", "has to be a table"),
        ("[max]\nvm_execution_timeout_ms = 3", "unknown key"),
    ] {
        let message = refused(text);
        assert!(message.contains(expected), "{message}");
    }
    for text in ["vm_execution_timeout_ms = 5", "[pool]\npython = 1", "interpreter_spawn_timeout_ms = 5"] {
        let message = local::bounds(&found("sandtimer.toml", text)).expect_err("of a server").message;
        assert!(message.contains("your own file"), "{message}");
    }
}
