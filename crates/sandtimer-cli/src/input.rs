//! Passes the caller's stdin on to a run, and takes no more of it than the run does.
//!
//! | stdin | what the run has | what is left for the next reader |
//! |---|---|---|
//! | a file | the file, reopened; or a pipe, where it could change the file | all behind what the run has read |
//! | a pipe without a name | the pipe, reopened | what the run has not read |
//! | a named FIFO, a socket, a terminal | a pipe of one page | all but what was read ahead: one page, or one line |
//! | a terminal, with a terminal of its own | what is typed | what is typed after its end |
//!
//! Never the caller's own open file: O_NONBLOCK or a lock put on that would outlast the run. Nor,
//! reopened, a file of a user whose uid the job may have on the outside, whose mode it could
//! change; nor a named FIFO, which then does not show that its writers have gone. The thread here
//! may wait for ever, so it is never joined.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, OFlags, SeekFrom, fcntl_getfl, fcntl_setfl, fstat, major, minor, seek, tell};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use rustix::stdio::stdin;
use sandtimer::Stdin;

use crate::passthrough::read_some;
use crate::terminal::is_foreground;
use crate::waker::EventWaker;

/// The buffer of what is passed on.
const BUFFER_BYTES: usize = 128 << 10;
/// A pipe of one page takes more only once all in it was read.
const PAGE_BYTES: usize = 4096;
/// How often a process in the background checks whether it is in the foreground again, while there
/// is something to read.
const BACKGROUND_PAUSE: Duration = Duration::from_millis(100);
/// How long the end of the thread that reads a file is waited for: longer only if the file's disk
/// hangs.
const FEED_END_TIMEOUT: Duration = Duration::from_secs(1);

/// What is to be done here for a run's stdin.
#[derive(Debug, Default)]
pub(crate) enum Feed {
    #[default]
    Nothing,
    /// The run reads a reopened copy of our stdin; for a regular file, with its offset.
    Inherited(Option<Position>),
    /// A file is read here, from where stdin is on, for a run that has the other end of a pipe.
    File(FileInput),
    /// It is read here, piece by piece as the run takes them.
    Stream,
}

/// The run's stdin where ours is not a terminal, and what is to be done for it. `users` are those
/// whose uids the job may have on the outside.
pub(crate) fn input(users: &[u32]) -> io::Result<(Stdin, Feed)> {
    let stdin = stdin();
    let nothing = || Ok((Stdin::Null, Feed::Nothing));
    let (Ok(status), Ok(flags)) = (fstat(stdin), fcntl_getfl(stdin)) else { return nothing() };
    let read_only = flags & OFlags::ACCMODE == OFlags::RDONLY;
    let given = match FileType::from_raw_mode(status.st_mode) {
        FileType::CharacterDevice if (major(status.st_rdev), minor(status.st_rdev)) == (1, 3) => {
            return nothing();
        }
        FileType::RegularFile if flags & OFlags::ACCMODE == OFlags::WRONLY => return nothing(),
        FileType::RegularFile if read_only && !users.contains(&status.st_uid) => reopen().ok(),
        FileType::Fifo if read_only && is_nameless() => reopen().ok(),
        _ => None,
    };
    match given {
        Some(given) => Ok(given),
        None if FileType::from_raw_mode(status.st_mode) == FileType::RegularFile => {
            let file = FileInput::new()?;
            Ok((Stdin::Descriptor(file.read.try_clone()?), Feed::File(file)))
        }
        None => Ok((Stdin::Piped, Feed::Stream)),
    }
}

/// Whether stdin is a pipe without a name.
fn is_nameless() -> bool {
    std::fs::read_link("/proc/self/fd/0")
        .is_ok_and(|link| link.as_os_str().as_encoded_bytes().starts_with(b"pipe:["))
}

fn reopen() -> Result<(Stdin, Feed), Errno> {
    // Fails for a user that may not open it. Without O_NONBLOCK a FIFO would wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let own = rustix::fs::open("/proc/self/fd/0", flags, rustix::fs::Mode::empty())?;
    fcntl_setfl(&own, OFlags::empty())?;
    let position = match tell(stdin()) {
        Err(Errno::SPIPE) => None,
        at => {
            let at = seek(&own, SeekFrom::Start(at?))?;
            Some(Position { of: rustix::io::fcntl_dupfd_cloexec(&own, 3)?, at })
        }
    };
    Ok((Stdin::Descriptor(own), Feed::Inherited(position)))
}

