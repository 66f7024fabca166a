//! The first process of a sandbox: builds it, forks the command's process, reaps, and ends
//! everything.
//!
//! As pid 1 its death is the death of the namespace, so ending is one call: exit. It ends when the
//! command has ended, when its own timer fires, on the engine's command, and when the engine is
//! gone. Its notices to the engine are the only trusted report from inside; the job never holds its
//! socket.

use crate::census;
use crate::checkpoints::Checkpoints;
use crate::execute;
use crate::proc;
use crate::steps::{self, Builder, Program, Step};
use crate::sys::{self, Fd, PollFd, call, nr};
use crate::traces::Traces;
use crate::wire::{INIT_SLACK_NANOSECONDS, Notice, Order, notice, op, order};

/// What the child of init writes to the status pipe: step number and errno, or one of the two
/// marks.
#[repr(C)]
#[derive(Clone, Copy)]
struct Status {
    kind: u32,
    error: i32,
    value: u64,
}

struct Init {
    control: Fd,
    main: i32,
    deadline: u64,
    /// The deadline that the engine sets without waking this process; -1 where it sends them.
    timer: Fd,
    wall: u64,
    grace: u64,
    /// Whether this process is pid 1 of a namespace, so that its end is the end of all.
    whole_namespace: bool,
    /// Whether it is a live sandbox, which the end of the command's process does not end.
    live: bool,
    checkpoints: Checkpoints,
    /// Where one job is to follow another: what the first must not have left.
    traces: Traces,
    /// The token of the job that was here before: a signal for it may come late.
    vacated: u64,
}

pub fn main(program: Program, control: Fd, stdio: &[Fd], extra: &[Fd]) -> ! {
    sys::prctl(sys::PR_SET_NAME, c"st-init".as_ptr() as usize);
    let whole_namespace = call!(nr::GETPID) == 1;
    sys::prctl(sys::PR_SET_PDEATHSIG, death_signal(whole_namespace));
    sys::prctl(sys::PR_SET_DUMPABLE, 0);
    // No signal to a group reaches the launcher and the other inits from here, nor this process
    // from there.
    call!(nr::SETSID);
    // In a sandbox there is no procfs until this process has mounted its own.
    let is_shown = whole_namespace && show_namespace(control, NEWNS, c"/proc/self/ns/mnt");
    let Some((step, rest)) = find_fork(program) else { sys::exit(122) };
    let mut init = Init {
        control,
        main: 0,
        deadline: u64::MAX,
        timer: -1,
        wall: step.number(3),
        grace: step.number(4),
        whole_namespace,
        live: false,
        checkpoints: Checkpoints::NONE,
        traces: Traces::NONE,
        vacated: 0,
    };
    if step.header.op == op::SERVE && is_shown {
        show_entered_namespaces(control);
    }
    // Forked first: the child does what needs no root directory while this process builds it.
    let pipes = if step.header.op == op::FORK { init.fork(rest, stdio, extra) } else { init.serve_others() };
    let mut builder = Builder::new();
    for (number, step) in program.take_while(|step| !is_last(step)).enumerate() {
        init.build(number as u64, &step, &mut builder, extra);
    }
    drop(builder);
    if whole_namespace && !is_shown {
        show_namespace(control, NEWNS, c"/proc/self/ns/mnt");
        if step.header.op == op::SERVE {
            show_entered_namespaces(control);
        }
    }
    if let Some(file) = proc::take_memory_file() {
        notify_with(control, notice::MEMORY_FILE, [0; 6], Some(file));
        sys::close(file);
    }
    if step.header.op == op::SERVE {
        init.timer = extra[step.number(5) as usize];
    }
    for fd in stdio.iter().chain(extra).filter(|fd| **fd != init.timer) {
        sys::close(*fd);
    }
    if whole_namespace {
        call!(nr::CHDIR, c"/".as_ptr());
    }
    if whole_namespace && step.header.op == op::SERVE {
        init.traces = Traces::note(&step);
    }
    lower_privileges(&step, whole_namespace);
    if step.header.op == op::SERVE {
        notify(control, notice::PARKED, [0; 6]);
    }
    sys::write(pipes.built, b"1");
    sys::close(pipes.built);
    init.serve(pipes.status, pipes.children)
}

const NEWNS: u64 = 0x0002_0000;
const NEWCGROUP: u64 = 0x0200_0000;
const NEWUTS: u64 = 0x0400_0000;
const NEWIPC: u64 = 0x0800_0000;
const NEWUSER: u64 = 0x1000_0000;
const NEWPID: u64 = 0x2000_0000;

