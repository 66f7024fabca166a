use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use super::*;

fn parse(arguments: &[&str]) -> Result<ParseResult, BwrapFailure> {
    BwrapOptions::parse(arguments.iter().map(OsString::from).collect(), &mut Messages::default())
}

fn options(arguments: &[&str]) -> BwrapOptions {
    match parse(arguments).expect("valid arguments") {
        ParseResult::Run(options) => *options,
        other => panic!("{other:?}"),
    }
}

fn refused(arguments: &[&str]) -> String {
    parse(arguments).expect_err("invalid arguments").0
}

#[test]
fn operations_keep_their_sequence() {
    let parsed =
        options(&["--tmpfs", "/a", "--ro-bind-try", "/b", "/c", "--remount-ro", "/", "--", "true", "--x"]);
    assert_eq!(parsed.command, ["true", "--x"]);
    assert!(matches!(&parsed.operations[0], Operation::Tmpfs { mode: 0o755, size: None, .. }));
    let Operation::Bind { access, may_be_absent, .. } = &parsed.operations[1] else { panic!("a bind") };
    assert_eq!((*access, *may_be_absent), (Access::ReadOnly, true));
    assert_eq!(parsed.operations[2], Operation::RemountReadOnly("/".into()));
}

#[test]
fn rejections_match_those_of_bubblewrap() {
    let cases: [(&[&str], &str); 19] = [
        (&["--nonsense", "true"], "Unknown option --nonsense"),
        (&["-x"], "Unknown option -x"),
        (&["--bind", "/a"], "--bind takes two arguments"),
        (&["--chdir"], "--chdir takes one argument"),
        (&["--proc"], "--proc takes an argument"),
        (&["--sync-fd", "x", "true"], "Invalid fd: x"),
        (&["--info-fd", "-3", "true"], "Invalid fd: -3"),
        (&["--perms", "9", "--dir", "/a", "true"], "--perms takes an octal argument <= 07777"),
        (
            &["--perms", "0644", "--proc", "/p", "true"],
            "--perms must be followed by an option that creates a file",
        ),
        (&["--size", "1", "--dir", "/a", "true"], "--size must be followed by --tmpfs"),
        (&["--size", "0", "--tmpfs", "/a", "true"], "--size takes a non-zero number of bytes"),
        (
            &["--size", "18446744073709551616", "--tmpfs", "/a", "true"],
            "--size takes a non-zero number of bytes",
        ),
        (
            &["--size", "9223372036854775809", "--tmpfs", "/a", "true"],
            "--size (for tmpfs) is limited to 9223372036854775807",
        ),
        (&["--overlay", "a", "b", "c", "true"], "--overlay requires at least one --overlay-src"),
        (
            &["--overlay-src", "/a", "--ro-overlay", "/b", "true"],
            "--ro-overlay requires at least two --overlay-src",
        ),
        (&["--cap-add", "CAP_NONE", "true"], "unknown cap: CAP_NONE"),
        (&["--hostname", "x", "true"], "Specifying --hostname requires --unshare-uts"),
        (&["--as-pid-1", "true"], "Specifying --as-pid-1 requires --unshare-pid"),
        (&["--disable-userns", "true"], "--disable-userns requires --unshare-user"),
    ];
    for (arguments, message) in cases {
        assert_eq!(refused(arguments), message, "{arguments:?}");
    }
    assert!(refused(&["--overlay-src", "/a", "true"]).starts_with("--overlay-src must be followed by"));
}

#[test]
fn descriptors_must_be_open() {
    for option in ["--sync-fd", "--block-fd", "--info-fd", "--json-status-fd", "--seccomp", "--pidns"] {
        let message = refused(&[option, "98765", "true"]);
        assert!(message.contains("Bad file descriptor"), "{option}: {message}");
    }
    assert!(refused(&["--args", "98765"]).starts_with("Can't read --args data: Bad file descriptor"));
    let message = refused(&["--ro-bind-data", "98765", "/a", "true"]);
    assert!(message.starts_with("Can't write data to file /a: Bad file descriptor"), "{message}");
}

#[test]
fn overlay_sources_are_top_first() {
    let parsed =
        options(&["--overlay-src", "low", "--overlay-src", "high", "--overlay", "rw", "work", "/d", "true"]);
    let [Operation::Overlay { lower, upper, destination }] = &parsed.operations[..] else {
        panic!("an overlay")
    };
    assert_eq!(lower, &[PathBuf::from("high"), PathBuf::from("low")]);
    assert_eq!(upper, &Upper::Directories { upper: "rw".into(), work: "work".into() });
    assert_eq!(destination, &PathBuf::from("/d"));
}

#[test]
fn arguments_come_from_a_descriptor() {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(b"--dir\0/a\0--setenv\0A\0\0").expect("written");
    std::io::Seek::rewind(&mut file).expect("rewound");
    // The parser closes the number.
    let number = file.as_raw_fd();
    std::mem::forget(file);
    let parsed = options(&["--args", &number.to_string(), "true"]);
    assert_eq!(parsed.operations, [Operation::Directory { destination: "/a".into(), mode: 0o755 }]);
    let environment = parsed.environment([("A".into(), "old".into()), ("B".into(), "b".into())].into_iter());
    assert_eq!(environment, [("B".into(), "b".into()), ("A".into(), OsString::new())]);
}

#[test]
fn everything_unshared_but_the_network() {
    let parsed = options(&["--unshare-all", "--share-net", "true"]);
    let asked = parsed.unshared;
    assert!(asked.pid && asked.ipc && asked.uts && asked.cgroup_try && !asked.net);
    assert!(parsed.has_init());
    assert!(!options(&["--unshare-pid", "--as-pid-1", "true"]).has_init());
    assert!(!options(&["--unshare-ipc", "true"]).has_init());
}

#[test]
fn without_a_command_the_usage_is_shown() {
    assert!(matches!(parse(&[]), Ok(ParseResult::NoCommand)));
    assert!(matches!(parse(&["--unshare-all"]), Ok(ParseResult::NoCommand)));
    assert!(matches!(parse(&["--unshare-all", "--version"]), Ok(ParseResult::Version)));
    assert!(matches!(parse(&["--help"]), Ok(ParseResult::Help)));
}
