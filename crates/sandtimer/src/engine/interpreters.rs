//! Warm interpreters for Python programs: one pool for each owner, which learns what that owner's
//! programs import.
//!
//! ```text
//! first program   ─▶ an interpreter of its own, while a pool is made; if none can be made, another
//!                    is tried a minute later
//! from then on    ─▶ a child of the pool's zygote
//! a module that two programs have imported ─▶ a second pool that has imported it beforehand
//!                 ─▶ takes the first pool's place once it is ready; a module that its zygote cannot
//!                    import is not tried again
//! ```
//! A zygote imports from the interpreter's own directories only, never from a workspace; what a
//! program finds in its own directory under a learned name is imported from there
//! (`forget_shadowed` in zygote/programs.py).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::sync::{Arc, Mutex, PoisonError};

use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::thread;

use super::error::Error;
use super::{Calls, Engine, Run, Spec};
use crate::model::{PROGRAM_FILE, ProgramSource};
use crate::zygote::Profile;

/// Owners that have warm interpreters at a time; the owner whose last program is longest ago loses
/// them first.
const MAX_OWNERS: usize = 16;
/// After a pool that has learned nothing could not be made, how long until the next try, in
/// nanoseconds.
const RETRY_NANOSECONDS: u64 = 60_000_000_000;
/// A module is learned once this many programs have imported it; and the maximum of learned modules
/// of one owner.
const MIN_PROGRAMS: u32 = 2;
const MAX_LEARNED_MODULES: usize = 32;
/// Names of modules that are counted for one owner.
const MAX_COUNTED_MODULES: usize = 1024;
/// Children that wait in a pool that is not busy.
const READY_CHILDREN: usize = 1;
/// Modules that do something at their first import that a program may want, or that read what it
/// may set before.
const NOT_LEARNED: [&str; 7] =
    ["__future__", "__main__", "antigravity", "faulthandler", "idlelib", "this", "tkinter"];
/// What a program that sets or removes variables contains, other than an assignment to one.
const SETS_VARIABLES: [&str; 6] =
    ["environ.setdefault", "environ.update", "environ.pop", "environ |", "putenv", "del os.environ"];

/// Warm Python interpreters, by owner.
#[derive(Debug)]
pub struct Interpreters {
    engine: Engine,
    interpreter: OsString,
    owners: Mutex<HashMap<String, Arc<Mutex<OwnerInterpreters>>>>,
}

/// One owner's pools, and what its programs import.
#[derive(Debug, Default)]
struct OwnerInterpreters {
    serving: Option<Arc<Calls>>,
    learned: BTreeSet<String>,
    /// The pool that is to take its place, and what it has learned.
    coming: Option<(Arc<Calls>, BTreeSet<String>)>,
    counts: BTreeMap<String, u32>,
    refused: BTreeSet<String>,
    used_at: u64,
    /// Until then no pool is made, in monotonic nanoseconds.
    waits_until: u64,
}

impl Interpreters {
    /// None yet: the first program of each owner makes them.
    pub fn new(engine: Engine, interpreter: impl Into<OsString>) -> Self {
        Interpreters { engine, interpreter: interpreter.into(), owners: Mutex::default() }
    }

    /// Starts a program of this owner's as [`Calls::start_program`] does. `None`: the caller starts
    /// an interpreter; if the command of `spec` ends with `-c` and the source, it has become one
    /// that gives the program a file.
    ///
    /// # Errors
    /// As [`Calls::start_program`].
    pub fn start(&self, owner: &str, spec: &mut Spec, source: &str) -> Result<Option<Run>, Error> {
        let started = self.start_ready(owner, spec, source)?;
        if let (None, [.., option, code]) = (&started, &mut spec.command[..])
            && option == "-c"
        {
            *code = PROGRAM_FILE.into();
            spec.program = Some(ProgramSource::at_descriptor(source));
        }
        Ok(started)
    }

