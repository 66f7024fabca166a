//! What the command line does with the three standard streams, signals and its settings, as a shell
//! sees it.
//!
//! Limits, walls and bad input have suites of their own in the workspace's `tests`.
#![allow(
    clippy::disallowed_methods,
    reason = "the command under test is started here; the engine is inside it"
)]

use std::fs::{File, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};

fn sandtimer(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandtimer"));
    command.args(arguments).env("SANDTIMER_CONFIG", "").stdin(Stdio::null());
    for variable in ["SANDTIMER_WALL", "COMMAND_TIMEOUT_MS", "SANDTIMER_OUTPUT", "MAX_OUTPUT_SIZE_BYTES"] {
        command.env_remove(variable);
    }
    command
}

fn finish(command: &mut Command) -> (Option<i32>, String, String) {
    result(command.output().expect("it starts"))
}

fn result(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Starts a shell script under a wall-clock limit, and waits until it has printed something.
fn up(wall: &str, flags: &[&str], script: &str) -> Child {
    let mut arguments = vec!["run", "--wall", wall];
    arguments.extend(flags);
    arguments.extend(["--", "sh", "-c", script]);
    let mut child =
        sandtimer(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut line = [0; 3];
    child.stdout.as_mut().expect("piped").read_exact(&mut line).expect("it says that it is up");
    assert_eq!(&line, b"up\n");
    child
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_child(child);
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).expect("it is not reaped yet");
    sandtimer_os::process::signal(pidfd.as_fd(), signal).expect("it lives");
}

#[test]
fn open_files_limit_is_raised_for_sandtimer_only() {
    let script = "ulimit -Sn 20; exec \"$0\" run -- sh -c 'ulimit -Sn'";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_sandtimer")]).env("SANDTIMER_CONFIG", "");
    let (code, stdout, stderr) = finish(&mut command);
    assert_eq!((code, stdout.as_str()), (Some(0), "1024\n"), "{stderr}");
}

#[test]
fn streams_open_by_name_in_their_direction_only() {
    let script = "cat /dev/stdin; echo out >/dev/stdout; echo err >/dev/stderr; echo more >>/proc/self/fd/1; \
                  ! 2>/dev/null : >/dev/stdin && ! 2>/dev/null : </dev/stdout && echo 'no other way'";
    let mut child = sandtimer(&["run", "--wall", "20s", "--", "bash", "-c", script]);
    child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().expect("it starts");
    child.stdin.take().expect("piped").write_all(b"in\n").expect("written");
    let (code, output, errors) = result(child.wait_with_output().expect("it ends"));
    assert_eq!((code, errors.as_str()), (Some(0), "err\n"));
    // Where runs have their maker's uid, each of them may do both.
    assert!(output.starts_with("in\nout\nmore\n"), "{output}");
    if rustix::process::geteuid().is_root() {
        assert!(output.ends_with("no other way\n"), "{output}");
    }
}

#[test]
fn stdin_is_opened_by_its_name_where_it_is_a_file_or_nothing() {
    let script = "cat /dev/stdin && cat </proc/self/fd/0";
    let run = ["run", "--wall", "20s", "--", "bash", "-c", script];
    let (code, output, errors) = result(sandtimer(&run).stdin(Stdio::null()).output().expect("it ends"));
    assert_eq!((code, output.as_str(), errors.as_str()), (Some(0), "", ""));

    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().set_permissions(Permissions::from_mode(0o604)).expect("set");
    file.write_all(b"in\n").expect("written");
    let file = File::open(file.path()).expect("opened");
    let (code, output, errors) = result(sandtimer(&run).stdin(file).output().expect("it ends"));
    // Opened again, it is read from its beginning.
    assert_eq!((code, output.as_str(), errors.as_str()), (Some(0), "in\nin\n", ""));

    // A run cannot read the contents of a directory that it was given as a stream.
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("secret"), "secret").expect("written");
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("set");
    let directory = File::open(directory.path()).expect("opened");
    let list = ["run", "--wall", "20s", "--", "cat", "/dev/stdin/secret"];
    let (code, output, _) = result(sandtimer(&list).stdin(directory).output().expect("it ends"));
    assert_eq!((code, output.as_str()), (Some(1), ""));
}

