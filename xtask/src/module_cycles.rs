//! Import cycles between the modules of one crate.
//!
//! Read from the source text like [`module_arrows`](crate::module_arrows). Each file is a module.
//! An arrow leads from a module to the one that defines what it names by `crate::`, `super::`,
//! `self::` or the name of a child; re-exports are followed, so a `mod.rs` that only re-exports is
//! in no cycle. Tests are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

use crate::Result;
use crate::module_arrows::{code_only, module_path, source_files};

/// Reads re-exports through at most this many modules.
const MAX_REEXPORTS: usize = 8;

static USE: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?s)\buse\s+([^;]*);"));
static PATH: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?:^|[^\w:$'])(\w+(?:\s*::\s*\w+)+)"));
static TESTS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub\([^)]*\)\s+)?mod (\w+)\s*([;{])")
});

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a valid expression")
}

type ModulePath = Vec<String>;

/// A module's code and the names that it imports.
struct Module {
    file: String,
    code: String,
    /// The path of each imported name, from the root of the crate.
    imports: BTreeMap<String, ModulePath>,
    is_test: bool,
}

/// The modules of one crate.
struct Crate {
    modules: BTreeMap<ModulePath, Module>,
}

/// An arrow and the line that it is at.
type Arrows = BTreeMap<ModulePath, BTreeMap<ModulePath, usize>>;

