//! What a plan depends on, besides the host.

use std::path::{Path, PathBuf};

use super::layers::{Identity, IsolationLayer, Network};
use super::limits::ProcessLimits;
use crate::isolate::files::FilesPlan;
use crate::isolate::machine::Contents;
use crate::model::Degradation;

/// Everything that a plan depends on, besides the host.
#[derive(Debug)]
pub struct IsolationPolicy<'a> {
    /// The file system that the run sees.
    pub files: &'a FilesPlan,
    /// The network that the run has.
    pub network: &'a Network,
    /// For a terminal in place of stdin: whether also of stdout, and of stderr.
    pub terminal: Option<[bool; 2]>,
    /// The job's own uid and gid where the engine is root, and init's.
    pub identity: Option<Identity>,
    /// Limits that the job's process puts on itself.
    pub limits: ProcessLimits,
    /// The mode bits that files which the job makes do not get.
    pub umask: u32,
    /// The size of the memory in /proc/meminfo, in bytes, if the plan of files does not have it.
    pub own_memory: Option<u64>,
    /// Limits of memory and processes may be put on later, when its job comes.
    pub is_pooled: bool,
    /// The template of the root in the launcher's mount namespace.
    pub template: Option<usize>,
    /// A live jail: init decides about system calls that send signals.
    pub supervised: bool,
    /// Other code runs in the sandbox later.
    pub is_live: bool,
    /// Where there is no mount namespace: the run's own directory on the host, in place of private
    /// ones.
    pub private: Option<&'a Path>,
    /// The sandbox that the run is in, if it is in one.
    pub sandbox: Option<&'a RootView>,
    /// Layers that are left out; empty outside of tests.
    pub without: &'a [IsolationLayer],
}

/// What runs see of a sandbox's root.
#[derive(Debug, Clone, Default)]
pub struct RootView {
    /// The user's uid and gid outside, if they are not the engine's own.
    pub uid: Option<u32>,
    /// Directories below which the user may write, as far as the modes of the files allow it.
    pub writable: Vec<PathBuf>,
    /// The files of the machine that lie under /proc.
    pub proc: Vec<(&'static str, Contents)>,
    /// `PATH` of its runs, if they set none.
    pub path_variable: std::ffi::OsString,
    /// What of the sandbox's isolation is less than on other hosts.
    pub degraded: Vec<Degradation>,
}
