//! A table of attacks, and running its rows.
//!
//! Each row says what an attack must come to inside, and how its negative control shows that the
//! payload works: without that, a row proves nothing.

use std::io::Write;
use std::process::Command;
use std::time::Duration;

use crate::census::{Census, left_over};
use crate::command::{RunInvocation, Visitor, bare, hostile, hostile_arguments};
use crate::outcome::{Outcome, finding};
use crate::process::{FinishedProcess, StartedProcess, marked, new_marker, start};
use crate::scene::CanaryScene;
use crate::side_by_side::{AT_ONCE, side_by_side};
use crate::wait::until;

/// How long after the command line's end a process of its tree may still be seen: none, but for
/// this look.
const EXIT_TIMEOUT: Duration = Duration::from_millis(500);
/// Life of a bare payload that a control expects to live.
const BARE_LIFETIME: Duration = Duration::from_secs(2);
/// Latest a verdict may be, on a shared machine. The tight bound belongs to the benches.
const LATE_MS: f64 = 250.0;

/// What an attack must come to.
#[derive(Debug, Clone, Copy)]
pub enum Expect {
    /// The payload says so itself, and exits 0.
    Denied,
    /// Denied, or ended by one of these.
    DeniedOr(&'static [&'static str]),
    /// One of these endings, whatever the payload says.
    Ending(&'static [&'static str]),
    /// It may work, in a world of its own: the canaries and the census decide.
    NoEffect,
}

/// How it is shown that the payload works.
#[derive(Debug, Clone, Copy)]
pub enum NegativeControl {
    /// Unsandboxed: it leaves the host as it is. These arguments instead of the row's, where given.
    Bare(&'static [&'static str]),
    /// Unsandboxed, as a user without privileges.
    BareAs(u32),
    /// Sandboxed without these layers.
    Without(&'static [&'static str]),
    /// Sandboxed with these flags besides the row's.
    With(&'static [&'static str]),
    /// Unsandboxed: nothing ends it before its own end of life.
    Lives,
    /// Unsandboxed: something of it is alive after its first process has ended or was killed.
    Outlives,
    /// This control, where the host has what it needs; elsewhere the suite says that it was not
    /// had.
    Where(Need, &'static NegativeControl),
    /// No control can be had here, and why.
    Unavailable(&'static str),
}

/// What only some hosts have.
#[derive(Debug, Clone, Copy)]
pub enum Need {
    /// CAP_SYS_RESOURCE, which the root of a container may lack.
    RaisesLimits,
    /// A kernel with this path.
    Path(&'static str),
    /// A processor with more than one thread for each core.
    SharedCores,
}

impl Need {
    /// Whether this host has it.
    #[must_use]
    pub fn is_met(self) -> bool {
        match self {
            Need::RaisesLimits => may_raise_limits(),
            Need::Path(path) => std::path::Path::new(path).exists(),
            Need::SharedCores => {
                let active = std::fs::read_to_string("/sys/devices/system/cpu/smt/active");
                active.is_ok_and(|active| active.trim() == "1")
            }
        }
    }
}

fn may_raise_limits() -> bool {
    const CAP_SYS_RESOURCE: u64 = 24;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    bits.unwrap_or(0) >> CAP_SYS_RESOURCE & 1 == 1
}

/// One attack.
#[derive(Debug, Clone, Copy)]
pub struct AttackSpec {
    pub attack: &'static str,
    pub payload: &'static [&'static str],
    pub flags: &'static [&'static str],
    pub expect: Expect,
    pub control: NegativeControl,
}

