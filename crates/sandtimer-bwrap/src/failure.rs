//! What `bwrap` reports on stderr before it exits with 1. The first words of its messages are part
//! of its interface: programs search for them.

use std::fmt;
use std::io;

use rustix::io::Errno;

/// A message without its prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BwrapFailure(pub String);

impl BwrapFailure {
    /// A message.
    pub fn new(message: impl Into<String>) -> Self {
        BwrapFailure(message.into())
    }

    /// What could not be done, and the system's reason.
    pub fn because(doing: impl fmt::Display, error: impl Into<io::Error>) -> Self {
        BwrapFailure(format!("{doing}: {}", reason(&error.into())))
    }
}

impl fmt::Display for BwrapFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// An error of the system as strerror(3) words it.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match (error.raw_os_error(), text.rfind(" (os error ")) {
        (Some(_), Some(end)) => text[..end].to_owned(),
        _ => text,
    }
}

/// As [`reason`], for a mount: the kernel counts them against a limit that few know.
pub fn mount_reason(error: Errno) -> String {
    match error {
        Errno::NOSPC => {
            "Limit exceeded (ENOSPC). (Hint: /proc/sys/fs/mount-max bounds how many mounts there can be)"
                .to_owned()
        }
        error => reason(&error.into()),
    }
}

/// Prints messages as syslog(3) levels, where `--level-prefix` asks for that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Messages {
    pub level_prefix: bool,
}

impl Messages {
    /// Prints an error on stderr; nothing for one without a text, which was printed before.
    pub fn error(self, failure: &BwrapFailure) {
        if !failure.0.is_empty() {
            self.print(3, &failure.0);
        }
    }

    /// Prints a warning on stderr.
    pub fn warning(self, message: &str) {
        self.print(4, message);
    }

    fn print(self, level: u8, message: &str) {
        use std::io::Write;
        let prefix = if self.level_prefix { format!("<{level}>") } else { String::new() };
        // Without a stderr there is no place for it.
        let _ = std::io::stderr().lock().write_all(format!("{prefix}bwrap: {message}\n").as_bytes());
    }
}
