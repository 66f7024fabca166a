//! Reads the arguments one after the other, those of `--args` among them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use sandtimer_os::descriptors;

use super::command_line::{Access, BwrapOptions, NamespaceRequest, Operation, Upper, Variable};
use super::named_descriptors::{read_all, read_filter};
use crate::capabilities;
use crate::failure::BwrapFailure;

/// Most arguments, those of `--args` included.
const MAX_ARGUMENTS: usize = 9000;
/// Most bytes of a tmpfs.
const MAX_TMPFS_BYTES: u64 = u64::MAX >> 1;
const OVERLAY_SOURCE: &str = "--overlay-src must be followed by another --overlay-src or one of --overlay, --tmp-overlay, or \
                              --ro-overlay";

/// Options that modify the next one.
#[derive(Debug, Default)]
struct PendingModifiers {
    mode: Option<u32>,
    size: Option<u64>,
    /// Lower directories, bottom to top.
    overlay: Vec<PathBuf>,
}

pub(super) enum ParseStep {
    Help,
    Version,
    /// What follows the options.
    Rest(Vec<OsString>),
}

pub(super) struct Parser {
    pub options: BwrapOptions,
    pending: PendingModifiers,
    total: usize,
}

/// The arguments that are left, for the options that take some.
struct OptionArguments {
    list: std::vec::IntoIter<OsString>,
}

impl OptionArguments {
    fn one(&mut self, option: &str, count: &str) -> Result<OsString, BwrapFailure> {
        self.list.next().ok_or_else(|| BwrapFailure::new(format!("{option} takes {count}")))
    }

    fn an(&mut self, option: &str) -> Result<OsString, BwrapFailure> {
        self.one(option, "an argument")
    }

    fn two(&mut self, option: &str) -> Result<(OsString, OsString), BwrapFailure> {
        let taken = (self.list.next(), self.list.next());
        match taken {
            (Some(one), Some(two)) => Ok((one, two)),
            _ => Err(BwrapFailure::new(format!("{option} takes two arguments"))),
        }
    }

    fn descriptor(&mut self, option: &str) -> Result<i32, BwrapFailure> {
        let given = self.an(option)?;
        descriptor(&given)
    }
}

fn descriptor(given: &OsStr) -> Result<i32, BwrapFailure> {
    number(given).ok_or_else(|| BwrapFailure::new(format!("Invalid fd: {}", given.display())))
}

/// A number that is not negative, as strtol(3) reads it: blanks and a sign may precede it.
fn number(given: &OsStr) -> Option<i32> {
    let text = given.to_str()?.trim_start();
    text.parse::<i32>().ok().filter(|number| *number >= 0)
}

fn mode(given: &OsStr) -> Option<u32> {
    let mode = u32::from_str_radix(given.to_str()?, 8).ok()?;
    (mode <= 0o7777).then_some(mode)
}

fn size(given: &OsStr) -> Result<u64, BwrapFailure> {
    let text = given.to_str().unwrap_or_default();
    let parsed = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => u64::from_str_radix(&text[2..], 16),
        [b'0', ..] => u64::from_str_radix(text, 8),
        [b'1'..=b'9', ..] => text.parse(),
        _ => return Err(BwrapFailure::new("--size takes a non-zero number of bytes")),
    };
    match parsed {
        Ok(0) | Err(_) => Err(BwrapFailure::new("--size takes a non-zero number of bytes")),
        Ok(size) if size > MAX_TMPFS_BYTES => {
            Err(BwrapFailure::new(format!("--size (for tmpfs) is limited to {MAX_TMPFS_BYTES}")))
        }
        Ok(size) => Ok(size),
    }
}

impl Parser {
    pub fn new(options: BwrapOptions, total: usize) -> Self {
        Parser { options, pending: PendingModifiers::default(), total }
    }

    /// Whether a lower directory was given, and no overlay after it.
    pub fn check_end(&self) -> Result<(), BwrapFailure> {
        match self.pending.overlay.is_empty() {
            true => Ok(()),
            false => Err(BwrapFailure::new(OVERLAY_SOURCE)),
        }
    }

