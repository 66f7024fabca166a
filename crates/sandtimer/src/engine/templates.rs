//! Prepared roots in a launcher; see [`crate::isolate::root`].

use std::sync::Arc;

use sandtimer_os::launcher::Launcher;

use super::known_files::KnownFiles;
use crate::isolate::root::{self, TEMPLATES};

/// How long a template is used before it is made again: what it shows of the host may have been
/// replaced.
const LIFETIME_NANOSECONDS: u64 = 2_000_000_000;

/// Which roots are worth a template: those asked for more than once. Known by the first plan of
/// their kind.
#[derive(Debug, Default)]
pub(super) struct Templates {
    known: Vec<Arc<KnownFiles>>,
    /// One could not be made; none is tried again.
    broken: bool,
}

impl Templates {
    /// The template for such a plan, from the second time on. The plan keeps the answer: to compare
    /// takes long for something that every run waits for.
    pub(super) fn find(&mut self, files: &Arc<KnownFiles>) -> Option<usize> {
        if self.broken {
            return None;
        }
        if let Some(settled) = files.template.get() {
            return *settled;
        }
        let found = self.known.iter().position(|known| known.shared() == files.shared());
        if found.is_none() && self.known.len() < TEMPLATES {
            self.known.push(files.clone());
            return None;
        }
        // Known ones stay, so that neither a match nor a want of room changes.
        *files.template.get_or_init(|| found)
    }

    /// Disables templates: later runs start without them.
    pub(super) fn disable(&mut self) {
        self.broken = true;
    }

    /// The plan that template `index` is made from.
    pub(super) fn mounts(&self, index: usize) -> Option<Arc<KnownFiles>> {
        self.known.get(index).cloned()
    }
}

/// The templates that one launcher has made, by when.
#[derive(Debug, Default)]
pub(super) struct LauncherTemplates {
    at: [Option<u64>; TEMPLATES],
    any: bool,
}

impl LauncherTemplates {
    /// Makes sure that template `index` is there and fresh.
    pub(super) fn ensure(
        &mut self,
        launcher: &Launcher,
        index: usize,
        files: &KnownFiles,
        now: u64,
    ) -> std::io::Result<()> {
        if self.at[index].is_some_and(|made| now.saturating_sub(made) < LIFETIME_NANOSECONDS) {
            return Ok(());
        }
        let program = root::template(&files.mounts, index, !self.any, self.at[index].is_some());
        let made = launcher.prepare(&program);
        self.any |= made.is_ok();
        self.at[index] = made.is_ok().then_some(now).or(self.at[index]);
        made
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::PathBuf;

    use super::*;
    use crate::isolate::files::{FileKind, FilesPlan, Mount};

    /// A plan that shows `/usr` from `system`, and a workspace of `kind` from `own`.
    fn plan(system: &str, own: &str, kind: FileKind) -> Arc<KnownFiles> {
        let bind = |source: &str, target: &str, writable, kind| Mount::Bind {
            source: source.into(),
            target: target.into(),
            writable,
            identity_mapped: writable,
            kind,
        };
        let mounts = vec![
            bind(system, "/usr", false, FileKind::Directory),
            Mount::Tmpfs { target: "/tmp".into(), mode: 0o777 },
            bind(own, "/w", true, kind),
        ];
        Arc::new(KnownFiles::new(FilesPlan {
            executable: None,
            mounts,
            cwd: PathBuf::from("/"),
            path_variable: OsString::new(),
            environment: Vec::new(),
            notes: Vec::new(),
            gpus: None,
        }))
    }

    #[test]
    fn plans_share_a_template_where_they_differ_in_nothing_of_it() {
        let mut templates = Templates::default();
        assert_eq!(templates.find(&plan("/usr", "/w", FileKind::Directory)), None, "asked for once");
        assert_eq!(
            templates.find(&plan("/usr", "/elsewhere", FileKind::Directory)),
            Some(0),
            "own directories differ"
        );
        assert_eq!(
            templates.find(&plan("/other", "/w", FileKind::Directory)),
            None,
            "it shows something else"
        );
        assert_eq!(
            templates.find(&plan("/usr", "/w", FileKind::File)),
            None,
            "it has another place for the workspace"
        );
        assert_eq!(templates.find(&plan("/usr", "/w", FileKind::File)), Some(2));
        assert_eq!(templates.find(&plan("/other", "/w", FileKind::Directory)), Some(1));
    }

    #[test]
    fn a_plan_is_compared_until_its_template_is_settled() {
        let mut templates = Templates::default();
        let first = plan("/usr", "/w", FileKind::Directory);
        let like_it = plan("/usr", "/w", FileKind::Directory);
        assert_eq!(templates.find(&first), None);
        assert_eq!(first.template.get(), None);
        for plan in [&like_it, &first] {
            assert_eq!(templates.find(plan), Some(0));
            assert_eq!(plan.template.get(), Some(&Some(0)));
        }
        for number in 1..TEMPLATES {
            assert_eq!(templates.find(&plan(&format!("/{number}"), "/w", FileKind::Directory)), None);
        }
        let too_many = plan("/usr", "/w", FileKind::File);
        assert_eq!(templates.find(&too_many), None);
        assert_eq!(too_many.template.get(), Some(&None), "there is room for no more");
        templates.known.clear();
        assert_eq!(templates.find(&like_it), Some(0), "it was compared again");
    }
}
