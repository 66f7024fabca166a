//! Landlock's rules for a sandbox: what of its files it may read, write and execute.

use std::path::Path;

use sandtimer_os::wire::{FOLLOW_LINKS, op};

use super::files::{FileKind, Mount};
use super::plan::{Builder, IsolationLayer};

impl Builder<'_> {
    /// Adds the Landlock rules, which repeat the mounts: what they show is readable, what they made
    /// writable is writable.
    pub(super) fn landlock(&mut self) {
        const EXECUTE: u64 = 1;
        const WRITE_FILE: u64 = 1 << 1;
        const READ_FILE: u64 = 1 << 2;
        const READ_DIR: u64 = 1 << 3;
        const MAKE_CHARACTER_DEVICE: u64 = 1 << 6;
        const MAKE_BLOCK_DEVICE: u64 = 1 << 11;
        const TRUNCATE: u64 = 1 << 14;
        const IOCTL_DEVICE: u64 = 1 << 15;
        let abi = self.host.landlock_abi;
        let handled: u64 = match abi {
            1 => (1 << 13) - 1,
            2 => (1 << 14) - 1,
            3 | 4 => (1 << 15) - 1,
            _ => (1 << 16) - 1,
        };
        let network = if abi >= 4 && !self.policy.network.has_sockets() { 0b11 } else { 0 };
        // Abstract Unix sockets and signals stay inside the sandbox.
        let scopes = if abi >= 6 { 0b11 } else { 0 };
        let read = EXECUTE | READ_FILE | READ_DIR;
        let write = handled & !(MAKE_CHARACTER_DEVICE | MAKE_BLOCK_DEVICE | IOCTL_DEVICE);
        let devices = handled & (read | WRITE_FILE | TRUNCATE | IOCTL_DEVICE);
        let file = handled & (EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE);
        let mut numbers = vec![handled, network, scopes];
        let mut paths: Vec<&Path> = Vec::new();
        let mut rule = |path, access| {
            paths.push(path);
            numbers.push(access);
        };
        let mounted = self.host.has_namespaces() && !self.policy.without.contains(&IsolationLayer::Mount);
        if mounted {
            rule(Path::new("/"), read);
            // A program that names a thread there opens the name to be truncated first: a shell's
            // `>`, and libcuda, which gives up otherwise. The same right lets a job lower its
            // `oom_score_adj` where that is not fixed. It also lets a process write the memory of
            // others with its uid (/proc/PID/mem), which in a live sandbox is the interpreter's,
            // and what it reports of later code.
            let is_writable =
                self.host.fixes_oom_score && !self.policy.is_live || self.policy.files.gpus.is_some();
            let write = if is_writable { WRITE_FILE | TRUNCATE } else { 0 };
            rule(Path::new("/proc"), handled & (read | write));
        }
        rule(Path::new("/dev"), devices);
        // The host's own, which stdin is where there is none: by its name it is reached past this
        // /dev.
        rule(Path::new("/dev/null"), devices & file);
        for directory in self.policy.sandbox.iter().flat_map(|sandbox| &sandbox.writable) {
            rule(directory, write);
        }
        for mount in &self.policy.files.mounts {
            match mount {
                Mount::Bind { target, writable: true, kind, .. } => {
                    rule(target, if *kind == FileKind::File { file } else { write });
                }
                Mount::Bind { source, writable: false, kind, .. } if !mounted => {
                    rule(source, if *kind == FileKind::File { read & file } else { read });
                }
                Mount::Tmpfs { target, .. } if mounted => rule(target, write),
                Mount::Synthetic { target, .. } | Mount::Accounts { target, .. } if !mounted => {
                    rule(target, read & file | FOLLOW_LINKS);
                }
                _ => {}
            }
        }
        if let Some(private) = self.policy.private {
            rule(private, write);
        }
        self.push("landlock", op::LANDLOCK, &numbers, &paths);
    }
}
