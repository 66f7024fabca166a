//! The /proc of a sandbox: processes, and the few files from which programs read how large the
//! machine is.
//!
//! A procfs that shows processes only (`subset=pid`) has no such files, and no mount points for
//! others. So a whole one is mounted, the files are put over those of the same names, and then it
//! is changed to show processes only. From then on the kernel refuses every name but those that are
//! in use, which the mount points and the files that init holds open stay. Until then nothing of
//! the job runs, and no other name of it is used: the kernel could keep that one as well. For the
//! same reason no directory is among them.
//!
//! However it ends, the sandbox has a procfs that shows processes, or none.

use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::steps::{self, AT_EMPTY_PATH, AT_RECURSIVE, EMPTY, MNT_DETACH, Place, Step};
use crate::sys::{self, Fd, call, nr};

/// MOUNT_ATTR_RDONLY, NOSUID, NODEV and NOEXEC.
const ATTRIBUTES_OF_FILES: u64 = 1 | 2 | 4 | 8;

/// A procfs is mounted.
static STANDS: AtomicBool = AtomicBool::new(false);
/// The file that the engine is to be sent; -1 for none.
static MEMORY_FILE: AtomicI32 = AtomicI32::new(-1);

/// The file that was written, once, where the engine is to be sent it.
pub fn take_memory_file() -> Option<Fd> {
    let file = MEMORY_FILE.swap(-1, Ordering::Relaxed);
    (file >= 0).then_some(file)
}

/// Mounts a procfs with the files that the step names; [`crate::wire::op::PROC`]. On an error there
/// is none.
pub fn mount_with_files(step: &Step) -> isize {
    let written = match write_file(step) {
        Ok(written) => written,
        Err(error) => return error,
    };
    // The current directory is below the mount from here on, where the files lie.
    let kind = c"proc".as_ptr().cast();
    let mounted = steps::enter(Place::of(step).open()).map_or_else(
        |error| error,
        |here| steps::mount(kind, here, kind, step.number(0) as usize, step.string(2).pointer),
    );
    let result = if mounted < 0 { mounted } else { fill(step) };
    if mounted >= 0 && result < 0 {
        detach(step);
    }
    if result >= 0 && step.number(2) == 1 {
        MEMORY_FILE.store(written, Ordering::Relaxed);
    } else {
        sys::close(written);
    }
    STANDS.store(result >= 0, Ordering::Relaxed);
    result
}

/// [`crate::wire::op::PROC_OF_PROCESSES`].
pub fn mount_of_processes(step: &Step) -> isize {
    if STANDS.load(Ordering::Relaxed) {
        return 0;
    }
    let kind = c"proc".as_ptr().cast();
    steps::enter(Place::of(step).open()).map_or_else(
        |error| error,
        |here| steps::mount(kind, here, kind, step.number(0) as usize, step.string(2).pointer),
    )
}

/// The file that the step has written first, open to be written; -1 where there is none.
fn write_file(step: &Step) -> Result<Fd, isize> {
    const O_EXCL: usize = 0o200;
    if step.string(3).length == 0 {
        return Ok(-1);
    }
    let mask = call!(nr::UMASK, 0);
    let flags = sys::O_WRONLY | sys::O_CREAT | O_EXCL | sys::O_CLOEXEC;
    let file = sys::open_at(sys::AT_FDCWD, step.string(3).pointer, flags, 0o644);
    call!(nr::UMASK, mask);
    if file < 0 {
        return Err(file);
    }
    let written = sys::write(file as Fd, step.string(4).bytes());
    if written < 0 { Err(written) } else { Ok(file as Fd) }
}

/// Puts the files into the procfs that has just been mounted, and has it show processes only.
fn fill(step: &Step) -> isize {
    let proc = match Place::of(step).open() {
        Ok(proc) => proc,
        Err(error) => return error,
    };
    let own = 5 + 2 * step.number(1) as usize;
    let mut result = 0;
    for at in (5..own).step_by(2) {
        if result >= 0 {
            result = bind(step.string(at).pointer, step.string(at + 1).pointer);
        }
    }
    if result >= 0 {
        // The procfs itself as well, until it is remounted: of processes some files may be written.
        let attributes = [ATTRIBUTES_OF_FILES, 0, 0, 0];
        result = steps::set_attributes(proc as isize, EMPTY, attributes, AT_EMPTY_PATH | AT_RECURSIVE);
    }
    for at in own..step.header.string_count as usize {
        // Kept open until the sandbox ends. Without it the sandbox lacks a file.
        let flags = steps::O_PATH as usize | sys::O_NOFOLLOW | sys::O_CLOEXEC;
        sys::open_at(proc as isize, step.string(at).pointer, flags, 0);
    }
    if result >= 0 {
        result = show_processes_only(proc, step.number(0) as usize);
    }
    sys::close(proc);
    result
}

fn bind(source: *const u8, target: *const u8) -> isize {
    const BIND: usize = 1 << 12;
    steps::mount(source, target, core::ptr::null(), BIND, core::ptr::null())
}

/// The options that it was mounted with stay.
fn show_processes_only(proc: Fd, flags: usize) -> isize {
    const REMOUNT: usize = 1 << 5;
    let kind = c"proc".as_ptr().cast();
    let mut result = call!(nr::FCHDIR, proc);
    if result >= 0 {
        let here = c".".as_ptr().cast();
        result = steps::mount(kind, here, kind, REMOUNT | flags, c"subset=pid".as_ptr().cast());
    }
    // It is in every procfs. Where it is found the procfs is taken away again, and what the kernel
    // keeps of it too.
    if result >= 0 && call!(nr::FACCESSAT, proc, c"cmdline".as_ptr(), 0) != sys::ENOENT {
        result = sys::EINVAL;
    }
    result
}

/// Takes a procfs away that shows more than processes, or ends the sandbox.
fn detach(step: &Step) {
    let detached = steps::enter(Place::of(step).open())
        .map_or_else(|error| error, |here| call!(nr::UMOUNT2, here, MNT_DETACH));
    if detached < 0 {
        sys::exit(122);
    }
}
