//! How a run is walled in: what the host can do, which walls a policy asks for, and the steps that build them.
//!
//! Planning is pure and gives either a plan or a refusal; the steps are carried out by the sandbox's init, and what it
//! reports back is what the outcome says was in force.

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
pub mod toolchain;
