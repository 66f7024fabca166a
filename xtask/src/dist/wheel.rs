//! The command, the wheel and the source distribution.
//!
//! maturin builds both native parts with Zig's linker, which has the symbols of old versions of
//! glibc. It puts a module or a program into a wheel, not both; so the program is added as a file
//! of the wheel's scripts. It is the native program itself: a script of Python would start an
//! interpreter at each call of the command.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Release, TOOLS, VERSION, clear, commit_time, copy, size};
use crate::{Result, root, setup, step};

/// 15 MB, what a wheel may have at most.
const MAX_WHEEL_BYTES: u64 = 15_000_000;

/// The target that Zig links for.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// What maturin builds all with: `packaged` is the profile of Cargo.toml.
const BUILD: [&str; 6] = ["--profile", "packaged", "--zig", "--compatibility", "manylinux_2_17", "--out"];

/// Parts of SQLite that libsqlite3-sys compiles unless told otherwise, and that nothing here uses.
const SQLITE_LEFT_OUT: &str = "-USQLITE_ENABLE_FTS3 -USQLITE_ENABLE_FTS3_PARENTHESIS \
    -USQLITE_ENABLE_FTS5 -USQLITE_ENABLE_RTREE -USQLITE_ENABLE_DBSTAT_VTAB -USQLITE_SOUNDEX";

/// Where intermediate wheels are.
fn scratch() -> PathBuf {
    root().join("target/dist-wheels")
}

/// The command as it is released.
pub(super) fn command() -> PathBuf {
    setup::target().join(TARGET).join("packaged/sandtimer")
}

/// Builds the command.
pub(super) fn build_command() -> Result {
    let out = scratch().join("command");
    clear(&out)?;
    let manifest = ["--manifest-path", "../crates/sandtimer-cli/Cargo.toml", "--bindings", "bin", "--locked"];
    step::run(maturin(&[&["build"], &manifest[..], &BUILD].concat(), &out))
}

/// Makes the source distribution, builds the module from it, which shows that it is complete, and
/// adds the command to the module's wheel.
///
/// Not with `--locked`: cargo removes from the lock file what only the crates that are left out
/// need.
pub(super) fn build(release: &Release) -> Result {
    let scratch = scratch();
    let module = scratch.join("module");
    clear(&module)?;
    let mut building = maturin(&[&["build", "--sdist"], &BUILD[..]].concat(), &module);
    building.args(["--", "-C", &format!("link-arg={}", system_unwinder()?)]);
    step::run(building)?;
    copy(&in_directory(&module, &release.source()), &release.source())?;
    let unpacked = scratch.join("unpacked");
    clear(&unpacked)?;
    let built = text(&in_directory(&module, &release.wheel()));
    step::run(wheel(&["unpack", "--dest", &text(&unpacked), &built])?)?;
    let directory = unpacked.join(format!("sandtimer-{VERSION}"));
    // `fs::copy` keeps the permission to execute, and `wheel pack` and pip do.
    copy(&command(), &directory.join(format!("sandtimer-{VERSION}.data/scripts/sandtimer")))?;
    let packed = scratch.join("packed");
    clear(&packed)?;
    step::run(wheel(&["pack", "--dest-dir", &text(&packed), &text(&directory)])?)?;
    recompress(&in_directory(&packed, &release.wheel()), &release.wheel())
}

/// Writes the wheel `packed` to `out` with better compression.
fn recompress(packed: &Path, out: &Path) -> Result {
    step::run(TOOLS.command(&["packaging/dist/recompress.py", &text(packed), &text(out)]))
}

/// The path of the system's unwinder, for the module in place of Zig's own.
///
/// CPython before 3.14 ends threads by unwinding their stacks when it exits. The C library does
/// that with libgcc_s, and the frames of the module must understand it.
fn system_unwinder() -> Result<String> {
    step::output(step::command("cc", &["-print-file-name=libgcc_s.so.1"]))
}

