//! A set of limits: the setting of every kind, and of the grace period.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::key::Key;
use super::parse::{LimitError, from_json};
use super::setting::{Setting, nanoseconds};
use crate::model::LimitKind;

/// The limits that one place sets: a [`Setting`] for every kind, and for the grace period.
///
/// ```
/// use std::time::Duration;
/// use sandtimer::limits::{Limits, Setting};
/// use sandtimer::model::LimitKind;
///
/// let limits = Limits::new().wall(Duration::from_secs(2)).memory(512 << 20).unlimited(LimitKind::Cpu);
/// assert_eq!(limits.get(LimitKind::Wall), Setting::At(2_000_000_000));
/// assert_eq!(limits.get(LimitKind::Stall), Setting::Inherit);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    settings: [Setting; Key::COUNT],
    origin: Option<Arc<str>>,
}

impl Limits {
    /// Every limit inherited.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same limits with the place that sets them, for people: a variable, a flag, a line of a
    /// file.
    #[must_use]
    pub fn with_origin(mut self, origin: impl Into<Arc<str>>) -> Self {
        self.origin = Some(origin.into());
        self
    }

    /// The place that sets them, if that is known.
    pub fn origin(&self) -> Option<&Arc<str>> {
        self.origin.as_ref()
    }

    /// Reads the wire keys of limits (`wall_ms`, `memory_bytes`, …) out of an object; its other
    /// keys are ignored.
    ///
    /// # Errors
    /// The first refused value, in the order of [`Key::ALL`].
    ///
    /// ```
    /// use sandtimer::limits::{Limits, Setting};
    /// use sandtimer::model::LimitKind;
    ///
    /// let request = serde_json::json!({"wall_ms": 2000, "memory_bytes": "512M", "cpu_ms": 0});
    /// let limits = Limits::from_json_object(request.as_object().unwrap(), "the request")?;
    /// assert_eq!(limits.get(LimitKind::Wall), Setting::At(2_000_000_000));
    /// assert_eq!(limits.get(LimitKind::Memory), Setting::At(512 << 20));
    /// assert_eq!(limits.get(LimitKind::Cpu), Setting::Unlimited);
    /// assert_eq!(limits.get(LimitKind::Stall), Setting::Inherit);
    /// # Ok::<(), sandtimer::limits::LimitError>(())
    /// ```
    pub fn from_json_object(object: &Map<String, Value>, origin: &str) -> Result<Self, LimitError> {
        let mut limits = Self::new();
        for key in Key::ALL {
            if let Some(value) = object.get(key.wire()) {
                limits.set(key, from_json(key.wire(), value, origin)?);
            }
        }
        Ok(limits)
    }

    /// Returns the setting of one limit.
    pub fn get(&self, key: impl Into<Key>) -> Setting {
        self.settings[key.into().index()]
    }

    /// These limits, and those of `other` where these are unset.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sandtimer::limits::{Limits, Setting};
    /// use sandtimer::model::LimitKind;
    ///
    /// let defaults = Limits::new().wall(Duration::from_secs(60)).processes(64);
    /// let limits = Limits::new().wall(Duration::from_secs(2)).over(&defaults);
    /// assert_eq!(limits.get(LimitKind::Wall), Setting::At(2_000_000_000));
    /// assert_eq!(limits.get(LimitKind::Processes), Setting::At(64));
    /// ```
    pub fn over(&self, other: &Limits) -> Limits {
        let mut limits = other.clone();
        for key in Key::ALL {
            if self.get(key) != Setting::Inherit {
                limits.set(key, self.get(key));
            }
        }
        limits
    }

    /// Sets one limit. A grace without end would undo the limit it follows, so `Unlimited` for
    /// [`Key::Grace`] is taken as no grace.
    ///
    /// ```
    /// use sandtimer::limits::{Key, Limits, Setting};
    ///
    /// let mut limits = Limits::new();
    /// limits.set(Key::Grace, Setting::Unlimited);
    /// assert_eq!(limits.get(Key::Grace), Setting::At(0));
    /// ```
    pub fn set(&mut self, key: impl Into<Key>, setting: Setting) {
        let key = key.into();
        self.settings[key.index()] = match (key, setting) {
            (Key::Grace, Setting::Unlimited) => Setting::At(0),
            _ => setting,
        };
    }

    /// Explicitly no limit of this kind.
    #[must_use]
    pub fn unlimited(self, kind: LimitKind) -> Self {
        self.with(kind, Setting::Unlimited)
    }

