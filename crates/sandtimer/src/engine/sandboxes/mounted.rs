//! The root and the network of a sandbox that is mounted.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::super::pool::SandboxSlot;
use super::network_server::ServedNetwork;
use crate::isolate::networks::LentNetwork;
use crate::isolate::plan::RootView;

/// A mounted root, and what is held for it.
#[derive(Debug)]
pub(super) struct MountedRoot {
    pub network: MountedNetwork,
    pub namespace: OwnedFd,
    /// Names the root directory.
    pub root: OwnedFd,
    pub lock: OwnedFd,
    pub view: RootView,
    /// Holds the uid of the sandbox's user, and its limits as a whole.
    pub slot: Arc<SandboxSlot>,
    /// Why its limits as a whole do not hold.
    pub unlimited: Option<String>,
}

/// The network of a sandbox that is mounted.
#[derive(Debug, Default)]
pub(super) struct MountedNetwork {
    /// First: its sockets keep the namespace alive.
    pub _served: Option<ServedNetwork>,
    pub namespace: Option<Arc<LentNetwork>>,
}
