//! The notices of runs before a limit ends them: real ones, by signal and by channel.

use std::time::Duration;

use sandtimer::Limits;
use sandtimer::engine::{Engine, Error, Spec};
use sandtimer::model::{Ending, LimitKind, Outcome, Warning};

const USR1: i32 = 10;

fn shell(script: &str) -> Spec {
    Spec::command(["/bin/sh", "-c", script])
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn wall(limit: f64) -> Limits {
    Limits::new().wall(seconds(limit))
}

fn ended(spec: Spec) -> std::sync::Arc<Outcome> {
    Engine::new().unwrap().start(spec).unwrap().settled_blocking()
}

/// A shell that prints a line when it gets a notice.
const LISTENING: &str = "trap 'echo told' USR1; echo ready; while :; do sleep 0.05; done";

#[test]
fn warned_training_saves_a_checkpoint_and_ends_at_the_limit() {
    let training = "
import signal, sys, time
epoch = 0
def save(*_):
    open('/workspace/checkpoint', 'w').write(f'epoch {epoch}')
    print('saved', open('/workspace/checkpoint').read(), flush=True)
signal.signal(signal.SIGUSR1, save)
while True:
    time.sleep(0.05)
    epoch += 1
";
    // The shell around it has no handler, and must not be ended by the notice.
    let mut spec = Spec::command(["/bin/sh", "-c", "python3 -c \"$0\"; echo \"left with $?\"", training]);
    spec.private_workspace = true;
    let outcome = ended(spec.limits(wall(6.0)).warn(seconds(2.0)).warn_signal(USR1));
    assert_eq!(outcome.ending, Ending::Timeout, "{outcome:?}");
    assert!(outcome.stdout.starts_with("saved epoch ") && outcome.stdout.lines().count() == 1, "{outcome:?}");
    let [notice] = &outcome.notices[..] else { panic!("one notice: {outcome:?}") };
    assert_eq!(
        (notice.kind, notice.signal.as_deref(), notice.processes),
        (LimitKind::Wall, Some("SIGUSR1"), 1)
    );
    assert!(notice.at_ms >= 4000 && notice.left_ms <= 2000, "{notice:?}");
    assert!(outcome.verdict.clone().unwrap().elapsed_ms >= 6000);
}

#[test]
fn an_extension_moves_the_notice_and_each_end_has_one() {
    let engine = Engine::new().unwrap();
    let spec = || shell(LISTENING).limits(wall(1.5)).warn(seconds(0.5)).warn_signal(USR1);
    let run = engine.start(spec()).unwrap();
    // Before there was one, and after it.
    run.started_blocking();
    run.extend(seconds(0.5)).unwrap();
    assert!(matches!(run.warned_blocking(), Some(Warning::Wall { left_ms: ..=500 })));
    run.extend(seconds(1.0)).unwrap();
    let outcome = run.settled_blocking();
    assert_eq!(
        (outcome.ending, outcome.stdout.as_str()),
        (Ending::Timeout, "ready\ntold\ntold\n"),
        "{outcome:?}"
    );
    let at: Vec<u64> = outcome.notices.iter().map(|notice| notice.at_ms).collect();
    assert!(at.len() == 2 && at[0] >= 1500 && at[1] >= 2500, "{at:?}");
}

#[test]
fn a_line_comes_by_the_channel() {
    let mut spec = shell("read line <&$SANDTIMER_NOTICE_FD; echo \"$line\"; sleep 1000");
    spec.progress_channel = true;
    let outcome = ended(spec.limits(wall(1.5)).warn(seconds(1.0)));
    assert_eq!(outcome.ending, Ending::Timeout);
    let line: serde_json::Value = serde_json::from_str(&outcome.stdout).expect("one line of JSON");
    assert!(line["limit"] == "wall" && line["left_ms"].as_u64() <= Some(1000), "{line}");
    let [notice] = &outcome.notices[..] else { panic!("one notice: {outcome:?}") };
    assert_eq!((notice.signal.as_deref(), notice.processes), (None, 0));
    // Only a run that is to get notices has a channel.
    let mut spec = shell("echo ${SANDTIMER_NOTICE_FD-none}");
    spec.progress_channel = true;
    assert_eq!(ended(spec).stdout, "none\n");
}

#[test]
fn unread_channel_blocks_no_run() {
    let mut spec = shell("exec 4<&-; sleep 1000");
    spec.progress_channel = true;
    let outcome = ended(spec.limits(wall(1.0)).warn(seconds(0.5)));
    assert_eq!((outcome.ending, outcome.notices.len()), (Ending::Timeout, 1), "{outcome:?}");
}

#[test]
fn the_limit_of_processor_time_has_a_notice_too() {
    let busy = "trap 'echo told' USR1; while :; do :; done";
    let limits = Limits::new().cpu(seconds(1.5)).wall(seconds(60.0));
    let outcome = ended(shell(busy).limits(limits).warn(seconds(1.0)).warn_signal(USR1));
    assert_eq!(outcome.verdict.clone().unwrap().kind, Some(LimitKind::Cpu), "{outcome:?}");
    assert_eq!(outcome.stdout, "told\n");
    let [notice] = &outcome.notices[..] else { panic!("one notice: {outcome:?}") };
    assert!(notice.kind == LimitKind::Cpu && notice.left_ms <= 1000, "{notice:?}");
}

#[test]
fn runs_without_a_handler_and_ended_runs_get_no_signal() {
    let outcome = ended(shell("sleep 1000").limits(wall(1.0)).warn(seconds(0.5)).warn_signal(USR1));
    assert_eq!((outcome.ending, outcome.notices[0].processes), (Ending::Timeout, 0), "{outcome:?}");
    let outcome = ended(shell("echo done").limits(wall(60.0)).warn(seconds(0.5)).warn_signal(USR1));
    assert_eq!((outcome.ending, outcome.notices.len()), (Ending::Exited, 0), "{outcome:?}");
    // In its grace period a run gets SIGTERM, and no further notice.
    let script = "trap 'echo told' USR1; trap '' TERM; while :; do sleep 0.05; done";
    let limits = wall(0.8).grace(seconds(0.7));
    let outcome = ended(shell(script).limits(limits).warn(seconds(0.4)).warn_signal(USR1));
    assert_eq!((outcome.stdout.as_str(), outcome.notices.len()), ("told\n", 1), "{outcome:?}");
}

#[test]
fn a_notice_that_cannot_be_is_refused() {
    let engine = Engine::new().unwrap();
    for signal in [0, 9, 19, 64, -1] {
        let spec = shell("true").warn(seconds(1.0)).warn_signal(signal);
        assert!(matches!(engine.start(spec), Err(Error::NoticeSignal(number)) if number == signal));
    }
    assert!(matches!(engine.start(shell("true").warn_signal(USR1)), Err(Error::NoticeTime)));
}
