//! What the doctor found: a finding for each layer, measured times, and what they amount to.

use sandtimer::model::{KillClass, Tier};
use serde::Serialize;

use crate::args::Require;

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
    pub(super) layer: String,
    pub(super) status: LayerStatus,
    /// The evidence: a value, or the error of a system call.
    pub(super) evidence: String,
    /// What it means for runs; empty where all is well.
    pub(super) consequence: String,
    /// What to do about it; empty where nothing is to be done.
    pub(super) remedy: String,
}

impl LayerFinding {
    pub(super) fn ok(layer: impl Into<String>, evidence: impl Into<String>) -> Self {
        LayerFinding::new(layer, LayerStatus::Ok, evidence)
    }

    pub(super) fn degraded(layer: impl Into<String>, evidence: impl Into<String>) -> Self {
        LayerFinding::new(layer, LayerStatus::Degraded, evidence)
    }

    pub(super) fn missing(layer: impl Into<String>, evidence: impl Into<String>) -> Self {
        LayerFinding::new(layer, LayerStatus::Missing, evidence)
    }

    fn new(layer: impl Into<String>, status: LayerStatus, evidence: impl Into<String>) -> Self {
        let (consequence, remedy) = (String::new(), String::new());
        LayerFinding { layer: layer.into(), status, evidence: evidence.into(), consequence, remedy }
    }

    pub(super) fn consequence(mut self, consequence: impl Into<String>) -> Self {
        self.consequence = consequence.into();
        self
    }

    pub(super) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }
}

/// What was measured on the way; `None` where a probe did not get that far. Times in milliseconds.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct MeasuredTimes {
    /// From the request to the outcome of /bin/true: median, fastest and slowest of
    /// `cold_start_runs`.
    pub(super) cold_start_p50_ms: Option<f64>,
    pub(super) cold_start_min_ms: Option<f64>,
    pub(super) cold_start_max_ms: Option<f64>,
    pub(super) cold_start_runs: u64,
    /// How late one wall limit's verdict was, and how long after the kill its tree was proven dead.
    pub(super) verdict_late_ms: Option<f64>,
    pub(super) dead_after_ms: Option<u64>,
    pub(super) processors: u64,
    pub(super) steal_percent: f64,
    /// Runs at a time that compute, and that mostly wait.
    pub(super) suggested_runs: u64,
    pub(super) suggested_waiting_runs: u64,
}

/// Everything that was found.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct DoctorReport {
    /// `None` where no engine could be started.
    pub(super) tier: Option<Tier>,
    pub(super) kill: Option<KillClass>,
    pub(super) deadline_layers: Vec<String>,
    pub(super) layers: Vec<LayerFinding>,
    pub(super) measured: MeasuredTimes,
}

impl DoctorReport {
    /// For programs.
    pub(crate) fn json(&self) -> serde_json::Value {
        // A struct of strings and numbers has no way to fail.
        serde_json::to_value(self).unwrap_or_default()
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