/// The file on stdin, whose offset is set after the run to what the run has read.
#[derive(Debug)]
pub(crate) enum ReadFile {
    ByRun(Position),
    Fed(FedFile),
}

impl ReadFile {
    /// Moves our stdin to where the run has read. Requires that the run is dead, and that its waker
    /// was notified.
    pub(crate) fn hand_back(self) {
        match self {
            ReadFile::ByRun(position) => position.hand_back(),
            ReadFile::Fed(file) => file.hand_back(),
        }
    }
}

/// Where a run reads the file that is our stdin.
#[derive(Debug)]
pub(crate) struct Position {
    of: OwnedFd,
    at: u64,
}

impl Position {
    /// Moves our stdin to where the run has read, as if it had been the same open file.
    fn hand_back(&self) {
        if let Ok(now) = tell(&self.of)
            && now != self.at
        {
            // The next reader begins at the old place if this fails; nothing is lost.
            let _ = seek(stdin(), SeekFrom::Start(now));
        }
    }
}

/// A file that is passed on by a pipe. stdin itself stays where it is until the end.
#[derive(Debug)]
pub(crate) struct FileInput {
    /// Kept open here: what is left in the pipe at the end was not read.
    read: OwnedFd,
    write: OwnedFd,
    at: u64,
}

impl FileInput {
    fn new() -> io::Result<Self> {
        let at = tell(stdin())?;
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setfl(&write, OFlags::NONBLOCK)?;
        Ok(FileInput { read, write, at })
    }

    /// Passes it on in a thread of its own, until its end or that of the run.
    pub(crate) fn feed(self, dead: EventWaker) -> io::Result<FedFile> {
        let FileInput { read, write, at } = self;
        let (end_sender, end) = channel();
        start(move || {
            // Where nothing waits for it any more, there is nothing to hand back.
            let _ = end_sender.send(pass_on(&write, at, &dead));
        })?;
        Ok(FedFile { read, at, end })
    }
}

