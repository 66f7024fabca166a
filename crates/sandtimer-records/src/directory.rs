//! The default directories, and the default owner.

use std::path::PathBuf;

/// The name of the directory, below a state directory, of the server of this user's MCP clients.
pub const MCP_DIRECTORY: &str = "mcp";

/// Returns the path in the variable SANDTIMER_STATE_DIR; `None` if it is unset or empty.
pub fn named_state_directory() -> Option<PathBuf> {
    std::env::var_os("SANDTIMER_STATE_DIR").filter(|name| !name.is_empty()).map(PathBuf::from)
}

/// Returns `/var/lib/sandtimer` for root, else `sandtimer` below XDG_STATE_HOME or below
/// `.local/state` in the home directory; `None` if neither variable has an absolute path.
pub fn default_state_directory() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/var/lib/sandtimer"));
    }
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base =
        absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")))?;
    Some(base.join("sandtimer"))
}

/// Returns the owner of what this user does without a token, such as `uid:1000`.
pub fn own_name() -> String {
    format!("uid:{}", rustix::process::geteuid().as_raw())
}
