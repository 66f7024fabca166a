//! Which crate may use which: `os ← engine ← agents ← records ← jobs ← {server, py, cli}`, `cli →
//! {server, bwrap}`, `bwrap → os`, `server → proxy`; and where `unsafe` may be.
//!
//! Read from `cargo metadata`. Dependencies of tests alone are not arrows: they are in nothing that
//! ships.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::{Result, step};

/// Each crate under `crates/` and the crates of this repository it may use.
const ARROWS: &[(&str, &[&str])] = &[
    ("sandtimer-os", &[]),
    ("sandtimer", &["sandtimer-os"]),
    ("sandtimer-bwrap", &["sandtimer-os"]),
    ("sandtimer-proxy", &[]),
    ("sandtimer-agents", &["sandtimer-os", "sandtimer"]),
    ("sandtimer-records", &["sandtimer-os", "sandtimer", "sandtimer-agents"]),
    ("sandtimer-jobs", &["sandtimer-os", "sandtimer", "sandtimer-agents", "sandtimer-records"]),
    (
        "sandtimer-server",
        &[
            "sandtimer-os",
            "sandtimer",
            "sandtimer-agents",
            "sandtimer-records",
            "sandtimer-jobs",
            "sandtimer-proxy",
        ],
    ),
    (
        "sandtimer-py",
        &["sandtimer-os", "sandtimer", "sandtimer-agents", "sandtimer-records", "sandtimer-jobs"],
    ),
    (
        "sandtimer-cli",
        &[
            "sandtimer-os",
            "sandtimer",
            "sandtimer-agents",
            "sandtimer-records",
            "sandtimer-jobs",
            "sandtimer-server",
            "sandtimer-bwrap",
        ],
    ),
];

/// What `sandtimer-os` must not use, not even by way of another crate: it runs between fork and
/// exec, as pid 1, and on the enforcer's path, where none of these may.
const NOT_IN_OS: &[&str] = &["tokio", "serde_json", "tracing", "log"];

/// Crates that may contain `unsafe`. `sandtimer-py` in one module, which writes to buffers of the
/// interpreter by address.
const UNSAFE: &[&str] = &["sandtimer-os", "sandtimer-py"];

/// Every arrow that is wrong in the repository at `root`, one line each.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let version = step::output(step::command("rustc", &["--version", "--verbose"]))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.ok_or("`rustc --version --verbose` names no host")?;
    // Only this platform's: what a crate uses on Windows runs in none of our processes.
    let arguments = ["metadata", "--format-version=1", "--filter-platform", host];
    let metadata = step::output(step::command("cargo", &arguments))?;
    let metadata =
        serde_json::from_str(&metadata).map_err(|error| format!("cannot read `cargo metadata`: {error}"))?;
    let mut wrong = arrows(&metadata);
    wrong.extend(crate_roots(&metadata, root)?);
    Ok(wrong)
}

/// The packages of this repository.
fn members(metadata: &Value) -> impl Iterator<Item = &Value> {
    let ids: BTreeSet<&str> = list(&metadata["workspace_members"]).filter_map(Value::as_str).collect();
    list(&metadata["packages"]).filter(move |package| ids.contains(text(&package["id"])))
}

fn arrows(metadata: &Value) -> Vec<String> {
    let names: BTreeMap<&str, &str> =
        list(&metadata["packages"]).map(|package| (text(&package["id"]), text(&package["name"]))).collect();
    let mut uses: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for node in list(&metadata["resolve"]["nodes"]) {
        let shipped =
            list(&node["deps"]).filter(|dep| list(&dep["dep_kinds"]).any(|kind| kind["kind"] != "dev"));
        let shipped = shipped.filter_map(|dep| names.get(text(&dep["pkg"])).copied());
        // Several versions of one crate are one crate here.
        uses.entry(names.get(text(&node["id"])).copied().unwrap_or("?")).or_default().extend(shipped);
    }
    let mut wrong = Vec::new();
    let ours: BTreeSet<&str> = members(metadata).map(|package| text(&package["name"])).collect();
    for name in ours.iter().filter(|name| name.starts_with("sandtimer")) {
        let Some((_, allowed)) = ARROWS.iter().find(|(known, _)| known == name) else { continue };
        let used = uses.get(name).into_iter().flatten().filter(|used| ours.contains(*used));
        for used in used.filter(|used| !allowed.contains(used)) {
            wrong.push(format!("{name} uses {used}; it may use {}", any_of(allowed)));
        }
    }
    for banned in NOT_IN_OS {
        if let Some(path) = path_to(&uses, "sandtimer-os", banned) {
            wrong.push(format!("sandtimer-os must not use {banned}: {}", path.join(" -> ")));
        }
    }
    wrong
}