const DEAF: &str = "trap '' TERM INT HUP; echo up; while :; do sleep 1; done";

#[test]
fn signals_end_the_run_with_their_own_exit_codes() {
    for (sent, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let child = up("20s", &[], DEAF);
        signal(&child, sent);
        let (ended, _, errors) = result(child.wait_with_output().expect("it ends"));
        assert_eq!(ended, Some(code), "{errors}");
        assert!(errors.starts_with("sandtimer: Cancelled after ") && errors.lines().count() == 1, "{errors}");
    }
}

#[test]
fn a_second_interrupt_does_not_wait_for_the_grace() {
    let mut child =
        up("20s", &["--grace", "18s"], "trap 'echo asked' TERM; echo up; while :; do sleep 1; done");
    signal(&child, Signal::INT);
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("it is asked to end");
    assert_eq!(line, "asked\n");
    signal(&child, Signal::INT);
    let begun = sandtimer_os::clock::monotonic_nanoseconds();
    assert_eq!(result(child.wait_with_output().expect("it ends")).0, Some(130));
    assert!(sandtimer_os::clock::monotonic_nanoseconds() - begun < 10_000_000_000, "it waited for the grace");
}

#[test]
fn a_reader_that_goes_away_ends_the_run_silently() {
    let mut child = up("20s", &[], "echo up; exec yes");
    drop(child.stdout.take());
    assert_eq!(result(child.wait_with_output().expect("it ends")), (Some(141), String::new(), String::new()));
}

#[test]
fn stalled_reader_delays_neither_sentence_nor_exit() {
    let mut child = up("300ms", &[], "echo up; exec yes");
    let mut errors = BufReader::new(child.stderr.take().expect("piped"));
    let mut sentence = String::new();
    errors.read_line(&mut sentence).expect("the sentence");
    assert!(sentence.starts_with("sandtimer: Stopped by the run's wall limit of 300 ms"), "{sentence}");
    // Its stdout is open here, full, and not read.
    assert_eq!(child.wait().expect("it ends").code(), Some(124));
    let mut rest = String::new();
    errors.read_to_string(&mut rest).expect("text");
    assert!(rest.contains("stdout was not delivered to its end"), "{rest}");
}

#[test]
fn output_past_its_limit_is_dropped_and_reported() {
    let script = "head -c 3000000 /dev/zero; echo done >&2";
    let (code, out, errors) = finish(&mut sandtimer(&["run", "--output", "1M", "--", "sh", "-c", script]));
    assert_eq!((code, out.len()), (Some(0), 1 << 20));
    assert!(errors.starts_with("done\n"), "{errors}");
    assert!(
        errors.contains("stdout was cut at the output limit of 1M; 1951424 bytes after it were dropped"),
        "{errors}"
    );
    let script = "head -c 3000000 /dev/zero; sleep 60";
    let flags = ["run", "--output", "1M", "--on-output-limit", "end", "--", "sh", "-c", script];
    assert_eq!(finish(&mut sandtimer(&flags)).0, Some(124));
}

#[test]
fn busy_but_quiet_run_is_reported_once() {
    let busy = "end=$(($(date +%s) + 3)); while [ $(date +%s) -lt $end ]; do :; done; echo done";
    let run = ["run", "--stall", "500ms", "--", "sh", "-c", busy];
    let (code, out, errors) = finish(&mut sandtimer(&run));
    assert_eq!((code, out.as_str(), errors.lines().count()), (Some(0), "done\n", 1), "{errors}");
    assert!(errors.starts_with("sandtimer: busy but quiet for "), "{errors}");
    let run = ["run", "--json", "--stall", "500ms", "--", "sh", "-c", busy];
    assert_eq!(finish(&mut sandtimer(&run)).2, "");
}

