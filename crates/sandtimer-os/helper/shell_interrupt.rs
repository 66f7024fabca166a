//! Ctrl-C for a session's shell, which reads a script and would otherwise end by it, or continue
//! with the script.
//!
//! ```text
//! SIGINT ─┬─ in a builtin or a loop ──▶ interrupted() ─▶ bash drops the command line and reads on: exit code 130, state kept
//!         ├─ in a wait for a child ──▶ remembered, and interrupted() once bash has waited for the child
//!         └─ outside of a command ───▶ blocked ─┬─ the next command begins: it is that command's
//!                                               └─ a checkpoint is asked for: it came too late for the command before, and is dropped
//! ```
//! Blocked, so that a trap of the session's for it is not executed in the lines that take commands.
//!
//! An interactive bash does this itself: its handler (`sigint_sighandler`) has the next safe point
//! of the execution return to the top level. A bash that reads a script does the same, but exits
//! there unless it is still starting an interactive shell. For the time from the interrupt until it
//! reads on it is therefore made to appear so, by the two variables that this decision reads. Where
//! bash does not export these names, an interrupt reaches only what the command has started.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicUsize};

use crate::signal_action::{DEFAULT_ACTION, SignalAction};
use crate::sys::{self, call, nr};
use crate::{IN_COMMAND, STAGE, is_own, of_bash, of_libc, returned};

/// What an interrupted command ends with.
pub const EXIT_CODE: i32 = 128 + SIGINT;
const SIGINT: c_int = 2;
/// The set of that signal alone.
const INTERRUPTS: u64 = 1 << (SIGINT - 1);
const SIG_DFL: usize = 0;
const SIG_IGN: usize = 1;
const SIG_BLOCK: usize = 0;
const SIG_UNBLOCK: usize = 1;

type Set = unsafe extern "C" fn(c_int, *const SignalAction, *mut SignalAction) -> c_int;

/// Bash is to drop the command line, and has not read on yet.
static IS_DROPPING_LINE: AtomicBool = AtomicBool::new(false);
/// An interrupt came while bash was waiting for a child.
static CAME_IN_WAIT: AtomicBool = AtomicBool::new(false);
/// Bash's own handler for the time of such a wait.
static WAITING_HANDLER: AtomicUsize = AtomicUsize::new(SIG_DFL);

/// Bash's variables and handler that this module uses.
struct Shell {
    is_interactive: *mut c_int,
    is_initialized: *mut c_int,
    interrupts: *mut c_int,
    handler: extern "C" fn(c_int),
}

impl Shell {
    fn find() -> Option<Self> {
        let names = [c"interactive_shell", c"shell_initialized", c"interrupt_state", c"sigint_sighandler"];
        let found = names.map(of_bash);
        if found.contains(&null_mut()) {
            return None;
        }
        let [is_interactive, is_initialized, interrupts, handler] = found;
        Some(Shell {
            is_interactive: is_interactive.cast(),
            is_initialized: is_initialized.cast(),
            interrupts: interrupts.cast(),
            // SAFETY: a signal handler of bash, which has this type.
            handler: unsafe { core::mem::transmute::<*mut c_void, extern "C" fn(c_int)>(handler) },
        })
    }

    /// Makes bash appear to be starting an interactive shell, or ends that appearance.
    fn show_start(&self, starting: bool) {
        // SAFETY: variables of bash, which has one thread.
        unsafe {
            *self.is_interactive = c_int::from(starting);
            *self.is_initialized = c_int::from(!starting);
        }
    }
}

/// The C library's sigaction(2).
fn set() -> Option<Set> {
    let found = of_libc(c"sigaction");
    // SAFETY: null or sigaction(2), which has this type.
    unsafe { core::mem::transmute::<*mut c_void, Option<Set>>(found) }
}

/// Has interrupts reach the shell, where no trap of the session's decides what they do.
pub fn install() {
    let Some(set) = set() else { return };
    let mut current = DEFAULT_ACTION;
    // SAFETY: both are of the C library's layout.
    if unsafe { set(SIGINT, core::ptr::null(), &raw mut current) } != 0 {
        return;
    }
    let is_default = is_of_bash(current.handler)
        || current.handler == in_wait as *const () as usize && is_of_bash(WAITING_HANDLER.load(Relaxed));
    if is_default {
        let own = SignalAction { handler: interrupted as *const () as usize, ..DEFAULT_ACTION };
        // SAFETY: as above.
        unsafe { set(SIGINT, &raw const own, null_mut()) };
    }
}

/// Whether a handler is what bash has where no trap decides.
fn is_of_bash(handler: usize) -> bool {
    let own = [of_bash(c"termsig_sighandler"), of_bash(c"sigint_sighandler")];
    handler == SIG_DFL || own.iter().any(|own| !own.is_null() && *own as usize == handler)
}

