//! The way from the launcher to a zygote: a process with a sandbox's view of the files, which
//! becomes an interpreter.
//!
//! It is in the engine's pid namespace, so that it can put children into those of other inits
//! (setns(2) goes downwards only), and it keeps the capabilities that takes. What the interpreter
//! then does is `python.rs` in the library.

use crate::execute;
use crate::init;
use crate::steps::{self, Program, Step};
use crate::sys::{self, Fd, call, nr};
use crate::wire::{notice, op};

const CAP_DAC_OVERRIDE: u64 = 1 << 1;
const CAP_SETGID: u64 = 1 << 6;
const CAP_SETUID: u64 = 1 << 7;
const CAP_SYS_CHROOT: u64 = 1 << 18;
const CAP_SYS_ADMIN: u64 = 1 << 21;

/// What a zygote needs: entering namespaces, giving a child its uid, and, as another uid than the
/// owner of the control groups, cloning into them.
pub const CAPABILITIES: u64 = CAP_DAC_OVERRIDE | CAP_SETGID | CAP_SETUID | CAP_SYS_CHROOT | CAP_SYS_ADMIN;

pub fn main(program: Program, control: Fd, stdio: &[Fd], extra: &[Fd]) -> ! {
    // Its parent is the engine's starting thread, not the launcher.
    sys::prctl(sys::PR_SET_PDEATHSIG, sys::SIGKILL as usize);
    sys::prctl(sys::PR_SET_DUMPABLE, 0);
    for (number, step) in program.enumerate() {
        let result = match step.header.op {
            op::EXECUTE_WITH => execute(&step, stdio, extra),
            _ => steps::apply(&step, extra),
        };
        if result < 0 {
            let required = u64::from(step.header.required);
            init::notify(control, notice::STEP_FAILED, [number as u64, -result as u64, required, 0, 0, 0]);
            if required == 1 {
                sys::exit(1);
            }
        }
    }
    sys::exit(122)
}

fn execute(step: &Step, stdio: &[Fd], extra: &[Fd]) -> isize {
    let result = execute::place(stdio, 0);
    if result < 0 {
        return result;
    }
    let mut fds = [-1 as Fd; 8];
    let count = (step.header.number_count as usize - 1).min(fds.len());
    for (index, place) in fds[..count].iter_mut().enumerate() {
        *place = extra[step.number(index + 1) as usize];
    }
    let result = execute::place(&fds[..count], 3);
    if result < 0 {
        return result;
    }
    call!(nr::CLOSE_RANGE, 3 + count, u32::MAX, 4);
    match execute::vectors(step) {
        Ok((arguments, environment)) => {
            // Changing the uid cleared it.
            sys::prctl(sys::PR_SET_PDEATHSIG, sys::SIGKILL as usize);
            call!(nr::EXECVE, step.string(0).pointer, arguments, environment)
        }
        Err(error) => error,
    }
}
