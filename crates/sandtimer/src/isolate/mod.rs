//! The isolation of a run: what the host supports, which layers a policy needs, and the steps that
//! build them.
//!
//! Planning is pure and returns a plan or a rejection. The run's init process applies the steps;
//! what it reports as applied is what the outcome shows.

pub mod cgroup;
pub mod files;
pub mod filter;
pub mod host;
mod landlock;
pub mod lease;
pub mod machine;
pub mod networks;
pub mod plan;
pub mod ptys;
pub mod root;
pub mod sandbox;
pub mod sandbox_proxy;
pub mod toolchain;
