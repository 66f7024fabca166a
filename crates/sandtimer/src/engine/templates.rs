//! Roots that stand ready in a launcher; see [`crate::isolate::root`].

use std::sync::Arc;

use sandtimer_os::launcher::Launcher;

use super::plans::KnownFiles;
use crate::isolate::root::{self, TEMPLATES};

/// How long a template is used before it is made anew: what it shows of the host may have been replaced.
const LIFETIME: u64 = 2_000_000_000;

/// Which roots are worth a template: those asked for more than once. Known by the first plan of their kind.
#[derive(Debug, Default)]
pub(super) struct Templates {
    known: Vec<Arc<KnownFiles>>,
    /// One could not be made; none is tried again.
    broken: bool,
}

impl Templates {
    /// The template for such a plan, from the second time on.
    pub(super) fn find(&mut self, files: &Arc<KnownFiles>) -> Option<usize> {
        if self.broken {
            return None;
        }
        let same = |known: &Arc<KnownFiles>| {
            Arc::ptr_eq(known, files) || (known.shared == files.shared && known.places == files.places)
        };
        let found = self.known.iter().position(same);
        if found.is_none() && self.known.len() < TEMPLATES {
            self.known.push(files.clone());
        }
        found
    }

    /// Gives templates up: runs go on without.
    pub(super) fn give_up(&mut self) {
        self.broken = true;
    }

    /// The plan that template `index` is made from.
    pub(super) fn mounts(&self, index: usize) -> Option<Arc<KnownFiles>> {
        self.known.get(index).cloned()
    }
}

/// The templates that one launcher has made, by when.
#[derive(Debug, Default)]
pub(super) struct Made {
    at: [Option<u64>; TEMPLATES],
    any: bool,
}

impl Made {
    /// Makes sure that template `index` is there and fresh.
    pub(super) fn ensure(
        &mut self,
        launcher: &Launcher,
        index: usize,
        files: &KnownFiles,
        now: u64,
    ) -> std::io::Result<()> {
        if self.at[index].is_some_and(|made| now.saturating_sub(made) < LIFETIME) {
            return Ok(());
        }
        let program = root::template(&files.mounts, index, !self.any, self.at[index].is_some());
        let made = launcher.prepare(&program);
        self.any |= made.is_ok();
        self.at[index] = made.is_ok().then_some(now).or(self.at[index]);
        made
    }
}
