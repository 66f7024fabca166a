//! A file system served by the test itself, which can keep whoever reads from it waiting: the
//! kernel then lets not even SIGKILL through, as with a disk or a server that has died.
//!
//! It is mounted in a mount namespace of the calling thread, and so of what that thread starts.
//! Dropped, it answers nobody any more and whoever waits gets an error: nothing is left to wait.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::wait::readable;

/// What its only file holds.
pub const CONTENT: [u8; 4096] = [b'\n'; 4096];
/// Name of that file.
pub const NAME: &str = "file";
const FILE: u64 = 2;
const ROOT: u64 = 1;

/// A mounted file system of one file.
#[derive(Debug)]
pub struct Fuse {
    shared: Arc<FuseState>,
    server: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct FuseState {
    /// Reads wait while this is set.
    holding: AtomicBool,
    /// Reads that wait now.
    held: AtomicUsize,
    over: AtomicBool,
}

impl Fuse {
    /// Moves the calling thread into a mount namespace of its own and mounts one there; why not,
    /// where it cannot be.
    ///
    /// # Errors
    /// Which step the host refuses.
    pub fn mount(at: &Path) -> Result<Self, String> {
        let device = File::options().read(true).write(true).open("/dev/fuse");
        let device = device.map_err(|error| format!("/dev/fuse: {error}"))?;
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions",
            device.as_raw_fd()
        );
        let text = |text: &str| std::ffi::CString::new(text).map_err(|error| error.to_string());
        let (mount_point, options) = (text(&at.to_string_lossy())?, text(&options)?);
        // SAFETY: strings that live across the calls; the namespace is this thread's alone.
        let mounted = unsafe {
            libc::unshare(libc::CLONE_NEWNS) == 0
                && libc::mount(
                    std::ptr::null(),
                    c"/".as_ptr(),
                    std::ptr::null(),
                    libc::MS_REC | libc::MS_PRIVATE,
                    std::ptr::null(),
                ) == 0
                && libc::mount(
                    c"hostile".as_ptr(),
                    mount_point.as_ptr(),
                    c"fuse".as_ptr(),
                    libc::MS_NOSUID | libc::MS_NODEV,
                    options.as_ptr().cast(),
                ) == 0
        };
        if !mounted {
            return Err(format!("mount a FUSE file system: {}", std::io::Error::last_os_error()));
        }
        let shared = Arc::new(FuseState::default());
        let for_server = shared.clone();
        let server =
            std::thread::spawn(move || FuseServer { device, shared: for_server, held: vec![] }.serve());
        Ok(Fuse { shared, server: Some(server) })
    }

    /// From now on reads wait, or are answered again.
    pub fn hold(&self, holding: bool) {
        self.shared.holding.store(holding, Ordering::SeqCst);
    }

    /// How many reads wait.
    #[must_use]
    pub fn held(&self) -> usize {
        self.shared.held.load(Ordering::SeqCst)
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        // A server that panicked has said so, and has closed the device as well.
        drop(self.server.take().map(JoinHandle::join));
    }
}

struct FuseServer {
    device: File,
    shared: Arc<FuseState>,
    /// Reads that have no answer yet, by the number that the answer must carry.
    held: Vec<u64>,
}

impl FuseServer {
    fn serve(mut self) {
        let mut request = vec![0; 1 << 18];
        while !self.shared.over.load(Ordering::SeqCst) {
            if !self.shared.holding.load(Ordering::SeqCst) {
                for unique in std::mem::take(&mut self.held) {
                    self.answer(unique, 0, &CONTENT);
                }
            }
            self.shared.held.store(self.held.len(), Ordering::SeqCst);
            if readable(self.device.as_fd(), Duration::from_millis(5)) {
                match self.device.read(&mut request) {
                    Ok(length) => self.handle(&request[..length]),
                    // Unmounted everywhere.
                    Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return,
                    Err(_) => {}
                }
            }
        }
    }

    /// One request, in the layout of linux/fuse.h.
    fn handle(&mut self, request: &[u8]) {
        let number = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_ne_bytes(request[at..at + 8].try_into().expect("eight bytes"));
        let (operation, unique, node) = (number(4), long(8), long(16));
        const LOOKUP: u32 = 1;
        const GETATTR: u32 = 3;
        const OPEN: u32 = 14;
        const READ: u32 = 15;
        const STATFS: u32 = 17;
        const RELEASE: u32 = 18;
        const INIT: u32 = 26;
        const OPENDIR: u32 = 27;
        const READDIR: u32 = 28;
        const RELEASEDIR: u32 = 29;
        const UNANSWERED: [u32; 3] = [2, 36, 42]; // FORGET, INTERRUPT, BATCH_FORGET
        match operation {
            INIT => self.answer(unique, 0, &init()),
            LOOKUP if request[40..] == *b"file\0" => {
                let entry = [&FILE.to_ne_bytes()[..], &[0; 32], &attributes(FILE)].concat();
                self.answer(unique, 0, &entry);
            }
            LOOKUP => self.answer(unique, libc::ENOENT, &[]),
            GETATTR => self.answer(unique, 0, &[&[0; 16][..], &attributes(node)].concat()),
            OPEN | OPENDIR => self.answer(unique, 0, &[0; 16]),
            READ if self.shared.holding.load(Ordering::SeqCst) => self.held.push(unique),
            READ => self.answer(unique, 0, if long(48) == 0 { &CONTENT } else { &[] }),
            STATFS => self.answer(unique, 0, &[0; 80]),
            READDIR | RELEASE | RELEASEDIR => self.answer(unique, 0, &[]),
            other if UNANSWERED.contains(&other) => {}
            _ => self.answer(unique, libc::ENOSYS, &[]),
        }
    }

    fn answer(&mut self, unique: u64, errno: i32, body: &[u8]) {
        let length = (16 + body.len()) as u32;
        let head = [&length.to_ne_bytes()[..], &(-errno).to_ne_bytes(), &unique.to_ne_bytes()].concat();
        // An asker that has gone does not want it any more.
        let _ = self.device.write(&[&head, body].concat());
    }
}

/// `fuse_init_out` of version 7.31.
fn init() -> Vec<u8> {
    let mut out = vec![0; 64];
    let mut put = |at: usize, value: u32| out[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    put(0, 7);
    put(4, 31);
    put(20, 4096); // max_write
    put(24, 1); // time granularity
    out
}

/// `fuse_attr`: the root directory, or the file. Valid for no time at all, so that nothing is
/// answered from memory.
fn attributes(node: u64) -> Vec<u8> {
    let mut out = vec![0; 88];
    out[..8].copy_from_slice(&node.to_ne_bytes());
    let (mode, links, size) = match node {
        ROOT => (libc::S_IFDIR | 0o755, 2u32, 0),
        _ => (libc::S_IFREG | 0o644, 1, CONTENT.len() as u64),
    };
    out[8..16].copy_from_slice(&size.to_ne_bytes());
    out[60..64].copy_from_slice(&mode.to_ne_bytes());
    out[64..68].copy_from_slice(&links.to_ne_bytes());
    out[80..84].copy_from_slice(&4096u32.to_ne_bytes());
    out
}
