//! The settings of an engine.

#[cfg(feature = "javascript")]
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::limits::Limits;

/// The settings of an engine.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Where output that outgrows memory goes; by default the system's temporary directory.
    pub spool_directory: Option<PathBuf>,
    /// Where the lock files of this user's engines are; by default under /run or XDG_RUNTIME_DIR.
    pub runtime_directory: Option<PathBuf>,
    /// The operator's maxima; see
    /// [`Ceilings::with_operator`](crate::limits::Ceilings::with_operator).
    pub maxima: Limits,
    /// How long an interpreter or a shell may take to start; by default 60 s.
    pub spawn_limit: Option<Duration>,
    /// The command of a separate process that parses TypeScript: it gets the name of the requested
    /// operation as its last argument, and calls [`serve`](crate::script::serve). Without it this
    /// process parses TypeScript, as far as that is safe.
    #[cfg(feature = "javascript")]
    pub reader: Option<Vec<OsString>>,
    /// Runs are adopted alone: nothing that builds sandboxes is started ahead of need.
    #[doc(hidden)]
    pub only_adopts: bool,
    /// One run is started: nothing is made that only a later one would use.
    #[doc(hidden)]
    pub is_one_shot: bool,
    /// Pretends that the kernel gives no namespaces, to test the weaker tiers.
    #[doc(hidden)]
    pub no_namespaces: bool,
}
