//! Descriptors that a job sends with its packets delay no thread of the engine.
#![allow(clippy::disallowed_methods)] // how long a caller waits

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sandtimer::engine::{CellSpec, Context, ContextSpec};
use sandtimer::zygote::Profile;
use sandtimer::{Ending, Engine, Limits, Outcome};

fn run(context: &Context, source: &str, wall: u64) -> Arc<Outcome> {
    let limits = Limits::new().wall(Duration::from_secs(wall));
    let cell = CellSpec { source: source.to_owned(), limits, ..CellSpec::default() };
    context.execute(cell, &mut |_| {}).expect("a run")
}

/// The premise of the attack below: closing such a socket blocks the thread that closes it.
#[test]
fn closing_a_socket_that_lingers_waits_for_its_peer() {
    let peer = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let mut lingering = TcpStream::connect(peer.local_addr().expect("an address")).expect("a connection");
    lingering.set_nonblocking(true).expect("a socket");
    while lingering.write(&[0; 1 << 16]).is_ok() {}
    lingering.set_nonblocking(false).expect("a socket");
    let wait = Duration::from_secs(1);
    rustix::net::sockopt::set_socket_linger(&lingering, Some(wait)).expect("a socket");
    let began = Instant::now();
    drop(lingering);
    assert!(began.elapsed() >= wait, "closed after {:?}", began.elapsed());
}

#[test]
fn a_socket_that_lingers_keeps_no_caller() {
    // A peer that reads nothing.
    let peer = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = peer.local_addr().expect("an address").port();
    let profile = Profile { interpreter: "python3".into(), live: true, network: true, ..Profile::default() };
    let contexts = Engine::new().expect("an engine").contexts(profile, 1).expect("a pool");
    let context = contexts.open(ContextSpec::default(), &mut || false).expect("a context");
    // It is sent on each socket that the interpreter has, after packets that keep their receiver
    // busy.
    let lingers = format!(
        "
import array, os, signal, socket, struct
signal.signal(signal.SIGINT, signal.SIG_IGN)
lingering = socket.create_connection(('127.0.0.1', {port}))
lingering.setblocking(False)
try:
    while True: lingering.send(bytes(65536))
except BlockingIOError: pass
# Refused where the kernel cannot refuse the descriptors below (before Linux 6.16).
try: lingering.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 30)); print('lingers')
except PermissionError: print('refused')
lingering.setblocking(True)
# Any other socket takes descriptors.
mine, other = socket.socketpair()
mine.sendmsg([b'Z'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [0]))])
mine.close(); other.close()
for fd in range(lingering.fileno()):
    try: channel = socket.socket(fileno=os.dup(fd))
    except OSError: continue
    try:
        for _ in range(150): channel.send(b'D' + b'x' * 700, socket.MSG_DONTWAIT)
        channel.sendmsg([b'Z'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [lingering.fileno()]))])
        print('sent', flush=True)
    except OSError as error: print(error.errno, flush=True)
os.close(lingering.detach())
while True: pass"
    );
    let began = Instant::now();
    let outcome = run(&context, &lingers, 2);
    let answers =
        if sandtimer_os::probe::descriptors_can_be_refused() { "lingers\n1\n" } else { "refused\nsent\n" };
    assert_eq!((outcome.ending, outcome.stdout.as_str()), (Ending::Timeout, answers), "{outcome:?}");
    assert!(began.elapsed() < Duration::from_secs(12), "its caller was kept for {:?}", began.elapsed());
    assert_eq!(run(&context, "1 + 1", 20).value, Some(2.into()));
}
