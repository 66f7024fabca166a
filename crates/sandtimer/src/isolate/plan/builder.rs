//! A plan, and the addition of its steps.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::PathBuf;

use sandtimer_os::program::StepProgram;

use super::layers::{Identity, IsolationLayer};
use super::policy::IsolationPolicy;
use crate::isolate::host::HostCapabilities;
use crate::model::{Degradation, KillClass, Tier};

/// CLONE_NEWNS of clone(2): a mount namespace.
pub const NEWNS: u64 = 0x0002_0000;
pub(super) const NEWCGROUP: u64 = 0x0200_0000;
pub(super) const NEWUTS: u64 = 0x0400_0000;
pub(in crate::isolate) const NEWIPC: u64 = 0x0800_0000;
/// CLONE_NEWPID of clone(2): a pid namespace.
pub const NEWPID: u64 = 0x2000_0000;

/// What a step does, for errors.
pub type StepName = Cow<'static, str>;

/// A plan: what a sandbox is started with.
#[derive(Debug)]
pub struct Plan {
    /// Flags for clone3(2).
    pub flags: u64,
    /// Steps up to the job's sealed process, without its last one.
    pub program: StepProgram,
    /// What each step that may fail applies, by its number.
    pub optional: Vec<(u64, &'static str)>,
    /// The tier that the run has if every step succeeds.
    pub tier: Tier,
    /// How surely its tree is killed.
    pub kill: KillClass,
    /// Layers that are wanted and missing, with the reason.
    pub degraded: Vec<Degradation>,
    /// Directories whose idmapped user namespace must be among the descriptors, in order after the
    /// cgroup files.
    pub idmapped: Vec<PathBuf>,
    /// What each step does, by number, for errors.
    pub names: Vec<StepName>,
}

impl Plan {
    /// A plan without a step.
    pub(crate) fn none() -> Self {
        empty()
    }

    /// What is left of it once its program has been carried out.
    pub fn carried_out(&self) -> Self {
        Plan {
            flags: self.flags,
            program: StepProgram::new(),
            optional: self.optional.clone(),
            tier: self.tier,
            kill: self.kill,
            degraded: self.degraded.clone(),
            idmapped: Vec::new(),
            names: self.names.clone(),
        }
    }
}

pub(super) fn empty() -> Plan {
    Plan {
        flags: 0,
        program: StepProgram::new(),
        optional: Vec::new(),
        tier: Tier::T0,
        kill: KillClass::K0,
        degraded: Vec::new(),
        idmapped: Vec::new(),
        names: Vec::new(),
    }
}

/// A plan in the making.
pub(in crate::isolate) struct Builder<'a> {
    pub(in crate::isolate) host: &'a HostCapabilities,
    pub(in crate::isolate) policy: &'a IsolationPolicy<'a>,
    pub(in crate::isolate) plan: Plan,
    pub(in crate::isolate) idmap_base: usize,
}

impl Builder<'_> {
    pub(in crate::isolate) fn namespaced(&self) -> bool {
        self.host.has_namespaces()
    }

    pub(in crate::isolate) fn without(&self, layer: IsolationLayer) -> bool {
        self.policy.without.contains(&layer)
    }

    pub(in crate::isolate) fn identity(&self) -> Option<Identity> {
        if self.without(IsolationLayer::Uid) { None } else { self.policy.identity }
    }

    fn add<S: AsRef<OsStr>>(
        &mut self,
        name: impl Into<StepName>,
        op: (u16, bool),
        numbers: &[u64],
        strings: &[S],
    ) -> u64 {
        let strings: Vec<&OsStr> = strings.iter().map(AsRef::as_ref).collect();
        let number = self.plan.program.push(op.0, op.1, numbers, &strings);
        self.plan.names.push(name.into());
        number
    }

    pub(in crate::isolate) fn push<S: AsRef<OsStr>>(
        &mut self,
        name: impl Into<StepName>,
        op: u16,
        numbers: &[u64],
        strings: &[S],
    ) {
        self.add(name, (op, true), numbers, strings);
    }

    pub(in crate::isolate) fn optional<S: AsRef<OsStr>>(
        &mut self,
        name: &'static str,
        op: u16,
        numbers: &[u64],
        strings: &[S],
    ) {
        let number = self.add(name, (op, false), numbers, strings);
        self.plan.optional.push((number, name));
    }

    pub(super) fn degrade(&mut self, layer: &str, reason: String) {
        self.plan.degraded.push(Degradation { layer: layer.to_owned(), reason });
    }
}