#[test]
fn streams_that_cannot_be_spliced_are_copied() {
    let directory = new_directory();
    let path = directory.join("appended");
    let open = || File::options().append(true).create(true).open(&path).expect("own directory");
    for line in ["one", "two"] {
        assert_eq!(
            sandtimer(&["run", "--", "echo", line]).stdout(open()).status().expect("it starts").code(),
            Some(0)
        );
    }
    assert_eq!(std::fs::read_to_string(&path).expect("written"), "one\ntwo\n");
    std::fs::remove_dir_all(directory).expect("own directory");
}

#[test]
fn a_full_device_is_reported() {
    let full = File::options().write(true).open("/dev/full").expect("every Linux has it");
    let (code, _, errors) = finish(sandtimer(&["run", "--", "echo", "x"]).stdout(full));
    assert_eq!(code, Some(125));
    assert!(errors.starts_with("sandtimer: stdout cannot be written: "), "{errors}");
}

#[test]
fn stdin_arrives_whatever_it_is() {
    let directory = new_directory();
    let path = directory.join("input");
    std::fs::write(&path, "input").expect("own directory");
    let read_only = File::open(&path).expect("just written");
    let read_write = File::options().read(true).write(true).open(&path).expect("just written");
    let (socket, mut other) = std::os::unix::net::UnixStream::pair().expect("sockets");
    other.write_all(b"input").expect("room");
    drop(other);
    let socket = std::os::fd::OwnedFd::from(socket);
    for stdin in [Stdio::from(read_only), Stdio::from(read_write), Stdio::from(socket)] {
        assert_eq!(
            finish(sandtimer(&["run", "--", "cat"]).stdin(stdin)),
            (Some(0), "input".into(), String::new())
        );
    }
    std::fs::remove_dir_all(directory).expect("own directory");
}

#[test]
fn a_file_is_read_on_where_the_run_has_left_it() {
    let directory = new_directory();
    let path = directory.join("lines");
    std::fs::write(&path, "one\ntwo\nthree\n").expect("own directory");
    let shared = File::open(&path).expect("just written");
    // A shell's `read` takes a line and no more.
    let line = |shared: &File| {
        let stdin = shared.try_clone().expect("a descriptor");
        finish(sandtimer(&["run", "--", "sh", "-c", "read line; echo $line"]).stdin(stdin)).1
    };
    assert_eq!([line(&shared), line(&shared)], ["one\n", "two\n"]);
    let mut rest = String::new();
    (&shared).read_to_string(&mut rest).expect("text");
    assert_eq!(rest, "three\n");
    std::fs::remove_dir_all(directory).expect("own directory");
}

/// Opened again, a FIFO whose writers have gone would not show its end to poll(2).
#[test]
fn end_of_named_fifo_is_detected() {
    let directory = new_directory();
    let path = directory.join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .expect("own directory");
    let both = File::options().read(true).write(true).open(&path).expect("a FIFO");
    let read = File::open(&path).expect("a FIFO with a writer");
    (&both).write_all(b"said").expect("room");
    drop(both);
    let until_end = "import select, os\nwhile True:\n  select.select([0], [], [])\n  data = os.read(0, 99)\n  print(data.decode() or 'end')\n  if not data: break";
    let run = finish(sandtimer(&["python", "--wall", "10s", "-c", until_end]).stdin(read));
    assert_eq!(run, (Some(0), "said\nend\n".into(), String::new()));
    std::fs::remove_dir_all(directory).expect("own directory");
}

