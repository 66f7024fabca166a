//! Checkpoints in a live jail: stopped copies of the interpreter that continues to run.
//!
//! ```text
//! interpreter ── KEEP ──▶ checkpoint (stopped) ── ROLL_BACK ──▶ it is the interpreter; all others are dead
//!                               └── FORGET ──▶ dead
//! ```
//! Interpreter and checkpoints are of one user in one namespace, so one could signal the other.
//! Every system call of the jail that sends a signal is therefore decided by init, which holds the
//! filter's listener: init inspects only numbers in registers, which no process can change while
//! the caller waits, and permits calls that do not reach a checkpoint.

use crate::census;
use crate::sys::{self, Fd, PollFd, call, nr};
use crate::wire::CHECKPOINT_CONTINUES;

/// The one to go back to, the one before, and the next.
const MOST: usize = 4;
/// Processes that earlier commands of a shell left running; more are taken for the next command's.
/// Each takes a descriptor.
const MOST_ELDERS: usize = 256;
/// Generations that are inspected.
const MOST_ANCESTORS: usize = 64;
/// Passes over /proc until everything that was killed must be gone; 100 µs each at first, then 1
/// ms.
const PASSES: u32 = 2000;

pub struct Checkpoints {
    pids: [i32; MOST],
    /// Where calls that send signals are asked about; -1 for none.
    pub listener: Fd,
    /// The interpreter, where it is a shell, whose commands end without it; 0 for others.
    pub shell: i32,
    /// What was there at the last [`Checkpoints::keep`], in a shell's sandbox.
    elders: [Elder; MOST_ELDERS],
}

/// A process by its PID, and by the descriptor that shows whether the PID is still its own.
#[derive(Clone, Copy)]
struct Elder {
    pid: i32,
    pidfd: Fd,
}

impl Elder {
    const NONE: Self = Elder { pid: 0, pidfd: -1 };

    fn is_alive(&self) -> bool {
        let mut fds = [PollFd { fd: self.pidfd, events: sys::POLLIN, revents: 0 }];
        self.pidfd >= 0 && sys::poll(&mut fds, 0) == 0
    }
}

/// How many were there when everything was killed, and how many were left in the end.
pub struct Killed {
    pub left: u64,
    pub killed: u64,
}

/// What was there when everything was killed.
pub struct RolledBack {
    pub left: u64,
    pub killed: u64,
    /// The checkpoint continues.
    pub resumed: bool,
}

impl Checkpoints {
    pub const NONE: Self =
        Checkpoints { pids: [0; MOST], listener: -1, shell: 0, elders: [Elder::NONE; MOST_ELDERS] };

    pub fn is_kept(&self, pid: i32) -> bool {
        pid > 0 && self.pids.contains(&pid)
    }

    /// Whether a checkpoint is in this group. The checkpoint is alone in its group, in a session of
    /// its own that no other process can enter.
    fn is_group(&self, group: i32) -> bool {
        group > 0 && self.pids.iter().any(|pid| *pid > 0 && call!(nr::GETPGID, *pid) == group as isize)
    }

    /// The last one; 0 for none.
    pub fn last(&self) -> i32 {
        self.pids.iter().rev().copied().find(|pid| *pid > 0).unwrap_or(0)
    }

    /// Stops it. What is no process, or the interpreter itself, is no checkpoint.
    pub fn keep(&mut self, pid: i32, interpreter: i32) {
        if self.shell != 0 {
            self.shell = interpreter;
            self.note_elders();
        }
        if pid <= 1 || pid == interpreter || call!(nr::KILL, pid, sys::SIGSTOP) < 0 {
            return;
        }
        if !census::stays_stopped(pid) {
            // None that was made as they are. It ends with the others.
            return;
        }
        if self.pids[MOST - 1] != 0 {
            self.forget(self.pids[0]);
        }
        self.put(pid);
    }

    /// Appends the checkpoint.
    fn put(&mut self, pid: i32) {
        let mut at = MOST;
        while at > 0 && self.pids[at - 1] == 0 {
            at -= 1;
        }
        if at < MOST {
            self.pids[at] = pid;
        }
    }

    /// Takes it out; the others keep their order.
    pub fn lose(&mut self, pid: i32) {
        let mut to = 0;
        for from in 0..MOST {
            if self.pids[from] != pid {
                self.pids[to] = self.pids[from];
                to += 1;
            }
        }
        for rest in to..MOST {
            self.pids[rest] = 0;
        }
    }

    pub fn forget(&mut self, pid: i32) {
        if self.is_kept(pid) {
            self.lose(pid);
            call!(nr::KILL, pid, sys::SIGKILL);
        }
    }

    /// A process that has no descriptor because init has none left is ended with the next command.
    fn note_elders(&mut self) {
        let mut count = 0;
        for at in 0..MOST_ELDERS {
            let elder = core::mem::replace(&mut self.elders[at], Elder::NONE);
            if elder.is_alive() {
                self.elders[count] = elder;
                count += 1;
            } else if elder.pidfd >= 0 {
                sys::close(elder.pidfd);
            }
        }
        let (elders, shell, pids) = (&mut self.elders, self.shell, &self.pids);
        census::each(|stat| {
            let pid = stat.pid as i32;
            let is_known = elders[..count].iter().any(|elder| elder.pid == pid);
            if count < MOST_ELDERS && pid != shell && !pids.contains(&pid) && !stat.is_dead && !is_known {
                let pidfd = call!(nr::PIDFD_OPEN, pid, 0) as Fd;
                if pidfd >= 0 {
                    elders[count] = Elder { pid, pidfd };
                    count += 1;
                }
            }
        });
    }

