//! rustup: which toolchain the proxies in cargo's `bin` directory start.
//!
//! Of cargo's home only `bin` is ever shown: next to it lie the registry and its credentials. The
//! hard fact: a proxy writes to rustup's home when `settings.toml` or `update-hashes` is absent,
//! and fails when it cannot, so both are made up. The host's own settings list the directories of
//! every project with an override.

use super::LookupContext;
use std::path::{Path, PathBuf};

/// rustup's home and the toolchain in force.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rustup {
    pub(crate) home: PathBuf,
    /// The name of the toolchain's directory.
    pub(crate) toolchain: String,
    /// That directory as rustup names it; it may be a link.
    pub(crate) directory: PathBuf,
}

/// The toolchain that rustup would use here, for the proxies in `bin`.
///
/// `None` when `bin` has no rustup, `Some(Err)` names a chosen toolchain that is not installed.
pub(crate) fn active(context: &LookupContext<'_>, bin: &Path) -> Option<Result<Rustup, String>> {
    let host = context.host;
    if !host.is_file(&bin.join("rustup")) {
        return None;
    }
    let chosen = context.variable("RUSTUP_HOME").map(PathBuf::from);
    let adjacent = bin.parent().and_then(Path::parent).map(|home| home.join(".rustup"));
    let usual = context.variable("HOME").map(|home| Path::new(home).join(".rustup"));
    let homes = [chosen, adjacent, usual].into_iter().flatten();
    let home = homes.into_iter().find(|home| home.is_absolute() && host.is_directory(home))?;
    let settings = host.text(&home.join("settings.toml")).unwrap_or_default();
    let (wanted, source) = wanted(context, &home, &settings)?;
    let triple = value(&settings, "", "default_host_triple");
    let standard = ["gnu", "musl"].map(|abi| format!("{}-unknown-linux-{abi}", std::env::consts::ARCH));
    let names = triple.into_iter().chain(standard).map(|triple| format!("{wanted}-{triple}"));
    let found = std::iter::once(wanted.clone()).chain(names).filter(|name| is_plain(name)).find_map(|name| {
        let directory = home.join("toolchains").join(&name);
        host.is_directory(&directory.join("bin")).then_some((name, directory))
    });
    Some(match found {
        Some((toolchain, directory)) => Ok(Rustup { home, toolchain, directory }),
        None => Err(format!("Rust toolchain {wanted} (chosen by {source})")),
    })
}

/// The `settings.toml` shown inside.
pub(crate) fn settings(toolchain: &str) -> String {
    format!("version = \"12\"\nprofile = \"minimal\"\ndefault_toolchain = \"{toolchain}\"\n")
}

/// The toolchain asked for, and by what: the variable, the nearest override or toolchain file, the
/// default.
fn wanted(context: &LookupContext<'_>, home: &Path, settings: &str) -> Option<(String, String)> {
    if let Some(value) = context.variable("RUSTUP_TOOLCHAIN") {
        return Some((value.to_str()?.to_owned(), "RUSTUP_TOOLCHAIN".to_owned()));
    }
    for directory in context.directory.ancestors() {
        if let Some(name) = directory.to_str().and_then(|key| value(settings, "overrides", key)) {
            return Some((name, format!("rustup's override for {}", directory.display())));
        }
        for file in ["rust-toolchain", "rust-toolchain.toml"].map(|name| directory.join(name)) {
            let Some(text) = context.host.text(&file) else { continue };
            if let Some(name) = value(&text, "toolchain", "channel").or_else(|| plain_line(&text)) {
                return Some((name, file.display().to_string()));
            }
        }
    }
    let settings_file = home.join("settings.toml");
    Some((value(settings, "", "default_toolchain")?, settings_file.display().to_string()))
}

/// The old form of `rust-toolchain`: nothing but a name.
fn plain_line(text: &str) -> Option<String> {
    let line = text.trim();
    is_plain(line).then(|| line.to_owned())
}

/// A name, not a path and not TOML: a project's file must not reach outside `toolchains/`.
fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('.')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.+".contains(&byte))
}

/// A string value of a TOML file of rustup's: one key a line, strings on one line.
fn value(text: &str, section: &str, key: &str) -> Option<String> {
    let mut here = "";
    for line in text.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            here = header.split(']').next().unwrap_or_default().trim();
            continue;
        }
        let Some(after) = (here == section).then(|| strip_key(line, key)).flatten() else { continue };
        let quote = after.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
        return after[1..].split(quote).next().map(str::to_owned);
    }
    None
}

fn strip_key<'t>(line: &'t str, key: &str) -> Option<&'t str> {
    let quoted = || line.strip_prefix(['"', '\''])?.strip_prefix(key)?.strip_prefix(['"', '\'']);
    let rest = quoted().or_else(|| line.strip_prefix(key))?;
    Some(rest.trim_start().strip_prefix('=')?.trim_start())
}
