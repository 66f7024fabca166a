//! What a job has left in a sandbox where another is to begin: nothing, or the sandbox is ended
//! with it.
//!
//! A job can leave something for the next one in four places: a process, a private directory, an
//! object of System V, the network namespace (`network_residue.rs`). The rest of the root is not
//! its own, Landlock and the filter refuse what else there is, and if job and init have one uid,
//! init guarantees nothing. Each place is inspected in its present state: any difference is
//! reported, and nothing is cleaned up.

use crate::network_residue::NetworkFiles;
use crate::steps::Step;
use crate::sys::{self, Fd, call, nr};

/// Private directories that are watched.
const MOST: usize = 16;

/// `struct stat` as fstat(2) gives it on x86-64, in words.
type Status = [u64; 18];
/// The indexes of the last access, which reading changes, and of the last change, which no process
/// can set.
const ACCESSED: [usize; 2] = [9, 10];
const CHANGED: [usize; 2] = [13, 14];

/// What a sandbox was like before its first job.
pub struct Traces {
    places: [(Fd, Status); MOST],
    count: usize,
    /// All of it could be noted.
    complete: bool,
    network: Network,
}

/// The network namespace of a sandbox.
enum Network {
    /// Shared with other runs: residue there reveals nothing new to them.
    Shared,
    /// Its own, and not inspected yet.
    Own,
    Opened(NetworkFiles),
}

impl Traces {
    pub const NONE: Self =
        Traces { places: [(-1, [0; 18]); MOST], count: 0, complete: false, network: Network::Shared };

    /// Notes the directories that a step names.
    pub fn note(step: &Step) -> Self {
        let mut traces = Self::NONE;
        let count = step.header.string_count as usize;
        if count == 0 || count > MOST {
            return traces;
        }
        traces.complete = true;
        if step.number(6) == 1 {
            traces.network = Network::Own;
        }
        traces.count = count;
        for (index, place) in traces.places[..count].iter_mut().enumerate() {
            const O_PATH: usize = 0o10000000;
            let fd = sys::open_at(sys::AT_FDCWD, step.string(index).pointer, O_PATH, 0);
            let status = status(fd as Fd);
            traces.complete &= status.is_some();
            *place = (fd as Fd, status.unwrap_or_default());
        }
        traces
    }

    /// Whether init alone is alive, and the job has left no residue. `began`: the file timestamp at
    /// the job's start (nanoseconds since 1970).
    pub fn are_none(&mut self, began: u64) -> bool {
        // Everything in the namespace but this process, dead and not waited for included; kill(2).
        let alone = call!(nr::KILL, -1isize, 0) == sys::ESRCH;
        let directories =
            || self.places[..self.count].iter().all(|(fd, before)| is_as_before(*fd, before, began));
        self.complete && alone && directories() && !has_objects() && self.network.is_unused()
    }
}

impl Network {
    fn is_unused(&mut self) -> bool {
        if let Network::Own = self {
            // Opened for the first inspection: many jails are never inspected.
            match NetworkFiles::open() {
                Ok(files) => *self = Network::Opened(files),
                Err(_) => return false,
            }
        }
        match self {
            Network::Opened(files) => files.are_unused(),
            _ => true,
        }
    }
}

/// A change within the same tick of the clock as the one before could not be distinguished from it.
/// So the known change must be older than the job.
fn is_as_before(fd: Fd, before: &Status, began: u64) -> bool {
    let Some(now) = status(fd) else { return false };
    let is_same = |word: usize| now[word] == before[word] || ACCESSED.contains(&word);
    let [second, nanosecond] = CHANGED.map(|word| before[word]);
    let is_older = second.saturating_mul(1_000_000_000).saturating_add(nanosecond) < began;
    is_older && (0..before.len()).all(is_same)
}

fn status(fd: Fd) -> Option<Status> {
    let mut status: Status = [0; 18];
    (fd >= 0 && call!(nr::FSTAT, fd, status.as_mut_ptr()) == 0).then_some(status)
}

/// Whether there is a segment, a set of semaphores or a queue of System V; shmctl(2), semctl(2),
/// msgctl(2).
fn has_objects() -> bool {
    const SHM_INFO: usize = 14;
    const SEM_INFO: usize = 19;
    const MSG_INFO: usize = 12;
    // The longest of the three structures; each begins with ints.
    let mut words = [0i32; 16];
    let segments = call!(nr::SHMCTL, 0, SHM_INFO, words.as_mut_ptr()) < 0 || words[0] != 0;
    let sets = call!(nr::SEMCTL, 0, 0, SEM_INFO, words.as_mut_ptr()) < 0 || words[7] != 0;
    let queues = call!(nr::MSGCTL, 0, MSG_INFO, words.as_mut_ptr()) < 0 || words[0] != 0;
    segments || sets || queues
}
