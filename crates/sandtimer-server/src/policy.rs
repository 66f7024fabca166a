//! The defaults of requests: limits by what is executed, and how interpreters are started.

use std::ffi::OsString;
use std::time::Duration;

use sandtimer::Limits;
use sandtimer::model::Source;

/// The interpreter of Python programs, as it is found on PATH.
pub(crate) const PYTHON: &str = "python3";
/// The default number of warm interpreters of one language for each owner.
pub const DEFAULT_READY: usize = 2;

/// Limits from further out than a request, a session or a context, each list in order of
/// precedence.
#[derive(Debug, Clone, Default)]
pub struct Defaults {
    /// Of runs, and of commands in sessions.
    pub commands: Vec<(Source, Limits)>,
    /// Of code in contexts.
    pub code: Vec<(Source, Limits)>,
    /// Of JavaScript and TypeScript in contexts.
    pub javascript: Vec<(Source, Limits)>,
}

impl Defaults {
    /// The same ones for all that is executed.
    pub fn for_all(limits: Vec<(Source, Limits)>) -> Self {
        Defaults { commands: limits.clone(), code: limits.clone(), javascript: limits }
    }
}

/// How the interpreters of contexts come to be.
#[derive(Debug, Clone)]
pub struct Interpreters {
    /// How long one, or a shell, may take to start.
    pub spawn_limit: Duration,
    /// How long a pre-warm script may take.
    pub prewarm_limit: Duration,
    pub python: PoolSettings,
    /// Node.js, for JavaScript and TypeScript.
    pub javascript: PoolSettings,
    /// What the shell of each session has run before its first command: a script's text.
    pub shell_prewarm: Option<String>,
    /// What reads TypeScript apart from the server; see the engine's options.
    pub reader: Option<Vec<OsString>>,
}

/// Interpreters of one language.
#[derive(Debug, Clone)]
pub struct PoolSettings {
    /// How many are warm for each owner: of Python from the server's start on, of other languages
    /// once one was requested.
    pub ready: usize,
    /// What each of them has run before it is given out: a script's text.
    pub prewarm: Option<String>,
}

impl Default for Interpreters {
    fn default() -> Self {
        Interpreters {
            spawn_limit: Duration::from_secs(60),
            prewarm_limit: Duration::from_secs(30),
            python: PoolSettings { ready: DEFAULT_READY, prewarm: None },
            javascript: PoolSettings { ready: 1, prewarm: None },
            shell_prewarm: None,
            reader: None,
        }
    }
}
