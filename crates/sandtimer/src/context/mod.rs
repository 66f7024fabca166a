//! Live interpreters: what they are asked and what they say.
//!
//! ```text
//! interpreter  ready ─▶ a cell ─▶ answered ─▶ checkpoint made ─▶ ready        (checkpoint: a stopped copy, see the helper)
//!                        └─▶ killed ─▶ the checkpoint is the interpreter ─▶ checkpoint made ─▶ ready
//! ```
//! Nothing that it says is trusted: packets are bounded, and what one killed in the middle may have left in the channel is told
//! from what its successor says by a nonce that the dead one never saw.

mod frames;

pub(crate) use frames::{Frame, Nonce, cell_request, checkpoint_request, reply};