/// Gives the engine a namespace of this process. False where it cannot be opened.
fn show_namespace(control: Fd, which: u64, path: &core::ffi::CStr) -> bool {
    let namespace = sys::open_at(sys::AT_FDCWD, path.as_ptr().cast(), sys::O_RDONLY, 0);
    if namespace >= 0 {
        notify_with(control, notice::NAMESPACE, [which, 0, 0, 0, 0, 0], Some(namespace as Fd));
        sys::close(namespace as Fd);
    }
    namespace >= 0
}

/// Gives the engine what a zygote's child enters: by these, because entering by process would need
/// the right to trace this one.
fn show_entered_namespaces(control: Fd) {
    show_namespace(control, NEWPID, c"/proc/self/ns/pid");
    show_namespace(control, NEWUSER, c"/proc/self/ns/user");
    show_namespace(control, NEWIPC, c"/proc/self/ns/ipc");
    show_namespace(control, NEWUTS, c"/proc/self/ns/uts");
    show_namespace(control, NEWCGROUP, c"/proc/self/ns/cgroup");
}

/// The step at which init forks, or from which it serves a zygote's child; and the steps after it
/// for its own child.
fn find_fork(mut program: Program) -> Option<(Step, Program)> {
    let step = program.find(is_last)?;
    Some((step, program))
}

/// Whether a step is the last of init's own.
fn is_last(step: &Step) -> bool {
    matches!(step.header.op, op::FORK | op::SERVE)
}

/// Init's ends of what it shares with its child.
struct Pipes {
    /// What the child reports.
    status: Fd,
    /// Written when everything is built that the child's [`op::JOIN`] needs.
    built: Fd,
    /// SIGCHLD and SIGTERM.
    children: Fd,
}

pub fn notify(control: Fd, kind: u32, values: [u64; 6]) {
    notify_with(control, kind, values, None);
}

fn notify_with(control: Fd, kind: u32, values: [u64; 6], fd: Option<Fd>) {
    let [a, b, c, d, e, f] = values;
    let message = Notice { kind, reserved: 0, a, b, c, d, e, f };
    // SAFETY: Notice is plain numbers without padding.
    let bytes =
        unsafe { core::slice::from_raw_parts((&raw const message).cast::<u8>(), size_of::<Notice>()) };
    sys::send(control, bytes, fd, sys::MSG_DONTWAIT);
}

/// SIGCHLD, as a bit of a signal mask.
const SIGCHLD_BIT: u64 = 1 << 16;
const SIGTERM_BIT: u64 = 1 << 14;
const SIGPIPE_BIT: u64 = 1 << 12;

/// What init gets when its parent dies: as pid 1 it need only die itself; elsewhere it must sweep
/// first.
fn death_signal(whole_namespace: bool) -> usize {
    if whole_namespace { sys::SIGKILL as usize } else { sys::SIGTERM as usize }
}

impl Init {
    /// Blocks signals and makes the descriptor that they are read from: SIGCHLD, and SIGTERM if it
    /// is [`death_signal`]. A pid namespace's first process must not read SIGTERM: a job with its
    /// uid can send it.
    fn listen(&self) -> Fd {
        let read = if self.whole_namespace { SIGCHLD_BIT } else { SIGCHLD_BIT | SIGTERM_BIT };
        // SIGPIPE: SIGCHLD reports a child that is gone.
        let blocked = read | SIGPIPE_BIT;
        call!(nr::RT_SIGPROCMASK, 0, &raw const blocked, 0, 8);
        call!(nr::SIGNALFD4, -1isize, &raw const read, 8, sys::O_CLOEXEC) as Fd
    }

    /// Without a child of its own: a zygote puts the command's process here, the first one in the
    /// namespace after init.
    fn serve_others(&mut self) -> Pipes {
        self.main = 2;
        Pipes { status: -1, built: -1, children: self.listen() }
    }