/// What is set on an open file applies to all processes that share it.
#[test]
fn nothing_that_a_run_does_to_its_stdin_outlasts_it() {
    let directory = new_directory();
    let path = directory.join("input");
    std::fs::write(&path, "input").expect("own directory");
    let file = File::open(&path).expect("just written");
    let (pipe, _writer) = rustix::pipe::pipe().expect("a pipe");
    let harm = "import fcntl, os\nos.set_blocking(0, False)\nfcntl.flock(0, fcntl.LOCK_EX)\nprint('done')";
    for stdin in [std::os::fd::OwnedFd::from(file), pipe] {
        let ours = stdin.try_clone().expect("a descriptor");
        let run = finish(sandtimer(&["python", "-c", harm]).stdin(stdin));
        assert_eq!(run, (Some(0), "done\n".into(), String::new()));
        let flags = rustix::fs::fcntl_getfl(&ours).expect("an open file");
        assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK), "{flags:?}");
        let other = File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&ours)))
            .expect("the same, opened anew");
        rustix::fs::flock(&other, rustix::fs::FlockOperation::NonBlockingLockExclusive)
            .expect("no lock on it");
    }
    std::fs::remove_dir_all(directory).expect("own directory");
}

#[test]
fn flags_win_over_variables_and_both_over_files() {
    let directory = new_directory();
    let file = directory.join("mine.toml");
    std::fs::write(&file, "[limits]\nwall = \"30s\"\ncpu = \"7s\"\n[max]\nprocesses = 99\n")
        .expect("own directory");
    let effective = |set: &[(&str, &str)]| {
        let mut command = sandtimer(&["config", "show", "--json"]);
        command.current_dir(&directory).env("SANDTIMER_CONFIG", &file).envs(set.iter().copied());
        let (code, out, errors) = finish(&mut command);
        assert_eq!(code, Some(0), "{errors}");
        serde_json::from_str::<serde_json::Value>(&out).expect("JSON")
    };
    let shown = effective(&[("COMMAND_TIMEOUT_MS", "5000")]);
    assert_eq!(
        (&shown["wall_ms"]["limit"], &shown["wall_ms"]["origin"]),
        (&5000.into(), &"COMMAND_TIMEOUT_MS".into())
    );
    assert_eq!((&shown["cpu_ms"]["limit"], &shown["cpu_ms"]["source"]), (&7000.into(), &"config".into()));
    assert_eq!(
        (&shown["processes"]["limit"], &shown["processes"]["source"]),
        (&99.into(), &"ceiling".into())
    );
    let shown = effective(&[("COMMAND_TIMEOUT_MS", "5000"), ("SANDTIMER_WALL", "unlimited")]);
    assert_eq!(
        (&shown["wall_ms"]["limit"], &shown["wall_ms"]["source"]),
        (&serde_json::Value::Null, &"env".into())
    );
    let run = ["run", "--wall", "100ms", "--", "sleep", "60"];
    let (code, _, errors) = finish(sandtimer(&run).env("SANDTIMER_WALL", "1h"));
    assert_eq!(code, Some(124));
    assert!(errors.contains("wall limit of 100 ms (set by the call)"), "{errors}");
    std::fs::remove_dir_all(directory).expect("own directory");
}

#[test]
fn verbose_prints_limits_and_hidden_paths() {
    let directory = new_directory();
    std::fs::write(directory.join("sandtimer.toml"), "processes = 99\n").expect("own directory");
    let elsewhere = new_directory();
    let path = format!("{}:/usr/bin:/bin", elsewhere.display());
    let mut command = sandtimer(&["run", "--verbose", "--wall", "20s", "--", "true"]);
    command.current_dir(&directory).env("SANDTIMER_CPU", "7s").env("PATH", &path);
    let (code, _, errors) = finish(&mut command);
    assert_eq!(code, Some(0), "{errors}");
    let line = |start: &str| {
        let found = errors.lines().find(|line| line.starts_with(&format!("sandtimer: {start}")));
        found.unwrap_or_else(|| panic!("no {start}: {errors}"))
    };
    let limits = line("limits: ");
    for limit in ["wall 20s (the call)", "cpu 7s (SANDTIMER_CPU)", "processes 99 (sandtimer.toml)", "memory "]
    {
        assert!(limits.contains(limit), "{limit}: {limits}");
    }
    assert!(!limits.contains("output"), "it is passed through: {limits}");
    assert_eq!(line("configuration: "), "sandtimer: configuration: sandtimer.toml");
    let hidden = format!("the PATH entry {} is not shown", elsewhere.display());
    assert!(errors.contains(&hidden), "{errors}");
    line("isolation ");
    std::fs::remove_dir_all(elsewhere).expect("own directory");
    std::fs::remove_dir_all(directory).expect("own directory");
}

