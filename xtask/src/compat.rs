//! The npm packages that the server's /api, its page and the types of the Python package are tested
//! with, as in their lock file.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::{Result, root, setup, step};

/// Where the lock file lies.
const LOCKED: &str = "crates/sandtimer-server/tests/compat";

fn directory() -> PathBuf {
    root().join("target/npm")
}

/// The variable that names the packages to the tests, and its value.
pub(crate) fn variable() -> (&'static str, OsString) {
    ("SANDTIMER_TEST_NPM", directory().join("node_modules").into())
}

/// Installs them where that has not been done. Without Node, which their tests need, it prints that
/// those are skipped.
pub(crate) fn packages() -> Result {
    if !step::succeeds(&["node", "--version"]) {
        println!(
            "there is no node: the tests of @cloudflare/sandbox, of the server's page and with pyright are skipped; to install it: apt-get install nodejs npm"
        );
        return Ok(());
    }
    let quiet = ["--omit=peer", "--omit=optional"];
    setup::npm_packages(&root().join(LOCKED), &directory(), &quiet)
}
