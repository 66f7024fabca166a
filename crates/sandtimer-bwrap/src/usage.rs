//! The options, as `--help` lists them.

/// Bubblewrap's version whose command line this is.
pub const VERSION: &str = "0.11.1";

/// One line of the help: an option, its arguments, what it does.
const OPTIONS: [(&str, &str, &str); 67] = [
    ("--help", "", "Show this list"),
    ("--version", "", "Show the version"),
    ("--args", "FD", "Read more arguments, each ended by NUL, from FD"),
    ("--argv0", "VALUE", "Give the command VALUE for its own name"),
    ("--level-prefix", "", "Begin messages with a syslog level such as <3>"),
    ("--unshare-all", "", "New namespaces of every kind"),
    ("--share-net", "", "Keep the network namespace (after --unshare-all)"),
    ("--unshare-user", "", "New user namespace; always, for other users than root"),
    ("--unshare-user-try", "", "The same if the kernel allows it"),
    ("--unshare-ipc", "", "New IPC namespace"),
    ("--unshare-pid", "", "New PID namespace"),
    ("--unshare-net", "", "New network namespace, with a loopback device"),
    ("--unshare-uts", "", "New UTS namespace"),
    ("--unshare-cgroup", "", "New cgroup namespace"),
    ("--unshare-cgroup-try", "", "The same if the kernel allows it"),
    ("--userns", "FD", "Enter this user namespace (not with --unshare-user)"),
    ("--userns2", "FD", "Enter this user namespace after the setup (with --userns)"),
    ("--disable-userns", "", "Allow no further user namespaces inside"),
    ("--assert-userns-disabled", "", "Fail unless no further user namespaces are possible"),
    ("--pidns", "FD", "Enter this PID namespace, or make the new one below it"),
    ("--uid", "UID", "The uid inside (with --unshare-user or --userns)"),
    ("--gid", "GID", "The gid inside (with --unshare-user or --userns)"),
    ("--hostname", "NAME", "The host name inside (with --unshare-uts)"),
    ("--chdir", "DIR", "Start in DIR"),
    ("--clearenv", "", "Unset every variable"),
    ("--setenv", "VAR VALUE", "Set a variable"),
    ("--unsetenv", "VAR", "Unset a variable"),
    ("--lock-file", "DEST", "Hold a lock on DEST until the end"),
    ("--sync-fd", "FD", "Hold FD open until the end"),
    ("--bind", "SRC DEST", "Show SRC at DEST"),
    ("--bind-try", "SRC DEST", "The same; nothing if there is no SRC"),
    ("--dev-bind", "SRC DEST", "Show SRC at DEST with its devices"),
    ("--dev-bind-try", "SRC DEST", "The same; nothing if there is no SRC"),
    ("--ro-bind", "SRC DEST", "Show SRC at DEST, read-only"),
    ("--ro-bind-try", "SRC DEST", "The same; nothing if there is no SRC"),
    ("--bind-fd", "FD DEST", "Show the open directory or path FD at DEST"),
    ("--ro-bind-fd", "FD DEST", "The same, read-only"),
    ("--remount-ro", "DEST", "Make the mount at DEST read-only, not those below it"),
    ("--overlay-src", "SRC", "A lower directory of the overlay that follows"),
    ("--overlay", "RWSRC WORKDIR DEST", "An overlay at DEST that writes to RWSRC"),
    ("--tmp-overlay", "DEST", "An overlay at DEST that writes to a hidden tmpfs"),
    ("--ro-overlay", "DEST", "A read-only overlay at DEST"),
    ("--exec-label", "LABEL", "SELinux label of the command"),
    ("--file-label", "LABEL", "SELinux label of temporary files"),
    ("--proc", "DEST", "A procfs at DEST"),
    ("--dev", "DEST", "A small /dev at DEST"),
    ("--tmpfs", "DEST", "A tmpfs at DEST"),
    ("--mqueue", "DEST", "A mqueue file system at DEST"),
    ("--dir", "DEST", "Make the directory DEST"),
    ("--file", "FD DEST", "Copy what FD gives to the file DEST"),
    ("--bind-data", "FD DEST", "Show a copy of what FD gives at DEST"),
    ("--ro-bind-data", "FD DEST", "The same, read-only"),
    ("--symlink", "SRC DEST", "Make DEST a link to SRC"),
    ("--seccomp", "FD", "Use the seccomp filter that FD gives (once)"),
    ("--add-seccomp-fd", "FD", "Use the seccomp filter that FD gives (any number)"),
    ("--block-fd", "FD", "Wait until FD is readable before the command starts"),
    ("--userns-block-fd", "FD", "Wait until FD is readable: the caller writes the id maps"),
    ("--info-fd", "FD", "Write the child's PID and namespaces to FD, as JSON"),
    ("--json-status-fd", "FD", "Write the same, the exit code and the Outcome to FD, as JSON lines"),
    ("--new-session", "", "Start in a new terminal session"),
    ("--die-with-parent", "", "End when the parent process does (not its thread)"),
    ("--as-pid-1", "", "The command itself is the first process of the PID namespace"),
    ("--cap-add", "CAP", "Keep this capability, or ALL"),
    ("--cap-drop", "CAP", "Drop this capability, or ALL"),
    ("--perms", "OCTAL", "Mode of what the next option makes"),
    ("--size", "BYTES", "Size of the next --tmpfs"),
    ("--chmod", "OCTAL PATH", "Change the mode of PATH"),
];

/// The text of `--help`; `name` is what this program was started as.
pub fn usage(name: &str) -> String {
    let mut text = format!("usage: {name} [OPTIONS...] [--] COMMAND [ARGS...]\n\n");
    for (option, arguments, meaning) in OPTIONS {
        let left = format!("{option} {arguments}");
        text.push_str(&format!("    {:<28} {meaning}\n", left.trim_end()));
    }
    text.push_str(
        "\nLimits come from sandtimer.toml and SANDTIMER_WALL, _CPU, _STALL, _MEMORY, _PROCESSES and _OUTPUT.\n",
    );
    text
}

/// What `--version` prints.
pub fn version() -> String {
    format!("bubblewrap {VERSION} (sandtimer {})\n", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_lists_every_option() {
        let text = usage("bwrap");
        assert!(text.starts_with("usage: bwrap [OPTIONS...] [--] COMMAND"));
        for option in ["--disable-userns", "--argv0", "--perms", "--ro-overlay", "--add-seccomp-fd"] {
            assert!(text.contains(&format!("    {option}")), "{option}");
        }
    }
}
