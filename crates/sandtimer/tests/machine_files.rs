//! What runs read of the machine in /proc and /sys: their own processors and memory, and nothing of
//! the rest.
#![allow(clippy::disallowed_methods)] // the control is not a run, and some tests start as another user

use crate::as_user;
use crate::programs;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use as_user::as_a_user;
use programs::program;
use sandtimer::engine::{CallEvent, CallHandle, CallSpec, CellSpec, ContextSpec, Engine, Spec};
use sandtimer::model::{LimitKind, Tier};
use sandtimer::zygote::Profile;
use sandtimer::{Limits, Outcome};

/// Files of /proc that runs are shown, besides those of processes.
const SHOWN_FILES: [&str; 8] =
    ["cpuinfo", "filesystems", "loadavg", "meminfo", "mounts", "net", "stat", "uptime"];

/// Tries to open, list and stat each of these names, and prints those that it could.
const TRY_ALL: &str = "
import os, sys
def can(name):
    for flags in (os.O_RDONLY | os.O_NONBLOCK, os.O_PATH, os.O_PATH | os.O_NOFOLLOW):
        try: os.close(os.open(name, flags)); return True
        except FileNotFoundError: pass
        except OSError as error: return True
    for look in (os.lstat, os.listdir, os.readlink):
        try: look(name); return True
        except FileNotFoundError: pass
        except OSError: return True
    return False
print(*(name for name in sys.argv[1:] if can(name)))
";

fn limited(command: &[&str]) -> Spec {
    Spec::command(command).limits(Limits::new().wall(Duration::from_secs(60)).memory(256 << 20))
}

fn run(engine: &Engine, command: &[&str]) -> Arc<Outcome> {
    engine.run_blocking(limited(command)).expect("a run")
}

fn shell(engine: &Engine, line: &str) -> String {
    let outcome = run(engine, &["/bin/sh", "-c", line]);
    assert!(outcome.ok, "{line}: {outcome:?}");
    outcome.stdout.clone()
}

/// Names in the host's /proc, and some below its directories.
fn names_of_host() -> Vec<String> {
    let entries = fs::read_dir("/proc").expect("the host's /proc").flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let is_of_process =
        |name: &str| name.starts_with(|first: char| first.is_ascii_digit()) || name.ends_with("self");
    let mut names: Vec<String> =
        names.filter(|name| !is_of_process(name) && !SHOWN_FILES.contains(&name.as_str())).collect();
    names.extend(["sys/kernel/hostname", "sys/net/ipv4/ip_forward", "bus/pci", "irq/0"].map(str::to_owned));
    names.into_iter().map(|name| format!("/proc/{name}")).collect()
}

/// What is in force for the rest of the suite: where there are no namespaces, /proc is the host's.
fn engine_with_namespaces() -> Option<Engine> {
    let engine = Engine::new().expect("an engine");
    let has_namespaces = engine.host().expect("a host").has_namespaces();
    has_namespaces.then_some(engine)
}

/// Twice: the second run uses the template of its root.
fn check_absent() {
    let Some(engine) = engine_with_namespaces() else { return };
    let names = names_of_host();
    let mut command = vec!["/usr/bin/python3", "-c", TRY_ALL];
    command.extend(names.iter().map(String::as_str));
    for _ in 0..3 {
        let outcome = run(&engine, &command);
        assert_eq!(outcome.stdout.trim(), "", "{outcome:?}");
        assert!(outcome.ok && outcome.isolation.tier >= Tier::T2, "{outcome:?}");
        let layers = outcome.isolation.degraded.iter().map(|degraded| degraded.layer.as_str());
        assert!(!layers.into_iter().any(|layer| layer.contains("/proc")), "{outcome:?}");
    }
    // The control: outside the same program opens them.
    let output = Command::new(command[0]).args(&command[1..]).output().expect("it starts");
    let found = String::from_utf8_lossy(&output.stdout).split_whitespace().count();
    assert!(found > 15 && found + 4 >= names.len(), "{found} of {}", names.len());
}

