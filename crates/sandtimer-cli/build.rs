//! Links the command at a fixed address, where the C library is glibc.
//!
//! A position-independent executable of this size has tens of thousands of relative relocations:
//! before `main`, the dynamic loader writes to each page that has some, and every process that is a
//! copy of this one maps and copies these pages again. That was a quarter of the processor time of
//! a short command. Libraries, stack, heap and mappings stay at random addresses.
#![allow(clippy::disallowed_macros)] // a build script talks to cargo by println

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_CFG_TARGET_ENV").is_some_and(|name| name == "gnu") {
        println!("cargo:rustc-link-arg-bin=sandtimer=-no-pie");
    }
}