/// A wall probed by a payload that a bare run shows to work.
#[must_use]
pub const fn wall(attack: &'static str, payload: &'static [&'static str]) -> AttackSpec {
    AttackSpec { attack, payload, flags: &[], expect: Expect::Denied, control: NegativeControl::Bare(&[]) }
}

impl AttackSpec {
    #[must_use]
    pub const fn flags(mut self, flags: &'static [&'static str]) -> Self {
        self.flags = flags;
        self
    }

    #[must_use]
    pub const fn expect(mut self, expect: Expect) -> Self {
        self.expect = expect;
        self
    }

    #[must_use]
    pub const fn control(mut self, control: NegativeControl) -> Self {
        self.control = control;
        self
    }

    /// As reports name it.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{} {}", self.attack, self.payload.join(" "))
    }

    /// The control that this host allows, or why there is none.
    fn possible_control(&self) -> Result<NegativeControl, String> {
        match self.control {
            NegativeControl::Where(need, _) if !need.is_met() => Err(format!("this host lacks {need:?}")),
            NegativeControl::Unavailable(why) => Err(why.into()),
            NegativeControl::Where(_, control) => Ok(*control),
            control => Ok(control),
        }
    }
}

/// Whether the payloads that multiply or eat memory may be run: only where limits hold and the
/// whole tree dies.
///
/// # Errors
/// What is missing.
pub fn cage_in_force() -> Result<(), String> {
    let limits = ["--wall", "20s", "--memory", "64M", "--processes", "16"];
    let (outcome, _) = RunInvocation::new().flags(&limits).command(&["/bin/true"]).outcome()?;
    let degraded = outcome.degraded();
    let limited = outcome.tier() == "T3" && !degraded.iter().any(|layer| layer.contains("cgroup"));
    let killable = ["K2", "K3"].contains(&outcome.kill_class());
    if limited && killable && outcome.ok() { Ok(()) } else { Err(format!("no cage: {}", outcome.0)) }
}

/// Runs every row and its control, [`AT_ONCE`] of them side by side.
///
/// # Panics
/// With a line for each row that was not as it should be.
pub fn check(attacks: &[AttackSpec]) {
    check_groups(attacks, AT_ONCE);
}

/// Runs every row and its control, one after the other: for rows that need what others would take
/// from them.
///
/// # Panics
/// With a line for each row that was not as it should be.
pub fn check_one_by_one(attacks: &[AttackSpec]) {
    check_groups(attacks, 1);
}

fn check_groups(attacks: &[AttackSpec], at_once: usize) {
    crate::honest::honest_run().unwrap_or_else(|error| panic!("before any attack: {error}"));
    let (mut failures, mut without_control) = (vec![], vec![]);
    for group in attacks.chunks(at_once) {
        let mut scenes: Vec<CanaryScene> = group.iter().map(|_| CanaryScene::new()).collect();
        let before = Census::take();
        failures.extend(side_by_side(group.iter().zip(&mut scenes), |(spec, scene)| {
            attack(spec, scene).map_err(|error| format!("{}: {error}", spec.name()))
        }));
        let left = left_over(&before, &[]);
        if !left.is_empty() {
            let names: Vec<String> = group.iter().map(AttackSpec::name).collect();
            failures.push(format!("{}: left behind {}", names.join(", "), left.join("; ")));
        }
        failures.extend(side_by_side(group.iter().zip(&mut scenes), |(spec, scene)| {
            let Ok(possible) = spec.possible_control() else { return Ok(()) };
            control(&spec.control(possible), scene)
                .map_err(|error| format!("{}: negative control: {error}", spec.name()))
        }));
        let why = |spec: &AttackSpec| Some(format!("{}: {}", spec.name(), spec.possible_control().err()?));
        without_control.extend(group.iter().filter_map(why));
    }
    print_notice(
        &format!("{} of {} rows without a control", without_control.len(), attacks.len()),
        &without_control,
    );
    assert!(failures.is_empty(), "{} of {} rows:\n{}", failures.len(), attacks.len(), failures.join("\n"));
}

/// Says in the test's output what was not done, one line for each.
pub fn print_notice(head: &str, lines: &[String]) {
    let lines: Vec<String> = lines.iter().map(|line| format!("\n  {line}")).collect();
    // A closed output only hides what was not done.
    let _ = writeln!(std::io::stderr(), "{head}{}", lines.concat());
}