    /// Starts the child that will be the command.
    fn fork(&mut self, program: Program, stdio: &[Fd], extra: &[Fd]) -> Pipes {
        // Before the fork: a child that dies at once must not be missed.
        let children = self.listen();
        let (mut status, mut built): ([Fd; 2], [Fd; 2]) = ([-1; 2], [-1; 2]);
        let mut pid = call!(nr::PIPE2, status.as_mut_ptr(), sys::O_CLOEXEC);
        if pid >= 0 {
            pid = call!(nr::PIPE2, built.as_mut_ptr(), sys::O_CLOEXEC);
        }
        if pid >= 0 {
            pid = call!(nr::FORK);
        }
        if pid == 0 {
            for fd in [self.control, children, status[0], built[1]] {
                sys::close(fd);
            }
            sys::reset_signals();
            child(program, status[1], built[0], stdio, extra);
        }
        if pid < 0 {
            notify(self.control, notice::STEP_FAILED, [program.number - 1, -pid as u64, 1, 0, 0, 0]);
            sys::exit(1);
        }
        self.main = pid as i32;
        sys::close(status[1]);
        sys::close(built[0]);
        Pipes { status: status[0], built: built[1], children }
    }

    /// Sends a descriptor of the root, by which the files of a sandbox are used.
    fn send_root(&self) -> isize {
        let flags = steps::O_PATH as usize;
        let root = sys::open_at(sys::AT_FDCWD, c"/".as_ptr().cast(), flags, 0);
        if root >= 0 {
            notify_with(self.control, notice::ROOT, [0; 6], Some(root as Fd));
            sys::close(root as Fd);
        }
        root
    }

    /// Carries out one step of what the child waits for.
    fn build(&self, number: u64, step: &Step, builder: &mut Builder, extra: &[Fd]) {
        let required = step.header.required == 1;
        let result = match step.header.op {
            op::PROC => proc::mount_with_files(step),
            op::PROC_OF_PROCESSES => proc::mount_of_processes(step),
            op::HOLD => call!(nr::FCNTL, extra[step.number(0) as usize], execute::F_DUPFD_CLOEXEC, 10),
            op::SEND_ROOT => self.send_root(),
            _ => builder.apply(step, extra),
        };
        if result > steps::NOTE {
            notify(self.control, notice::STEP_FAILED, [number, (result - steps::NOTE) as u64, 0, 0, 0, 0]);
        }
        if result < 0 {
            notify(self.control, notice::STEP_FAILED, [number, -result as u64, u64::from(required), 0, 0, 0]);
            if required {
                sys::exit(1);
            }
        }
    }
}

/// Switches to another uid than the job's, and drops all capabilities but the one to signal it.
fn lower_privileges(step: &Step, whole_namespace: bool) {
    let (uid, gid, keep) = (step.number(0), step.number(1), step.number(2));
    if uid != u64::MAX {
        sys::prctl(sys::PR_SET_KEEPCAPS, 1);
        call!(nr::SETGROUPS, 0, 0);
        call!(nr::SETRESGID, gid, gid, gid);
        call!(nr::SETRESUID, uid, uid, uid);
    }
    sys::set_capabilities(keep);
    sys::prctl(sys::PR_SET_NO_NEW_PRIVS, 1);
    sys::prctl(sys::PR_SET_DUMPABLE, 0);
    // Changing the uid cleared it; prctl(2). Had the engine died in between, the control socket
    // shows that.
    sys::prctl(sys::PR_SET_PDEATHSIG, death_signal(whole_namespace));
}

/// The command's process: seals itself step by step, then becomes the command.
fn child(mut program: Program, status: Fd, built: Fd, stdio: &[Fd], extra: &[Fd]) -> ! {
    let mut ready = [stdio[0], stdio[1], stdio[2]];
    let mut parked: Option<Program> = None;
    loop {
        let next = match &mut parked {
            Some(second) => second.next(),
            None => program.next(),
        };
        let number = parked.as_ref().map_or(program.number, |second| second.number + program.number) - 1;
        let Some(step) = next else { sys::exit(122) };
        let result = match step.header.op {
            op::EXECUTE | op::EXECUTE_WITH | op::EXECUTE_SEARCH => execute(&step, status, ready, extra),
            op::TERMINAL => match steps::terminal(ready[0]) {
                Ok(slave) => {
                    ready[0] = slave;
                    for index in [1, 2] {
                        if step.number(index - 1) == 1 {
                            ready[index] = slave;
                        }
                    }
                    0
                }
                Err(error) => error,
            },
            op::LANDLOCK => steps::landlock(&step, ready[0]),
            op::SECCOMP if step.header.number_count == 2 => {
                steps::supervised(&step, extra[step.number(1) as usize])
            }
            op::JOIN => {
                if sys::read(built, &mut [0; 1]) != 1 {
                    sys::exit(122);
                }
                sys::close(built);
                0
            }
            op::PARK => match park(status, extra[step.number(0) as usize]) {
                Ok((second, given)) => {
                    parked = Some(second);
                    ready = given;
                    0
                }
                Err(error) => error,
            },
            _ => steps::apply(&step, extra),
        };
        if result < 0 {
            let required = step.header.required == 1;
            tell(status, if required { 1 } else { 0 }, -result as i32, number);
            if required {
                sys::exit(1);
            }
        }
    }
}

