//! The harness itself: payloads do what they say when nothing stops them, and the census sees what
//! is left.
//!
//! Only payloads that leave the host as it is run here, bare and bounded.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use sandtimer_tests::attack::AttackSpec;
use sandtimer_tests::attack_list::{ALL, BOMBS};
use sandtimer_tests::census::{Census, left_over};
use sandtimer_tests::command::{bare, hostile};
use sandtimer_tests::outcome::finding;
use sandtimer_tests::process::{ProcessStat, marked, new_marker, start};
use sandtimer_tests::wait::{alone, now, until};

fn payload(parts: &[&str]) -> Vec<String> {
    parts.iter().map(|part| (*part).to_string()).collect()
}

fn attacks() -> impl Iterator<Item = &'static AttackSpec> {
    ALL.iter().copied().chain([BOMBS]).flatten()
}

#[test]
fn list_is_json_and_attacks_name_its_payloads() {
    let finished = bare(&payload(&["list"]), None);
    let list: serde_json::Value = serde_json::from_slice(&finished.stdout).expect("JSON");
    let payloads = list.as_array().expect("an array");
    let names: BTreeSet<&str> = payloads.iter().filter_map(|spec| spec["name"].as_str()).collect();
    assert_eq!(names.len(), payloads.len(), "a name is given twice");
    for spec in attacks() {
        assert!(names.contains(spec.payload[0]), "{} names no payload", spec.payload[0]);
    }
}

#[test]
fn payloads_that_would_harm_the_host_refuse_to_run_on_it() {
    let _alone = alone("refusals", Duration::from_secs(60));
    for parts in [
        &["fork-bomb", "4"][..],
        &["thread-bomb", "4"],
        &["zombies", "4"],
        &["memory", "1M"],
        &["hold-memory", "1M"],
        &["refusals", "1"],
        &["crashes", "1"],
        &["kill-all"],
        &["stop-init"],
        &["clock-settime"],
        &["random-syscalls", "1", "1"],
        &["prlimit-init"],
        &["affinity-init"],
        &["proc-environ"],
        &["proc-environ", "0"],
        &["setns"],
        &["signal-probe", "1"],
    ] {
        let finished = bare(&payload(parts), None);
        assert_eq!(finished.code(), Some(3), "{parts:?}: {}", finished.text());
    }
}

#[test]
fn a_payload_dies_by_itself_even_stopped_or_deaf() {
    let _alone = alone("lives", Duration::from_secs(60));
    for name in ["stop-self", "ignore-signals", "sleep", "setsid-shuffle", "daemon"] {
        let marker = new_marker();
        let mut command = Command::new(hostile());
        command.args(["--life", "1", "--marker", &marker, name]);
        let started = start(&mut command, vec![], Duration::from_secs(10));
        let gone = until(Duration::from_secs(4), || started.has_ended() && marked(&marker).is_empty());
        assert!(gone, "{name} outlived its life: {:?}", marked(&marker));
    }
}

#[test]
fn the_hard_stop_of_a_started_process_holds() {
    let _alone = alone("hard stop", Duration::from_secs(30));
    let mut command = Command::new(hostile());
    command.args(["--life", "20", "ignore-signals"]);
    let finished = start(&mut command, vec![], Duration::from_millis(300)).finish();
    assert!(finished.status.is_none() && finished.elapsed < Duration::from_secs(5), "{finished:?}");
}

#[test]
fn pipe_held_after_end_is_detected_and_not_waited_for() {
    let _alone = alone("held pipe", Duration::from_secs(30));
    let mut command = Command::new(hostile());
    command.args(["--life", "8", "hold-pipe", "7"]);
    let begun = now();
    let finished = start(&mut command, vec![], Duration::from_secs(10)).finish();
    assert!(finished.pipe_held && now() - begun < Duration::from_secs(7), "{finished:?}");
}

#[test]
fn census_finds_leftover_daemon_and_segment() {
    let _alone = alone("census", Duration::from_secs(60));
    let before = Census::take();
    assert_eq!(left_over(&before, &[]), Vec::<String>::new());
    let marker = new_marker();
    let mut command = Command::new(hostile());
    command.args(["--life", "6", "--marker", &marker, "daemon"]);
    let finished = start(&mut command, vec![], Duration::from_secs(10)).finish();
    let daemon = finding(&finished.text()).expect("a finding")["daemon"].as_u64().expect("a pid") as u32;
    let left = left_over(&before, &[]).join("\n");
    assert!(left.contains(&format!("process {daemon} ")), "the daemon is not in:\n{left}");
    if let Some(process) = ProcessStat::read(daemon) {
        process.signal(rustix::process::Signal::KILL);
    }
    let segment = finding(&bare(&payload(&["sysv-shm", "4096"]), None).text()).expect("a finding");
    let detail = segment["detail"].as_str().expect("a segment");
    let left = left_over(&before, &[]).join("\n");
    let id: i32 = detail.trim_start_matches("segment ").parse().expect("a number");
    // SAFETY: the segment is the one just made, and nobody has it mapped.
    unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) };
    assert!(left.contains("System V shm"), "the segment is not in:\n{left}");
    assert_eq!(left_over(&before, &[]), Vec::<String>::new());
}

#[test]
fn inherited_descriptor_is_detected() {
    let _alone = alone("descriptors", Duration::from_secs(30));
    let file = std::fs::File::open("/dev/null").expect("the null device");
    let copy = rustix::io::dup(&file).expect("a descriptor that exec keeps");
    let reported = finding(&bare(&payload(&["open-fds"]), None).text()).expect("a finding");
    assert_eq!(reported["result"], "succeeded", "{reported}");
    drop(copy);
}
