//! Builds the helper program (launcher, init, watchdog) as a static executable without libc, to be embedded.
//!
//! It is one `rustc` call: no target to install, no static libc needed on the machine, a few kilobytes of result.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)] // a build script runs rustc and talks to cargo by println

use std::{env, path::PathBuf, process::Command};

fn main() {
    println!("cargo:rerun-if-changed=helper");
    println!("cargo:rerun-if-changed=build.rs");
    let output = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("helper");
    let rustc = env::var_os("RUSTC").expect("cargo sets RUSTC");
    let target = env::var("TARGET").expect("cargo sets TARGET");
    assert!(
        target.starts_with("x86_64-") && target.contains("linux"),
        "sandtimer runs on x86_64 Linux; the target is {target}"
    );
    let status = Command::new(rustc)
        .args(["--edition", "2024", "--crate-type", "bin", "--crate-name", "sandtimer_helper"])
        .args(["--target", &target])
        .args(["-C", "opt-level=s", "-C", "panic=abort", "-C", "relocation-model=static"])
        .args(["-C", "overflow-checks=off", "-C", "debug-assertions=off", "-C", "strip=symbols"])
        .args(["-C", "link-arg=-nostdlib", "-C", "link-arg=-nostartfiles", "-C", "link-arg=-static"])
        .args(["-C", "link-arg=-Wl,--build-id=none"])
        .arg("-o")
        .arg(&output)
        .arg("helper/main.rs")
        .status()
        .expect("rustc starts");
    assert!(status.success(), "the helper program did not compile");
}