fn tell(status: Fd, kind: u32, error: i32, value: u64) {
    let message = Status { kind, error, value };
    // SAFETY: Status is plain numbers without padding.
    let bytes =
        unsafe { core::slice::from_raw_parts((&raw const message).cast::<u8>(), size_of::<Status>()) };
    sys::write(status, bytes);
}

const STATUS_REQUIRED_FAILED: u32 = 1;
const STATUS_PARKED: u32 = 2;
const STATUS_STARTING: u32 = 3;
const STATUS_EXECUTE_FAILED: u32 = 4;

/// Waits, sealed, for the second program and the three standard descriptors.
fn park(status: Fd, socket: Fd) -> Result<(Program, [Fd; 3]), isize> {
    tell(status, STATUS_PARKED, 0, 0);
    let mut length = [0u8; 8];
    let received = sys::receive(socket, &mut length, 0);
    if received.length != 8 || received.fd_count != 4 {
        sys::exit(0);
    }
    let program = Program::map(received.fds[0], u64::from_ne_bytes(length) as usize)?;
    Ok((program, [received.fds[1], received.fds[2], received.fds[3]]))
}

/// Puts the standard descriptors and then those that the step names in place, closes every other
/// one at exec, and becomes the command. The last of them may have a number of its own, far from
/// the others.
fn execute(step: &Step, status: Fd, stdio: [Fd; 3], extra: &[Fd]) -> isize {
    let status = call!(nr::FCNTL, status, execute::F_DUPFD_CLOEXEC, 10) as Fd;
    let mut fds = [stdio[0], stdio[1], stdio[2], -1, -1, -1, -1, -1];
    let count = (2 + step.header.number_count as usize).min(fds.len());
    let mut number = 0;
    for (index, fd) in fds[3..count].iter_mut().enumerate() {
        let given = step.number(index + 1);
        *fd = extra[given as u32 as usize];
        number = (given >> 32) as usize;
    }
    let mut result = execute::place(&fds[..count], 0);
    let kept = if number > 0 { count - 1 } else { count };
    call!(nr::CLOSE_RANGE, kept, u32::MAX, 4);
    if result >= 0 && number > 0 {
        result = call!(nr::DUP2, kept, number);
    }
    if result < 0 {
        return result;
    }
    let (arguments, environment) = match execute::vectors(step) {
        Ok(vectors) => vectors,
        Err(error) => return error,
    };
    tell(status, STATUS_STARTING, 0, sys::now());
    let result = if step.header.op == op::EXECUTE_SEARCH {
        execute::search(step.string(0), arguments, environment)
    } else {
        call!(nr::EXECVE, step.string(0).pointer, arguments, environment)
    };
    tell(status, STATUS_EXECUTE_FAILED, -result as i32, 0);
    // As env(1).
    sys::exit(if result == sys::ENOENT { 127 } else { 126 })
}

/// Reaps every dead child.
fn reap_all(checkpoints: &mut Checkpoints) {
    loop {
        match call!(nr::WAIT4, -1isize, 0, 1, 0) {
            sys::EINTR => {}
            pid if pid > 0 => checkpoints.lose(pid as i32),
            _ => return,
        }
    }
}

