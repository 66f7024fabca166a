//! Commands that do not want to end, each in its own way.

use std::path::Path;
use std::time::Duration;

use sandtimer::{Limits, Output, Spec};

/// A way of not ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Behaviour {
    BusyShell,
    BusyPython,
    Sleeping,
    DeafToSignals,
    Stopped,
    ForkChain,
    Daemon,
    Flood,
    BlockedPipe,
}

impl Behaviour {
    const ALL: [Behaviour; 9] = [
        Behaviour::BusyShell,
        Behaviour::BusyPython,
        Behaviour::Sleeping,
        Behaviour::DeafToSignals,
        Behaviour::Stopped,
        Behaviour::ForkChain,
        Behaviour::Daemon,
        Behaviour::Flood,
        Behaviour::BlockedPipe,
    ];

    /// The behaviours for which this machine has the programs.
    pub(super) fn available() -> Vec<Behaviour> {
        let python = has_program("python3");
        Behaviour::ALL.into_iter().filter(|behaviour| python || *behaviour != Behaviour::BusyPython).collect()
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Behaviour::BusyShell => "busy shell",
            Behaviour::BusyPython => "busy python",
            Behaviour::Sleeping => "sleeping",
            Behaviour::DeafToSignals => "deaf to signals",
            Behaviour::Stopped => "stopped",
            Behaviour::ForkChain => "fork chain",
            Behaviour::Daemon => "daemon",
            Behaviour::Flood => "output flood",
            Behaviour::BlockedPipe => "blocked pipe",
        }
    }

    /// The run, with this wall.
    pub(super) fn spec(self, wall: Duration) -> Spec {
        const LOOP: &str = "while :; do :; done";
        let shell = |script: &str| Spec::command(["/bin/sh", "-c", script]);
        let spec = match self {
            Behaviour::BusyShell => shell(LOOP),
            Behaviour::BusyPython => Spec::command(["python3", "-c", "while True: pass"]),
            Behaviour::Sleeping => Spec::command(["sleep", "1000"]),
            Behaviour::DeafToSignals => shell(&format!("trap '' TERM INT HUP QUIT; {LOOP}")),
            Behaviour::Stopped => shell("kill -STOP $$; sleep 1000"),
            Behaviour::ForkChain => shell("chain() { chain & chain; }; chain 2>/dev/null & exec sleep 1000"),
            Behaviour::Daemon => shell(&format!("(setsid sh -c '{LOOP}' &); exec sleep 1000")),
            Behaviour::Flood | Behaviour::BlockedPipe => Spec::command(["yes"]),
        };
        let limits = Limits::new().wall(wall).memory(512 << 20).processes(32).output(1 << 20);
        let mut spec = spec.limits(limits);
        if self == Behaviour::BlockedPipe {
            // The bench neither takes nor reads this pipe.
            spec.stdout = Output::Piped;
        }
        spec
    }
}

/// Whether a program is on the PATH.
pub(super) fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    std::env::split_paths(&path).any(|directory| Path::new(&directory).join(name).is_file())
}