    /// Whether a process is spared: a checkpoint, or, in a shell's jail, a process that was there
    /// before, or a descendant of one.
    fn is_spared(&self, pid: i32) -> bool {
        if self.is_kept(pid) {
            return true;
        }
        let mut ancestor = pid;
        for _ in 0..MOST_ANCESTORS {
            if self.shell == 0 || ancestor <= 1 || ancestor == self.shell {
                return false;
            }
            if self.elders.iter().any(|elder| elder.pid == ancestor && elder.is_alive()) {
                return true;
            }
            ancestor = census::parent(ancestor);
        }
        false
    }

    /// Signals everything that is not spared; in a shell's sandbox not the shell itself.
    pub fn signal(&self, signal: i32) {
        census::each(|stat| {
            let pid = stat.pid as i32;
            if pid != self.shell && !self.is_spared(pid) {
                call!(nr::KILL, pid, signal);
            }
        });
    }

    /// Kills everything that is not spared, and not the interpreter. `reap` collects dead children.
    pub fn kill_all(&mut self, interpreter: i32, reap: impl FnMut(&mut Self)) -> Killed {
        self.end(interpreter, reap)
    }

    fn end(&mut self, but: i32, mut reap: impl FnMut(&mut Self)) -> Killed {
        // Everything at once, so that nothing forks on: one signal to all is not interrupted by a
        // fork; kill(2).
        call!(nr::KILL, -1isize, sys::SIGSTOP);
        let (mut left, mut killed) = (0, 0);
        for pass in 0..PASSES {
            left = 0;
            census::each(|stat| {
                let pid = stat.pid as i32;
                if pid != but && !self.is_spared(pid) {
                    call!(nr::KILL, pid, sys::SIGKILL);
                    left += u64::from(!stat.is_dead);
                }
            });
            killed = if pass == 0 { left } else { killed };
            reap(self);
            if left == 0 {
                break;
            }
            let pause = [0u64, if pass < 50 { 100_000 } else { 1_000_000 }];
            call!(nr::NANOSLEEP, pause.as_ptr(), 0);
        }
        if self.shell != 0 || but != 0 {
            // What is spared continues; checkpoints do not.
            census::each(|stat| {
                if !self.is_kept(stat.pid as i32) {
                    call!(nr::KILL, stat.pid, sys::SIGCONT);
                }
            });
        }
        Killed { left, killed }
    }

    /// Kills all processes that are not spared, and has a checkpoint continue. `reap` reaps dead
    /// children.
    pub fn roll_back(&mut self, pid: i32, reap: impl FnMut(&mut Self)) -> RolledBack {
        let Killed { left, killed } = self.end(0, reap);
        let resumed = left == 0 && self.is_kept(pid);
        if resumed {
            self.lose(pid);
            call!(nr::KILL, pid, CHECKPOINT_CONTINUES);
            call!(nr::KILL, pid, sys::SIGCONT);
        }
        RolledBack { left, killed, resumed }
    }

    /// Answers one call that sends a signal.
    pub fn answer(&self) {
        let mut asked =
            Asked { id: 0, pid: 0, flags: 0, number: 0, architecture: 0, pointer: 0, arguments: [0; 6] };
        // Gone again already: its caller was killed.
        if call!(nr::IOCTL, self.listener, NOTIFICATION_RECEIVE, &raw mut asked) < 0 {
            return;
        }
        let result = self.decide(&asked);
        let mut reply = Reply { id: asked.id, value: 0, error: 0, flags: 0 };
        match result {
            Decision::GoesOn => reply.flags = CONTINUE,
            Decision::Fails(error) => reply.error = error as i32,
            Decision::Done => {}
        }
        call!(nr::IOCTL, self.listener, NOTIFICATION_SEND, &raw mut reply);
    }

    fn decide(&self, asked: &Asked) -> Decision {
        let [first, second] = [asked.arguments[0] as i32, asked.arguments[1] as i32];
        match asked.number as usize {
            nr::KILL if first == -1 => self.signal_all(second, asked.pid as i32),
            nr::KILL if self.is_kept(first) || self.is_group(first.wrapping_neg()) => {
                Decision::Fails(sys::ESRCH)
            }
            nr::KILL => Decision::GoesOn,
            // Of the others the first argument is a process or a thread, and of two the second a
            // thread.
            nr::TGKILL | nr::RT_TGSIGQUEUEINFO if self.is_kept(second) => Decision::Fails(sys::ESRCH),
            _ if self.is_kept(first) => Decision::Fails(sys::ESRCH),
            _ => Decision::GoesOn,
        }
    }

    /// kill(-1): everything but init, the checkpoints, and the caller, which Linux spares.
    fn signal_all(&self, signal: i32, caller: i32) -> Decision {
        let mut reached = false;
        census::each(|stat| {
            let pid = stat.pid as i32;
            if pid != caller && !self.is_kept(pid) {
                reached |= call!(nr::KILL, pid, signal) >= 0;
            }
        });
        if reached { Decision::Done } else { Decision::Fails(sys::ESRCH) }
    }
}

enum Decision {
    GoesOn,
    Done,
    Fails(isize),
}

/// `struct seccomp_notif`.
#[repr(C)]
struct Asked {
    id: u64,
    pid: u32,
    flags: u32,
    number: i32,
    architecture: u32,
    pointer: u64,
    arguments: [u64; 6],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
struct Reply {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

const NOTIFICATION_RECEIVE: usize = 0xc050_2100;
const NOTIFICATION_SEND: usize = 0xc018_2101;
/// SECCOMP_USER_NOTIF_FLAG_CONTINUE.
const CONTINUE: u32 = 1;
