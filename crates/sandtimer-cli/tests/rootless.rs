//! The command line as the root of a container that has only its own uid; containers of rootless
//! engines have few.
#![allow(clippy::disallowed_methods, reason = "the command under test is started here")]
#![allow(clippy::disallowed_macros, reason = "a test says what it skips")]

use std::process::{Command, Stdio};

use serde_json::Value;

/// Returns the output of a shell in such a container; `None`, with a message, if there can be none.
fn inside(script: &str) -> Option<String> {
    let state = tempfile::tempdir().expect("a directory");
    let container = |script: &str| {
        Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "timeout", "60", "sh", "-c", script])
            .env("SANDTIMER", env!("CARGO_BIN_EXE_sandtimer"))
            .env("SANDTIMER_STATE_DIR", state.path())
            .stdin(Stdio::null())
            .output()
            .expect("unshare is there")
    };
    if !container("true").status.success() {
        println!("skipped: no user namespaces can be had here");
        return None;
    }
    let output = container(script);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    Some(text)
}

#[test]
fn a_run_has_its_limits_and_nothing_of_it_is_left() {
    let script =
        r#""$SANDTIMER" run --json --wall 500ms -- sh -c 'sleep 1000 & id -u; sleep 1000'; [ $? = 124 ]"#;
    let Some(output) = inside(script) else { return };
    let outcome: Value = serde_json::from_str(&output).expect("JSON");
    assert_eq!(outcome["ending"], "timeout", "{outcome}");
    assert_eq!(outcome["tree"]["survivors"], 0, "{outcome}");
    assert_eq!(outcome["stdout"], "0\n", "{outcome}");
    assert_eq!(outcome["isolation"]["tier"], "T2", "what root owns is kept from it by mounts and Landlock");
    assert!(outcome["isolation"]["degraded"].to_string().contains("this root is"), "{outcome}");
}

#[test]
fn a_run_has_no_capability_and_writes_nothing_outside() {
    // What the run tries is done by its caller first: it is the walls that keep it from that.
    let script = r#"
        echo x > "$SANDTIMER_STATE_DIR/by-caller" || exit 1
        "$SANDTIMER" run --json -- sh -c "grep CapEff /proc/self/status; echo x > $SANDTIMER_STATE_DIR/by-run"
        [ -e "$SANDTIMER_STATE_DIR/by-caller" ] && [ ! -e "$SANDTIMER_STATE_DIR/by-run" ]
    "#;
    let Some(output) = inside(script) else { return };
    let outcome: Value = serde_json::from_str(&output).expect("JSON");
    assert!(outcome["stdout"].as_str().expect("text").contains("0000000000000000"), "{outcome}");
    assert_eq!(outcome["ok"], false, "{outcome}");
}

#[test]
fn a_job_with_files_runs_there() {
    let script = r#"
        cat > "$SANDTIMER_STATE_DIR/spec.toml" <<'END'
command = ["sh", "-c", "cat given > made"]
outputs = ["made"]
wall_ms = "1m"
[inputs]
given = "hello"
END
        "$SANDTIMER" jobs run "$SANDTIMER_STATE_DIR/spec.toml" > /dev/null || exit 1
        id=$("$SANDTIMER" jobs list --json | grep -o '"id": *"[^"]*"' | cut -d'"' -f4)
        "$SANDTIMER" jobs get "$id" made
    "#;
    let Some(output) = inside(script) else { return };
    assert_eq!(output, "hello");
}

#[test]
fn root_without_capabilities_reports_missing_uid_for_runs() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: this needs root, to be it without its capabilities");
        return;
    }
    let run = Command::new("setpriv")
        .args([
            "--bounding-set",
            "-all",
            "--inh-caps",
            "-all",
            env!("CARGO_BIN_EXE_sandtimer"),
            "run",
            "--",
            "id",
        ])
        .stdin(Stdio::null())
        .output()
        .expect("setpriv is there");
    let output = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!((run.status.code(), run.stdout.is_empty()), (Some(125), true), "{output}");
    assert!(output.contains("root's uid alone") && output.contains("start it as another user"), "{output}");
}