    /// Reads options up to the first other argument, or to `--`.
    pub fn read(&mut self, arguments: Vec<OsString>, in_file: bool) -> Result<ParseStep, BwrapFailure> {
        self.check_total()?;
        let mut arguments = OptionArguments { list: arguments.into_iter() };
        while let Some(argument) = arguments.list.next() {
            let Some(option) = argument.to_str().filter(|text| text.starts_with('-')) else {
                if argument.as_bytes().starts_with(b"-") {
                    return Err(BwrapFailure::new(format!("Unknown option {}", argument.display())));
                }
                return Ok(ParseStep::Rest(std::iter::once(argument).chain(arguments.list).collect()));
            };
            match option {
                "--help" => return Ok(ParseStep::Help),
                "--version" => return Ok(ParseStep::Version),
                "--" => return Ok(ParseStep::Rest(arguments.list.collect())),
                "--args" if in_file => {
                    return Err(BwrapFailure::new("--args not supported in arguments file"));
                }
                "--args" => match self.read_file(&mut arguments)? {
                    ParseStep::Rest(_) => {}
                    other => return Ok(other),
                },
                _ => self.option(option, &mut arguments)?,
            }
            self.check_modifiers(option)?;
        }
        Ok(ParseStep::Rest(Vec::new()))
    }

    fn check_total(&self) -> Result<(), BwrapFailure> {
        match self.total > MAX_ARGUMENTS {
            true => Err(BwrapFailure::new(format!("Exceeded maximum number of arguments {MAX_ARGUMENTS}"))),
            false => Ok(()),
        }
    }

    fn read_file(&mut self, arguments: &mut OptionArguments) -> Result<ParseStep, BwrapFailure> {
        let number = arguments.descriptor("--args")?;
        let data =
            read_all(number).map_err(|error| BwrapFailure::because("Can't read --args data", error))?;
        descriptors::close_inherited(number);
        let mut list: Vec<&[u8]> = data.split(|byte| *byte == 0).collect();
        // After the last NUL, or of an empty file.
        if list.last().is_some_and(|last| last.is_empty()) {
            list.pop();
        }
        self.total += list.len();
        self.read(list.into_iter().map(|text| OsString::from_vec(text.to_vec())).collect(), true)
    }

    /// `--perms`, `--size` and `--overlay-src` are for the option that follows.
    fn check_modifiers(&self, option: &str) -> Result<(), BwrapFailure> {
        let modifies = matches!(option, "--perms" | "--size");
        if !modifies && self.pending.mode.is_some() {
            return Err(BwrapFailure::new("--perms must be followed by an option that creates a file"));
        }
        if !modifies && self.pending.size.is_some() {
            return Err(BwrapFailure::new("--size must be followed by --tmpfs"));
        }
        match option != "--overlay-src" && !self.pending.overlay.is_empty() {
            true => Err(BwrapFailure::new(OVERLAY_SOURCE)),
            false => Ok(()),
        }
    }

    fn only_last(&self, option: &str, was_given: bool) {
        if was_given {
            self.options.messages.warning(&format!("Only the last {option} option will take effect"));
        }
    }

    fn option(&mut self, option: &str, arguments: &mut OptionArguments) -> Result<(), BwrapFailure> {
        if self.flag(option) {
            return Ok(());
        }
        if let Some(operation) = self.operation(option, arguments)? {
            self.options.operations.push(operation);
            return Ok(());
        }
        if self.descriptor(option, arguments)? || self.setting(option, arguments)? {
            return Ok(());
        }
        Err(BwrapFailure::new(format!("Unknown option {option}")))
    }

    fn flag(&mut self, option: &str) -> bool {
        let asked = &mut self.options.unshared;
        match option {
            "--unshare-all" => {
                *asked = NamespaceRequest {
                    user_try: true,
                    ipc: true,
                    pid: true,
                    uts: true,
                    cgroup_try: true,
                    net: true,
                    ..*asked
                };
            }
            "--unshare-user" => asked.user = true,
            "--unshare-user-try" => asked.user_try = true,
            "--unshare-ipc" => asked.ipc = true,
            "--unshare-pid" => asked.pid = true,
            "--unshare-net" => asked.net = true,
            "--unshare-uts" => asked.uts = true,
            "--unshare-cgroup" => asked.cgroup = true,
            "--unshare-cgroup-try" => asked.cgroup_try = true,
            "--share-net" => asked.net = false,
            "--level-prefix" => self.options.messages.level_prefix = true,
            "--disable-userns" => self.options.disable_user_namespaces = true,
            "--assert-userns-disabled" => self.options.assert_user_namespaces_disabled = true,
            "--new-session" => self.options.new_session = true,
            "--die-with-parent" => self.options.die_with_parent = true,
            "--as-pid-1" => self.options.as_pid_1 = true,
            "--clearenv" => self.options.variables.push(Variable::Clear),
            _ => return false,
        }
        true
    }

    fn mode(&mut self, usual: u32) -> u32 {
        self.pending.mode.take().unwrap_or(usual)
    }

