//! The integration tests of the crate, as one program: a program for each file would be linked for each file.

mod budgets;
mod estimates;
