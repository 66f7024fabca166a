//! Locks that readers of sandboxes do not wait for.

use std::sync::mpsc;
use std::time::Duration;

use super::super::Engine;
use crate::limits::Limits;

use super::{SandboxSpec, Template, lock};

/// A snapshot holds the record while it renames and syncs files.
#[test]
fn find_does_not_wait_for_a_record_being_written() {
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = engine.sandboxes(state.path(), &|_| None, &|reason| panic!("{reason}")).expect("opened");
    let [first, second] = ["a", "b"].map(|owner| {
        let spec = SandboxSpec {
            template: Template::Host,
            template_name: "host".to_owned(),
            owner: owner.to_owned(),
            parent: None,
            network: super::SandboxNetwork::None,
            limits: Limits::new(),
        };
        sandboxes.create(spec).expect("a sandbox")
    });
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        // It is released, and the thread ends, also if the test fails.
        let _record = lock(&first.state.record);
        scope.spawn(|| {
            let (own, other) = (sandboxes.find(first.id(), "a"), sandboxes.find(second.id(), "b"));
            let listed = sandboxes.of("a").into_iter().chain(sandboxes.of("b"));
            let ids: Vec<String> = listed.map(|sandbox| sandbox.id().to_owned()).collect();
            let found = [own, other].map(|found| found.expect("there").id().to_owned());
            let names = (first.owner(), first.template_name(), first.created_at_ms() > 0);
            let _ = sender.send((ids, found, names));
        });
        let (ids, found, names) =
            receiver.recv_timeout(Duration::from_secs(10)).expect("it waits for no lock of a record");
        assert_eq!(found, [&first, &second].map(|sandbox| sandbox.id().to_owned()));
        assert_eq!(ids, found);
        assert_eq!(names, ("a".to_owned(), "host".to_owned(), true));
    });
}
