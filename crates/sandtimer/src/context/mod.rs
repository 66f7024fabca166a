//! Live interpreters: the requests to them and their messages.
//!
//! ```text
//! interpreter  ready ─▶ a cell ─▶ answered ─▶ checkpoint made ─▶ ready        (checkpoint: a stopped copy, see the helper)
//!                        └─▶ killed ─▶ the checkpoint is the interpreter ─▶ checkpoint made ─▶ ready
//! ```
//! Nothing that it sends is trusted: packets are bounded; they count only if the kernel confirms
//! that the interpreter's own process sent them; and what one killed in the middle may have left in
//! the channel is distinguished from its successor's packets by a nonce that the dead one never
//! saw.

mod frames;

/// What runs in a live JavaScript interpreter.
const NODE_PROGRAM: &str = include_str!("javascript.js");
/// The place in it of the operator's script.
const NODE_PREWARM: &str = "const PREWARM = null;";

/// What runs in a live JavaScript interpreter that runs this text first, which is a cell's.
pub(crate) fn node_program(prewarm: Option<&str>) -> String {
    let Some(text) = prewarm else { return NODE_PROGRAM.to_owned() };
    NODE_PROGRAM.replacen(NODE_PREWARM, &format!("const PREWARM = {};", serde_json::json!(text)), 1)
}

/// The code on Node.js's command line, which reads the program from descriptor 5. Only code from
/// there can import modules.
pub(crate) const NODE_BOOT: &str = "((require, process, load) => { \
     const source = require('fs').readFileSync(5, 'utf8'); \
     require('vm').runInThisContext(source, { filename: 'sandtimer:context' })(require, process, load) \
     })(require, process, (name, options) => import(name, options))";

pub(crate) use frames::{
    Frame, IMAGE, ImageResult, Nonce, ScriptMessage, ScriptNonce, bundle, cell_request, checkpoint_request,
    command_request, image_request, reply, script_message, script_request, shown_bytes,
};
