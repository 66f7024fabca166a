//! JavaScript that does what TypeScript does.

use swc_common::{GLOBALS, Globals};
use swc_ts_fast_strip::Mode;

use super::lower::lower;
use super::reader::deep;
use super::swc::swc;
use super::syntax_error::SyntaxError;

/// JavaScript that does what this TypeScript does, line by line.
///
/// # Errors
/// Where and why it is no TypeScript.
pub fn javascript(source: &str) -> Result<String, SyntaxError> {
    deep(source, true, |source| GLOBALS.set(&Globals::new(), || strip(lower(source)?)))
}

/// The types of the whole language, and nothing of what is more than types.
fn strip(source: String) -> Result<String, SyntaxError> {
    swc(&source, Mode::StripOnly)
}
