//! The output of a run is copied to the job's log until all its processes are dead.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use sandtimer::engine::{Run, Stream};
use sandtimer::model::Outcome;
use sandtimer::supervise::OutputPiece;

use super::execution::JobExecution;

/// How often the output of a run is copied to the job's log while it is active.
const COPY: Duration = Duration::from_millis(100);
/// How many bytes of it are copied at a time.
const PIECE: usize = 64 << 10;

/// Which of a run's streams are the job's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoggedStreams {
    Both,
    /// A driver's stdout is for the loop.
    Stderr,
}

impl JobExecution<'_> {
    /// Waits until all processes of a run are dead, and copies its output to the log until then.
    pub(super) fn follow(&self, run: &Run, logged: LoggedStreams) -> Arc<Outcome> {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut settled = run.settled();
        let (mut cursors, mut writes) = ([0, 0], VecDeque::new());
        loop {
            let polled = Pin::new(&mut settled).poll(&mut Context::from_waker(&waker));
            writes.extend(run.take_write_sequence());
            self.copy_as_written(run, logged, &mut cursors, &mut writes);
            match polled {
                Poll::Ready(outcome) => {
                    for stream in [Stream::Stdout, Stream::Stderr] {
                        self.copy(run, stream, logged, &mut cursors, u64::MAX);
                    }
                    return outcome;
                }
                Poll::Pending => std::thread::park_timeout(COPY),
            }
        }
    }

    /// Copies what is known to have come next, as far as it is there.
    fn copy_as_written(
        &self,
        run: &Run,
        logged: LoggedStreams,
        cursors: &mut [u64; 2],
        writes: &mut VecDeque<OutputPiece>,
    ) {
        while let Some(OutputPiece { stream, end }) = writes.front().copied() {
            let which = if stream == 0 { Stream::Stdout } else { Stream::Stderr };
            self.copy(run, which, logged, cursors, end);
            if cursors[stream] < end && (which, logged) != (Stream::Stdout, LoggedStreams::Stderr) {
                return;
            }
            writes.pop_front();
        }
    }

    /// Copies a stream up to a position.
    fn copy(&self, run: &Run, stream: Stream, logged: LoggedStreams, cursors: &mut [u64; 2], end: u64) {
        if stream == Stream::Stdout && logged == LoggedStreams::Stderr {
            return;
        }
        let cursor = &mut cursors[stream as usize];
        while *cursor < end {
            let most = usize::try_from(end - *cursor).unwrap_or(PIECE).min(PIECE);
            // Output that cannot be read back is missing in the Outcome too, which reports that.
            let Ok(chunk) = run.output(stream, *cursor, most) else {
                // What comes next is not to wait for it.
                *cursor = end;
                return;
            };
            if chunk.next_cursor <= *cursor {
                return;
            }
            let mut chunk = chunk;
            if self.spec.parallel > 1 && end != u64::MAX && chunk.bytes.len() < PIECE {
                // Lines of steps that run at the same time are not mixed: the rest of a line waits
                // for its end.
                let whole = chunk.bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
                if whole == 0 {
                    return;
                }
                chunk.next_cursor -= (chunk.bytes.len() - whole) as u64;
                chunk.bytes.truncate(whole);
            }
            *cursor = chunk.next_cursor;
            if chunk.dropped_before > 0 {
                self.remark(&format!("{} bytes were dropped here", chunk.dropped_before));
            }
            self.log(&chunk.bytes);
        }
    }
}

/// Wakes the thread that waits.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
