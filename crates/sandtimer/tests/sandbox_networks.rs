//! The network namespace of a sandbox: shared by all that runs in it, by nothing else, and gone
//! with it.
#![allow(clippy::disallowed_methods)] // tests start programs and look at what is left

use crate::as_user;
use crate::namespaces;
use crate::waiting;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use as_user::as_a_user;
use namespaces::{PRINT_NAMESPACE, holders};
use sandtimer::engine::{
    CellSpec, Context, ContextSpec, Run, Sandbox, SandboxError, SandboxNetwork, SandboxSpec, Sandboxes,
    Stream, Template,
};
use sandtimer::model::{Ending, Outcome};
use sandtimer::zygote::Profile;
use sandtimer::{Engine, Error, Limits, Spec};
use waiting::wait_until;

/// Listens on a port of its loopback, and answers each client with a short text.
const SERVES: &str = "
import socket
listener = socket.create_server(('127.0.0.1', 8000))
print('ready', flush=True)
while True:
    client, _ = listener.accept()
    client.sendall(b'hello')
    client.close()
";
/// Prints what it gets from that port.
const ASKS: &str = "
import socket
try:
    with socket.create_connection(('127.0.0.1', 8000), 10) as server: print(server.recv(100).decode())
except OSError as error: print(type(error).__name__)
";

fn open(engine: &Engine, directory: &Path) -> Sandboxes {
    engine.sandboxes(directory, &|_| None, &|reason| panic!("{reason}")).expect("the sandboxes")
}

fn spec_of(network: SandboxNetwork) -> SandboxSpec {
    SandboxSpec {
        template: Template::Host,
        template_name: "host".to_owned(),
        owner: "token-a".to_owned(),
        parent: None,
        network,
        limits: Limits::new(),
    }
}

fn made(sandboxes: &Sandboxes) -> Sandbox {
    sandboxes.create(spec_of(SandboxNetwork::None)).expect("a sandbox")
}

fn command(sandbox: Option<&Sandbox>, command: [&str; 3]) -> Spec {
    let limits = Limits::new().wall(Duration::from_secs(30));
    let private_workspace = sandbox.is_none();
    Spec { sandbox: sandbox.cloned(), private_workspace, ..Spec::command(command).limits(limits) }
}

/// The output of a command that succeeds.
#[track_caller]
fn output(engine: &Engine, sandbox: Option<&Sandbox>, line: [&str; 3]) -> String {
    let outcome: Arc<Outcome> = engine.run_blocking(command(sandbox, line)).expect("a run");
    assert_eq!((outcome.ending, outcome.exit_code), (Ending::Exited, Some(0)), "{outcome:?}");
    outcome.stdout.trim_end().to_owned()
}

fn asked(engine: &Engine, sandbox: Option<&Sandbox>) -> String {
    output(engine, sandbox, ["python3", "-c", ASKS])
}

/// A run that serves.
fn serving(engine: &Engine, sandbox: &Sandbox) -> Run {
    let run = engine.start(command(Some(sandbox), ["python3", "-c", SERVES])).expect("a run");
    wait_until("it listens", || {
        run.output(Stream::Stdout, 0, 100).expect("in memory").bytes.starts_with(b"ready")
    });
    run
}

fn executed(context: &Context, source: &str) -> String {
    let limits = Limits::new().wall(Duration::from_secs(30));
    let cell = CellSpec { source: source.to_owned(), limits, ..CellSpec::default() };
    context.execute(cell, &mut |_| {}).expect("a cell").stdout.clone()
}

/// The link and the cookie of the namespace that a sandbox's runs are in.
fn namespace(engine: &Engine, sandbox: &Sandbox) -> String {
    output(engine, Some(sandbox), ["python3", "-c", PRINT_NAMESPACE])
}

#[test]
fn loopback_is_shared_in_one_sandbox_alone() {
    if as_a_user("loopback_is_shared_in_one_sandbox_alone") {
        // And as root, below.
    }
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let [sandbox, other] = [(); 2].map(|()| made(&sandboxes));
    let run = serving(&engine, &sandbox);
    assert_eq!(asked(&engine, Some(&sandbox)), "hello");
    assert_eq!(asked(&engine, Some(&other)), "ConnectionRefusedError");
    assert_eq!(asked(&engine, None), "ConnectionRefusedError");
    let outcome = engine.run_blocking(command(Some(&sandbox), ["sh", "-c", "true"])).expect("a run");
    let shared = outcome.isolation.degraded.iter().find(|degraded| degraded.layer == "sandbox");
    assert!(shared.is_some_and(|line| line.reason.contains("its files and its loopback")), "{outcome:?}");
    run.cancel("enough");
    // The port of a run that has ended is free again.
    wait_until("it has ended", || run.has_finished());
    assert_eq!(asked(&engine, Some(&sandbox)), "ConnectionRefusedError");
}

#[test]
fn contexts_and_sessions_share_the_loopback() {
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = made(&sandboxes);
    let _run = serving(&engine, &sandbox);
    let spec = || ContextSpec { sandbox: Some(sandbox.clone()), ..ContextSpec::default() };
    let session = engine.session(spec()).expect("a session");
    assert_eq!(executed(&session, "exec 3<>/dev/tcp/127.0.0.1/8000 && head -c 5 <&3"), "hello");
    let contexts = engine
        .contexts(Profile { interpreter: "python3".into(), live: true, ..Profile::default() }, 0)
        .expect("contexts");
    let context = contexts.open(spec(), &mut || false).expect("a context");
    assert_eq!(executed(&context, ASKS), "hello\n");
}

#[test]
fn deletion_frees_the_namespace() {
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let [sandbox, other] = [(); 2].map(|()| made(&sandboxes));
    let own = namespace(&engine, &sandbox);
    assert_eq!(namespace(&engine, &sandbox), own);
    assert_ne!(namespace(&engine, &other), own);
    // The control: what looks for holders finds the engine.
    assert!(!holders(&own).is_empty());
    sandboxes.delete(sandbox.id(), "token-a").expect("deleted");
    drop(sandbox);
    wait_until("nothing holds its namespace", || holders(&own).is_empty());
    // Work in the other sandbox continues in its own.
    assert_ne!(namespace(&engine, &other), own);
}

#[test]
fn allow_list_needs_what_serves_it() {
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let refused = sandboxes.create(spec_of(SandboxNetwork::Allowed(vec!["pypi.org".to_owned()])));
    let error = refused.expect_err("none serves it");
    assert!(matches!(error, Error::Sandbox(SandboxError::NoNetwork(_))), "{error:?}");
    assert!(sandboxes.all().is_empty());
    let sandbox = sandboxes.create(spec_of(SandboxNetwork::Host)).expect("a sandbox");
    let host = std::fs::read_link("/proc/self/ns/net").expect("a link").to_string_lossy().into_owned();
    assert!(namespace(&engine, &sandbox).starts_with(&format!("{host} ")), "{host}");
}