/// sigaction(2): while bash waits for a child it has a handler of its own, which ends a script only
/// if the child dies of the same signal. A child that just begins or ends would then have the
/// interrupt lost.
///
/// # Safety
/// As sigaction(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(signal: c_int, new: *const SignalAction, old: *mut SignalAction) -> c_int {
    let Some(set) = set() else { return returned(sys::ENOSYS) as c_int };
    let own = interrupted as *const () as usize;
    let wrapper = in_wait as *const () as usize;
    // SAFETY: the caller's promise.
    let wanted = if new.is_null() { SIG_DFL } else { unsafe { (*new).handler } };
    let mut current = DEFAULT_ACTION;
    // SAFETY: the C library's layout.
    let replaces_own = signal == SIGINT
        && !matches!(wanted, SIG_DFL | SIG_IGN)
        && wanted != own
        && unsafe { set(SIGINT, core::ptr::null(), &raw mut current) } == 0
        && current.handler == own
        && is_own();
    if replaces_own && is_of_bash(wanted) {
        // SAFETY: the caller's promise.
        if let Some(old) = unsafe { old.as_mut() } {
            *old = current;
        }
        return 0;
    }
    let is_default = signal == SIGINT && !new.is_null() && wanted == SIG_DFL && is_own();
    let result = if is_default {
        // What `trap - INT` asks for: without a trap an interrupt ends the command, not the shell.
        // SAFETY: not null; the caller's promise.
        let default = SignalAction { handler: own, ..unsafe { *new } };
        unsafe { set(signal, &raw const default, old) }
    } else if replaces_own {
        WAITING_HANDLER.store(wanted, Relaxed);
        // SAFETY: not null, as a handler is wanted.
        let wrapped = SignalAction { handler: wrapper, ..unsafe { *new } };
        // SAFETY: the caller's promise.
        unsafe { set(signal, &raw const wrapped, old) }
    } else {
        // SAFETY: the caller's promise.
        unsafe { set(signal, new, old) }
    };
    if signal == SIGINT && result == 0 {
        // SAFETY: the caller's promise.
        if let Some(old) = unsafe { old.as_mut() }
            && old.handler == wrapper
        {
            old.handler = WAITING_HANDLER.load(Relaxed);
        }
        if wanted == own && CAME_IN_WAIT.swap(false, Relaxed) {
            interrupted(SIGINT);
        }
    }
    result
}

extern "C" fn interrupted(signal: c_int) {
    if !is_own() {
        // A fork of the shell, before it has handlers of its own, or executes something.
        end_by(signal);
        return;
    }
    if STAGE.load(Relaxed) == IN_COMMAND {
        drop_line();
    }
}

/// Has interrupts wait until [`unblock`].
pub fn block() {
    mask(SIG_BLOCK);
}

/// Handles interrupts, also those that have waited since [`block`].
pub fn unblock() {
    mask(SIG_UNBLOCK);
}

/// Blocks SIGINT, or unblocks it; rt_sigprocmask(2).
fn mask(how: usize) {
    let interrupts = INTERRUPTS;
    call!(nr::RT_SIGPROCMASK, how, &raw const interrupts, 0, 8);
}

/// Drops an interrupt that has waited since [`block`].
pub fn drop_blocked() {
    let (interrupts, at_once) = (INTERRUPTS, [0u64; 2]);
    call!(nr::RT_SIGTIMEDWAIT, &raw const interrupts, 0, at_once.as_ptr(), 8);
}

/// Ends this process, as one without a handler for the signal.
fn end_by(signal: c_int) {
    if let Some(set) = set() {
        let default = DEFAULT_ACTION;
        // SAFETY: the C library's layout.
        unsafe { set(signal, &raw const default, null_mut()) };
    }
    call!(nr::KILL, call!(nr::GETPID), signal);
}

/// Interrupts a fork of the shell that was made after an interrupt had come, and before bash acts
/// on it: the sender may not have met this process, and the shell will not wait for it.
pub fn interrupt_fork(child: c_int) {
    const RT_SIGPENDING: usize = 127;
    let mut pending = 0u64;
    // Bash blocks interrupts while it forks.
    call!(RT_SIGPENDING, &raw mut pending, 8);
    if pending & INTERRUPTS != 0 || IS_DROPPING_LINE.load(Relaxed) {
        call!(nr::KILL, child, SIGINT);
    }
}

/// The handler for as long as bash waits for a child, around bash's own.
extern "C" fn in_wait(signal: c_int) {
    let handler = WAITING_HANDLER.load(Relaxed);
    if is_own() && STAGE.load(Relaxed) == IN_COMMAND && !is_trapped() {
        CAME_IN_WAIT.store(true, Relaxed);
    }
    // SAFETY: what bash has set as the handler of this signal.
    let handler = unsafe { core::mem::transmute::<usize, extern "C" fn(c_int)>(handler) };
    handler(signal);
}

/// Whether the session has a trap for it.
fn is_trapped() -> bool {
    let found = of_bash(c"signal_is_trapped");
    // SAFETY: null or a function of bash with this type.
    let found = unsafe { core::mem::transmute::<*mut c_void, Option<extern "C" fn(c_int) -> c_int>>(found) };
    found.is_some_and(|is_trapped| is_trapped(SIGINT) != 0)
}

/// Has bash drop the command line, and read on.
fn drop_line() {
    let Some(shell) = Shell::find() else { return };
    IS_DROPPING_LINE.store(true, Relaxed);
    shell.show_start(true);
    (shell.handler)(SIGINT);
}

/// Has bash forget that it was to drop a line, which it has done or which has ended; whether it
/// was.
pub fn forget_drop() -> bool {
    CAME_IN_WAIT.store(false, Relaxed);
    let was_dropping = IS_DROPPING_LINE.swap(false, Relaxed);
    if was_dropping && let Some(shell) = Shell::find() {
        shell.show_start(false);
        // SAFETY: a variable of bash, which has one thread.
        unsafe { *shell.interrupts = 0 };
    }
    was_dropping
}
