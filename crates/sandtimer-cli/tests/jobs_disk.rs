//! `sandtimer jobs` on a disk that others have filled: a small file system of the test's own, in its own mount namespace.
#![allow(clippy::disallowed_methods, reason = "the commands under test are started here")]
#![allow(clippy::disallowed_macros, reason = "a test says what it skips")]

use std::io::Write;
use std::process::{Command, Stdio};

/// Everything happens in one shell, since the file system is gone with it. Each line of output is one answer.
const SCRIPT: &str = r#"
set -u
jobs() { "$SANDTIMER" jobs "$@" 2>&1; }
ids() { jobs list --json --state queued | grep -o '"id": *"[^"]*"' | cut -d'"' -f4; }
one() { echo '{"command": ["true"]}'; }
mount -t tmpfs -o size=24m none "$SANDTIMER_STATE_DIR" || { echo no file system; exit 0; }
jobs submit - --json < "$LINES" > /dev/null || echo "cannot submit"
until [ -z "$(ids)" ]; do
    for id in $(ids); do jobs cancel "$id" > /dev/null || { echo "cannot cancel $id"; exit; }; done
done
one | jobs submit - --json > /dev/null || echo "cannot submit one"
left=$(ids)
dd if=/dev/zero of="$SANDTIMER_STATE_DIR/fill" bs=4k 2> /dev/null
echo "free: $(df --output=avail "$SANDTIMER_STATE_DIR" | tail -1)"
one | jobs submit -
echo "submitted: $?"
jobs cancel "$left" > /dev/null
echo "cancelled: $?"
jobs purge
echo "purged: $?"
one | jobs submit - > /dev/null
echo "submitted: $?"
"#;

#[test]
fn on_a_full_disk_jobs_are_refused_and_those_there_are_can_end_and_be_purged() {
    let place = tempfile::tempdir().expect("a directory");
    let lines = place.path().join("lines");
    let line = format!("{{\"command\": [\"true\"], \"env\": {{\"X\": \"{}\"}}}}\n", "x".repeat(60 << 10));
    let mut file = std::fs::File::create(&lines).expect("made");
    (0..64).for_each(|_| file.write_all(line.as_bytes()).expect("written"));
    let state = place.path().join("state");
    std::fs::create_dir(&state).expect("made");
    let shell = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "timeout", "100", "sh", "-c", SCRIPT])
        .env("SANDTIMER", env!("CARGO_BIN_EXE_sandtimer"))
        .env("SANDTIMER_STATE_DIR", &state)
        .env("LINES", &lines)
        .env_remove("SANDTIMER_STORE")
        .stdin(Stdio::null())
        .output()
        .expect("unshare is there");
    let said = String::from_utf8_lossy(&shell.stdout).into_owned();
    if said.starts_with("no file system") || (!shell.status.success() && said.is_empty()) {
        println!("skipped: no file system can be mounted here: {}", String::from_utf8_lossy(&shell.stderr));
        return;
    }
    let said: Vec<&str> = said.lines().map(str::trim).collect();
    let refused = said.get(1).copied().unwrap_or_default();
    assert!(said[0].ends_with(" 0") && refused.contains("the store is full"), "{said:?}");
    let codes: Vec<&str> = said.iter().copied().filter(|line| line.split(' ').count() == 2).collect();
    assert_eq!(codes, ["submitted: 125", "cancelled: 0", "purged: 0", "submitted: 0"], "{said:?}");
    assert!(said.iter().any(|line| line.contains("65")), "all that were over are gone: {said:?}");
}