/// Runs one row inside.
///
/// # Errors
/// What was not as it should be.
pub fn attack(spec: &AttackSpec, scene: &mut CanaryScene) -> Result<Outcome, String> {
    attack_by(RunInvocation::new(), spec, scene)
}

/// Runs one row inside, by an invocation that may already have a user of its own.
///
/// # Errors
/// What was not as it should be.
pub fn attack_by(run: RunInvocation, spec: &AttackSpec, scene: &mut CanaryScene) -> Result<Outcome, String> {
    let run = prepared(run, spec, scene);
    let marker = run.marker.clone();
    let (outcome, finished) = run.outcome()?;
    expected(spec, &outcome)?;
    bounded(spec, &outcome, &finished)?;
    let mut alive = vec![];
    let dead = until(EXIT_TIMEOUT, || {
        alive = marked(&marker);
        alive.is_empty()
    });
    if !dead {
        return Err(format!("still alive: {alive:?}; the outcome says {}", outcome.0["tree"]));
    }
    match scene.reached() {
        reached if reached.is_empty() => Ok(outcome),
        reached => Err(reached.join(", ")),
    }
}

fn prepared(run: RunInvocation, spec: &AttackSpec, scene: &CanaryScene) -> RunInvocation {
    let payload: Vec<String> = spec.payload.iter().map(|part| scene.fill(part)).collect();
    let mut flags: Vec<String> = spec.flags.iter().map(|part| scene.fill(part)).collect();
    if !flags.iter().any(|flag| flag == "--wall") {
        flags.extend(["--wall".into(), "20s".into()]);
    }
    run.flags(&flags).hostile(&payload)
}

fn expected(spec: &AttackSpec, outcome: &Outcome) -> Result<(), String> {
    let reported = finding(outcome.stdout());
    let denied = reported.as_ref().is_some_and(|reported| reported["result"] == "denied") && outcome.ok();
    let ended_by = |endings: &[&str]| endings.contains(&outcome.ending());
    let holds = match spec.expect {
        Expect::Denied => denied,
        Expect::DeniedOr(endings) => denied || ended_by(endings),
        Expect::Ending(endings) => ended_by(endings),
        Expect::NoEffect => ended_by(&["exited"]),
    };
    if holds { Ok(()) } else { Err(format!("expected {:?}, got {}", spec.expect, outcome.0)) }
}

/// What holds for every Outcome.
fn bounded(spec: &AttackSpec, outcome: &Outcome, finished: &FinishedProcess) -> Result<(), String> {
    if finished.pipe_held {
        return Err("a pipe of the command line was still open after its end".into());
    }
    if outcome.survivors() != Some(0) && outcome.proof() != "pending" {
        return Err(format!("survivors: {}", outcome.0["tree"]));
    }
    let by_itself = ["exited", "signaled"].contains(&outcome.ending());
    if !by_itself && (outcome.limit().is_empty() || outcome.sentence().is_empty()) {
        return Err(format!("no verdict that says why: {}", outcome.0));
    }
    let kind = if spec.flags.contains(&"--cpu") { "cpu" } else { "wall" };
    if outcome.ending() == "timeout" && outcome.limit() != kind {
        return Err(format!(
            "ended by '{}' where the {kind} limit comes first: {}",
            outcome.limit(),
            outcome.0
        ));
    }
    match outcome.late_ms() {
        Some(late) if late > LATE_MS => Err(format!("{} ms late in {}", late, spec.name())),
        _ => Ok(()),
    }
}

fn control(spec: &AttackSpec, scene: &mut CanaryScene) -> Result<(), String> {
    match spec.control {
        NegativeControl::Without(layers) => {
            let visitor = layers.contains(&"mount").then(|| Visitor::new(0));
            let run = visitor
                .as_ref()
                .map_or_else(RunInvocation::new, |visitor| RunInvocation::new().with_binaries_of(visitor));
            let (outcome, _) = prepared(run, spec, scene).without(layers).outcome()?;
            shown_in(&outcome)
        }
        NegativeControl::With(flags) => {
            let (outcome, _) = prepared(RunInvocation::new(), spec, scene).flags(flags).outcome()?;
            shown_in(&outcome)
        }
        _ => bare_control(spec, scene),
    }
}

