//! Parses bubblewrap's arguments. Every rejection has bubblewrap's wording.

use std::ffi::OsString;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use rustix::thread::CapabilitySet;
use sandtimer_os::{descriptors, process};

use crate::capabilities;
use crate::failure::{BwrapFailure, Messages};

mod parser;

use parser::{ParseStep, Parser};

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
enum Variable {
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
    kept: Option<CapabilitySet>,
    pub changes_capabilities: bool,
    pub messages: Messages,
    variables: Vec<Variable>,
}

/// The result of parsing.
#[derive(Debug)]
pub enum ParseResult {
    Help,
    Version,
    /// Nothing was given, or no command.
    NoCommand,
    Run(Box<BwrapOptions>),
}

impl BwrapOptions {
    /// Parses the arguments after the program's name. Warnings are printed as they come up.
    ///
    /// # Errors
    /// With bubblewrap's wording, in the form of `messages`.
    pub fn parse(arguments: Vec<OsString>, messages: &mut Messages) -> Result<ParseResult, BwrapFailure> {
        if arguments.is_empty() {
            return Ok(ParseResult::NoCommand);
        }
        let options = BwrapOptions { kept: Some(capabilities::of_root()?), ..BwrapOptions::default() };
        let total = arguments.len();
        let mut parser = Parser::new(options, total);
        let result = parser.read(arguments, false);
        *messages = parser.options.messages;
        let rest = match result? {
            ParseStep::Help => return Ok(ParseResult::Help),
            ParseStep::Version => return Ok(ParseResult::Version),
            ParseStep::Rest(rest) => rest,
        };
        parser.check_end()?;
        let mut options = parser.options;
        options.command = rest;
        options.check()?;
        if options.command.is_empty() {
            return Ok(ParseResult::NoCommand);
        }
        options.check_descriptors()?;
        Ok(ParseResult::Run(Box::new(options)))
    }

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

    fn check(&mut self) -> Result<(), BwrapFailure> {
        let is_root = rustix::process::getuid().is_root();
        let (asked, given) = (self.unshared, &self.descriptors);
        let enters = given.user_namespace.is_some();
        let rules = [
            (
                given.user_namespace_block.is_some() && !asked.user,
                "--userns-block-fd requires --unshare-user",
            ),
            (
                given.user_namespace_block.is_some() && given.info.is_none(),
                "--userns-block-fd requires --info-fd",
            ),
            (enters && asked.user, "--userns not compatible --unshare-user"),
            (enters && asked.user_try, "--userns not compatible --unshare-user-try"),
            (self.disable_user_namespaces && !asked.user, "--disable-userns requires --unshare-user"),
            (
                self.disable_user_namespaces && given.user_namespace_block.is_some(),
                "--disable-userns is not compatible with  --userns-block-fd",
            ),
        ];
        refuse(&rules)?;
        if (!is_root && !enters) || (asked.user_try && allows_user_namespaces()) {
            self.unshared.user = true;
        }
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let same = self.unshared.user || enters;
        let other = |given: Option<u32>, own: u32| !same && given.is_some_and(|given| given != own);
        let rules = [
            (other(self.uid, uid), "Specifying --uid requires --unshare-user or --userns"),
            (other(self.gid, gid), "Specifying --gid requires --unshare-user or --userns"),
            (self.host_name.is_some() && !asked.uts, "Specifying --hostname requires --unshare-uts"),
            (self.as_pid_1 && !asked.pid, "Specifying --as-pid-1 requires --unshare-pid"),
            (
                self.as_pid_1 && !self.lock_files.is_empty(),
                "Specifying --as-pid-1 and --lock-file is not permitted",
            ),
        ];
        refuse(&rules)
    }

    /// Refuses numbers that are not open, before this process opens any of its own.
    fn check_descriptors(&self) -> Result<(), BwrapFailure> {
        let given = &self.descriptors;
        let named = [
            ("--sync-fd", given.sync),
            ("--block-fd", given.block),
            ("--userns-block-fd", given.user_namespace_block),
            ("--userns", given.user_namespace),
            ("--userns2", given.second_user_namespace),
            ("--pidns", given.pid_namespace),
        ];
        let bad = rustix::io::Errno::BADF;
        for (option, number) in named {
            if let Some(number) = number.filter(|number| !descriptors::is_open(*number)) {
                return Err(BwrapFailure::because(
                    format!("{option}: descriptor {number} cannot be used"),
                    bad,
                ));
            }
        }
        if [given.info, given.json_status].into_iter().flatten().any(|number| !descriptors::is_open(number)) {
            return Err(BwrapFailure::because("Write to info_fd", bad));
        }
        if given.seccomp.is_some_and(|number| !descriptors::is_open(number)) {
            return Err(BwrapFailure::because("Can't read seccomp data", bad));
        }
        for operation in &self.operations {
            let (number, message) = match operation {
                Operation::Bind { descriptor: Some(number), source, .. } => {
                    (*number, format!("Can't find source path {}", source.display()))
                }
                Operation::File { descriptor, destination, .. } => {
                    (*descriptor, format!("Can't write data to file {}", destination.display()))
                }
                Operation::BindData { descriptor, destination, .. } => {
                    (*descriptor, format!("Can't write data to file {}", destination.display()))
                }
                _ => continue,
            };
            if !descriptors::is_open(number) {
                return Err(BwrapFailure::because(message, bad));
            }
        }
        Ok(())
    }
}

fn refuse(rules: &[(bool, &str)]) -> Result<(), BwrapFailure> {
    match rules.iter().find(|(is_broken, _)| *is_broken) {
        Some((_, message)) => Err(BwrapFailure::new(*message)),
        None => Ok(()),
    }
}

/// Whether `--unshare-user-try` gets a user namespace, as far as the settings show.
fn allows_user_namespaces() -> bool {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    std::fs::metadata("/proc/self/ns/user").is_ok()
        && !read("/sys/module/user_namespace/parameters/enable").starts_with('N')
        && read("/proc/sys/user/max_user_namespaces") != "0\n"
}

/// Everything that a descriptor gives.
pub(crate) fn read_all(number: i32) -> std::io::Result<Vec<u8>> {
    let mut data = Vec::new();
    std::fs::File::from(process::inherited(number)?).read_to_end(&mut data)?;
    Ok(data)
}

/// A seccomp filter; its descriptor is closed.
pub(crate) fn read_filter(number: i32) -> Result<Vec<u8>, BwrapFailure> {
    let data = read_all(number).map_err(|error| BwrapFailure::because("Can't read seccomp data", error))?;
    descriptors::close_inherited(number);
    match data.len().is_multiple_of(8) {
        true => Ok(data),
        false => Err(BwrapFailure::new("Invalid seccomp data, must be multiple of 8")),
    }
}

/// The numbers of the standard descriptors are not closed.
pub(crate) fn close(number: Option<i32>) {
    if let Some(number) = number.filter(|number| *number > std::io::stderr().as_raw_fd()) {
        descriptors::close_inherited(number);
    }
}

#[cfg(test)]
mod tests;
