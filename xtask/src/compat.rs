//! The npm packages that the server's /api, its page and the types of the Python package are tested with, as their lock
//! file says.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use crate::{Result, root, step};

/// Where the lock file lies.
const LOCKED: &str = "crates/sandtimer-server/tests/compat";

fn directory() -> PathBuf {
    root().join("target/npm")
}

/// The variable that names the packages to the tests, and its value.
pub(crate) fn variable() -> (&'static str, OsString) {
    ("SANDTIMER_TEST_NPM", directory().join("node_modules").into())
}

/// Installs them where that has not been done. Without Node, which their tests need, it says that those are skipped.
pub(crate) fn packages() -> Result {
    if !step::succeeds(&["node", "--version"]) {
        println!(
            "there is no node: the tests of @cloudflare/sandbox, of the server's page and with pyright are skipped; to install it: apt-get install nodejs npm"
        );
        return Ok(());
    }
    let locked = root().join(LOCKED);
    let file = |name: &str| {
        let path = locked.join(name);
        fs::read_to_string(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))
    };
    let (package, lock) = (file("package.json")?, file("package-lock.json")?);
    let directory = directory();
    // Written last, so that an interrupted installation is never taken for a whole one.
    let stamp = directory.join("node_modules/.xtask-stamp");
    if fs::read_to_string(&stamp).is_ok_and(|found| found == lock) {
        return Ok(());
    }
    let write = |path: PathBuf, text: &str| {
        fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
    };
    fs::create_dir_all(&directory)
        .map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
    write(directory.join("package.json"), &package)?;
    write(directory.join("package-lock.json"), &lock)?;
    let quiet =
        ["--ignore-scripts", "--omit=peer", "--omit=optional", "--no-audit", "--no-fund", "--loglevel=error"];
    let mut command = step::command("npm", &[&["ci"], &quiet[..]].concat());
    command.current_dir(&directory);
    step::run(command)?;
    write(stamp, &lock)
}
