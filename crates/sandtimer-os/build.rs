//! Builds the helper program (launcher, init, watchdog) as a static executable without libc, and
//! the native halves of interpreters (a Python zygote, a shell, Node.js) as libraries without libc,
//! all to be embedded.
//!
//! Each is one `rustc` call: no target to install, no static libc needed on the machine, a few
//! kilobytes of result.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)] // a build script runs rustc and talks to cargo by println

use std::path::{Path, PathBuf};
use std::{env, process::Command};

fn main() {
    println!("cargo:rerun-if-changed=helper");
    println!("cargo:rerun-if-changed=build.rs");
    let directory = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let rustc = env::var_os("RUSTC").expect("cargo sets RUSTC");
    let target = env::var("TARGET").expect("cargo sets TARGET");
    assert!(
        target.starts_with("x86_64-") && target.contains("linux"),
        "sandtimer runs on x86_64 Linux; the target is {target}"
    );
    let build = |source: &str, kind: &str, name: &str, options: &[&str], output: &Path| {
        let status = Command::new(&rustc)
            .args(["--edition", "2024", "--crate-type", kind, "--crate-name", name, "--target", &target])
            .args(["-C", "opt-level=s", "-C", "panic=abort", "-C", "overflow-checks=off"])
            .args(["-C", "debug-assertions=off", "-C", "strip=symbols"])
            .args([
                "-C",
                "link-arg=-nostdlib",
                "-C",
                "link-arg=-nostartfiles",
                "-C",
                "link-arg=-Wl,--build-id=none",
            ])
            .args(options)
            .arg("-o")
            .arg(output)
            .arg(source)
            .status()
            .expect("rustc starts");
        assert!(status.success(), "{source} did not compile");
    };
    // Nothing unwinds in it, and it is written to memory for each engine.
    let executable =
        ["-C", "relocation-model=static", "-C", "link-arg=-static", "-C", "force-unwind-tables=no"];
    build("helper/main.rs", "bin", "sandtimer_helper", &executable, &directory.join("helper"));
    build("helper/shell.rs", "cdylib", "sandtimer_shell", &[], &directory.join("shell.so"));
    build("helper/node.rs", "cdylib", "sandtimer_node", &[], &directory.join("node.so"));
    // Its own memcpy and not the C library's: that reads variables, which are gone while a process
    // becomes another.
    let own = ["-C", "link-arg=-Wl,-Bsymbolic"];
    build("helper/python.rs", "cdylib", "sandtimer_zygote", &own, &directory.join("python.so"));
}
