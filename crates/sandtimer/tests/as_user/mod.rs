//! Tests that root runs as a user without privileges.
#![allow(clippy::disallowed_methods, reason = "the test is started again as another user")]

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

pub const USER: u32 = 1234;

/// Runs one of the tests of this suite as a user without privileges; false when this process is one
/// already.
pub fn as_a_user(test: &str) -> bool {
    as_a_user_in(test, None)
}

/// The same, in a control group where one is given.
#[allow(clippy::disallowed_macros)] // what the test prints is for the reader of this one's output
pub fn as_a_user_in(test: &str, group: Option<&Path>) -> bool {
    if !rustix::process::getuid().is_root() {
        return false;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), mode).expect("own directory");
    let copy = directory.path().join("test");
    std::fs::copy(std::env::current_exe().expect("a path"), &copy).expect("a copy");
    let mut command = Command::new(&copy);
    if let Some(group) = group {
        const ENTER: &str =
            "echo $$ > $0/cgroup.procs && exec setpriv --reuid $1 --regid $1 --clear-groups \"${@:2}\"";
        command = Command::new("bash");
        command.args(["-c", ENTER]).arg(group).arg(USER.to_string()).arg(&copy);
    } else {
        command.uid(USER).gid(USER);
    }
    command.args(["--exact", &path_of(&copy, test), "--nocapture"]).current_dir("/");
    command.env_remove("XDG_RUNTIME_DIR").env("HOME", "/nonexistent").env("PATH", "/usr/bin:/bin");
    let output = command.output().expect("it starts");
    let output_message = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "as user {USER}: {output_message}");
    assert!(output_message.contains("1 passed"), "as user {USER}: {output_message}");
    println!("as user {USER}: {}", output_message.trim());
    true
}

/// Returns the name of a test with its modules, as `program` lists it.
fn path_of(program: &Path, test: &str) -> String {
    let output = Command::new(program).args(["--list", "--format", "terse"]).output().expect("it starts");
    let list = String::from_utf8_lossy(&output.stdout);
    let suffix = format!("::{test}");
    let path = list
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .find(|path| *path == test || path.ends_with(&suffix));
    path.unwrap_or_else(|| panic!("{test} is not in the list of tests")).to_owned()
}
