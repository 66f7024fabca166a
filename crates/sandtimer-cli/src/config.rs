//! Where limits come from: flags, variables, files. Each place is read once and by the same rules;
//! the engine's `precedence` and `nest` decide between them.
//!
//! A `sandtimer.toml` in the current directory may belong to the author of the code that is to be
//! run. It can make limits smaller and nothing else, and it is not read where the command itself
//! can write it: an earlier run may have left it there. It ends no command either: a file that is
//! not valid, or that would loosen a limit, is ignored with a notice.

mod contexts;
mod effective_settings;
mod file;
mod given;
mod layers;
mod loaded;
mod local;
mod names;
#[cfg(test)]
mod tests;
mod values;

pub(crate) use contexts::{POOLED, PREWARMED, STARTS};
pub(crate) use effective_settings::{SettingValue, ShownSetting};
pub(crate) use given::{from_flags, notice};
pub(crate) use loaded::{Config, Origins};
pub(crate) use names::{NAMES, SHARED_NAMES, Uses};
pub(crate) use values::written;

/// The commented file of all settings, with their built-in values.
pub(crate) const DEFAULT_FILE: &str = include_str!("../default.toml");