#[test]
fn local_file_that_cannot_be_used_is_ignored() {
    let directory = new_directory();
    let path = directory.join("sandtimer.toml");
    let long_key = format!("{} = 1", "x".repeat(1 << 19));
    let text = |text: &'static str| {
        let path = path.clone();
        move || std::fs::write(&path, text).expect("own directory")
    };
    let cases: [(&dyn Fn(), &str); 11] = [
        (
            &|| std::os::unix::fs::symlink("/dev/zero", &path).expect("own directory"),
            "must be a regular file",
        ),
        (&|| std::os::unix::fs::symlink(&path, &path).expect("own directory"), "cannot be read"),
        (&|| std::fs::create_dir(&path).expect("own directory"), "must be a regular file"),
        (
            &|| {
                let mode = rustix::fs::Mode::RUSR;
                rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0)
                    .expect("a FIFO");
            },
            "must be a regular file",
        ),
        (
            &|| File::create(&path).and_then(|file| file.set_len(1 << 40)).expect("own directory"),
            "has at most",
        ),
        (&|| std::fs::write(&path, &long_key).expect("own directory"), "unknown key"),
        (&text("cpu = 1\n= no TOML"), "sandtimer.toml:2: not TOML"),
        (&text("cpu = 1\nwall = \"soon\""), "(from sandtimer.toml:2)"),
        (&text("cpu = 1\nwall = \"unlimited\""), "sandtimer.toml:2: wall = `unlimited` would loosen"),
        (&text("network = true"), "sandtimer.toml:1: `network` cannot be set in a file; give --network"),
        (&text("[max]\nwall = 1"), "sandtimer.toml:1: [max] is read only"),
    ];
    for (make, expected) in cases {
        make();
        let arguments = ["run", "--wall", "20s", "--", "echo", "done"];
        let (code, out, errors) = finish(sandtimer(&arguments).current_dir(&directory));
        assert_eq!((code, out.as_str(), errors.lines().count()), (Some(0), "done\n", 1), "{errors}");
        let remedy = format!("{} is ignored: correct it, or remove it", path.display());
        assert!(errors.contains(expected) && errors.contains(&remedy), "{errors}");
        assert!(errors.len() < 3000, "a long story");
        let (code, _, notice) = finish(sandtimer(&["config", "show"]).current_dir(&directory));
        // Without a call there is nothing that it would loosen.
        let is_ignored = notice.contains(&remedy) || expected.contains("would loosen");
        assert!(code == Some(0) && is_ignored, "{notice}");
        // A file that is named is one that is wanted.
        let named = ["run", "--config", "sandtimer.toml", "--", "true"];
        let (code, _, errors) = finish(sandtimer(&named).current_dir(&directory));
        let is_valid = expected.contains("would loosen") || expected.contains("[max]");
        assert_eq!(code, Some(if is_valid { 0 } else { 125 }), "{errors}");
        std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir(&path)).expect("own directory");
    }
    std::fs::remove_dir_all(directory).expect("own directory");
}

