//! The archive for machines without Python: the command with its manual pages and completions, laid
//! out for `/usr/local`.

use std::fs;
use std::path::Path;

use super::{Release, clear, commit_time, copy, wheel};
use crate::{Result, root, step};

/// The name of the archive and of the directory in it.
pub(super) const NAME: &str = concat!("sandtimer-", env!("CARGO_PKG_VERSION"), "-x86_64-linux");

/// Where each completion belongs.
const COMPLETIONS: [(&str, &str); 3] = [
    ("sandtimer.bash", "share/bash-completion/completions/sandtimer"),
    ("_sandtimer", "share/zsh/site-functions/_sandtimer"),
    ("sandtimer.fish", "share/fish/vendor_completions.d/sandtimer.fish"),
];

/// Files of the repository that are documents of the archive, with their paths: README.md names the
/// example by it.
const DOCUMENTS: [&str; 6] = [
    "CHANGELOG.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "examples/runaway.py",
    "packaging/sandtimer.service",
];

/// Builds the archive. The released command writes its own manual pages and completions.
pub(super) fn build(release: &Release) -> Result {
    let scratch = root().join("target/dist-archive");
    clear(&scratch)?;
    let directory = scratch.join(NAME);
    let binary = directory.join("bin/sandtimer");
    copy(&wheel::command(), &binary)?;
    let generated = scratch.join("generated");
    step::run(step::command(
        &binary.to_string_lossy(),
        &["generate", "--dir", &generated.to_string_lossy()],
    ))?;
    copy_files(&generated.join("man"), &directory.join("share/man/man1"))?;
    for (name, path) in COMPLETIONS {
        copy(&generated.join("completions").join(name), &directory.join(path))?;
    }
    for document in DOCUMENTS {
        copy(&root().join(document), &directory.join("share/doc/sandtimer").join(document))?;
    }
    pack(release, &scratch)
}

/// Packs what lies in `scratch`: the archive depends only on the files and the last commit.
fn pack(release: &Release, scratch: &Path) -> Result {
    let time = format!("--mtime=@{}", commit_time()?);
    let mut command = step::command("tar", &["--create", "--sort=name", "--format=gnu", &time]);
    command.args(["--owner=0", "--group=0", "--numeric-owner", "--mode=u+rw,go+r-w,a+X"]);
    command.args(["--use-compress-program", "gzip --no-name --best"]);
    command.arg("--file").arg(release.archive()).arg("--directory").arg(scratch).arg(NAME);
    step::run(command)
}

fn copy_files(from: &Path, to: &Path) -> Result {
    let failed = |error| format!("cannot read {}: {error}", from.display());
    for entry in fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}