impl Init {
    /// Waits for the engine, for children and for its own deadline. Never returns; exiting kills
    /// the namespace.
    fn serve(&mut self, mut status: Fd, children: Fd) -> ! {
        loop {
            let mut fds = [
                PollFd { fd: self.control, events: sys::POLLIN, revents: 0 },
                PollFd { fd: children, events: sys::POLLIN, revents: 0 },
                PollFd { fd: status, events: sys::POLLIN, revents: 0 },
                PollFd { fd: self.checkpoints.listener, events: sys::POLLIN, revents: 0 },
                PollFd { fd: self.timer, events: sys::POLLIN, revents: 0 },
            ];
            sys::poll(&mut fds, sys::poll_timeout(self.deadline));
            // The engine first: it may have sent a parked run's deadline before its child could
            // start. And it may have moved the deadline while this process was frozen, which can be
            // at any instruction: a deadline has passed only by a time that was read before the
            // engine's commands. Dead children last: the last message of a child comes before its
            // end.
            let now = sys::now();
            if fds[0].revents != 0 || now >= self.deadline {
                while self.obey() {}
            }
            if now >= self.deadline || (fds[4].revents != 0 && self.timer_fired()) {
                notify(self.control, notice::FIRED, [sys::now(), self.alive(), 0, 0, 0, 0]);
                match self.checkpoints.last() {
                    0 => self.end(),
                    checkpoint => self.roll_back(checkpoint),
                }
            }
            // After the engine's commands: init knows every checkpoint before it permits a signal.
            if fds[3].revents & sys::POLLIN != 0 {
                self.checkpoints.answer();
            } else if fds[3].revents != 0 {
                sys::close(self.checkpoints.listener);
                self.checkpoints.listener = -1;
            }
            if fds[2].revents != 0 && !self.read_status(status) {
                sys::close(status);
                status = -1;
            }
            if fds[1].revents != 0 {
                // struct signalfd_siginfo begins with the signal's number.
                let mut signal = [0u8; 128];
                sys::read(children, &mut signal);
                if signal[0] == sys::SIGTERM as u8 {
                    self.end();
                }
                self.reap(status);
            }
        }
    }

    /// Whether the engine's timer fired and was not set again since; once.
    fn timer_fired(&self) -> bool {
        sys::read(self.timer, &mut [0; 8]) == 8
    }

    /// Until the engine sets another one. Here and not by the engine, which may be stopped at any
    /// moment: a command that ends what the deadline is for is carried out, or the deadline holds.
    /// The engine sets no deadline before it has received the result of the command.
    fn forget_deadline(&mut self) {
        self.deadline = u64::MAX;
        let never = [0u64; 4];
        call!(nr::TIMERFD_SETTIME, self.timer, 0, never.as_ptr(), 0);
    }

    /// False once the pipe is at its end: the command was executed.
    fn read_status(&mut self, status: Fd) -> bool {
        let mut message = Status { kind: 0, error: 0, value: 0 };
        // SAFETY: Status is plain numbers; any bytes are a valid value of it.
        let bytes =
            unsafe { core::slice::from_raw_parts_mut((&raw mut message).cast::<u8>(), size_of::<Status>()) };
        if sys::read(status, bytes) < size_of::<Status>() as isize {
            return false;
        }
        let error = message.error as u64;
        match message.kind {
            STATUS_PARKED => notify(self.control, notice::PARKED, [0; 6]),
            STATUS_STARTING => {
                let hard = message.value.saturating_add(self.wall).saturating_add(self.grace);
                self.deadline = self.deadline.min(hard.saturating_add(INIT_SLACK_NANOSECONDS));
                notify(self.control, notice::STARTED, [message.value, 0, 0, 0, 0, 0]);
            }
            STATUS_EXECUTE_FAILED => notify(self.control, notice::EXECUTE_FAILED, [error, 0, 0, 0, 0, 0]),
            kind => {
                let required = u64::from(kind == STATUS_REQUIRED_FAILED);
                notify(self.control, notice::STEP_FAILED, [message.value, error, required, 0, 0, 0]);
            }
        }
        true
    }

