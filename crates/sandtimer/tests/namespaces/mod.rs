//! Network namespaces, and what holds them. The kernel gives the number of a freed namespace to the
//! next one, and its cookie (SO_NETNS_COOKIE, socket(7)) to no other.
#![allow(clippy::disallowed_methods)] // a namespace is entered by a process of its own

use std::path::{Path, PathBuf};
use std::process::Command;

/// Prints the link and the cookie of the network namespace that it is in.
pub const PRINT_NAMESPACE: &str = "import os, socket; \
    print(os.readlink('/proc/self/ns/net'), socket.socket().getsockopt(socket.SOL_SOCKET, 71, 8).hex())";

/// Returns what is in a network namespace or has a descriptor of it; `printed` is what
/// [`PRINT_NAMESPACE`] printed in it.
pub fn holders(printed: &str) -> Vec<PathBuf> {
    let (link, _) = printed.split_once(' ').expect("a link and a cookie");
    let has_link = |path: &PathBuf| std::fs::read_link(path).is_ok_and(|found| found == Path::new(link));
    let entries =
        |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    entries(Path::new("/proc"))
        .flat_map(|process| entries(&process.join("fd")).chain([process.join("ns/net")]).collect::<Vec<_>>())
        .filter(has_link)
        // A process that has ended since then is not a holder; a process that cannot be entered is.
        .filter(|path| print_namespace(path).map_or_else(|| has_link(path), |found| found == printed))
        .collect()
}

fn print_namespace(path: &Path) -> Option<String> {
    let option = format!("--net={}", path.display());
    let output = Command::new("nsenter").args([&option, "python3", "-c", PRINT_NAMESPACE]).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}
