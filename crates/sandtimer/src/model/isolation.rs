//! How strongly a run was isolated.

use serde::{Deserialize, Serialize};

/// An isolation layer that was wanted and is not active.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Degradation {
    /// The isolation layer, such as `landlock` or `network`.
    pub layer: String,
    /// Why it was not applied.
    pub reason: String,
}

/// The isolation layers that were active, as they were applied.
///
/// ```
/// use sandtimer::{Engine, KillClass, Spec, Tier};
///
/// let outcome = Engine::new()?.run_blocking(Spec::command(["true"]))?;
/// let isolation = &outcome.isolation;
/// assert!(isolation.tier == Tier::T3 || !isolation.degraded.is_empty()); // each loss has a reason
/// assert!(isolation.deadline_layers.iter().any(|layer| layer == "enforcer"));
/// assert!(KillClass::K2 < KillClass::K3);
/// # Ok::<(), sandtimer::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Isolation {
    /// How strong the isolation was.
    pub tier: Tier,
    /// How surely the whole tree could be killed.
    pub kill: KillClass,
    /// What was ready to end the run at its limits, in the order of use.
    pub deadline_layers: Vec<String>,
    /// Layers that were wanted and could not be applied.
    pub degraded: Vec<Degradation>,
}

/// How strong the isolation of a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Tier {
    /// rlimits and a process group only.
    T0,
    /// Landlock and seccomp, no namespaces.
    T1,
    /// T3 without cgroup limits.
    T2,
    /// Namespaces, cgroup limits, Landlock, seccomp, not root.
    T3,
}

/// How surely the whole tree can be killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum KillClass {
    /// Process group: escapable.
    K0,
    /// Everything of the run's uid, or a subreaper sweep.
    K1,
    /// The pid namespace.
    K2,
    /// cgroup.kill.
    K3,
}
