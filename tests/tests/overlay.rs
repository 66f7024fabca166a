//! A workspace on a file system without idmapped mounts, as the root of most containers is.

use std::process::Command;
use std::time::Duration;

use sandtimer_tests::attack::print_notice;
use sandtimer_tests::census::{Census, assert_clean};
use sandtimer_tests::command::sandtimer;
use sandtimer_tests::process::{FinishedProcess, start};
use sandtimer_tests::wait::alone;

/// In a mount namespace of its own: an overlay whose directory belongs to `$1` alone, and the
/// command line in it.
const IN_AN_OVERLAY: &str = r#"
set -e
mount -t tmpfs overlay-test /mnt
cd /mnt
mkdir lower upper work shown
echo given > lower/given
chown -R "$1:$1" lower upper
chmod 700 upper
mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work shown
cd shown
shift
"$@" || echo "ended with $?"
stat --format '%n %u:%g %a' -- *
"#;

const NOT_ROOT: &str = "not tried: without root the run has its caller's uid, and there is nothing to map";

fn in_an_overlay(owner: u32, flags: &[&str], job: &str) -> FinishedProcess {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", IN_AN_OVERLAY, "sh", &owner.to_string()]);
    command.arg(sandtimer()).args(["run", "--wall", "10s"]).args(flags).args(["--", "sh", "-c", job]);
    start(&mut command, vec![], Duration::from_secs(30)).finish()
}

#[test]
fn a_workspace_that_cannot_be_mapped_is_written_as_its_owner() {
    if !rustix::process::geteuid().is_root() {
        return print_notice(NOT_ROOT, &[]);
    }
    let _alone = alone("overlay", Duration::from_secs(120));
    let before = Census::take();
    let job = "cat given; echo made > made; mkdir -m 750 directory; stat --format '%n %U' given made; \
               setpriv --reuid 0 true 2>/dev/null || echo not root; cat /etc/shadow 2>/dev/null || echo no shadow";
    for owner in [0, 1234] {
        let finished = in_an_overlay(owner, &["--workspace", ".", "--verbose"], job);
        let (text, errors) = (finished.text(), finished.errors());
        let inside = "given\ngiven sandbox\nmade sandbox\nnot root\nno shadow\n";
        let outside =
            format!("directory {owner}:{owner} 750\ngiven {owner}:{owner} 644\nmade {owner}:{owner} 644\n");
        assert_eq!(text, format!("{inside}{outside}"), "{errors}");
        let expected = format!("outside its user namespace the run has the workspace owner's uid, {owner}");
        assert!(errors.contains(&expected), "{errors}");
    }
    assert_clean(&before, "runs in an overlay");
}

#[test]
fn the_owner_root_is_less_than_the_highest_tier() {
    if !rustix::process::geteuid().is_root() {
        return print_notice(NOT_ROOT, &[]);
    }
    let _alone = alone("overlay tier", Duration::from_secs(60));
    let finished = in_an_overlay(0, &["--workspace", ".", "--require", "T3"], "echo ran");
    assert_eq!(finished.text(), "ended with 125\ngiven 0:0 644\n", "{}", finished.errors());
    assert!(finished.errors().contains("idmapped"), "{}", finished.errors());
}