#[test]
fn host_wide_entries_of_proc_cannot_be_opened() {
    check_absent();
}

#[test]
fn host_wide_entries_of_proc_cannot_be_opened_by_users_run() {
    if !as_a_user("host_wide_entries_of_proc_cannot_be_opened_by_users_run") {
        check_absent();
    }
}

fn check_tools() {
    let Some(engine) = engine_with_namespaces() else { return };
    let processors = shell(&engine, "nproc").trim().to_owned();
    for _ in 0..2 {
        let total = shell(&engine, "cat /proc/meminfo");
        assert!(total.starts_with("MemTotal:") && total.contains(" 262144 kB"), "{total}");
        assert_eq!(shell(&engine, "grep -c ^processor /proc/cpuinfo").trim(), processors);
        assert_eq!(shell(&engine, "grep -c '^cpu[0-9]' /proc/stat").trim(), processors);
        assert_eq!(
            shell(&engine, "cat /sys/devices/system/cpu/online"),
            shell(&engine, "cat /sys/devices/system/cpu/present")
        );
        assert_eq!(shell(&engine, "head -c 15 /proc/loadavg"), "0.00 0.00 0.00 ");
    }
    let table = shell(&engine, "sleep 1; ps aux");
    assert!(table.contains("ps aux") && table.starts_with("USER"), "{table}");
    // Two digits of seconds: neither before the machine was started nor after now.
    let elapsed = shell(&engine, "sleep 2; ps -o etimes= -p $$").trim().parse::<u64>().expect("seconds");
    assert!((1..60).contains(&elapsed), "{elapsed}");
    let free = shell(&engine, "free -k");
    assert!(free.contains(" 262144 ") && free.contains("Swap:"), "{free}");
    assert!(shell(&engine, "uptime").contains("load average: 0.00"));
    let listed = shell(&engine, "lscpu");
    assert!(
        listed.lines().any(|line| line.starts_with("CPU(s):") && line.ends_with(&processors)),
        "{listed}"
    );
    assert!(
        shell(&engine, "head -3 /proc/net/dev; head -1 /proc/mounts; cat /proc/filesystems").contains("lo:")
    );
}

#[test]
fn tools_show_limits_of_run() {
    check_tools();
}

#[test]
fn tools_show_limits_of_users_run() {
    if !as_a_user("tools_show_limits_of_users_run") {
        check_tools();
    }
}

#[test]
fn run_without_memory_limit_is_shown_the_machine() {
    let Some(engine) = engine_with_namespaces() else { return };
    let spec = Spec::command(["cat", "/proc/meminfo"]);
    let outcome =
        engine.run_blocking(spec.limits(Limits::new().unlimited(LimitKind::Memory))).expect("a run");
    let shown: u64 = outcome.stdout.split_whitespace().nth(1).expect("a size").parse().expect("a number");
    let machine = sandtimer::engine::machine_memory() >> 10;
    assert!(shown <= machine && shown > machine / 10 * 7, "{shown} of {machine}");
}

#[test]
fn files_of_machine_are_read_only_and_stay() {
    let Some(engine) = engine_with_namespaces() else { return };
    let files = ["cpuinfo", "loadavg", "meminfo", "stat"];
    let mounts = shell(&engine, "cat /proc/self/mountinfo");
    for file in files {
        let line = mounts.lines().find(|line| line.contains(&format!(" /proc/{file} ")));
        let line = line.unwrap_or_else(|| panic!("{file}: {mounts}"));
        assert!(line.contains(" ro,nosuid,nodev,noexec"), "{line}");
        let change = format!(
            "! echo x > /proc/{file} && ! rm -f /proc/{file} && ! umount /proc/{file} && ! mv /proc/{file} /tmp/x \
             && ! touch /proc/{file} && ! chmod 666 /proc/{file}"
        );
        shell(&engine, &format!("{{ {change}; }} 2>/dev/null"));
    }
    let whole = mounts.lines().find(|line| line.contains(" /proc ")).expect("a /proc");
    assert!(whole.contains("subset=pid") && whole.contains(" rw,nosuid,nodev,noexec"), "{whole}");
    let has_uids = rustix::process::getuid().is_root();
    assert!(!has_uids || whole.contains("hidepid=invisible"), "{whole}");
}

