//! The capabilities that the command keeps.

use std::ffi::OsStr;
use std::io;

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, configure_capability_in_ambient_set,
    remove_capability_from_bounding_set, set_capabilities,
};

use crate::failure::BwrapFailure;

/// What root starts with, and keeps unless it is dropped; nothing for other users.
pub(crate) fn of_root() -> Result<CapabilitySet, BwrapFailure> {
    if !rustix::process::getuid().is_root() {
        return Ok(CapabilitySet::empty());
    }
    let own =
        capabilities(None).map_err(|error| BwrapFailure::because("capget (for uid == 0) failed", error))?;
    Ok(own.effective)
}

/// One by its name, or all of them.
pub(crate) fn named(name: &OsStr) -> Option<CapabilitySet> {
    let name = name.to_str()?.to_ascii_uppercase();
    if name == "ALL" {
        return Some(all());
    }
    CapabilitySet::from_name(name.strip_prefix("CAP_")?)
}

/// Every capability that the kernel may know; it ignores the bits of others.
fn all() -> CapabilitySet {
    CapabilitySet::from_bits_retain((1 << (LAST + 1)) - 1)
}

/// CAP_CHECKPOINT_RESTORE of linux/capability.h.
const LAST: u32 = 40;

/// The single capabilities of a set.
fn each(set: CapabilitySet) -> impl Iterator<Item = CapabilitySet> {
    (0..=LAST)
        .map(|number| CapabilitySet::from_bits_retain(1 << number))
        .filter(move |one| set.contains(*one))
}

/// Takes everything but `kept` out of the bounding set; a new user namespace has given it back.
pub(crate) fn bound(kept: CapabilitySet) -> Result<(), BwrapFailure> {
    for capability in each(all() - kept) {
        match remove_capability_from_bounding_set(capability) {
            // No right to, or the kernel does not know it: then no new privileges keep it away.
            Ok(()) | Err(Errno::INVAL | Errno::PERM) => {}
            Err(error) => {
                return Err(BwrapFailure::because(
                    format!("Dropping capability {capability:?} from bounds"),
                    error,
                ));
            }
        }
    }
    Ok(())
}

/// Leaves this process these capabilities.
pub(crate) fn keep(kept: CapabilitySet) -> Result<(), BwrapFailure> {
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: kept };
    match set_capabilities(None, sets) {
        Ok(()) => Ok(()),
        // systemd-nspawn refuses the call to root.
        Err(Errno::PERM) if kept.is_empty() && rustix::process::getuid().is_root() => Ok(()),
        Err(error) => Err(BwrapFailure::because("capset failed", error)),
    }
}

/// Has the command inherit these capabilities.
pub(crate) fn pass_on(kept: CapabilitySet) -> io::Result<()> {
    for capability in each(kept) {
        match configure_capability_in_ambient_set(capability, true) {
            Ok(()) | Err(Errno::INVAL | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_kernel() {
        assert_eq!(named(OsStr::new("CAP_SETFCAP")), Some(CapabilitySet::SETFCAP));
        assert_eq!(named(OsStr::new("cap_net_admin")), Some(CapabilitySet::NET_ADMIN));
        assert_eq!(named(OsStr::new("all")), Some(all()));
        for unknown in ["SETFCAP", "CAP_NONE", "", "CAP_"] {
            assert_eq!(named(OsStr::new(unknown)), None, "{unknown}");
        }
    }
}