    /// An option that is an operation in the new root.
    fn operation(
        &mut self,
        option: &str,
        arguments: &mut OptionArguments,
    ) -> Result<Option<Operation>, BwrapFailure> {
        let operation = match option {
            "--bind" | "--bind-try" | "--ro-bind" | "--ro-bind-try" | "--dev-bind" | "--dev-bind-try" => {
                let (source, destination) = arguments.two(option)?;
                Operation::Bind {
                    source: source.into(),
                    destination: destination.into(),
                    access: access(option),
                    may_be_absent: option.ends_with("-try"),
                    descriptor: None,
                }
            }
            "--bind-fd" | "--ro-bind-fd" => {
                let (given, destination) = arguments.two(option)?;
                let number = descriptor(&given)?;
                Operation::Bind {
                    source: format!("/proc/self/fd/{number}").into(),
                    destination: destination.into(),
                    access: access(option),
                    may_be_absent: false,
                    descriptor: Some(number),
                }
            }
            "--overlay" | "--tmp-overlay" | "--ro-overlay" => self.overlay(option, arguments)?,
            "--proc" => Operation::Proc(arguments.an(option)?.into()),
            "--dev" => Operation::Dev(arguments.an(option)?.into()),
            "--mqueue" => Operation::Mqueue(arguments.an(option)?.into()),
            "--remount-ro" => Operation::RemountReadOnly(arguments.one(option, "one argument")?.into()),
            "--tmpfs" => {
                let destination = arguments.an(option)?.into();
                Operation::Tmpfs { destination, mode: self.mode(0o755), size: self.pending.size.take() }
            }
            "--dir" => {
                let destination = arguments.an(option)?.into();
                Operation::Directory { destination, mode: self.mode(0o755) }
            }
            "--file" => {
                let (given, destination) = arguments.two(option)?;
                let descriptor = descriptor(&given)?;
                Operation::File { descriptor, destination: destination.into(), mode: self.mode(0o666) }
            }
            "--bind-data" | "--ro-bind-data" => {
                let (given, destination) = arguments.two(option)?;
                let (descriptor, read_only) = (descriptor(&given)?, option == "--ro-bind-data");
                let destination = destination.into();
                Operation::BindData { descriptor, destination, mode: self.mode(0o600), read_only }
            }
            "--symlink" => {
                let (target, destination) = arguments.two(option)?;
                Operation::Symlink { target, destination: destination.into() }
            }
            "--chmod" => {
                let (given, destination) = arguments.two(option)?;
                let mode = mode(&given)
                    .ok_or_else(|| BwrapFailure::new("--chmod takes an octal argument <= 07777"))?;
                Operation::Chmod { destination: destination.into(), mode }
            }
            "--hostname" => {
                let name = arguments.an(option)?;
                self.only_last(option, self.options.host_name.is_some());
                self.options.host_name = Some(name.clone());
                Operation::HostName(name)
            }
            _ => return Ok(None),
        };
        Ok(Some(operation))
    }

    fn overlay(&mut self, option: &str, arguments: &mut OptionArguments) -> Result<Operation, BwrapFailure> {
        let given: Vec<OsString> = match option {
            "--overlay" => arguments.list.by_ref().take(3).collect(),
            _ => arguments.list.by_ref().take(1).collect(),
        };
        let (needed, sources, few) = match option {
            "--overlay" => (3, 1, "--overlay takes three arguments"),
            "--tmp-overlay" => (1, 1, "--tmp-overlay takes an argument"),
            _ => (1, 2, "--ro-overlay takes an argument"),
        };
        if given.len() < needed {
            return Err(BwrapFailure::new(few));
        }
        if self.pending.overlay.len() < sources {
            let sources = if sources == 1 { "one" } else { "two" };
            return Err(BwrapFailure::new(format!("{option} requires at least {sources} --overlay-src")));
        }
        // overlayfs names the top first.
        let lower = std::mem::take(&mut self.pending.overlay).into_iter().rev().collect();
        let mut given = given.into_iter().map(PathBuf::from);
        let mut next = || given.next().unwrap_or_default();
        let upper = match option {
            "--overlay" => Upper::Directories { upper: next(), work: next() },
            "--tmp-overlay" => Upper::Temporary,
            _ => Upper::None,
        };
        Ok(Operation::Overlay { lower, upper, destination: next() })
    }

