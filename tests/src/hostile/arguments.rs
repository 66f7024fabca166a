//! What a payload was asked to do, and whether it sits where it may do it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::report::Finding;

/// Seconds any process of this program lives at most, unless told otherwise.
const LIFE_SECONDS: u64 = 60;

pub(crate) struct PayloadArguments {
    pub(crate) name: String,
    pub(crate) life_seconds: u64,
    host_pid_namespace: Option<String>,
    rest: Vec<OsString>,
}

impl PayloadArguments {
    pub(crate) fn parse(mut arguments: impl Iterator<Item = OsString>) -> Result<Self, String> {
        let mut parsed = PayloadArguments {
            name: String::new(),
            life_seconds: LIFE_SECONDS,
            host_pid_namespace: None,
            rest: vec![],
        };
        loop {
            let argument = arguments.next().ok_or("the name of a payload is missing (try: hostile list)")?;
            let mut value = || arguments.next().ok_or(format!("{} needs a value", argument.display()));
            match argument.as_bytes() {
                b"--life" => {
                    let text = value()?;
                    parsed.life_seconds = number_in(&text).ok_or(format!("--life '{}'", text.display()))?;
                }
                // Only there to be seen by whoever scans /proc/*/cmdline.
                b"--marker" => drop(value()?),
                b"--host-pid-namespace" => parsed.host_pid_namespace = value()?.into_string().ok(),
                _ => {
                    parsed.name = argument.to_string_lossy().into_owned();
                    parsed.rest = arguments.collect();
                    return Ok(parsed);
                }
            }
        }
    }

    /// The number at `index`, or `default` where it is absent or no number.
    pub(crate) fn number(&self, index: usize, default: u64) -> u64 {
        self.rest.get(index).and_then(|text| number_in(text)).unwrap_or(default)
    }

    /// The path at `index`.
    pub(crate) fn path(&self, index: usize) -> Result<PathBuf, Finding> {
        let missing = || Finding::Untried(format!("argument {} (a path) is missing", index + 1));
        self.rest.get(index).map(PathBuf::from).ok_or_else(missing)
    }

    /// The text at `index`, or `default`.
    pub(crate) fn text(&self, index: usize, default: &str) -> String {
        self.rest.get(index).map_or(default.into(), |text| text.to_string_lossy().into_owned())
    }

    /// The process to aim at: the pid at `index`, or process 1 of the sandbox.
    ///
    /// Outside a cage process 1 is the host's own, and refused before anything of it is touched: a
    /// bare run (the negative control) names a process that the test started for it.
    pub(crate) fn victim(&self, index: usize) -> Result<i32, Finding> {
        match self.number(index, 1) {
            0 | 1 if !self.inside_cage() => {
                Err(Finding::Untried("process 1 is aimed at only from inside a cage".into()))
            }
            victim => Ok(victim.max(1) as i32),
        }
    }

    /// Every argument from `index` on.
    pub(crate) fn from(&self, index: usize) -> &[OsString] {
        self.rest.get(index..).unwrap_or_default()
    }

    /// Whether this process is in another process namespace than the host.
    ///
    /// Unprovable counts as outside, except where /proc is absent and the pid is one only a
    /// namespace hands out.
    pub(crate) fn inside_cage(&self) -> bool {
        const INITIAL: &str = "pid:[4026531836]";
        match std::fs::read_link("/proc/self/ns/pid") {
            Ok(own) => {
                let own = own.to_string_lossy();
                own != INITIAL && self.host_pid_namespace.as_deref() != Some(&*own)
            }
            Err(_) => std::process::id() < 64,
        }
    }
}

fn number_in(text: &OsStr) -> Option<u64> {
    let text = text.to_str()?;
    let (digits, unit) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        b'G' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}