/// Runs the negative control of a row whose control is bare.
fn bare_control(spec: &AttackSpec, scene: &mut CanaryScene) -> Result<(), String> {
    let fill = |parts: &[&str]| -> Vec<String> { parts.iter().map(|part| scene.fill(part)).collect() };
    let Ok(possible) = spec.possible_control() else { return Ok(()) };
    let reported = match possible {
        NegativeControl::Bare([]) => bare_finding(&fill(spec.payload), None),
        NegativeControl::Bare(instead) => bare_finding(&fill(instead), None),
        NegativeControl::BareAs(user) => bare_finding(&fill(spec.payload), Some(user)),
        NegativeControl::Lives => return lives(&fill(spec.payload)),
        NegativeControl::Outlives => return outlives(&fill(spec.payload)),
        NegativeControl::Without(_)
        | NegativeControl::With(_)
        | NegativeControl::Where(..)
        | NegativeControl::Unavailable(_) => {
            return Ok(());
        }
    }?;
    // What the payload reached is reached on purpose; look, so that the next row starts quiet. A
    // process that was sent SIGKILL takes a moment to be dead.
    if spec.payload.contains(&"{canary}") && shown(&reported).is_ok() {
        until(Duration::from_secs(5), || !scene.reached().is_empty());
    }
    let _ = scene.reached();
    shown(&reported)
}

/// Whether a finding shows that the payload works. A kernel without the thing at all has no wall to
/// test; every other refusal means that the payload is wrong.
fn shown(reported: &serde_json::Value) -> Result<(), String> {
    const ABSENT: &[&str] = &["ENOSYS", "ENODEV", "EAFNOSUPPORT", "EPROTONOSUPPORT"];
    let absent = reported["errno"].as_str().is_some_and(|errno| ABSENT.contains(&errno));
    if reported["result"] == "succeeded" || absent {
        Ok(())
    } else {
        Err(format!("the payload got {reported}"))
    }
}

fn shown_in(outcome: &Outcome) -> Result<(), String> {
    shown(&finding(outcome.stdout()).ok_or(format!("no finding: {}", outcome.0))?)
}

/// Bare, with a short life of its own.
fn bare_start(payload: &[String], marker: &str) -> StartedProcess {
    let mut command = Command::new(hostile());
    command.args(hostile_arguments(marker, BARE_LIFETIME, payload));
    start(&mut command, vec![], 3 * BARE_LIFETIME)
}

fn lives(payload: &[String]) -> Result<(), String> {
    let marker = new_marker();
    let elapsed = bare_start(payload, &marker).finish().elapsed;
    end_all(&marker);
    if elapsed >= BARE_LIFETIME / 2 { Ok(()) } else { Err(format!("it ended by itself after {elapsed:?}")) }
}

fn outlives(payload: &[String]) -> Result<(), String> {
    let marker = new_marker();
    let started = bare_start(payload, &marker);
    until(BARE_LIFETIME / 4, || started.has_ended());
    started.signal(rustix::process::Signal::KILL);
    let stayed = marked(&marker).into_iter().any(|process| process.pid != started.pid());
    end_all(&marker);
    drop(started);
    if stayed { Ok(()) } else { Err("nothing of it stayed".into()) }
}

fn end_all(marker: &str) {
    until(BARE_LIFETIME, || {
        let alive = marked(marker);
        alive.iter().for_each(|process| process.signal(rustix::process::Signal::KILL));
        alive.is_empty()
    });
}

fn bare_finding(payload: &[String], user: Option<u32>) -> Result<serde_json::Value, String> {
    let finished = bare(payload, user);
    let describe_failure = || format!("no finding: {:?} {}", finished.code(), finished.errors());
    finding(&finished.text()).ok_or_else(describe_failure)
}