#[test]
fn calls_of_one_pool_are_shown_limits_of_their_own() {
    let Some(engine) = engine_with_namespaces() else { return };
    let profile = Profile { interpreter: "python3".into(), ..Profile::default() };
    let calls = engine.calls(profile, 1).expect("a pool");
    const READ: &str = "print(open('/proc/meminfo').read().split()[1], len(open('/proc/meminfo').read()))\n1";
    let mut lengths = Vec::new();
    for mebibytes in [256, 256, 4096, 128, 256] {
        let spec = CallSpec { limits: Limits::new().memory(mebibytes << 20), ..program(READ) };
        let call: CallHandle = calls.call(spec, &mut || false).expect("a call");
        assert!(
            matches!(call.wait().expect("no signal comes here"), CallEvent::Answer(answer) if call.accept(answer.kind))
        );
        let outcome = call.run().settled_blocking();
        let (shown, length) = outcome.stdout.trim().split_once(' ').expect("two numbers");
        assert_eq!(shown, (mebibytes << 10).to_string(), "{outcome:?}");
        lengths.push(length.to_owned());
    }
    assert!(lengths.iter().all(|length| *length == lengths[0]), "{lengths:?}");
}

#[test]
fn context_is_shown_its_limit() {
    let Some(engine) = engine_with_namespaces() else { return };
    let profile = Profile { interpreter: "python3".into(), live: true, ..Profile::default() };
    let contexts = engine.contexts(profile, 1).expect("a pool");
    let spec = ContextSpec { limits: Limits::new().memory(300 << 20), ..ContextSpec::default() };
    let context = contexts.open(spec, &mut || false).expect("a context");
    let cell = CellSpec {
        source: "print(open('/proc/meminfo').read().split()[1])".to_owned(),
        limits: Limits::new().wall(Duration::from_secs(20)),
        ..CellSpec::default()
    };
    let outcome = context.execute(cell, &mut |_| {}).expect("a run");
    assert_eq!(outcome.stdout, "307200\n", "{outcome:?}");
}

/// Without root a procfs can be mounted only where the caller's own is whole.
fn check_masked() {
    let Some(engine) = engine_with_namespaces() else { return };
    let names = names_of_host();
    let mut command = vec!["/usr/bin/python3", "-c", TRY_ALL];
    command.extend(names.iter().map(String::as_str));
    let outcome = run(&engine, &command);
    assert_eq!(outcome.stdout.trim(), "", "{outcome:?}");
    let degraded = &outcome.isolation.degraded;
    for layer in ["files of the machine in /proc", "mount /proc"] {
        assert!(degraded.iter().any(|one| one.layer == layer), "{layer}: {degraded:?}");
    }
    assert!(shell(&engine, "ls /proc; cat /proc/meminfo").contains("MemTotal:"));
}

#[test]
fn masked_proc_is_reported_and_shows_nothing_of_host() {
    const MASKED: &str = "SANDTIMER_TEST_MASKED_PROC";
    const MASK: &str = "mount --make-rprivate / && mount --bind /dev/null /proc/interrupts && exec setpriv --reuid 1234 --regid 1234 \
                        --clear-groups \"$0\" --exact machine_files::masked_proc_is_reported_and_shows_nothing_of_host --nocapture";
    if std::env::var_os(MASKED).is_some() {
        return check_masked();
    }
    let can_mask =
        Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|status| status.success());
    if !rustix::process::getuid().is_root() || !can_mask {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("own directory");
    let copy = directory.path().join("test");
    fs::copy(std::env::current_exe().expect("a path"), &copy).expect("a copy");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", MASK]).arg(&copy).current_dir("/").env(MASKED, "1");
    command.env_remove("XDG_RUNTIME_DIR").env("HOME", "/nonexistent").env("PATH", "/usr/bin:/bin");
    let output = command.output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
