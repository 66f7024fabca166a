//! JavaScript and TypeScript source: what is done to code before an interpreter reads it.
//!
//! ```text
//! TypeScript ─▶ constructs that are more than types become JavaScript (`lower`) ─▶ types become blank (swc) ─▶ JavaScript
//! a cell     ─▶ its imports become expressions (`cells`) ─▶ evaluated as at a prompt
//! ```
//! Nothing moves to another line, so that errors name lines of the original code. Code is parsed
//! here and not executed. `reading` decides which process parses it, and bounds that.

mod apart;
mod cells;
mod lower;
mod parsed;
mod programs;
mod reader;
mod swc;
mod syntax_error;
mod typescript;

pub use apart::{ReadTarget, serve};
pub(crate) use cells::cell;
pub use programs::JavaScriptProgram;
pub use reader::{MAX_CODE_BYTES, MAX_CODE_BYTES_APART};
pub(crate) use reader::{check_length, unreadable};
pub use syntax_error::SyntaxError;
pub use typescript::javascript;

#[cfg(test)]
mod tests;
