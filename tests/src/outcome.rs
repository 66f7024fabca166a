//! The Outcome as a caller sees it: parsed from the JSON on the wire, checked for shape, not shared
//! with the engine.

use serde_json::Value;

/// Every ending the contract knows.
pub const ENDINGS: &[&str] = &[
    "exited",
    "signaled",
    "returned",
    "raised",
    "no_result",
    "timeout",
    "stalled",
    "out_of_memory",
    "output_limit",
    "process_limit",
    "disk_limit",
    "budget",
    "cancelled",
    "infra_error",
];

/// Members an Outcome always has.
const MEMBERS: &[&str] = &[
    "run_id",
    "ending",
    "ok",
    "exit_code",
    "signal",
    "stdout",
    "stderr",
    "stdout_truncated",
    "stderr_truncated",
    "encoding",
    "stdout_encoding",
    "stderr_encoding",
    "value",
    "error",
    "results",
    "execution_count",
    "verdict",
    "tree",
    "state",
    "usage",
    "isolation",
    "path",
    "reported_by",
    "notices",
    "remarks",
];

/// One Outcome.
#[derive(Debug, Clone)]
pub struct Outcome(pub Value);

impl Outcome {
    /// Parses the whole of `--json`'s stdout: one object and nothing else.
    ///
    /// # Errors
    /// What is wrong with it, with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| format!("{error} in {text:?}"))?;
        let object = value.as_object().ok_or(format!("not an object: {text:?}"))?;
        if let Some(missing) = MEMBERS.iter().find(|member| !object.contains_key(**member)) {
            return Err(format!("no member '{missing}' in {text:?}"));
        }
        let outcome = Outcome(value);
        if !ENDINGS.contains(&outcome.ending()) {
            return Err(format!("unknown ending '{}'", outcome.ending()));
        }
        Ok(outcome)
    }

    fn text(&self, pointer: &str) -> &str {
        self.0.pointer(pointer).and_then(Value::as_str).unwrap_or("")
    }

    #[must_use]
    pub fn ending(&self) -> &str {
        self.text("/ending")
    }

    #[must_use]
    pub fn ok(&self) -> bool {
        self.0["ok"] == true
    }

    #[must_use]
    pub fn exit_code(&self) -> Option<i64> {
        self.0["exit_code"].as_i64()
    }

    #[must_use]
    pub fn signal(&self) -> &str {
        self.text("/signal")
    }

    #[must_use]
    pub fn stdout(&self) -> &str {
        self.text("/stdout")
    }

    #[must_use]
    pub fn is_truncated(&self, stream: &str) -> bool {
        self.0[format!("{stream}_truncated")] == true
    }

    /// The limit that fired.
    #[must_use]
    pub fn limit(&self) -> &str {
        self.text("/verdict/kind")
    }

    #[must_use]
    pub fn sentence(&self) -> &str {
        self.text("/verdict/sentence")
    }

    /// Milliseconds after `wall + grace`.
    #[must_use]
    pub fn late_ms(&self) -> Option<f64> {
        self.0.pointer("/verdict/late_ms").and_then(Value::as_f64)
    }

    /// `None` while the proof is pending.
    #[must_use]
    pub fn survivors(&self) -> Option<u64> {
        self.0.pointer("/tree/survivors").and_then(Value::as_u64)
    }

    #[must_use]
    pub fn proof(&self) -> &str {
        self.text("/tree/proof")
    }

    #[must_use]
    pub fn usage(&self, member: &str) -> Option<u64> {
        self.0["usage"][member].as_u64()
    }

    /// `T0` to `T3`.
    #[must_use]
    pub fn tier(&self) -> &str {
        self.text("/isolation/tier")
    }

    /// `K0` to `K3`.
    #[must_use]
    pub fn kill_class(&self) -> &str {
        self.text("/isolation/kill")
    }

    /// Names of the layers reported as not in force.
    #[must_use]
    pub fn degraded(&self) -> Vec<&str> {
        let listed = self.0.pointer("/isolation/degraded").and_then(Value::as_array);
        listed.into_iter().flatten().filter_map(|entry| entry["layer"].as_str()).collect()
    }

    /// The exit code that the command line must have for this ending; `None` where the contract
    /// leaves it open.
    #[must_use]
    pub fn expected_exit(&self) -> Option<i32> {
        match self.ending() {
            "exited" => self.exit_code().map(|code| code as i32),
            "timeout" | "stalled" | "output_limit" | "process_limit" | "disk_limit" => Some(124),
            "out_of_memory" => Some(137),
            "signaled" => signal_number(self.signal()).map(|number| 128 + number),
            "infra_error" => Some(125),
            _ => None,
        }
    }
}

fn signal_number(name: &str) -> Option<i32> {
    Some(match name {
        "SIGHUP" => 1,
        "SIGINT" => 2,
        "SIGQUIT" => 3,
        "SIGILL" => 4,
        "SIGTRAP" => 5,
        "SIGABRT" => 6,
        "SIGBUS" => 7,
        "SIGFPE" => 8,
        "SIGKILL" => 9,
        "SIGSEGV" => 11,
        "SIGPIPE" => 13,
        "SIGALRM" => 14,
        "SIGTERM" => 15,
        "SIGXCPU" => 24,
        "SIGXFSZ" => 25,
        "SIGSYS" => 31,
        _ => return None,
    })
}

/// What a payload said about the wall it probed: the last line of `text` that is a finding.
#[must_use]
pub fn finding(text: &str) -> Option<Value> {
    let lines = text.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.into_iter().find(|value| value["attack"].is_string() && value["result"].is_string())
}

#[cfg(test)]
mod tests {
    use super::{Outcome, finding};

    #[test]
    fn an_outcome_with_a_member_missing_is_refused() {
        let error = Outcome::parse(r#"{"run_id":"x","ending":"exited"}"#).expect_err("incomplete");
        assert!(error.contains("no member 'ok'"), "{error}");
        assert!(Outcome::parse("not json").is_err());
        assert!(Outcome::parse("{}\n{}").is_err());
    }

    #[test]
    fn the_last_finding_counts() {
        let text = "noise\n{\"attack\":\"A1-x\",\"result\":\"denied\",\"errno\":\"EPERM\"}\n\
                    {\"attack\":\"A1-x\",\"result\":\"succeeded\"}\n{\"made\":3}\n";
        assert_eq!(finding(text).expect("found")["result"], "succeeded");
        assert!(finding("nothing").is_none());
    }
}
