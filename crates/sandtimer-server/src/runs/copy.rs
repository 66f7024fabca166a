//! Copies the output of a run that is active to its journals, so that it outlives the server.
//!
//! Not at once: a run that has ended within the pause leaves no copy, because its record follows
//! anyway.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use sandtimer::Run;
use sandtimer::engine::Stream;
use sandtimer::model::LimitKind;
use sandtimer_records::{Journal, RunStore};

/// How old what is not copied may be.
const COPY_INTERVAL: Duration = Duration::from_millis(100);
/// Bytes of a stream that are copied at a time, and read at a time.
const MAX_ROUND_BYTES: u64 = 4 << 20;
const PIECE_BYTES: usize = 256 * 1024;

/// The copies of one run's streams.
#[derive(Debug)]
pub(super) struct Copies {
    store: Arc<RunStore>,
    run: Arc<Run>,
    journals: [Option<Journal>; 2],
    cursors: [u64; 2],
    /// The disk did not take it: what has been copied stays.
    failed: bool,
}

impl Copies {
    pub fn new(store: Arc<RunStore>, run: Arc<Run>) -> Self {
        Copies { store, run, journals: [None, None], cursors: [0, 0], failed: false }
    }

    /// Waits until there is something to copy. May be dropped.
    pub async fn due(&self) {
        if self.failed {
            std::future::pending::<()>().await;
        }
        self.run.grown(self.cursors).await;
        tokio::time::sleep(COPY_INTERVAL).await;
    }

    /// Copies on a thread that may wait for the disk.
    pub async fn copy(mut self) -> (Self, io::Result<()>) {
        let (store, run) = (self.store.clone(), self.run.clone());
        let copied = tokio::task::spawn_blocking(move || {
            let done =
                [Stream::Stdout, Stream::Stderr].into_iter().try_for_each(|stream| self.stream(stream));
            self.failed = done.is_err();
            (self, done)
        });
        copied.await.unwrap_or_else(|panic| {
            let failed = Copies { failed: true, ..Copies::new(store, run) };
            (failed, Err(io::Error::other(panic)))
        })
    }

    fn stream(&mut self, stream: Stream) -> io::Result<()> {
        let index = stream as usize;
        let most = self.cursors[index].saturating_add(MAX_ROUND_BYTES);
        while self.cursors[index] < most {
            let chunk =
                self.run.output(stream, self.cursors[index], PIECE_BYTES).map_err(io::Error::other)?;
            self.cursors[index] = chunk.next_cursor;
            if chunk.bytes.is_empty() {
                return Ok(());
            }
            let journal = match &mut self.journals[index] {
                Some(journal) => journal,
                none => {
                    let limit = self.run.effective().get(LimitKind::Output).map(|effect| effect.value);
                    none.insert(self.store.journal(self.run.id(), stream, limit)?)
                }
            };
            journal.append(&chunk)?;
        }
        Ok(())
    }
}
