//! The npm package of the TypeScript client.

use super::{Release, clear, copy};
use crate::{Result, root, setup, step};

/// Builds the client and packs it with the licences, which are in the root of the repository.
///
/// npm leaves links out and packs nothing from outside of a directory, so the package is put
/// together in one.
pub(super) fn pack(release: &Release) -> Result {
    setup::node()?;
    setup::typescript_packages()?;
    step::run(setup::npm(&["run", "--silent", "build"]))?;
    let directory = root().join("target/dist-npm/package");
    clear(&directory)?;
    let client = root().join("typescript");
    let mut parts = step::command("cp", &["--recursive"]);
    parts.args(["package.json", "README.md", "dist", "src"].map(|name| client.join(name))).arg(&directory);
    step::run(parts)?;
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        copy(&root().join(licence), &directory.join(licence))?;
    }
    let mut command = step::command("npm", &["pack", "--ignore-scripts", "--loglevel=notice"]);
    command.arg("--pack-destination").arg(&release.directory).current_dir(&directory);
    step::run(command)
}
