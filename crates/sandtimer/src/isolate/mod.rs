//! The isolation of a run: what the host supports, which layers a policy needs, and the steps that
//! build them.
//!
//! Planning is pure and returns a plan or a rejection. The run's init process applies the steps;
//! what it reports as applied is what the outcome shows.

pub mod cgroup;
pub mod files;
pub(crate) mod filter;
pub mod host;
mod landlock;
pub(crate) mod lease;
pub(crate) mod machine;
pub(crate) mod networks;
pub mod plan;
pub(crate) mod ptys;
pub(crate) mod root;
pub(crate) mod sandbox;
pub(crate) mod sandbox_proxy;
pub(crate) mod toolchain;
