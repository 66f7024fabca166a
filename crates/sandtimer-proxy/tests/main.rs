//! The integration tests of the crate, as one program: a program for each file would be linked for each file.

mod bounds;
mod clients;
mod forwarding;
mod support;
mod ways_around;
