//! The default state directory, and the name of its owner.

use std::path::PathBuf;

/// Below a state directory: where the server of this user's MCP clients keeps what it has.
pub const MCP_DIRECTORY: &str = "mcp";

/// What SANDTIMER_STATE_DIR names; `None` where it names nothing.
pub fn named_state_directory() -> Option<PathBuf> {
    std::env::var_os("SANDTIMER_STATE_DIR").filter(|name| !name.is_empty()).map(PathBuf::from)
}

/// `/var/lib/sandtimer` for root, else below XDG_STATE_HOME or the home; `None` where there is
/// neither.
pub fn default_state_directory() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/var/lib/sandtimer"));
    }
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base =
        absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")))?;
    Some(base.join("sandtimer"))
}

/// The owner of what this user does without a token.
pub fn own_name() -> String {
    format!("uid:{}", rustix::process::geteuid().as_raw())
}