/// Writes a file from a position on; where it has got to.
fn pass_on(to: &OwnedFd, mut at: u64, dead: &EventWaker) -> u64 {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut waiting = 0..0;
    loop {
        if waiting.is_empty() {
            waiting = match rustix::io::pread(stdin(), &mut buffer, at) {
                Err(Errno::INTR) => continue,
                read => 0..read.unwrap_or(0),
            };
        }
        if waiting.is_empty() || !wait_for(to.as_fd(), PollFlags::OUT, dead) {
            return at;
        }
        match rustix::io::write(to, &buffer[waiting.clone()]) {
            Ok(written) => {
                waiting.start += written;
                at += written as u64;
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => return at,
        }
    }
}

/// A file that is being passed on.
#[derive(Debug)]
pub(crate) struct FedFile {
    read: OwnedFd,
    at: u64,
    end: Receiver<u64>,
}

impl FedFile {
    /// The same of what was passed on: what is left in the pipe was not read.
    fn hand_back(self) {
        let (Ok(end), Ok(unread)) =
            (self.end.recv_timeout(FEED_END_TIMEOUT), rustix::io::ioctl_fionread(&self.read))
        else {
            return;
        };
        let read = end.saturating_sub(unread);
        if read > self.at {
            let _ = seek(stdin(), SeekFrom::Start(read));
        }
    }
}

/// Passes stdin on to the pipe `to` in a thread of its own, until either end closes or the run is
/// dead: what there is, up to a page, each time that the run has read all before.
///
/// # Errors
/// When the system refuses a thread.
pub(crate) fn feed_stream(to: OwnedFd, dead: EventWaker) -> io::Result<()> {
    // Fuller where pages are larger.
    let most = fcntl_setpipe_size(&to, PAGE_BYTES).unwrap_or(PAGE_BYTES).min(BUFFER_BYTES);
    let is_terminal = rustix::termios::isatty(stdin());
    start(move || {
        let mut buffer = vec![0; most];
        while wait_for(to.as_fd(), PollFlags::OUT, &dead) && wait_for_stdin(is_terminal, &dead) {
            let count = read_some(stdin(), &mut buffer);
            if count == 0 || !write_all(&to, &buffer[..count]) {
                return;
            }
        }
    })
}

/// Passes what is typed on our terminal on to the run's, until either is closed or the run is dead.
/// `before_reading` is called each time before something is read; if it returns true, it has
/// waited, and stdin is checked again. `on_typed` gets what was read.
///
/// # Errors
/// When the system refuses a thread.
pub(crate) fn feed_terminal(
    to: OwnedFd,
    dead: EventWaker,
    mut on_typed: impl FnMut(&OwnedFd, &[u8]) + Send + 'static,
    before_reading: impl Fn() -> bool + Send + 'static,
) -> io::Result<()> {
    start(move || {
        let mut buffer = vec![0; PAGE_BYTES];
        while wait_for_stdin(true, &dead) {
            if before_reading() && !wait_for_stdin(true, &dead) {
                return;
            }
            let count = read_some(stdin(), &mut buffer);
            on_typed(&to, &buffer[..count]);
            if count == 0 || !write_all(&to, &buffer[..count]) {
                return;
            }
        }
    })
}

fn start(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name("st-stdin".to_owned()).stack_size(64 << 10).spawn(work)?;
    Ok(())
}

/// Whether all of it was taken.
fn write_all(to: &OwnedFd, mut rest: &[u8]) -> bool {
    while !rest.is_empty() {
        match rustix::io::write(to, rest) {
            Ok(written) => rest = &rest[written..],
            Err(Errno::INTR) => {}
            // The run reads no more.
            Err(_) => return false,
        }
    }
    true
}

/// Waits until there is something to read, or the end of it. A terminal that is another's at the
/// moment is left alone: reading it would stop this process (SIGTTIN).
fn wait_for_stdin(is_terminal: bool, dead: &EventWaker) -> bool {
    while wait_for(stdin(), PollFlags::IN, dead) {
        if !is_terminal || is_foreground() {
            return true;
        }
        let pause = Timespec { tv_sec: 0, tv_nsec: i64::from(BACKGROUND_PAUSE.subsec_nanos()) };
        let _ = poll(&mut [PollFd::new(dead, PollFlags::IN)], Some(&pause));
    }
    false
}

/// Waits until a descriptor is ready; false if nothing reads there any more, or the run is dead,
/// which counts first: what is typed then is for the next reader.
fn wait_for(fd: BorrowedFd<'_>, events: PollFlags, dead: &EventWaker) -> bool {
    loop {
        let mut watched = [PollFd::new(&fd, events), PollFd::new(dead, PollFlags::IN)];
        match poll(&mut watched, None) {
            Err(Errno::INTR) => {}
            Err(_) => return false,
            Ok(_) => {
                return watched[1].revents().is_empty() && !watched[0].revents().contains(PollFlags::ERR);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_for_a_run_that_is_dead() {
        let (read, write) = rustix::pipe::pipe().expect("a pipe");
        let dead = EventWaker::new().expect("a bell");
        rustix::io::write(&write, b"typed").expect("room");
        assert!(wait_for(read.as_fd(), PollFlags::IN, &dead));
        dead.notify();
        assert!(!wait_for(read.as_fd(), PollFlags::IN, &dead));
    }

    #[test]
    fn pipe_of_a_page_takes_more_once_it_is_empty() {
        let (read, write) = rustix::pipe::pipe().expect("a pipe");
        let size = fcntl_setpipe_size(&write, PAGE_BYTES).expect("smaller");
        let has_room =
            || poll(&mut [PollFd::new(&write, PollFlags::OUT)], Some(&Timespec::default())) == Ok(1);
        assert!(has_room());
        rustix::io::write(&write, b"two").expect("room");
        assert!(!has_room(), "a pipe of {size} bytes");
        rustix::io::read(&read, &mut [0; 1]).expect("one of them");
        assert!(!has_room());
        rustix::io::read(&read, &mut [0; 2]).expect("the others");
        assert!(has_room());
        let dead = EventWaker::new().expect("a bell");
        assert!(wait_for(write.as_fd(), PollFlags::OUT, &dead));
        drop(read);
        assert!(!wait_for(write.as_fd(), PollFlags::OUT, &dead), "nothing reads there any more");
    }
}
