//! `sandtimer doctor`: what this machine can enforce, what is missing, and how to get it.
//!
//! It probes by doing: real commands in real jails, ended by real limits. The value of a sysctl is
//! evidence for the remedy, never for the verdict. It changes nothing on the machine and prints
//! nothing itself.

mod bwrap;
mod engine;
mod inside;
mod machine;
mod report;
mod sandbox;
mod text;

use std::process::ExitCode;

use report::{DoctorReport, LayerFinding, MeasuredTimes};

use crate::args::DoctorArguments;
use crate::render;

pub(in crate::commands) use machine::Ticks;

impl DoctorReport {
    /// For people; with colours only when asked for.
    pub(crate) fn text(&self, colours: bool) -> String {
        text::render(self, colours)
    }
}

/// Probes everything. Takes about two seconds; every probe is bounded.
pub(crate) fn examine() -> DoctorReport {
    let before = machine::Ticks::now();
    let mut report = DoctorReport {
        tier: None,
        kill: None,
        deadline_layers: Vec::new(),
        layers: Vec::new(),
        measured: MeasuredTimes::default(),
    };
    if super::is_inside_a_run() {
        // What is missing here is missing on purpose: no remedy on the machine would give it.
        report.layers.push(LayerFinding::missing("place", "inside a run of Sandtimer").consequence("no further sandbox can be made").remedy(
            "start commands here without Sandtimer, under the limits of that run; look at the machine from outside",
        ));
        return report;
    }
    let container = machine::container();
    machine::kernel(&mut report.layers);
    machine::user_namespaces(&mut report.layers);
    let engine = sandtimer::Engine::new();
    match engine
        .as_ref()
        .map_err(ToString::to_string)
        .and_then(|engine| engine.host().map(|host| (engine, host)).map_err(|error| error.to_string()))
    {
        Ok((engine, host)) => {
            let settings = engine::RemedyContext {
                container: container.as_ref(),
                root: sandtimer::engine::workspace_owner().is_some(),
            };
            engine::examine(engine, host, &settings, &mut report.layers);
            sandbox::examine(engine, &settings, &mut report);
        }
        Err(error) => report.layers.push(
            LayerFinding::missing("engine", error)
                .consequence("nothing can be run")
                .remedy("make the system give what is named here, then run `sandtimer doctor` again"),
        ),
    }
    machine::resources(&mut report.layers);
    machine::processors(&mut report.layers);
    report.layers.push(machine::container_layer(container.as_ref()));
    let steal = before.steal_percent(&machine::Ticks::now());
    report.layers.push(machine::steal_layer(steal));
    report.measured.steal_percent = steal;
    machine::suggest(&mut report.measured);
    report
}

/// The command. Exits with 125 when something is required that is not there.
pub(crate) fn main(arguments: &DoctorArguments) -> ExitCode {
    if arguments.bwrap {
        return bwrap::main(arguments.json);
    }
    let report = examine();
    if arguments.json {
        render::print(&format!("{:#}\n", report.json()));
    } else {
        render::print(&report.text(render::stdout_colours()));
    }
    let unmet = report.unmet(&arguments.require);
    unmet.iter().for_each(|line| render::report_error(line));
    if unmet.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(125) }
}
