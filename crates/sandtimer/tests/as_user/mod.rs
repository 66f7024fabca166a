//! Tests that root runs as a user without privileges.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

const USER: u32 = 1234;

/// Runs one of the tests of this suite as a user without privileges; false when this process is one already.
pub fn as_a_user(test: &str) -> bool {
    if !rustix::process::getuid().is_root() {
        return false;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), mode).expect("own directory");
    let copy = directory.path().join("test");
    std::fs::copy(std::env::current_exe().expect("a path"), &copy).expect("a copy");
    let mut command = Command::new(&copy);
    command.args(["--exact", test, "--nocapture"]).uid(USER).gid(USER).current_dir("/");
    command.env_remove("XDG_RUNTIME_DIR").env("HOME", "/nonexistent").env("PATH", "/usr/bin:/bin");
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "as user {USER}: {said}");
    assert!(said.contains("1 passed"), "as user {USER}: {said}");
    true
}
