//! What a command line asks for, and what follows from that.

use std::ffi::OsString;
use std::path::PathBuf;

use rustix::thread::CapabilitySet;

use crate::failure::Messages;

/// Something that is set up in the new root, in the order of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    Bind {
        source: PathBuf,
        destination: PathBuf,
        access: Access,
        may_be_absent: bool,
        descriptor: Option<i32>,
    },
    Overlay {
        lower: Vec<PathBuf>,
        upper: Upper,
        destination: PathBuf,
    },
    Proc(PathBuf),
    Dev(PathBuf),
    Tmpfs {
        destination: PathBuf,
        mode: u32,
        size: Option<u64>,
    },
    Mqueue(PathBuf),
    Directory {
        destination: PathBuf,
        mode: u32,
    },
    File {
        descriptor: i32,
        destination: PathBuf,
        mode: u32,
    },
    BindData {
        descriptor: i32,
        destination: PathBuf,
        mode: u32,
        read_only: bool,
    },
    Symlink {
        target: OsString,
        destination: PathBuf,
    },
    RemountReadOnly(PathBuf),
    HostName(OsString),
    Chmod {
        destination: PathBuf,
        mode: u32,
    },
}

/// What may be done with what a bind shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    ReadWrite,
    ReadOnly,
    Devices,
}

/// Where an overlay's writes go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Upper {
    Directories { upper: PathBuf, work: PathBuf },
    Temporary,
    None,
}

/// Namespaces that are asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NamespaceRequest {
    pub user: bool,
    pub user_try: bool,
    pub pid: bool,
    pub ipc: bool,
    pub net: bool,
    pub uts: bool,
    pub cgroup: bool,
    pub cgroup_try: bool,
}

/// A change of the environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Variable {
    Clear,
    Set(OsString, OsString),
    Unset(OsString),
}

/// The descriptors that are named, by number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Descriptors {
    pub sync: Option<i32>,
    pub block: Option<i32>,
    pub user_namespace_block: Option<i32>,
    pub info: Option<i32>,
    pub json_status: Option<i32>,
    pub seccomp: Option<i32>,
    pub user_namespace: Option<i32>,
    pub second_user_namespace: Option<i32>,
    pub pid_namespace: Option<i32>,
}

/// What a command line asks for.
#[derive(Debug, Clone, Default)]
pub struct BwrapOptions {
    pub operations: Vec<Operation>,
    pub command: Vec<OsString>,
    pub name: Option<OsString>,
    pub unshared: NamespaceRequest,
    pub descriptors: Descriptors,
    pub disable_user_namespaces: bool,
    pub assert_user_namespaces_disabled: bool,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub host_name: Option<OsString>,
    pub working_directory: Option<PathBuf>,
    pub lock_files: Vec<PathBuf>,
    /// Filters of `--add-seccomp-fd`, which are read at once.
    pub filters: Vec<Vec<u8>>,
    pub new_session: bool,
    pub die_with_parent: bool,
    pub as_pid_1: bool,
    pub exec_label: Option<OsString>,
    pub file_label: Option<OsString>,
    /// What the command keeps; `None` for nothing.
    pub(super) kept: Option<CapabilitySet>,
    pub changes_capabilities: bool,
    pub messages: Messages,
    pub(super) variables: Vec<Variable>,
}

impl BwrapOptions {
    /// The environment of the command, given the caller's.
    pub fn environment(
        &self,
        caller: impl Iterator<Item = (OsString, OsString)>,
    ) -> Vec<(OsString, OsString)> {
        let mut list: Vec<(OsString, OsString)> = caller.collect();
        for variable in &self.variables {
            match variable {
                Variable::Clear => list.clear(),
                Variable::Unset(name) => list.retain(|(known, _)| known != name),
                Variable::Set(name, value) => {
                    list.retain(|(known, _)| known != name);
                    list.push((name.clone(), value.clone()));
                }
            }
        }
        list
    }

    /// The capabilities that the command keeps.
    pub(crate) fn capabilities(&self) -> CapabilitySet {
        self.kept.unwrap_or(CapabilitySet::empty())
    }

    /// Whether a process of ours is the first in the new PID namespace, or holds locks and
    /// descriptors.
    pub fn has_init(&self) -> bool {
        let holds = !self.lock_files.is_empty() || self.descriptors.sync.is_some();
        !self.as_pid_1 && (self.unshared.pid || holds)
    }

    /// The host's directories that the command can write.
    pub fn writable(&self) -> Vec<PathBuf> {
        let of = |operation: &Operation| match operation {
            Operation::Bind { source, access: Access::ReadWrite | Access::Devices, .. } => {
                Some(source.clone())
            }
            _ => None,
        };
        self.operations.iter().filter_map(of).collect()
    }
}
