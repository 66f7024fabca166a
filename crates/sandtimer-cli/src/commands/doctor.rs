//! `sandtimer doctor`: what this machine can enforce, what is missing, and how to get it.
//!
//! It probes by doing: real commands in real jails, ended by real limits. The value of a sysctl is
//! evidence for the remedy, never for the verdict. It changes nothing on the machine and prints
//! nothing itself.

mod bwrap;
mod engine;
mod inside;
mod machine;
mod sandbox;
mod text;

use std::process::ExitCode;

use sandtimer::model::{KillClass, Tier};
use serde::Serialize;

use crate::args::{DoctorArguments, Require};
use crate::render;

pub(in crate::commands) use machine::Ticks;

/// How a layer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LayerStatus {
    Ok,
    Degraded,
    Missing,
}

/// The finding on one layer.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct LayerFinding {
    layer: String,
    status: LayerStatus,
    /// The evidence: a value, or the error of a system call.
    evidence: String,
    /// What it means for runs; empty where all is well.
    consequence: String,
    /// What to do about it; empty where nothing is to be done.
    remedy: String,
}

impl LayerFinding {
    fn ok(layer: impl Into<String>, evidence: impl Into<String>) -> Self {
        LayerFinding::new(layer, LayerStatus::Ok, evidence)
    }

    fn degraded(layer: impl Into<String>, evidence: impl Into<String>) -> Self {
        LayerFinding::new(layer, LayerStatus::Degraded, evidence)
    }

    fn missing(layer: impl Into<String>, evidence: impl Into<String>) -> Self {
        LayerFinding::new(layer, LayerStatus::Missing, evidence)
    }

    fn new(layer: impl Into<String>, status: LayerStatus, evidence: impl Into<String>) -> Self {
        let (consequence, remedy) = (String::new(), String::new());
        LayerFinding { layer: layer.into(), status, evidence: evidence.into(), consequence, remedy }
    }

    fn consequence(mut self, consequence: impl Into<String>) -> Self {
        self.consequence = consequence.into();
        self
    }

    fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }
}

/// What was measured on the way; `None` where a probe did not get that far. Times in milliseconds.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct MeasuredTimes {
    /// From the request to the outcome of /bin/true: median, fastest and slowest of
    /// `cold_start_runs`.
    cold_start_p50_ms: Option<f64>,
    cold_start_min_ms: Option<f64>,
    cold_start_max_ms: Option<f64>,
    cold_start_runs: u64,
    /// How late one wall limit's verdict was, and how long after the kill its tree was proven dead.
    verdict_late_ms: Option<f64>,
    dead_after_ms: Option<u64>,
    processors: u64,
    steal_percent: f64,
    /// Runs at a time that compute, and that mostly wait.
    suggested_runs: u64,
    suggested_waiting_runs: u64,
}

/// Everything that was found.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct DoctorReport {
    /// `None` where no engine could be started.
    tier: Option<Tier>,
    kill: Option<KillClass>,
    deadline_layers: Vec<String>,
    layers: Vec<LayerFinding>,
    measured: MeasuredTimes,
}

impl DoctorReport {
    /// For programs.
    pub(crate) fn json(&self) -> serde_json::Value {
        // A struct of strings and numbers has no way to fail.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// For people; with colours only when asked for.
    pub(crate) fn text(&self, colours: bool) -> String {
        text::render(self, colours)
    }

    /// What was required and is not there.
    pub(crate) fn unmet(&self, required: &[Require]) -> Vec<String> {
        let name = |found: Option<String>| found.unwrap_or_else(|| "nothing".to_owned());
        let check = |required: &Require| match *required {
            Require::Tier(tier) if self.tier < Some(tier) => {
                let found = name(self.tier.map(|tier| format!("{tier:?}")));
                Some(format!("tier {tier:?} is required and this machine gives {found}"))
            }
            Require::Kill(kill) if self.kill < Some(kill) => {
                let found = name(self.kill.map(|kill| format!("{kill:?}")));
                Some(format!("kill class {kill:?} is required and this machine gives {found}"))
            }
            _ => None,
        };
        required.iter().filter_map(check).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn report(tier: Option<Tier>, kill: Option<KillClass>) -> DoctorReport {
        let (deadline_layers, layers) = (vec!["enforcer".to_owned()], Vec::new());
        DoctorReport { tier, kill, deadline_layers, layers, measured: MeasuredTimes::default() }
    }

    #[test]
    fn requirements_are_compared_with_what_is_there() {
        let report = report(Some(Tier::T2), Some(KillClass::K2));
        assert!(report.unmet(&[Require::Tier(Tier::T2), Require::Kill(KillClass::K1)]).is_empty());
        let unmet = report.unmet(&[Require::Tier(Tier::T3), Require::Kill(KillClass::K3)]);
        assert_eq!(unmet[0], "tier T3 is required and this machine gives T2");
        assert_eq!(unmet.len(), 2);
    }

    #[test]
    fn without_an_engine_not_even_the_weakest_tier_is_met() {
        let unmet = report(None, None).unmet(&[Require::Tier(Tier::T0)]);
        assert_eq!(unmet, ["tier T0 is required and this machine gives nothing"]);
    }

    #[test]
    fn json_has_its_stable_keys() {
        let mut report = report(Some(Tier::T3), Some(KillClass::K3));
        report.layers.push(LayerFinding::degraded("swap", "1 GiB").consequence("slow").remedy("swapoff -a"));
        let json = report.json();
        let keys: Vec<&String> = json.as_object().expect("an object").keys().collect();
        assert_eq!(keys.len(), 5);
        for key in ["tier", "kill", "deadline_layers", "layers", "measured"] {
            assert!(json.get(key).is_some(), "{key} is missing");
        }
        let layer = &json["layers"][0];
        assert_eq!(layer["status"], "degraded");
        assert_eq!(layer["consequence"], "slow");
        assert_eq!(layer["remedy"], "swapoff -a");
    }
}