    fn start_ready(&self, owner: &str, spec: &mut Spec, source: &str) -> Result<Option<Run>, Error> {
        let (of_owner, imported) = (self.of(owner), imports(source));
        let (serving, has_learned, replaced) = {
            let mut of_owner = of_owner.lock().unwrap_or_else(PoisonError::into_inner);
            of_owner.count(imported);
            let replaced = of_owner.advance(&self.engine, &self.interpreter, owner)?;
            (of_owner.serving.clone(), !of_owner.learned.is_empty(), replaced)
        };
        if let Some(replaced) = replaced {
            end_apart(replaced);
        }
        let Some(serving) = serving else { return Ok(None) };
        if has_learned && sets_variables(source) {
            return Ok(None);
        }
        serving.start_program(spec, source)
    }

    fn of(&self, owner: &str) -> Arc<Mutex<OwnerInterpreters>> {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of_owner) = owners.get(owner) {
            return of_owner.clone();
        }
        let used = |of_owner: &Arc<Mutex<OwnerInterpreters>>| {
            of_owner.try_lock().map_or(u64::MAX, |of_owner| of_owner.used_at)
        };
        let oldest = owners.iter().min_by_key(|(_, of_owner)| used(of_owner)).map(|(name, _)| name.clone());
        let gone = oldest.filter(|_| owners.len() >= MAX_OWNERS).and_then(|name| owners.remove(&name));
        let of_owner = Arc::<Mutex<OwnerInterpreters>>::default();
        owners.insert(owner.to_owned(), of_owner.clone());
        if let Some(gone) = gone {
            end_apart(gone);
        }
        of_owner
    }

    /// Ends all of them. Blocks for a moment.
    pub fn close(&self) {
        let all = std::mem::take(&mut *self.owners.lock().unwrap_or_else(PoisonError::into_inner));
        drop(all);
    }
}

/// Ends pools on a thread of its own: it takes up to a second. Where there is no thread, here.
fn end_apart<T: Send + 'static>(pools: T) {
    let ended = std::thread::Builder::new().name("st-refiller".to_owned()).spawn(move || {
        thread::block_signals();
        drop(pools);
    });
    drop(ended);
}

impl OwnerInterpreters {
    fn count(&mut self, imported: BTreeSet<String>) {
        self.used_at = monotonic_nanoseconds();
        for module in imported {
            if self.counts.len() < MAX_COUNTED_MODULES || self.counts.contains_key(&module) {
                *self.counts.entry(module).or_default() += 1;
            }
        }
    }

    /// Puts the next pool in place if it is ready, and starts another one if there is more to
    /// learn. Returns the pool that is no longer used.
    fn advance(
        &mut self,
        engine: &Engine,
        interpreter: &OsStr,
        owner: &str,
    ) -> Result<Option<Arc<Calls>>, Error> {
        let mut replaced = None;
        if let Some((coming, learned)) = self.coming.take() {
            if coming.stats().ready > 0 {
                replaced = self.serving.replace(coming);
                self.learned = learned;
            } else if let Some(reason) = coming.failure() {
                self.refuse(&reason, learned);
                replaced = Some(coming);
            } else {
                self.coming = Some((coming, learned));
            }
        }
        if let Some(wanted) = self.due() {
            let (interpreter, learned) = (interpreter.to_owned(), wanted.iter().cloned().collect());
            let profile = Profile {
                interpreter,
                learned,
                owner: Some(owner.into()),
                programs: true,
                ..Profile::default()
            };
            self.coming = Some((Arc::new(engine.calls(profile, READY_CHILDREN)?), wanted));
        }
        Ok(replaced)
    }

    /// What a pool that is to be made now is to learn.
    fn due(&self) -> Option<BTreeSet<String>> {
        let wanted = self.wanted();
        let has_all = self.serving.is_some() && wanted.is_subset(&self.learned);
        (self.coming.is_none() && !has_all && self.used_at >= self.waits_until).then_some(wanted)
    }

    /// Leaves out what a zygote could not import: the modules that the reason names, else all that
    /// were new. Without any, it is the zygote itself that cannot be.
    fn refuse(&mut self, reason: &str, learned: BTreeSet<String>) {
        if learned.is_empty() {
            self.waits_until = monotonic_nanoseconds().saturating_add(RETRY_NANOSECONDS);
        }
        let new = || learned.difference(&self.learned);
        let named: Vec<String> =
            new().filter(|name| reason.contains(&format!("'{name}'"))).cloned().collect();
        let refused = if named.is_empty() { new().cloned().collect() } else { named };
        self.refused.extend(refused);
    }