#[test]
fn local_file_in_a_workspace_is_ignored() {
    let directory = new_directory();
    let below = directory.join("below");
    std::fs::create_dir(&below).expect("own directory");
    let workspace = directory.to_str().expect("UTF-8");
    let run = |command: &str, flags: &[&str]| {
        let arguments: Vec<&str> =
            [&["run", "--wall", "60s"][..], flags, &["--", "sh", "-c", command]].concat();
        finish(sandtimer(&arguments).current_dir(&below))
    };
    let writes = ["--workspace", workspace];
    for text in ["wall = \"1ms\"", "wall = \"unlimited\"", "= no TOML"] {
        let leave = format!("rm -f sandtimer.toml; echo '{text}' > sandtimer.toml");
        assert_eq!(run(&leave, &writes).0, Some(0), "{text}");
        let (code, out, errors) = run("sleep 0.05; echo done", &writes);
        assert_eq!((code, out.as_str()), (Some(0), "done\n"), "{text}: {errors}");
        let file = below.canonicalize().expect("it is there").join("sandtimer.toml");
        assert_eq!(errors.lines().count(), 1, "{errors}");
        for part in [file.to_str().expect("UTF-8"), "is ignored", workspace, "--config sandtimer.toml"] {
            assert!(errors.contains(part), "{part}: {errors}");
        }
        // Where the command cannot write the file, and where it is named, it is read; it ends a
        // command by no other way than a limit.
        let limited = run("sleep 0.05", &[]);
        assert_eq!(limited.0, Some(if text.contains("1ms") { 124 } else { 0 }), "{text}: {}", limited.2);
        let named = run("sleep 0.05", &["--workspace", workspace, "--config", "sandtimer.toml"]);
        assert_eq!(named.0 == Some(0), text.starts_with("wall"), "{text}: {}", named.2);
        assert!(!named.2.contains("is ignored"), "{}", named.2);
    }
    // A link that leads into the workspace.
    let (other, link) = (new_directory(), "sandtimer.toml");
    std::os::unix::fs::symlink(below.join(link), other.join(link)).expect("own directory");
    let arguments = ["run", "--workspace", workspace, "--", "true"];
    let (code, _, errors) = finish(sandtimer(&arguments).current_dir(&other));
    assert!(code == Some(0) && errors.contains("is ignored"), "{errors}");
    std::fs::remove_dir_all(other).expect("own directory");
    std::fs::remove_dir_all(directory).expect("own directory");
}

#[test]
fn bash_reads_its_program_from_stdin_and_has_arguments() {
    let (read, write) = rustix::pipe::pipe().expect("a pipe");
    rustix::io::write(&write, b"echo $# $2").expect("room");
    drop(write);
    let run = finish(sandtimer(&["bash", "-", "a", "b c"]).stdin(read));
    assert_eq!(run, (Some(0), "2 b c\n".into(), String::new()));
}

#[test]
fn run_inside_a_run_is_rejected_with_remedy() {
    let own = env!("CARGO_BIN_EXE_sandtimer");
    let directory = std::path::Path::new(own).parent().expect("a directory");
    let inside = |arguments: &[&str]| {
        finish(sandtimer(&[&["run", "--", own], arguments].concat()).current_dir(directory))
    };
    let (code, _, errors) = inside(&["run", "--", "true"]);
    assert!(code == Some(125) && errors.contains("this is inside a run of Sandtimer"), "{errors}");
    assert!(!errors.contains("--require"), "{errors}");
    let (_, out, _) = inside(&["doctor"]);
    assert!(out.contains("inside a run of Sandtimer") && !out.contains("kernel"), "{out}");
}

#[test]
fn variable_that_is_empty_is_not_set() {
    assert_eq!(finish(sandtimer(&["run", "--", "true"]).env("SANDTIMER_WALL", "")).0, Some(0));
    let (code, _, errors) = finish(sandtimer(&["run", "--", "true"]).env("SANDTIMER_WALL", "soon"));
    assert!(code == Some(125) && errors.contains("SANDTIMER_WALL"), "{errors}");
}

#[test]
fn files_in_a_workspace_have_modes_by_the_callers_umask() {
    let directory = new_directory();
    let mine = directory.join("mine");
    std::fs::create_dir(&mine).expect("own directory");
    let workspace = mine.to_str().expect("text");
    for umask in ["002", "077", "022"] {
        let script = format!(
            "umask {umask}; exec {} run --workspace {workspace} -- sh -c 'umask; touch {workspace}/{umask}'",
            env!("CARGO_BIN_EXE_sandtimer")
        );
        let result = finish(Command::new("sh").args(["-c", &script]).env("SANDTIMER_CONFIG", ""));
        assert_eq!(result.1, format!("0{umask}\n"), "{result:?}");
        let mode = mine.join(umask).metadata().expect("made").permissions().mode();
        assert_eq!(mode & 0o777, 0o666 & !u32::from_str_radix(umask, 8).expect("a number"), "{umask}");
    }
    std::fs::remove_dir_all(directory).expect("own directory");
}