    /// Elapsed time.
    #[must_use]
    pub fn wall(self, limit: Duration) -> Self {
        self.with(LimitKind::Wall, Setting::At(nanoseconds(limit)))
    }

    /// Time between the wall limit and the kill.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sandtimer::{Engine, Limits, Spec};
    ///
    /// let limits = Limits::new().wall(Duration::from_millis(500)).grace(Duration::from_secs(30));
    /// let script = "trap 'echo saved; exit 0' TERM; while :; do sleep 0.1; done";
    /// let spec = Spec::command(["sh", "-c", script]).limits(limits);
    /// let outcome = Engine::new()?.run_blocking(spec)?;
    /// assert_eq!(outcome.stdout, "saved\n");
    /// assert_eq!(outcome.verdict.as_ref().unwrap().signals[0].signal, "SIGTERM");
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    #[must_use]
    pub fn grace(self, grace: Duration) -> Self {
        self.with(Key::Grace, Setting::At(nanoseconds(grace)))
    }

    /// Processor time of the whole process tree.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sandtimer::{Engine, LimitKind, Limits, Spec};
    ///
    /// let limits = Limits::new().cpu(Duration::from_millis(300));
    /// let spec = Spec::command(["sh", "-c", "while :; do :; done"]).limits(limits);
    /// let outcome = Engine::new()?.run_blocking(spec)?;
    /// assert_eq!(outcome.verdict.as_ref().unwrap().kind, Some(LimitKind::Cpu));
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    #[must_use]
    pub fn cpu(self, limit: Duration) -> Self {
        self.with(LimitKind::Cpu, Setting::At(nanoseconds(limit)))
    }

    /// Time without output and without CPU use.
    #[must_use]
    pub fn stall(self, limit: Duration) -> Self {
        self.with(LimitKind::Stall, Setting::At(nanoseconds(limit)))
    }

    /// Time an unused context or session is kept.
    #[must_use]
    pub fn idle(self, limit: Duration) -> Self {
        self.with(LimitKind::Idle, Setting::At(nanoseconds(limit)))
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory(self, bytes: u64) -> Self {
        self.with(LimitKind::Memory, Setting::At(bytes))
    }

    /// Processes and threads alive at once.
    #[must_use]
    pub fn processes(self, count: u64) -> Self {
        self.with(LimitKind::Processes, Setting::At(count))
    }

    /// Bytes kept of each output stream.
    ///
    /// ```
    /// use sandtimer::{Engine, Limits, Spec};
    ///
    /// let spec = Spec::command(["seq", "100000"]).limits(Limits::new().output(1000));
    /// let outcome = Engine::new()?.run_blocking(spec)?;
    /// // The command has finished; the head and the tail of its output were kept.
    /// assert!(outcome.ok && outcome.stdout_truncated);
    /// assert!(outcome.stdout.starts_with("1\n2\n") && outcome.stdout.ends_with("100000\n"));
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    #[must_use]
    pub fn output(self, bytes: u64) -> Self {
        self.with(LimitKind::Output, Setting::At(bytes))
    }

    /// Bytes on the run's private disk and in its workspaces.
    #[must_use]
    pub fn disk(self, bytes: u64) -> Self {
        self.with(LimitKind::Disk, Setting::At(bytes))
    }

    /// Open files per process.
    #[must_use]
    pub fn open_files(self, count: u64) -> Self {
        self.with(LimitKind::OpenFiles, Setting::At(count))
    }

    /// Bytes of a call's result.
    #[must_use]
    pub fn result(self, bytes: u64) -> Self {
        self.with(LimitKind::Result, Setting::At(bytes))
    }

    /// Turns of an agent's loop.
    #[must_use]
    pub fn turns(self, count: u64) -> Self {
        self.with(LimitKind::Turns, Setting::At(count))
    }

    /// Failures of an agent's loop.
    #[must_use]
    pub fn failures(self, count: u64) -> Self {
        self.with(LimitKind::Failures, Setting::At(count))
    }

    /// These limits, and the others where these are unset.
    #[must_use]
    pub fn or(mut self, others: &Limits) -> Self {
        for key in Key::ALL {
            if self.get(key) == Setting::Inherit {
                self.set(key, others.get(key));
            }
        }
        self
    }

    fn with(mut self, key: impl Into<Key>, setting: Setting) -> Self {
        self.set(key, setting);
        self
    }
}
