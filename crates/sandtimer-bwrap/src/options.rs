//! Parses bubblewrap's arguments. Every rejection has bubblewrap's wording.

use std::ffi::OsString;

use sandtimer_os::descriptors;

use crate::capabilities;
use crate::failure::{BwrapFailure, Messages};

mod command_line;
mod named_descriptors;
mod parser;

pub use command_line::{Access, BwrapOptions, Operation, Upper};
pub(crate) use named_descriptors::{close, read_filter};
use parser::{ParseStep, Parser};

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

#[cfg(test)]
mod tests;
