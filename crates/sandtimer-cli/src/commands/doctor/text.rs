//! The doctor's report for people: aligned, wrapped, and readable without knowing Sandtimer.

use sandtimer::model::{KillClass, Tier};

use super::report::{DoctorReport, LayerFinding, LayerStatus};

/// Columns of a line, and of its left part.
const WIDTH: usize = 110;
const LEFT: usize = 32;

const BOLD: &str = "1";
const GREEN: &str = "32";
const YELLOW: &str = "33";
const RED: &str = "31";

struct Page {
    text: String,
    colours: bool,
}

impl Page {
    fn paint(&self, colour: &str, text: &str) -> String {
        if self.colours { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn heading(&mut self, text: &str) {
        let painted = self.paint(BOLD, text);
        self.text.push_str(&painted);
        self.text.push('\n');
    }

    /// A line of two columns; `left` may carry colours, `width` is its visible width.
    fn push_columns(&mut self, left: &str, width: usize, right: &str) {
        self.text.push_str(left);
        self.text.push_str(&" ".repeat(LEFT.saturating_sub(width).max(1)));
        let mut lines = right.lines().flat_map(|line| wrap(line, WIDTH - LEFT));
        self.text.push_str(&lines.next().unwrap_or_default());
        self.text.push('\n');
        for line in lines {
            self.text.push_str(&" ".repeat(LEFT));
            self.text.push_str(&line);
            self.text.push('\n');
        }
    }

    fn named(&mut self, name: &str, right: &str) {
        let left = format!("  {name}");
        self.push_columns(&left, left.len(), right);
    }

    fn layer(&mut self, layer: &LayerFinding) {
        let (label, colour) = match layer.status {
            LayerStatus::Ok => ("ok", GREEN),
            LayerStatus::Degraded => ("degraded", YELLOW),
            LayerStatus::Missing => ("missing", RED),
        };
        let left = format!("  {}{} {}", self.paint(colour, label), " ".repeat(8 - label.len()), layer.layer);
        self.push_columns(&left, 11 + layer.layer.len(), &layer.evidence);
        if !layer.consequence.is_empty() {
            self.push_columns("", 0, &format!("Means: {}", layer.consequence));
        }
        if !layer.remedy.is_empty() {
            self.push_columns("", 0, &format!("Remedy: {}", layer.remedy));
        }
    }
}

/// Breaks a line at spaces. Leading spaces stay, and so does a word that is longer than the line.
fn wrap(line: &str, width: usize) -> Vec<String> {
    let indent = line.len() - line.trim_start().len();
    let mut lines = Vec::new();
    let mut current = " ".repeat(indent);
    let mut token_count = 0;
    for token in line.split_whitespace() {
        if token_count > 0 && current.chars().count() + 1 + token.chars().count() > width {
            lines.push(std::mem::replace(&mut current, " ".repeat(indent)));
            token_count = 0;
        }
        if token_count > 0 {
            current.push(' ');
        }
        current.push_str(token);
        token_count += 1;
    }
    lines.push(current);
    lines
}

fn describe_tier(tier: Tier) -> &'static str {
    match tier {
        Tier::T3 => "T3  namespaces, cgroup limits, Landlock and seccomp, not root: the strongest",
        Tier::T2 => {
            "T2  namespaces, Landlock and seccomp; memory and process limits are not kept by the kernel's cgroups"
        }
        Tier::T1 => "T1  Landlock and seccomp only: no namespaces",
        Tier::T0 => "T0  resource limits and a process group only: not for code you do not trust",
    }
}

fn describe_kill_class(kill: KillClass) -> &'static str {
    match kill {
        KillClass::K3 => "K3  cgroup.kill: the kernel ends the whole tree at once",
        KillClass::K2 => "K2  the pid namespace: when its first process dies, all of it does",
        KillClass::K1 => "K1  a sweep: the processes that a run left are searched for and killed",
        KillClass::K0 => "K0  the process group: a process can leave it and live on",
    }
}

fn measured(page: &mut Page, report: &DoctorReport) {
    let measured = &report.measured;
    if let (Some(median), Some(fastest), Some(slowest)) =
        (measured.cold_start_p50_ms, measured.cold_start_min_ms, measured.cold_start_max_ms)
    {
        let runs = measured.cold_start_runs;
        page.named(
            "cold start",
            &format!("{median:.2} ms, median of {runs} runs of /bin/true, to the outcome ({fastest:.2} to {slowest:.2})"),
        );
    }
    if let Some(late) = measured.verdict_late_ms {
        let dead = measured
            .dead_after_ms
            .map_or_else(|| "not confirmed".to_owned(), |ms| format!("proven {ms} ms after the kill"));
        page.named(
            "lateness",
            &format!("{late:.3} ms, one wall-clock limit; death of the whole tree {dead}"),
        );
    }
    page.named(
        "suggested runs at a time",
        &format!(
            "{} that compute (one for each processor), {} that mostly wait",
            measured.suggested_runs, measured.suggested_waiting_runs
        ),
    );
}

/// The whole report.
pub(super) fn render(report: &DoctorReport, colours: bool) -> String {
    let mut page = Page { text: String::new(), colours };
    page.heading("What Sandtimer can enforce on this machine");
    let none = "none: no engine could be started";
    page.named("tier", report.tier.map_or(none, describe_tier));
    page.named("kill class", report.kill.map_or(none, describe_kill_class));
    let armed =
        if report.deadline_layers.is_empty() { none.to_owned() } else { report.deadline_layers.join(", ") };
    page.named("armed deadline layers", &armed);
    page.text.push('\n');
    page.heading("Layers");
    for layer in &report.layers {
        page.layer(layer);
    }
    page.text.push('\n');
    page.heading("Measured");
    measured(&mut page, report);
    let count = |status| report.layers.iter().filter(|layer| layer.status == status).count();
    let (degraded, missing) = (count(LayerStatus::Degraded), count(LayerStatus::Missing));
    page.text.push_str(&format!(
        "\n{} layers checked: {} ok, {degraded} degraded, {missing} missing.\n",
        report.layers.len(),
        count(LayerStatus::Ok),
    ));
    page.text
}

#[cfg(test)]
mod tests {
    use super::super::report::MeasuredTimes;
    use super::*;

    fn sample() -> DoctorReport {
        let layer = LayerFinding::missing("landlock", "landlock_create_ruleset: ENOSYS")
            .consequence("no second wall")
            .remedy("boot with\n  lsm=landlock");
        let (tier, kill) = (Some(Tier::T2), Some(KillClass::K3));
        DoctorReport {
            tier,
            kill,
            deadline_layers: vec!["enforcer".to_owned()],
            layers: vec![layer],
            measured: MeasuredTimes::default(),
        }
    }

    #[test]
    fn columns_are_aligned_and_lines_are_short() {
        let text = render(&sample(), false);
        assert!(!text.contains('\x1b'));
        assert!(text.contains("  missing  landlock             landlock_create_ruleset: ENOSYS"), "{text}");
        assert!(text.contains("\n                                  lsm=landlock"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    }

    #[test]
    fn colours_change_nothing_but_the_colour() {
        let mut plain = render(&sample(), true);
        for code in [BOLD, GREEN, YELLOW, RED, "0"] {
            plain = plain.replace(&format!("\x1b[{code}m"), "");
        }
        assert_eq!(plain, render(&sample(), false));
    }
}
