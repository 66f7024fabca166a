//! `sandtimer progress 8/15`: reports, from inside a run, how far it is.

use std::process::ExitCode;

use sandtimer::engine::PROGRESS_VARIABLE;
use sandtimer::progress::ProgressReport;
use sandtimer_os::process::inherited;
use serde_json::json;

use super::CommandFailure;
use crate::args::ProgressArguments;

pub(crate) fn main(given: &ProgressArguments) -> Result<ExitCode, CommandFailure> {
    let line = line(&given.done, given.unit.as_deref())?;
    let Some(named) = std::env::var_os(PROGRESS_VARIABLE) else { return Ok(ExitCode::SUCCESS) };
    let number = named.to_str().and_then(|number| number.parse().ok());
    let refuse = || {
        let named = named.to_string_lossy();
        CommandFailure::usage(format!(
            "{PROGRESS_VARIABLE} `{named}` names no open descriptor; leave it as Sandtimer set it"
        ))
    };
    let channel = number.and_then(|number| inherited(number).ok()).ok_or_else(refuse)?;
    // One write: lines of several processes do not mix.
    rustix::io::write(&channel, line.as_bytes()).map_err(CommandFailure::system("cannot report progress"))?;
    Ok(ExitCode::SUCCESS)
}

/// The report's line.
fn line(done: &str, unit: Option<&str>) -> Result<String, CommandFailure> {
    let refuse = || {
        let remedy = "use what is done and of how much, such as `8/15`, or what is done, such as `8`";
        CommandFailure::usage(format!("`{done}` is not a progress; {remedy}"))
    };
    let number = |text: &str| text.trim().parse::<f64>().map_err(|_| refuse());
    let mut report = match done.split_once('/') {
        Some((done, total)) => json!({"done": number(done)?, "total": number(total)?}),
        None => json!({"done": number(done)?}),
    };
    if let Some(unit) = unit {
        report["unit"] = unit.into();
    }
    let line = report.to_string();
    ProgressReport::parse(line.as_bytes()).ok_or_else(refuse)?;
    Ok(line + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_written_as_a_report() {
        let written = line("8/15", Some("epoch")).unwrap();
        let report = ProgressReport::parse(written.trim_end().as_bytes()).unwrap();
        assert_eq!(report, ProgressReport { done: 8.0, total: Some(15.0), unit: Some("epoch".to_owned()) });
        let report = ProgressReport::parse(line("7.5", None).unwrap().trim_end().as_bytes()).unwrap();
        assert_eq!(report, ProgressReport { done: 7.5, total: None, unit: None });
    }

    #[test]
    fn what_is_no_progress_is_refused_with_what_would_be() {
        for wrong in ["", "x", "8/", "/15", "16/15", "-1/15", "0/0", "nan", "inf/inf", "8/15/3", "1e300"] {
            let message = line(wrong, None).unwrap_err().message;
            assert!(message.contains("such as `8/15`"), "{wrong}: {message}");
        }
        assert!(line("1/2", Some(&"x".repeat(5000))).is_err());
    }
}