/// Returns every crate that has cycles, with one cycle of each group of modules.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let crates = root.join("crates");
    let failed = |error| format!("cannot read {}: {error}", crates.display());
    let mut wrong = Vec::new();
    let mut names = Vec::new();
    for entry in fs::read_dir(&crates).map_err(failed)? {
        names.push(entry.map_err(failed)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    for name in names {
        let source = crates.join(&name).join("src");
        let mut files = Vec::new();
        for path in source_files(&source)? {
            let content = fs::read_to_string(&path)
                .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            let shown = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            files.push((module_path(path.strip_prefix(&source).unwrap_or(&path)), shown, content));
        }
        wrong.extend(Crate::read(files).report(&name));
    }
    Ok(wrong)
}

impl Crate {
    /// Reads modules from their paths, the names of their files and their contents.
    fn read(files: Vec<(ModulePath, String, String)>) -> Self {
        let mut modules = BTreeMap::new();
        let mut tests = BTreeSet::new();
        for (path, file, content) in files {
            let code = without_tests(&code_only(&content), &path, &mut tests);
            modules.insert(path, Module { file, code, imports: BTreeMap::new(), is_test: false });
        }
        let mut read = Crate { modules };
        for path in read.modules.keys().cloned().collect::<Vec<_>>() {
            let mut imports = BTreeMap::new();
            for (_, target) in read.used(&path, true) {
                if let Some(name) = target.1 {
                    imports.insert(name, target.0);
                }
            }
            let module = read.modules.get_mut(&path).expect("one of them");
            module.imports = imports;
            module.is_test = (0..=path.len()).any(|length| tests.contains(&path[..length]));
        }
        read
    }

    /// What a module names, from the root of the crate, each with its line and with the name that
    /// an import gives it.
    fn used(&self, path: &ModulePath, only_imports: bool) -> Vec<(usize, (ModulePath, Option<String>))> {
        let code = &self.modules[path].code;
        let mut found = Vec::new();
        let line = |offset: usize| code[..offset].matches('\n').count() + 1;
        let mut rest = code.clone();
        for captures in USE.captures_iter(code) {
            let (whole, tree) = (captures.get(0).expect("all of it"), &captures[1]);
            for (segments, name) in tree_paths(tree) {
                if let Some(target) = self.absolute(path, &segments) {
                    found.push((line(whole.start()), (target, Some(name))));
                }
            }
            rest.replace_range(whole.range(), &" ".repeat(whole.len()));
        }
        if only_imports {
            return found;
        }
        for captures in PATH.captures_iter(&rest) {
            let named = captures.get(1).expect("a group of it");
            let segments: Vec<String> =
                named.as_str().split("::").map(|name| name.trim().to_owned()).collect();
            if let Some(target) = self.absolute(path, &segments) {
                found.push((line(named.start()), (target, None)));
            }
        }
        found
    }

    /// The path from the root of the crate; `None` for one of another crate, or that begins with an
    /// imported name.
    fn absolute(&self, module: &ModulePath, segments: &[String]) -> Option<ModulePath> {
        let mut base = module.clone();
        let mut rest = segments;
        match rest.first()?.as_str() {
            "crate" => (base, rest) = (Vec::new(), &rest[1..]),
            "self" => rest = &rest[1..],
            "super" => {}
            child => {
                let is_child = self.modules.contains_key(&[&base[..], &[child.to_owned()]].concat());
                return is_child.then(|| [&base[..], rest].concat());
            }
        }
        while rest.first().is_some_and(|name| name == "super") {
            base.pop();
            rest = &rest[1..];
        }
        Some([&base[..], rest].concat())
    }

    /// The module that defines what a path from the root names.
    fn definer(&self, path: &[String], depth: usize) -> ModulePath {
        let length = (0..=path.len()).rev().find(|length| self.modules.contains_key(&path[..*length]));
        let module = path[..length.unwrap_or(0)].to_vec();
        let name = path.get(module.len());
        let imported = name.and_then(|name| self.modules.get(&module)?.imports.get(name));
        match imported {
            Some(target) if depth > 0 => {
                let rest = &path[module.len() + 1..];
                self.definer(&[&target[..], rest].concat(), depth - 1)
            }
            _ => module,
        }
    }

    fn arrows(&self) -> Arrows {
        let mut arrows = Arrows::new();
        for (path, _) in self.modules.iter().filter(|(_, module)| !module.is_test && !module.code.is_empty())
        {
            let targets = arrows.entry(path.clone()).or_default();
            for (line, (target, _)) in self.used(path, false) {
                let definer = self.definer(&target, MAX_REEXPORTS);
                if definer != *path && !self.modules.get(&definer).is_none_or(|module| module.is_test) {
                    targets.entry(definer).or_insert(line);
                }
            }
        }
        arrows
    }

    /// The cycles of the crate called `name`.
    fn report(&self, name: &str) -> Vec<String> {
        let arrows = self.arrows();
        let groups = groups(&arrows);
        let count: usize = groups.iter().map(BTreeSet::len).sum();
        if count == 0 {
            return Vec::new();
        }
        let shown = |path: &ModulePath| if path.is_empty() { "(root)".to_owned() } else { path.join("::") };
        let mut wrong = vec![format!("{name}: {count} modules are in import cycles")];
        for group in groups {
            let steps: Vec<String> = cycle(&arrows, &group)
                .iter()
                .map(|(from, to, line)| {
                    format!("    {}:{line}: `{}` uses `{}`", self.modules[from].file, shown(from), shown(to))
                })
                .collect();
            wrong.push(format!(
                "  {} modules; the shortest cycle of the first:\n{}",
                group.len(),
                steps.join("\n")
            ));
        }
        wrong
    }
}

/// `code` with its inline tests made blank; notes modules that are tests.
fn without_tests(code: &str, module: &[String], tests: &mut BTreeSet<ModulePath>) -> String {
    let mut blank = code.to_owned();
    for captures in TESTS.captures_iter(code) {
        if &captures[2] == ";" {
            tests.insert([module, &[captures[1].to_owned()]].concat());
            continue;
        }
        let start = captures.get(0).expect("all of it").start();
        let open = captures.get(2).expect("a group of it").start();
        let mut depth = 0;
        let length = code[open..].find(|character| {
            depth += match character {
                '{' => 1,
                '}' => -1,
                _ => 0,
            };
            depth == 0
        });
        let end = length.map_or(code.len(), |length| open + length + 1);
        let kept: String =
            code[start..end].chars().map(|character| if character == '\n' { '\n' } else { ' ' }).collect();
        // As long in bytes, so that later offsets hold.
        let padding = " ".repeat(end - start - kept.len());
        blank.replace_range(start..end, &(kept + &padding));
    }
    blank
}

/// The paths of a tree of imports, each with the name that it is imported by.
fn tree_paths(tree: &str) -> Vec<(Vec<String>, String)> {
    let tree = tree.trim();
    let Some(open) = tree.find('{') else {
        let (path, alias) = tree.split_once(" as ").map_or((tree, None), |(path, alias)| (path, Some(alias)));
        let mut segments: Vec<String> = path.split("::").map(|name| name.trim().to_owned()).collect();
        if segments.len() > 1 && segments.last().is_some_and(|name| name == "self") {
            segments.pop();
        }
        let name = alias
            .map_or_else(|| segments.last().cloned().unwrap_or_default(), |alias| alias.trim().to_owned());
        return vec![(segments, name)];
    };
    let prefix = &tree[..open];
    let inner = &tree[open + 1..tree.rfind('}').unwrap_or(tree.len())];
    let mut parts = vec![String::new()];
    let mut depth = 0;
    for character in inner.chars() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().expect("never empty").push(character);
    }
    let parts = parts.iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(|part| tree_paths(&format!("{prefix}{}", part.trim()))).collect()
}

