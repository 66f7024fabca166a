//! Attacks E1 to E4, E8, E9, E11, F12: payloads that read, write or inherit what is not theirs.
//!
//! A write is only ever probed by opening: nothing is written through a descriptor that was
//! granted.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::arguments::PayloadArguments;
use crate::call;
use crate::report::Finding;

/// The path as the kernel wants it.
pub(crate) fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

fn probing(result: Result<String, Finding>) -> Finding {
    result.map_or_else(|refused| refused, Finding::Succeeded)
}

/// E1: opens for reading, and reads nothing: `read-file PATH`.
pub(crate) fn read(arguments: &PayloadArguments) -> Finding {
    probing((|| {
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(arguments.path(0)?)?;
        Ok("opened for reading".into())
    })())
}

/// E1: another process's environment, root, working directory and memory: `proc-environ [PID]`.
/// Opens only; nothing is read.
pub(crate) fn process_secrets(arguments: &PayloadArguments) -> Finding {
    let pid = match arguments.victim(0) {
        Ok(victim) => victim,
        Err(refused) => return refused,
    };
    let mut last = libc::ENOENT;
    for name in ["environ", "maps", "mem", "fd", "root/etc", "cwd/.", "exe"] {
        let path = format!("/proc/{pid}/{name}");
        let opened = File::open(&path).and_then(|file| {
            if file.metadata()?.is_dir() { std::fs::read_dir(&path).map(drop) } else { Ok(()) }
        });
        match opened {
            Ok(()) => return Finding::Succeeded(path),
            Err(error) => last = error.raw_os_error().unwrap_or(last),
        }
    }
    Finding::Denied(last)
}

/// E2, E11: opens for writing, and writes nothing: `write-file PATH`.
pub(crate) fn write(arguments: &PayloadArguments) -> Finding {
    probing((|| {
        let flags = libc::O_NONBLOCK | libc::O_APPEND;
        OpenOptions::new().write(true).custom_flags(flags).open(arguments.path(0)?)?;
        Ok("opened for writing".into())
    })())
}

/// E2: makes a new file: `create-file PATH [keep]`. Without `keep` it is removed again.
pub(crate) fn create(arguments: &PayloadArguments) -> Finding {
    probing((|| {
        let path = arguments.path(0)?;
        OpenOptions::new().write(true).create_new(true).open(&path)?;
        if arguments.text(1, "") != "keep" {
            std::fs::remove_file(&path)?;
        }
        Ok("created".into())
    })())
}

/// E4: any open descriptor beyond the three streams.
pub(crate) fn inherited(_: &PayloadArguments) -> Finding {
    let mut found = vec![];
    for descriptor in 3..4096 {
        if call!(libc::SYS_fcntl, descriptor, libc::F_GETFD).is_ok() {
            let target = std::fs::read_link(format!("/proc/self/fd/{descriptor}")).unwrap_or_default();
            found.push(format!("{descriptor}={}", target.display()));
        }
    }
    match found.is_empty() {
        true => Finding::Denied(libc::EBADF),
        false => Finding::Succeeded(found.join(" ")),
    }
}

/// E8: a second name for a protected file: `hardlink PATH NEW`.
pub(crate) fn hard_link(arguments: &PayloadArguments) -> Finding {
    probing((|| {
        let new = arguments.path(1)?;
        std::fs::hard_link(arguments.path(0)?, &new)?;
        std::fs::remove_file(&new)?;
        Ok("linked".into())
    })())
}

#[repr(C)]
struct FileHandle {
    bytes: u32,
    kind: i32,
    handle: [u8; 128],
}

/// The number of the file at the first argument.
fn handle_of(arguments: &PayloadArguments) -> Result<FileHandle, Finding> {
    let path = c_path(&arguments.path(0)?);
    let mut handle = FileHandle { bytes: 128, kind: 0, handle: [0; 128] };
    let (mut mount, at) = (0i32, libc::AT_FDCWD);
    let (out, id) = (std::ptr::from_mut(&mut handle), std::ptr::from_mut(&mut mount));
    let found = call!(libc::SYS_name_to_handle_at, at, path.as_ptr(), out, id, 0);
    found.map(|_| handle).map_err(Finding::Denied)
}

/// E8: opens a file by its number instead of its name: `by-handle PATH`.
pub(crate) fn by_handle(arguments: &PayloadArguments) -> Finding {
    match handle_of(arguments) {
        Ok(mut handle) => {
            let number = std::ptr::from_mut(&mut handle);
            Finding::of(call!(libc::SYS_open_by_handle_at, libc::AT_FDCWD, number, libc::O_RDONLY))
        }
        Err(refused) => refused,
    }
}

/// F12: asks for a file's number, which tells two runs that they see the same file: `file-handle
/// PATH`.
pub(crate) fn file_handle(arguments: &PayloadArguments) -> Finding {
    probing(handle_of(arguments).map(|handle| format!("a number of {} bytes", handle.bytes)))
}

/// E9: a device node of its own: `mknod PATH`. The device is the null device, and the node is
/// removed again.
pub(crate) fn device_node(arguments: &PayloadArguments) -> Finding {
    probing((|| {
        let path = arguments.path(0)?;
        let (name, mode) = (c_path(&path), libc::S_IFCHR | 0o666);
        let made = call!(libc::SYS_mknodat, libc::AT_FDCWD, name.as_ptr(), mode, libc::makedev(1, 3));
        let opened = made.map_err(Finding::Denied).and_then(|_| Ok(File::open(&path)?));
        drop(std::fs::remove_file(&path));
        opened.map(|_| "made and opened a device".into())
    })())
}
