//! Copies the output of a run that goes on to its journals, so that it outlives the server.
//!
//! Not at once: a run that is over within the pause leaves no copy, because its record follows anyway.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use sandtimer::Run;
use sandtimer::engine::Stream;
use sandtimer::model::LimitKind;
use sandtimer_records::{Journal, RunStore};

/// How old what is not copied may be.
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes of a stream that are copied at a time, and read at a time.
const ROUND: u64 = 4 << 20;
const PIECE: usize = 256 * 1024;

/// The copies of one run's streams.
#[derive(Debug)]
pub(super) struct Copies {
    store: Arc<RunStore>,
    run: Arc<Run>,
    journals: [Option<Journal>; 2],
    seen: [u64; 2],
    /// The disk did not take it: what has been copied stays.
    failed: bool,
}

impl Copies {
    pub fn new(store: Arc<RunStore>, run: Arc<Run>) -> Self {
        Copies { store, run, journals: [None, None], seen: [0, 0], failed: false }
    }

    /// Waits until there is something to copy. May be dropped.
    pub async fn due(&self) {
        if self.failed {
            std::future::pending::<()>().await;
        }
        self.run.grown(self.seen).await;
        tokio::time::sleep(PAUSE).await;
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
        let most = self.seen[index].saturating_add(ROUND);
        while self.seen[index] < most {
            let chunk = self.run.output(stream, self.seen[index], PIECE).map_err(io::Error::other)?;
            self.seen[index] = chunk.next_cursor;
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