    fn wanted(&self) -> BTreeSet<String> {
        let often = self.counts.iter().filter(|(_, count)| **count >= MIN_PROGRAMS).map(|(name, _)| name);
        let allowed = often.filter(|name| !self.refused.contains(*name));
        self.learned.iter().chain(allowed).take(MAX_LEARNED_MODULES).cloned().collect()
    }
}

/// The modules that a program imports in lines of their own: more would take Python to find, and
/// fewer cost only time.
fn imports(source: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in source.lines() {
        let named = if let Some(rest) = line.strip_prefix("import ") {
            rest.split(',').filter_map(|part| part.split_whitespace().next()).collect()
        } else if let Some(rest) = line.strip_prefix("from ") {
            rest.split_once(" import").map(|(name, _)| name.trim()).into_iter().collect()
        } else {
            Vec::new()
        };
        found.extend(
            named
                .into_iter()
                .map(|name| name.trim_end_matches(';'))
                .filter(|name| is_learnable(name))
                .map(str::to_owned),
        );
    }
    found
}

/// Whether a program may set variables that modules read when they are imported: a zygote has
/// imported them already.
fn sets_variables(source: &str) -> bool {
    let mut indexed = source.split("environ[").skip(1);
    let is_assigned = |rest: &str| {
        let value = rest.split_once(']').map_or("", |(_, value)| value.trim_start());
        value.starts_with('=') && !value.starts_with("==")
    };
    indexed.any(is_assigned) || SETS_VARIABLES.iter().any(|pattern| source.contains(pattern))
}

fn is_learnable(name: &str) -> bool {
    let is_name = |part: &str| {
        !part.is_empty()
            && !part.starts_with(|first: char| first.is_ascii_digit())
            && part.chars().all(|one| one.is_ascii_alphanumeric() || one == '_')
    };
    let first = name.split('.').next().unwrap_or_default();
    name.len() <= 100 && name.split('.').all(is_name) && !NOT_LEARNED.contains(&first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_found_in_lines_of_their_own() {
        let source = "import numpy as np, os.path\nfrom scipy.stats import norm\n  import indented\n\
                      import this\nfrom . import x\nimportant = 1\nfrom __future__ import annotations\nimport json;\n";
        let found: Vec<String> = imports(source).into_iter().collect();
        assert_eq!(found, ["json", "numpy", "os.path", "scipy.stats"]);
    }

    #[test]
    fn programs_that_set_variables_are_recognized() {
        for setting in ["os.environ['A'] = '1'", "os.environ[name]='x'", "os.environ.setdefault('A', '1')"] {
            assert!(sets_variables(setting), "{setting}");
        }
        for reading in ["print(os.environ['A'])", "if os.environ['A'] == '1': pass", "os.environ.get('A')"] {
            assert!(!sets_variables(reading), "{reading}");
        }
    }

    #[test]
    fn modules_are_wanted_from_second_program_unless_refused() {
        let mut owner = OwnerInterpreters::default();
        owner.count(imports("import numpy\nimport pandas\n"));
        assert!(owner.wanted().is_empty());
        owner.count(imports("import numpy\nimport pandas\n"));
        assert_eq!(owner.wanted().len(), 2);
        owner.refuse("has other threads once 'pandas' is preloaded", owner.wanted());
        assert_eq!(owner.wanted().into_iter().collect::<Vec<_>>(), ["numpy"]);
    }

    #[test]
    fn pool_that_cannot_be_made_is_not_made_for_every_program() {
        let mut owner = OwnerInterpreters::default();
        owner.count(BTreeSet::new());
        assert_eq!(owner.due(), Some(BTreeSet::new()));
        owner.refuse("zygotes need namespaces, which this host does not give", BTreeSet::new());
        owner.count(BTreeSet::new());
        assert_eq!(owner.due(), None);
        owner.used_at = owner.waits_until;
        assert_eq!(owner.due(), Some(BTreeSet::new()));
    }
}
