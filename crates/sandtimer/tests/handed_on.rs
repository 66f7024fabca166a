//! What a run hands on to another by a socket in a directory that both are shown costs and shows
//! later runs nothing.
#![allow(clippy::disallowed_methods)] // it waits for what a run does

use std::path::Path;
use std::time::Duration;

use sandtimer::engine::{Engine, Run, Spec};
use sandtimer::{Ending, Limits};

const MEMORY: u64 = 96 << 20;

fn python(source: &str, directory: Option<&Path>) -> Spec {
    let limits = Limits::new().wall(Duration::from_secs(60)).memory(MEMORY);
    let mut spec = Spec::command(["python3", "-c", source]).limits(limits);
    match directory {
        Some(directory) => {
            spec.workspaces = vec![directory.to_owned()];
            spec.working_directory = Some(directory.to_owned());
        }
        None => spec.private_workspace = true,
    }
    spec
}

/// A run that receives open files over a socket in its workspace, makes the file `received`, and
/// keeps them while it searches the first one for a name.
fn receiver(engine: &Engine, directory: &Path) -> Run {
    let source = r#"
import os, socket, time
server = socket.socket(socket.AF_UNIX)
server.bind("s")
server.listen()
peer, _ = server.accept()
_, files, _, _ = socket.recv_fds(peer, 1, 8)
open("received", "w").close()
seen = False
while not os.path.exists("over"):
    seen = seen or b"@of-a-later-run" in os.pread(files[0], 1 << 16, 0)
    time.sleep(0.005)
print("seen" if seen else "not seen", os.fstat(files[1]).st_size >> 20)
"#;
    let run = engine.start(python(source, Some(directory))).expect("it starts");
    wait_for(&directory.join("s"));
    run
}

fn wait_for(path: &Path) {
    for _ in 0..3_000 {
        if path.exists() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{} does not come", path.display());
}

#[test]
fn open_files_of_an_ended_run_cost_and_show_later_runs_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let engine = Engine::new().expect("an engine");
    let receiver = receiver(&engine, directory);
    let sender = r#"
import os, socket
held = os.memfd_create("held")
for _ in range(60):
    os.write(held, b"x" * (1 << 20))
peer = socket.socket(socket.AF_UNIX)
peer.connect("s")
socket.send_fds(peer, [b"x"], [os.open("/proc/self/net/unix", os.O_RDONLY), held])
"#;
    let outcome = engine.run_blocking(python(sender, Some(directory))).expect("a run");
    assert!(outcome.ok, "{outcome:?}");
    wait_for(&directory.join("received"));
    let later = r#"
import socket, time
name = socket.socket(socket.AF_UNIX)
name.bind("\0of-a-later-run")
block = bytearray(60 << 20)
time.sleep(0.1)
"#;
    for _ in 0..4 {
        let outcome = engine.run_blocking(python(later, None)).expect("a run");
        assert_eq!((outcome.ending, outcome.ok), (Ending::Exited, true), "{outcome:?}");
    }
    std::fs::write(directory.join("over"), "").expect("written");
    assert_eq!(receiver.settled_blocking().stdout.trim(), "not seen 60");
}
