//! The integration tests of the crate, as one program: with a program for each file, each would be
//! linked on its own.

mod above_blockage;
mod attacks_disk;
mod attacks_files;
mod attacks_kernel;
mod attacks_memory;
mod attacks_network;
mod attacks_stuck;
mod attacks_supervisor;
mod attacks_time;
mod attacks_tree;
mod bad_input;
mod cgroups;
mod failing_steps;
mod harness;
mod in_flight;
mod mixed;
mod overlay;
mod real_input;
mod rootless;
mod shared_files;