/// A terminal by script(1), which gives it to the command line as a shell would.
#[test]
fn command_gets_own_terminal_and_restores_the_callers() {
    let script = format!(
        "stty cols 77; before=$(stty -g); {} run --wall 20s -- sh -c 'stty size; tty; test -t 0 && echo terminal'; \
         test \"$before\" = \"$(stty -g)\" && echo restored",
        env!("CARGO_BIN_EXE_sandtimer")
    );
    let mut command = Command::new("script");
    command.args(["-qec", &script, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    // At the end of its own stdin script types an end of file, which may come where it is shown.
    let keyboard = child.stdin.take();
    let (code, out, _) = result(child.wait_with_output().expect("it ends"));
    drop(keyboard);
    assert_eq!(code, Some(0), "{out}");
    assert!(
        out.contains(" 77\r\n/dev/pts/0\r\n") && out.contains("terminal\r\n") && out.contains("restored"),
        "{out}"
    );
}

/// Types on a terminal, as soon as it has shown `mark`, and gives the exit code and what else it
/// shows.
fn typing(command: &str, typed: &[(&str, &[u8])]) -> (Option<i32>, String) {
    let script = format!("{} run --wall 20s -- {command}", env!("CARGO_BIN_EXE_sandtimer"));
    let mut command = Command::new("script");
    command.args(["-qec", &script, "/dev/null"]).env("SANDTIMER_CONFIG", "");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut shown = Vec::new();
    let mut screen = child.stdout.take().expect("piped");
    for (mark, keys) in typed {
        let mut byte = [0];
        while !String::from_utf8_lossy(&shown).contains(mark) && matches!(screen.read(&mut byte), Ok(1)) {
            shown.extend(byte);
        }
        child.stdin.as_mut().expect("piped").write_all(keys).expect("it reads");
    }
    let code = child.wait().expect("its wall-clock limit ends it").code();
    screen.read_to_end(&mut shown).expect("its end");
    (code, String::from_utf8_lossy(&shown).into_owned())
}

#[test]
fn command_ignoring_interrupts_on_terminal_can_be_ended() {
    let (code, shown) =
        typing("sh -c \"trap '' INT; echo up; while :; do sleep 1; done\"", &[("up", b"\x03\x03\x03")]);
    assert_eq!(code, Some(130), "{shown}");
    assert!(shown.contains("interrupted by Ctrl-C"), "{shown}");
    // One is the command's alone.
    let (code, shown) = typing(
        "sh -c \"trap 'echo heard; exit 9' INT; echo up; while :; do sleep 0.1; done\"",
        &[("up", b"\x03")],
    );
    assert_eq!(code, Some(9), "{shown}");
    assert!(shown.contains("heard"), "{shown}");
}

#[test]
fn an_interpreter_at_its_prompt_gets_every_interrupt() {
    // A signal that comes between the interpreter's last check and its wait for input is handled
    // with the next key.
    let typed: [(&str, &[u8]); 3] =
        [(">>> ", b"\x03\x03\x03\x03\n"), ("KeyboardInterrupt", b"\n"), (">>> ", b"print(6 * 7); exit(3)\n")];
    let (code, shown) = typing("python3 -q", &typed);
    assert_eq!(code, Some(3), "{shown}");
    assert!(shown.contains("42"), "{shown}");
}

/// An empty directory that every user may enter, since the run's own user has to.
fn new_directory() -> std::path::PathBuf {
    let mut random = [0; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .expect("the kernel's generator");
    let path = std::env::temp_dir().join(format!("sandtimer-cli-{:016x}", u64::from_ne_bytes(random)));
    std::fs::create_dir(&path).expect("a new name");
    path
}