    /// An option that names a descriptor.
    fn descriptor(&mut self, option: &str, arguments: &mut OptionArguments) -> Result<bool, BwrapFailure> {
        if option == "--add-seccomp-fd" {
            let given = arguments.an(option)?;
            if self.options.descriptors.seccomp.is_some() {
                return Err(BwrapFailure::new("--add-seccomp-fd cannot be combined with --seccomp"));
            }
            self.options.filters.push(read_filter(descriptor(&given)?)?);
            return Ok(true);
        }
        if option == "--seccomp" && !self.options.filters.is_empty() {
            arguments.an(option)?;
            return Err(BwrapFailure::new("--seccomp cannot be combined with --add-seccomp-fd"));
        }
        let known = &mut self.options.descriptors;
        let target = match option {
            "--sync-fd" => &mut known.sync,
            "--block-fd" => &mut known.block,
            "--userns-block-fd" => &mut known.user_namespace_block,
            "--info-fd" => &mut known.info,
            "--json-status-fd" => &mut known.json_status,
            "--seccomp" => &mut known.seccomp,
            "--userns" => &mut known.user_namespace,
            "--userns2" => &mut known.second_user_namespace,
            "--pidns" => &mut known.pid_namespace,
            _ => return Ok(false),
        };
        let given = arguments.an(option)?;
        let was_given = target.is_some();
        *target = Some(descriptor(&given)?);
        self.only_last(option, was_given);
        Ok(true)
    }

    /// Any other option.
    fn setting(&mut self, option: &str, arguments: &mut OptionArguments) -> Result<bool, BwrapFailure> {
        match option {
            // Not an operation of its own.
            "--overlay-src" => self.pending.overlay.push(arguments.an(option)?.into()),
            "--argv0" => {
                let name = arguments.one(option, "one argument")?;
                if self.options.name.is_some() {
                    return Err(BwrapFailure::new("--argv0 used multiple times"));
                }
                self.options.name = Some(name);
            }
            "--chdir" => {
                let directory = arguments.one(option, "one argument")?;
                self.only_last(option, self.options.working_directory.is_some());
                self.options.working_directory = Some(directory.into());
            }
            "--setenv" => {
                let (name, value) = arguments.two(option)?;
                if name.is_empty() || name.as_bytes().contains(&b'=') {
                    return Err(BwrapFailure::because("setenv failed", rustix::io::Errno::INVAL));
                }
                self.options.variables.push(Variable::Set(name, value));
            }
            "--unsetenv" => self.options.variables.push(Variable::Unset(arguments.an(option)?)),
            "--lock-file" => self.options.lock_files.push(arguments.an(option)?.into()),
            "--uid" | "--gid" => {
                let given = arguments.an(option)?;
                let invalid = || BwrapFailure::new(format!("Invalid {}: {}", &option[2..], given.display()));
                let id = number(&given).ok_or_else(invalid)?.unsigned_abs();
                let target = if option == "--uid" { &mut self.options.uid } else { &mut self.options.gid };
                let was_given = target.replace(id).is_some();
                self.only_last(option, was_given);
            }
            "--cap-add" | "--cap-drop" => {
                let name = arguments.an(option)?;
                let named = capabilities::named(&name)
                    .ok_or_else(|| BwrapFailure::new(format!("unknown cap: {}", name.display())))?;
                self.options.changes_capabilities = true;
                let mut kept = self.options.capabilities();
                kept.set(named, option == "--cap-add");
                self.options.kept = Some(kept);
            }
            "--exec-label" | "--file-label" => {
                let label = arguments.an(option)?;
                let is_exec = option == "--exec-label";
                let target =
                    if is_exec { &mut self.options.exec_label } else { &mut self.options.file_label };
                let was_given = target.replace(label).is_some();
                self.only_last(option, was_given);
                if !std::path::Path::new("/sys/fs/selinux/enforce").exists() {
                    return Err(BwrapFailure::new("labeling not supported on this system"));
                }
            }
            "--perms" => {
                let given = arguments.an(option)?;
                if self.pending.mode.is_some() {
                    return Err(BwrapFailure::new("--perms given twice for the same action"));
                }
                let mode = mode(&given)
                    .ok_or_else(|| BwrapFailure::new("--perms takes an octal argument <= 07777"))?;
                self.pending.mode = Some(mode);
            }
            "--size" => {
                let given = arguments.an(option)?;
                if self.pending.size.is_some() {
                    return Err(BwrapFailure::new("--size given twice for the same action"));
                }
                self.pending.size = Some(size(&given)?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn access(option: &str) -> Access {
    match option {
        option if option.starts_with("--ro-") => Access::ReadOnly,
        option if option.starts_with("--dev-") => Access::Devices,
        _ => Access::ReadWrite,
    }
}