    /// Carries out one order; false when there is none.
    fn obey(&mut self) -> bool {
        let mut message = Order { kind: 0, argument: 0, value: 0 };
        // SAFETY: Order is plain numbers; any bytes are a valid value of it.
        let bytes =
            unsafe { core::slice::from_raw_parts_mut((&raw mut message).cast::<u8>(), size_of::<Order>()) };
        let received = sys::receive(self.control, bytes, sys::MSG_DONTWAIT);
        let length = received.length;
        if length == sys::EINTR || length == sys::EAGAIN {
            return false;
        }
        // Its descriptor found no room: the engine, which is there, waits no longer than for any
        // other answer.
        if length == sys::EINVAL {
            return true;
        }
        if length < size_of::<Order>() as isize {
            self.end();
        }
        match message.kind {
            order::DEADLINE => {
                let end = message.value.saturating_add(INIT_SLACK_NANOSECONDS);
                self.deadline = if message.argument == 1 { self.deadline.min(end) } else { end };
            }
            // From pid 1 that is everything in the namespace; elsewhere it would be everything of
            // this uid.
            order::SIGNAL_ALL if self.vacated != 0 && message.value == self.vacated => {}
            order::SIGNAL_ALL if self.live => self.checkpoints.signal(message.argument),
            order::SIGNAL_ALL if self.whole_namespace => {
                call!(nr::KILL, -1isize, message.argument);
            }
            order::SIGNAL_ALL => census::signal_children(message.argument),
            // Once it has ended, 0 would be init's own group. The first thread of an interpreter
            // holds it back between cells; another one would lose it.
            order::SIGNAL_MAIN if self.main > 0 && self.live => {
                call!(nr::TGKILL, self.main, self.main, message.argument);
            }
            order::SIGNAL_MAIN if self.main > 0 => {
                call!(nr::KILL, self.main, message.argument);
            }
            order::SAMPLE => {
                let sample = census::sample();
                let values = [sample.cpu, sample.processes, sample.memory_bytes, sample.threads, 0, 0];
                notify(self.control, notice::SAMPLE, values);
            }
            order::END => self.end(),
            order::CLOCK => {
                self.wall = message.value;
                self.grace = 0;
            }
            order::SUPERVISE => {
                self.live = true;
                self.checkpoints.listener = received.fds[0];
                if message.argument == 1 {
                    self.checkpoints.shell = self.main;
                }
                if message.argument != 0 {
                    let process = call!(nr::PIDFD_OPEN, self.main, 0);
                    let process = (process >= 0).then_some(process as Fd);
                    notify_with(
                        self.control,
                        notice::INTERPRETER,
                        [self.main as u64, 0, 0, 0, 0, 0],
                        process,
                    );
                    sys::close(process.unwrap_or(-1));
                }
            }
            order::KEEP => {
                self.checkpoints.keep(message.argument, self.main);
                if message.value == 1 {
                    notify(self.control, notice::KEPT, [0; 6]);
                }
            }
            order::SWEEP => {
                self.forget_deadline();
                let swept = self.checkpoints.kill_all(self.main, reap_all);
                let threads = census::threads_of(self.main);
                notify(self.control, notice::SWEPT, [swept.left, swept.killed, threads, 0, 0, 0]);
            }
            order::VACATE => {
                self.forget_deadline();
                let vacant = self.traces.are_none(message.value);
                self.vacated = u64::from(message.argument as u32);
                notify(self.control, notice::VACATED, [u64::from(vacant), 0, 0, 0, 0, 0]);
            }
            order::FORGET => self.checkpoints.forget(message.argument),
            order::ROLL_BACK => self.roll_back(message.argument),
            _ => {}
        }
        true
    }

    /// Reaps every dead child; when the command is among them, sends its notice and ends.
    fn reap(&mut self, status: Fd) {
        loop {
            let mut code = 0i32;
            let mut usage = [0u64; 18];
            let pid = call!(nr::WAIT4, -1isize, &raw mut code, 1, usage.as_mut_ptr());
            if pid == sys::EINTR {
                continue;
            }
            if pid <= 0 {
                return;
            }
            self.checkpoints.lose(pid as i32);
            if pid as i32 != self.main {
                continue;
            }
            let time = sys::now();
            while status >= 0 && self.read_status(status) {}
            let alive = self.alive();
            let cpu = |at: usize| usage[at].wrapping_mul(1_000_000).wrapping_add(usage[at + 1]);
            notify(self.control, notice::EXITED, [code as u32 as u64, cpu(0), cpu(2), usage[4], time, alive]);
            if !self.live {
                self.end();
            }
            self.main = 0;
        }
    }

    /// Rolls back to a checkpoint, and sends the result.
    fn roll_back(&mut self, checkpoint: i32) {
        self.forget_deadline();
        let back = self.checkpoints.roll_back(checkpoint, reap_all);
        let resumed = if back.resumed { checkpoint } else { 0 };
        self.main = resumed;
        let process = if back.resumed { call!(nr::PIDFD_OPEN, checkpoint, 0) } else { -1 };
        let values = [back.left, back.killed, resumed as u64, 0, 0, 0];
        notify_with(self.control, notice::ROLLED_BACK, values, (process >= 0).then_some(process as Fd));
        sys::close(process as Fd);
    }

    /// Counts the processes of the jail, without init.
    fn alive(&self) -> u64 {
        match self.whole_namespace {
            true if call!(nr::KILL, -1isize, 0) < 0 => 0,
            true => census::sample().processes,
            false => census::children(),
        }
    }

    /// As pid 1, leaving kills the rest. Without a pid namespace the descendants are swept first.
    fn end(&self) -> ! {
        if !self.whole_namespace {
            let left = census::sweep();
            notify(self.control, notice::SWEPT, [left, 0, 0, 0, 0, 0]);
        }
        sys::exit(0)
    }
}