/// The path of a file of `directory` that has the name of `file`.
fn in_directory(directory: &Path, file: &Path) -> PathBuf {
    directory.join(file.file_name().expect("a file of a release has a name"))
}

/// Checks the wheel and the source distribution as an index does, and what the wheel needs of a
/// system.
pub(super) fn check(release: &Release) -> Result {
    let (built, source) = (text(&release.wheel()), text(&release.source()));
    step::run(TOOLS.command(&["-m", "twine", "check", "--strict", &built, &source]))?;
    let report = step::output(TOOLS.command(&["-m", "auditwheel", "show", &built]))?;
    println!("{report}");
    reject_new_symbols(&report)?;
    reject_own_unwinder(&report)?;
    reject_large(size(&release.wheel())?)
}

/// Fails unless auditwheel found the wheel to be what its name promises.
fn reject_new_symbols(report: &str) -> Result {
    let report = report.split_whitespace().collect::<Vec<_>>().join(" ");
    if report.contains("constrains the platform tag to \"manylinux_2_17_x86_64\"") {
        return Ok(());
    }
    Err("the wheel needs a later glibc than 2.17, which its name promises".to_owned())
}

/// Fails if the module does not use the system's unwinder.
fn reject_own_unwinder(report: &str) -> Result {
    if report.contains("libgcc_s.so.1") {
        return Ok(());
    }
    Err("the module has an unwinder of its own: processes that use it may crash when they exit".to_owned())
}

fn reject_large(bytes: u64) -> Result {
    if bytes <= MAX_WHEEL_BYTES {
        return Ok(());
    }
    Err(format!("the wheel has {bytes} bytes; at most {MAX_WHEEL_BYTES} are allowed"))
}

/// maturin in the Python package's directory, for the directory `out`. It finds Zig through the
/// `python3` of the path.
///
/// Not with the time of the last commit: build scripts of C libraries would compile them again
/// after each commit.
fn maturin(arguments: &[&str], out: &Path) -> Command {
    let mut command = TOOLS.command(&[&["-m", "maturin"], arguments, &[&text(out)]].concat());
    let mut path = TOOLS.python(&root()).with_file_name("").into_os_string();
    if let Some(own) = std::env::var_os("PATH") {
        path.push(":");
        path.push(own);
    }
    command.env("PATH", path).env("CARGO_TARGET_DIR", setup::target());
    command.env("LIBSQLITE3_FLAGS", SQLITE_LEFT_OUT).current_dir(root().join("python"));
    command
}

/// `python -m wheel`, for files with the time of the last commit, so that two builds are alike.
fn wheel(arguments: &[&str]) -> Result<Command> {
    let mut command = TOOLS.command(&[&["-m", "wheel"], arguments].concat());
    command.env("SOURCE_DATE_EPOCH", commit_time()?);
    Ok(command)
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wheel_for_newer_glibc_is_rejected() {
        let report = |tag: &str| format!("This constrains the platform tag to\n\"{tag}\". In order");
        assert_eq!(reject_new_symbols(&report("manylinux_2_17_x86_64")), Ok(()));
        assert!(reject_new_symbols(&report("manylinux_2_34_x86_64")).is_err());
    }

    #[test]
    fn module_with_own_unwinder_is_rejected() {
        let report = |library: &str| format!("system-provided shared libraries: {library} with versions");
        assert_eq!(reject_own_unwinder(&report("libgcc_s.so.1")), Ok(()));
        assert!(reject_own_unwinder(&report("libc.so.6")).unwrap_err().contains("crash"));
    }

    #[test]
    fn large_wheel_is_rejected_with_its_size() {
        assert_eq!(reject_large(MAX_WHEEL_BYTES), Ok(()));
        assert!(reject_large(MAX_WHEEL_BYTES + 1).unwrap_err().contains("15000001 bytes"));
    }
}
