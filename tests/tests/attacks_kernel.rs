//! Attacks F: kernel surface. System calls no ordinary program needs are refused.

use std::time::Duration;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

use sandtimer_tests::attack::{check, print_notice};
use sandtimer_tests::attack_list::KERNEL;
use sandtimer_tests::command::RunInvocation;
use sandtimer_tests::outcome::finding;
use sandtimer_tests::wait::alone;

#[test]
fn every_attack_of_the_table_comes_to_what_it_must() {
    let _alone = alone("kernel attacks", Duration::from_secs(900));
    check(KERNEL);
}

/// The kernel's log from now on.
struct KernelLog(File);

impl KernelLog {
    fn from_now() -> Option<Self> {
        let mut log = File::options().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg").ok()?;
        log.seek(SeekFrom::End(0)).ok()?;
        Some(KernelLog(log))
    }

    /// Lines written since the last look about a payload, or by audit.
    fn lines(&mut self) -> Vec<String> {
        let (mut found, mut line) = (vec![], [0; 8192]);
        while let Ok(length @ 1..) = self.0.read(&mut line) {
            let text = String::from_utf8_lossy(&line[..length]).into_owned();
            if ["hostile", "audit", "seccomp", "landlock"].iter().any(|pattern| text.contains(pattern)) {
                found.push(text);
            }
        }
        found
    }
}

/// D13: what is refused is not written down; what kills a process is, and the kernel bounds it
/// itself.
#[test]
fn refused_calls_do_not_fill_the_kernels_log() {
    let _alone = alone("kernel log", Duration::from_secs(120));
    let Some(mut log) = KernelLog::from_now() else {
        return print_notice("the kernel's log cannot be read here", &[]);
    };
    let finding_of = |payload: &[&str]| {
        let run = RunInvocation::new().flags(&["--wall", "30s"]).hostile(payload);
        let (outcome, _) = run.outcome().unwrap_or_else(|error| panic!("{error}"));
        finding(outcome.stdout()).unwrap_or_else(|| panic!("no finding: {}", outcome.0))
    };
    let refused = finding_of(&["refusals", "5000"])["refused"].as_u64();
    assert_eq!(refused, Some(20_000), "not every call was refused");
    assert_eq!(log.lines(), Vec::<String>::new());
    // The control: one that the kernel does write about is seen, and a thousand are not a thousand
    // lines.
    assert_eq!(finding_of(&["crashes", "1000"])["ended"].as_u64(), Some(1000));
    let lines = log.lines().len();
    assert!(lines < 200, "{lines} lines for 1,000 crashes");
    let writes = std::fs::read_to_string("/proc/sys/debug/exception-trace").unwrap_or_default();
    match writes.trim() {
        "1" => assert!(lines > 0, "a crash is not in the log: the test shows nothing"),
        _ => print_notice("this kernel writes nothing about crashes: no control", &[]),
    }
}
