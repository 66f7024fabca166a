//! Zygotes: warm interpreters that are forked for calls, and the protocol of their children.
//!
//! ```text
//! zygote  starting ─▶ imports ─▶ serving ─▶ retired            (or rejected, with the reason)
//! child   born ─▶ sealed ─▶ warm ─▶ parked ─▶ one job ─▶ dead
//! ```
//! This module has the program that runs in them and parses what it receives; processes and pools
//! belong to the engine. A zygote is trusted with what its caller may do: it imports modules of the
//! caller's choice. A child is not trusted: a packet from it is read once, within bounds, and has
//! no meaning but the job's own result.

mod answer;

// For the Python module, which reads the answers of calls.
#[doc(hidden)]
pub use answer::{AnswerKind, AnswerPart, CallAnswer, MAX_PARTS, MalformedAnswer, REPORT};

/// The program of a zygote and its children.
const CHILD: &str = include_str!("child.py");
/// How children write down results; part of [`CHILD`]'s program, as the two that follow.
const ENCODE: &str = include_str!("encode.py");
/// What a zygote imports before it serves.
const IMPORTS: &str = include_str!("imports.py");
/// How standard output is written through memory.
const OUTPUT: &str = include_str!("output.py");
/// How children execute whole programs.
const PROGRAMS: &str = include_str!("programs.py");

/// What live interpreters run besides it; see [`crate::context`].
const LIVE: &str = concat!(
    include_str!("../context/branch.py"),
    "\n",
    include_str!("../context/displays.py"),
    "\n",
    include_str!("../context/cells.py"),
    "\n",
    include_str!("../context/magics.py"),
    "\n",
    include_str!("../context/handlers.py"),
    "\n",
    include_str!("../context/context.py")
);

/// The code on the interpreter's command line, which reads the program from descriptor 3.
/// `at_start`: the modules that every interpreter has before a program of its begins.
pub(crate) const BOOT: &str = "import sys\nat_start = frozenset(sys.modules)\nwith open(3, 'rb', closefd=False) as f: \
     exec(compile(f.read(), '<sandtimer>', 'exec'), \
     {'__name__': '_sandtimer', '__file__': '<sandtimer>', 'at_start': at_start})";

/// The program of children alone, for a process that forks itself.
#[must_use]
#[doc(hidden)] // for the Python module
pub fn source() -> String {
    format!("{ENCODE}\n{CHILD}\n{OUTPUT}\n{IMPORTS}\n{PROGRAMS}")
}

/// The directory on PYTHONPATH that has the Pythons of a run's commands write their output soon,
/// and its files.
pub(crate) const PYTHON_DIRECTORY: &str = "/sandtimer/python";

/// The names and contents of the files in [`PYTHON_DIRECTORY`].
pub(crate) fn python_directory() -> [(&'static str, &'static [u8]); 2] {
    let module = concat!(include_str!("output.py"), "\n", include_str!("sitecustomize.py"));
    [("native.so", sandtimer_os::zygote::PYTHON_LIBRARY), ("sitecustomize.py", module.as_bytes())]
}

/// The native half of that program, in a sealed memory file that an interpreter can load.
///
/// # Errors
/// When the system refuses a memory file.
#[doc(hidden)] // for the Python module
pub fn library() -> std::io::Result<std::os::fd::BorrowedFd<'static>> {
    sandtimer_os::zygote::python_library()
}

/// The language that an interpreter executes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Language {
    /// CPython, forked from a zygote.
    #[default]
    Python,
    /// Node.js, started for each context: it has threads from its first moment, and cannot be
    /// forked.
    JavaScript,
}

/// A script that a zygote runs as `__main__` before it serves, so that its children find what it
/// has imported and defined.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Prewarm {
    /// The Python code.
    pub source: String,
    /// How long it may take. A zygote that it does not return to in that time, or with an error, is
    /// replaced by one without it.
    pub limit: std::time::Duration,
}

/// The interpreter of a pool, and what it imports and sees. Each profile of a language that can be
/// forked has a zygote of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Profile {
    /// The interpreter: a path, or a name that is searched on PATH.
    pub interpreter: std::ffi::OsString,
    /// Other languages than Python are for contexts only, and take no modules beforehand.
    pub language: Language,
    /// Modules that are imported before any job arrives.
    pub preload: Vec<String>,
    /// Modules that are imported after these, unless an import leaves something that all calls
    /// would share (files, shared memory, generators of random numbers): there is no zygote then,
    /// and the error names the module.
    pub learned: Vec<String>,
    /// A script that is executed before the first job; none by default.
    pub prewarm: Option<Prewarm>,
    /// `sys.path` inside; `None` leaves the interpreter's own. Entries are shown read-only as far
    /// as they may be.
    pub paths: Option<Vec<String>>,
    /// Directories after those of `sys.path`, shown without files that only their owner may read.
    pub shown: Vec<String>,
    /// For whom its children are made, where several share an engine; as of a run.
    pub owner: Option<std::sync::Arc<str>>,
    /// The host's network instead of none.
    pub network: bool,
    /// Shows the host's GPUs to the interpreter and its children.
    pub gpu: bool,
    /// Children are live interpreters, which serve many jobs one after the other.
    pub live: bool,
    /// Children execute whole programs, and call no functions.
    pub programs: bool,
    /// Where each live interpreter is given a directory of its own, as its /workspace, which its
    /// context keeps. Without it /workspace goes with the interpreter.
    pub workspaces: Option<std::path::PathBuf>,
    /// Live interpreters whose signals reach their checkpoints, for tests that show what that wall
    /// is for.
    #[doc(hidden)]
    pub unsupervised: bool,
}

impl Profile {
    /// The program for descriptor 3. JSON's strings and lists are Python's too, but for the
    /// surrogates that serde never writes. `filter`: what the zygote loads before it serves, for
    /// its children too.
    pub(crate) fn program(&self, filter: Option<&[u8]>) -> String {
        let (preload, learned) = (serde_json::json!(self.preload), serde_json::json!(self.learned));
        let paths =
            self.paths.as_ref().map_or("None".to_owned(), |paths| serde_json::json!(paths).to_string());
        let shown = serde_json::json!(self.shown);
        let programs = if self.programs { "True" } else { "False" };
        let (context, live) = if self.live { (LIVE, "True") } else { ("", "False") };
        let prewarm = self.prewarm.as_ref().map(|prewarm| serde_json::json!(prewarm.source).to_string());
        let prewarm = prewarm.as_deref().unwrap_or("None");
        let filter: String = filter.unwrap_or_default().iter().map(|byte| format!("{byte:02x}")).collect();
        let settings = format!(
            "{{'preload': {preload}, 'learned': {learned}, 'prewarm': {prewarm}, 'paths': {paths}, 'shown': {shown}, \
             'live': {live}, 'programs': {programs}, 'filter': '{filter}'}}"
        );
        format!("{}\n{context}\nzygote({settings})\n", source())
    }
}
