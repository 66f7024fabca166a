//! What is written to `--info-fd` and `--json-status-fd`.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;

use sandtimer::model::Outcome;
use sandtimer_bwrap::{BwrapFailure, BwrapOptions};
use sandtimer_os::process::inherited;
use serde_json::json;

/// The descriptors to write to.
#[derive(Debug)]
pub(super) struct StatusDescriptors {
    info: Option<i32>,
    json: Option<i32>,
    /// Names of the namespaces that were asked for, as in /proc/PID/ns.
    namespaces: Vec<&'static str>,
}

impl StatusDescriptors {
    pub(super) fn of(options: &BwrapOptions) -> Self {
        let request = options.unshared;
        let cgroup = request.cgroup || request.cgroup_try;
        let list = [
            ("cgroup", cgroup),
            ("ipc", request.ipc),
            ("mnt", true),
            ("net", request.net),
            ("pid", request.pid),
            ("uts", request.uts),
        ];
        let namespaces = list.into_iter().filter(|(_, is_asked)| *is_asked).map(|(name, _)| name).collect();
        StatusDescriptors {
            info: options.descriptors.info,
            json: options.descriptors.json_status,
            namespaces,
        }
    }

    /// The numbers that this process keeps for it.
    pub(super) fn numbers(&self) -> Vec<i32> {
        [self.info, self.json].into_iter().flatten().collect()
    }

    /// The setup was started, in its namespaces.
    pub(super) fn report_start(&self, pid: i32) -> Result<(), BwrapFailure> {
        if self.numbers().is_empty() {
            return Ok(());
        }
        let mut fields = vec![format!("\"child-pid\": {pid}")];
        for name in &self.namespaces {
            if let Ok(found) = std::fs::metadata(format!("/proc/{pid}/ns/{name}")) {
                fields.push(format!("\"{name}-namespace\": {}", found.ino()));
            }
        }
        let cannot = |error: std::io::Error| BwrapFailure::because("Write to info_fd", error);
        if let Some(number) = self.info {
            let text = format!("{{\n    {}\n}}\n", fields.join(",\n    "));
            write(number, &text).map_err(cannot)?;
            sandtimer_os::descriptors::close_inherited(number);
        }
        if let Some(number) = self.json {
            write(number, &format!("{{ {} }}\n", fields.join(", "))).map_err(cannot)?;
        }
        Ok(())
    }

    /// The command, if it was executed, has ended.
    pub(super) fn report_end(&self, exit_code: u8, is_executed: bool, outcome: Option<&Outcome>) {
        let Some(number) = self.json else { return };
        let mut text = String::new();
        if is_executed {
            text.push_str(&format!("{{ \"exit-code\": {exit_code} }}\n"));
        }
        if let Some(outcome) = outcome {
            text.push_str(&format!("{}\n", json!({ "outcome": outcome })));
        }
        // A reader that is gone misses it.
        let _ = write(number, &text);
    }
}

fn write(number: i32, text: &str) -> std::io::Result<()> {
    File::from(inherited(number)?).write_all(text.as_bytes())
}
