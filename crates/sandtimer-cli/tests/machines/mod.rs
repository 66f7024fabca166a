//! Machines of a test's own: network namespaces, which nothing but wires between them leads out of,
//! and which are gone with what is in them.
#![allow(clippy::disallowed_methods, reason = "the programs under test are started here")]

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network namespace, for as long as this is open or something is in it.
pub struct NetworkMachine(File);

impl NetworkMachine {
    /// Returns `None`, and prints that, if there can be none.
    pub fn make() -> Option<Self> {
        if Command::new("ip").arg("-V").stdout(Stdio::null()).status().is_err() {
            return skipped("there is no ip(8)");
        }
        let mut holder = Command::new("unshare");
        holder.args(["--net", "sh", "-c", "echo there; cat"]).stdin(Stdio::piped());
        let mut holder = holder.stdout(Stdio::piped()).spawn().expect("unshare is there");
        let mut buffer = [0];
        let is_there = std::io::Read::read(&mut holder.stdout.take().expect("piped"), &mut buffer);
        let namespace = File::open(format!("/proc/{}/ns/net", holder.id()));
        drop(holder.stdin.take());
        holder.wait().expect("it ends");
        if is_there.expect("readable") == 0 {
            return skipped("no network namespace can be made: this takes root");
        }
        let machine = NetworkMachine(namespace.expect("opened"));
        machine.ip("link set lo up");
        Some(machine)
    }

    /// Does something there; processes that it starts stay there.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let there = || {
            move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network)).expect("moved");
            work()
        };
        std::thread::scope(|scope| scope.spawn(there).join().expect("no panic"))
    }

    pub fn ip(&self, arguments: &str) {
        let status = self.within(|| Command::new("ip").args(arguments.split(' ')).status());
        assert!(status.expect("ip is there").success(), "ip {arguments}");
    }

    /// For `ip`.
    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// A wire to another one, with the address of this end and of that.
    pub fn wire(&self, index: usize, own: &str, other: &NetworkMachine, address: &str) {
        let wire = format!("wire{index}");
        self.ip(&format!("link add {wire} type veth peer name wire netns {}", other.path()));
        self.ip(&format!("address add {own}/24 dev {wire}"));
        self.ip(&format!("link set {wire} up"));
        other.ip(&format!("address add {address}/24 dev wire"));
        other.ip("link set wire up");
    }
}

fn skipped<T>(why: &str) -> Option<T> {
    // If the write fails, stderr has no reader.
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
    None
}
