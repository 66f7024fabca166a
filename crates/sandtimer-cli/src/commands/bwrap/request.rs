//! What is to be run, what it is watched by, and how this process is to end.

use std::os::fd::OwnedFd;

use sandtimer_bwrap::{BwrapGuard, BwrapOptions};

use super::status::StatusDescriptors;
use crate::config::Config;
use crate::signals::Signals;

/// How this process is to end.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExitDisposition {
    pub(super) code: u8,
    /// By this signal, as its caller expects of a program that has no handler for it.
    pub(super) signal: Option<u8>,
}

impl ExitDisposition {
    pub(super) fn with(code: u8) -> Self {
        ExitDisposition { code, signal: None }
    }
}

/// What this process watches over, from before the engine to the end.
#[derive(Debug)]
pub(super) struct CommandHandles {
    pub(super) guard: BwrapGuard,
    pub(super) signals: Signals,
    /// The process that the command is to end with.
    pub(super) parent: Option<OwnedFd>,
    pub(super) status: StatusDescriptors,
}

/// What is to be run, as far as the engine is concerned.
#[derive(Debug)]
pub(super) struct BwrapRequest {
    pub(super) config: Config,
    pub(super) has_init: bool,
    pub(super) has_pid_namespace: bool,
    pub(super) has_user_namespace: bool,
    pub(super) new_session: bool,
    /// The caller writes the id maps once it knows the child, and then writes to this descriptor.
    pub(super) maps_are_written: Option<OwnedFd>,
}

impl BwrapRequest {
    pub(super) fn of(options: &BwrapOptions, config: Config) -> Self {
        let maps = options.descriptors.user_namespace_block;
        BwrapRequest {
            config,
            has_init: options.has_init(),
            has_pid_namespace: options.unshared.pid,
            has_user_namespace: options.unshared.user,
            new_session: options.new_session,
            maps_are_written: maps.and_then(|number| sandtimer_os::process::inherited(number).ok()),
        }
    }

    pub(super) fn wait_for_maps(&self) {
        if let Some(fd) = &self.maps_are_written {
            // A descriptor that cannot be read does not block.
            let _ = rustix::io::retry_on_intr(|| rustix::io::read(fd, &mut [0; 1]));
        }
    }
}
