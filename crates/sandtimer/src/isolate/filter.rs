//! The system call filter of a sandbox, compiled once for each policy.

use std::sync::OnceLock;

use sandtimer_os::seccomp::{self, FilterPart};

use super::host::HostCapabilities;
use super::plan::{IsolationLayer, IsolationPolicy, NEWIPC};

/// What of its children's filter a zygote loads before it serves; `flags` are those of a sandbox's
/// plan.
pub fn inherited_filter(
    host: &HostCapabilities,
    policy: &IsolationPolicy<'_>,
    flags: u64,
) -> Option<&'static [u8]> {
    filter_of(host, policy, flags, FilterPart::Inherited)
}

/// A part of the filter of a sandbox with these namespaces, if it has one.
pub(super) fn filter_of(
    host: &HostCapabilities,
    policy: &IsolationPolicy<'_>,
    flags: u64,
    part: FilterPart,
) -> Option<&'static [u8]> {
    let has_one = host.seccomp && !policy.without.contains(&IsolationLayer::Seccomp);
    let IsolationPolicy { supervised, .. } = *policy;
    let network = policy.network.has_sockets();
    let ipc_namespace = flags & NEWIPC != 0;
    // No part of which filter it is: the machine has one kernel.
    let lingering = host.refuses_descriptors;
    has_one.then(|| filter(seccomp::FilterPolicy { network, ipc_namespace, lingering, supervised }, part))
}

/// The compiled filter; compiling takes longer than many a step, and there are only 24.
fn filter(policy: seccomp::FilterPolicy, part: FilterPart) -> &'static [u8] {
    static FILTERS: [[OnceLock<Vec<u8>>; 8]; 3] = [const { [const { OnceLock::new() }; 8] }; 3];
    let index = [policy.supervised, policy.network, policy.ipc_namespace];
    let index = index.iter().fold(0, |index, part| index * 2 + usize::from(*part));
    let filter = &FILTERS[part as usize][index];
    filter.get().unwrap_or_else(|| {
        // Before the cell is taken: in a process that is forked while it is being filled it would
        // never be.
        let compiled = seccomp::to_bytes(&seccomp::compile(&policy, part));
        filter.get_or_init(|| compiled)
    })
}
