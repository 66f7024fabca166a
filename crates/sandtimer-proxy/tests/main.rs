//! The integration tests of the crate, as one program: with a program for each file, each would be
//! linked on its own.

mod bounds;
mod clients;
mod forwarding;
mod support;
mod ways_around;