fn any_of(names: &[&str]) -> String {
    if names.is_empty() {
        "no crate of this repository".to_owned()
    } else {
        format!("only {}", names.join(", "))
    }
}

/// The crates by which `from` comes to use `to`, both included.
fn path_to<'a>(uses: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &'a str, to: &str) -> Option<Vec<&'a str>> {
    let mut visited = BTreeSet::new();
    let mut open = vec![vec![from]];
    while let Some(path) = open.pop() {
        let last = path[path.len() - 1];
        if last == to {
            return Some(path);
        }
        if visited.insert(last) {
            open.extend(uses.get(last).into_iter().flatten().map(|next| [&path[..], &[*next]].concat()));
        }
    }
    None
}

/// Crates under `crates/` without a place in [`ARROWS`], and roots of crates that do not forbid
/// `unsafe`.
fn crate_roots(metadata: &Value, root: &Path) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for package in members(metadata) {
        let name = text(&package["name"]);
        let manifest = Path::new(text(&package["manifest_path"]));
        let shipped = manifest.starts_with(root.join("crates"));
        if shipped && !ARROWS.iter().any(|(known, _)| *known == name) {
            wrong.push(format!("{name} has no arrows: add it to ARROWS in {}", file!()));
        }
        if UNSAFE.contains(&name) || !(shipped || name == env!("CARGO_PKG_NAME")) {
            continue;
        }
        for target in list(&package["targets"]) {
            let ships = |kind: &Value| !matches!(text(kind), "test" | "bench" | "example" | "custom-build");
            if list(&target["kind"]).any(ships) {
                let path = Path::new(text(&target["src_path"]));
                let source = fs::read_to_string(path)
                    .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
                if !source.lines().any(|line| line.trim() == "#![forbid(unsafe_code)]") {
                    let path = path.strip_prefix(root).unwrap_or(path).display();
                    wrong.push(format!(
                        "{path}:1: `#![forbid(unsafe_code)]` is missing; only {} may do without",
                        UNSAFE.join(", ")
                    ));
                }
            }
        }
    }
    Ok(wrong)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Metadata of a workspace whose members are the crates called sandtimer; each use is (from,
    /// to, kind).
    fn metadata(uses: &[(&str, &str, Option<&str>)]) -> Value {
        let names: BTreeSet<&str> = uses.iter().flat_map(|(from, to, _)| [*from, *to]).collect();
        let members: Vec<_> = names.iter().filter(|name| name.starts_with("sandtimer")).collect();
        let nodes = names.iter().map(|name| {
            let deps = uses.iter().filter(|(from, _, _)| from == name);
            let deps = deps.map(|(_, to, kind)| json!({"pkg": to, "dep_kinds": [{"kind": kind}]}));
            json!({"id": name, "deps": deps.collect::<Vec<_>>()})
        });
        let packages = names.iter().map(|name| json!({"id": name, "name": name}));
        json!({
            "workspace_members": members,
            "packages": packages.collect::<Vec<_>>(),
            "resolve": {"nodes": nodes.collect::<Vec<_>>()},
        })
    }

    #[test]
    fn the_designed_arrows_are_accepted() {
        let uses = [
            ("sandtimer", "sandtimer-os", None),
            ("sandtimer-jobs", "sandtimer", None),
            ("sandtimer-cli", "sandtimer-server", None),
            ("sandtimer-server", "sandtimer-jobs", None),
            ("sandtimer", "tokio", None),
            ("sandtimer-os", "sandtimer", Some("dev")),
        ];
        assert!(arrows(&metadata(&uses)).is_empty());
    }

    #[test]
    fn arrow_against_the_layers_is_named() {
        let uses = [("sandtimer", "sandtimer-jobs", None), ("sandtimer-os", "sandtimer", Some("build"))];
        assert_eq!(
            arrows(&metadata(&uses)),
            [
                "sandtimer uses sandtimer-jobs; it may use only sandtimer-os",
                "sandtimer-os uses sandtimer; it may use no crate of this repository",
            ]
        );
    }

    #[test]
    fn indirect_use_that_os_must_not_have_is_found() {
        let uses = [("sandtimer-os", "helper", None), ("helper", "log", None), ("log", "helper", None)];
        assert_eq!(
            arrows(&metadata(&uses)),
            ["sandtimer-os must not use log: sandtimer-os -> helper -> log"]
        );
    }
}