/// The modules that can be reached from each, by arrows.
fn reached(arrows: &Arrows, from: &ModulePath) -> BTreeSet<ModulePath> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        for next in arrows.get(module).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    reached
}

/// The groups of modules that can reach one another.
fn groups(arrows: &Arrows) -> Vec<BTreeSet<ModulePath>> {
    let reached: BTreeMap<_, _> = arrows.keys().map(|module| (module, reached(arrows, module))).collect();
    let mut groups: Vec<BTreeSet<ModulePath>> = Vec::new();
    for (module, others) in &reached {
        if others.contains(*module) && !groups.iter().any(|group| group.contains(*module)) {
            let both =
                others.iter().filter(|other| reached.get(other).is_some_and(|back| back.contains(*module)));
            groups.push(both.cloned().collect());
        }
    }
    groups
}

/// The arrows of a shortest cycle through the first module of a group.
fn cycle(arrows: &Arrows, group: &BTreeSet<ModulePath>) -> Vec<(ModulePath, ModulePath, usize)> {
    let Some(first) = group.first() else { return Vec::new() };
    let mut open = std::collections::VecDeque::from([(first, Vec::new())]);
    let mut seen = BTreeSet::new();
    while let Some((module, steps)) = open.pop_front() {
        for (next, line) in arrows.get(module).into_iter().flatten().filter(|(next, _)| group.contains(*next))
        {
            let mut steps = steps.clone();
            steps.push((module.clone(), next.clone(), *line));
            if next == first {
                return steps;
            }
            if seen.insert(next) {
                open.push_back((next, steps));
            }
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycles(files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().map(|(file, content)| {
            (module_path(Path::new(file)), format!("src/{file}"), (*content).to_owned())
        });
        Crate::read(files.collect()).report("example")
    }

    #[test]
    fn siblings_that_use_each_other_are_named() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "\nuse crate::b::B;"),
            ("b.rs", "fn f() { super::a::f() }"),
        ];
        let found = cycles(&files);
        assert_eq!(found[0], "example: 2 modules are in import cycles");
        assert!(found[1].contains("src/a.rs:2: `a` uses `b`\n    src/b.rs:1: `b` uses `a`"), "{found:?}");
    }

    #[test]
    fn facade_that_only_reexports_is_in_no_cycle() {
        let files = [
            ("lib.rs", "mod a; mod c;"),
            ("a/mod.rs", "mod b; mod d; pub use b::{B, C as Renamed}; pub use d::*;"),
            ("a/b.rs", "use super::d::D;"),
            ("a/d.rs", "use crate::c::C;"),
            ("c.rs", "pub struct C;"),
        ];
        assert!(cycles(&files).is_empty());
        let mut used = files;
        used[4].1 = "use crate::a::{Renamed};";
        assert_eq!(cycles(&used)[0], "example: 3 modules are in import cycles");
    }

    #[test]
    fn child_that_uses_what_its_parent_defines_is_a_cycle() {
        let files = [
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod b; fn f() { b::g() } struct A;"),
            ("a/b.rs", "use super::A;"),
        ];
        assert_eq!(cycles(&files)[0], "example: 2 modules are in import cycles");
    }

    #[test]
    fn tests_and_comments_make_no_arrows() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use crate::b::B;\n#[cfg(test)]\nmod tests { use super::*; fn f() { crate::b::f() } }"),
            (
                "b.rs",
                "// crate::a::A\n#[cfg(test)]\nmod tests { use crate::a::A; }\n#[cfg(test)] mod checks;",
            ),
            ("b/checks.rs", "use crate::a::A; use super::B;"),
        ];
        assert!(cycles(&files).is_empty(), "{:?}", cycles(&files));
    }
}
