//! From an Outcome to an exit code, as documented in `sandtimer run --help`.

use sandtimer::model::{Ending, Outcome};

/// Names of signals that have one, by number.
const SIGNALS: [&str; 32] = [
    "", "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// Whether the command ended by itself.
pub(in crate::commands) fn is_own_end(outcome: &Outcome) -> bool {
    matches!(outcome.ending, Ending::Exited | Ending::Signaled)
}

/// The exit code for how a run ended. A cancelled run's depends on what cancelled it, which is not
/// in the Outcome.
pub(in crate::commands) fn exit_code(outcome: &Outcome) -> u8 {
    match outcome.ending {
        Ending::Exited => outcome.exit_code.and_then(|code| u8::try_from(code).ok()).unwrap_or(125),
        Ending::Signaled => {
            outcome.signal.as_deref().and_then(signal_number).map_or(125, |number| 128 + number)
        }
        Ending::OutOfMemory => 137,
        Ending::Timeout
        | Ending::Stalled
        | Ending::OutputLimit
        | Ending::ProcessLimit
        | Ending::DiskLimit
        | Ending::Budget => 124,
        _ => 125,
    }
}

fn signal_number(name: &str) -> Option<u8> {
    let name = name.strip_prefix("SIG")?;
    let named = SIGNALS.iter().position(|known| !known.is_empty() && *known == name);
    // One without a name is written by its number.
    named
        .and_then(|number| u8::try_from(number).ok())
        .or_else(|| name.parse().ok().filter(|number| *number <= 64))
}

#[cfg(test)]
mod tests {
    use super::signal_number;

    #[test]
    fn signals_by_name_and_by_number() {
        let known = [
            ("SIGHUP", 1),
            ("SIGKILL", 9),
            ("SIGSEGV", 11),
            ("SIGPIPE", 13),
            ("SIGTERM", 15),
            ("SIGSYS", 31),
        ];
        for (name, number) in known {
            assert_eq!(signal_number(name), Some(number), "{name}");
        }
        assert_eq!(signal_number("SIG34"), Some(34));
        for nonsense in ["SIG", "KILL", "SIGNONE", "SIG200", ""] {
            assert_eq!(signal_number(nonsense), None, "{nonsense}");
        }
    }
}
