//! Files of jobs, in pieces.

use crate::job::{FILE_PIECE, FileOf, InputFile, JobLease, Renewal, StoreError};
use rusqlite::{Transaction, params};
use serde::{Deserialize, Serialize};

use super::renewing::read_renewal;
use super::values::{broken, execute, integer, natural};

/// A file that a job is given.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct JobInput {
    pub path: String,
    #[serde(with = "crate::base64_text")]
    pub content: Vec<u8>,
}

impl JobInput {
    pub fn of(file: &InputFile) -> Self {
        JobInput { path: file.path.clone(), content: file.content.clone().unwrap_or_default() }
    }
}

fn key(file: FileOf<'_>) -> (i64, &str) {
    match file {
        FileOf::Input(name) => (0, name),
        FileOf::Output(name) => (1, name),
    }
}

const INSERT: &str =
    "INSERT OR REPLACE INTO files (job, kind, name, start, bytes) VALUES (?1, ?2, ?3, ?4, ?5)";

/// Takes in what a job is given.
pub(crate) fn keep_inputs(tx: &Transaction<'_>, seq: i64, inputs: &[JobInput]) -> Result<(), StoreError> {
    for input in inputs {
        let (kind, name) = key(FileOf::Input(&input.path));
        let pieces = input.content.chunks(FILE_PIECE).enumerate();
        for (index, piece) in pieces {
            execute(tx, INSERT, params![seq, kind, name, integer((index * FILE_PIECE) as u64), piece])?;
        }
    }
    Ok(())
}

/// Adds a piece to a file that a leased job leaves.
pub(crate) fn write(
    tx: &Transaction<'_>,
    held: &JobLease,
    name: &str,
    start: u64,
    bytes: &[u8],
) -> Result<(), StoreError> {
    if read_renewal(tx, held)? == Renewal::Lost {
        return Err(StoreError::Lost(held.id.clone()));
    }
    let seq: i64 = tx
        .prepare_cached("SELECT seq FROM jobs WHERE id = ?1")
        .and_then(|mut select| select.query_row([&held.id], |row| row.get(0)))
        .map_err(broken)?;
    let (kind, name) = key(FileOf::Output(name));
    execute(tx, INSERT, params![seq, kind, name, integer(start), bytes]).map(drop)
}

/// Forgets what earlier deliveries of a job left.
pub(crate) fn forget_outputs(tx: &Transaction<'_>, seq: i64) -> Result<(), StoreError> {
    execute(tx, "DELETE FROM files WHERE job = ?1 AND kind = 1", [seq]).map(drop)
}

/// Reads a file's bytes from a position.
pub(crate) fn read(
    tx: &Transaction<'_>,
    id: &str,
    file: FileOf<'_>,
    start: u64,
    most: usize,
) -> Result<Vec<u8>, StoreError> {
    let select = "SELECT files.start, files.bytes FROM files JOIN jobs ON job = seq
        WHERE id = ?1 AND kind = ?2 AND files.name = ?3 AND start > ?4 AND start + length(bytes) > ?5 ORDER BY start";
    let mut select = tx.prepare_cached(select).map_err(broken)?;
    let (kind, name) = key(file);
    // No piece is longer, so those that begin earlier end before it.
    let first = integer(start) - FILE_PIECE as i64;
    let mut rows = select.query(params![id, kind, name, first, integer(start)]).map_err(broken)?;
    let mut bytes = Vec::new();
    while let Some(row) = rows.next().map_err(broken)?.filter(|_| bytes.len() < most) {
        let at = natural(row.get::<_, i64>(0).map_err(broken)?);
        let piece = row.get_ref(1).and_then(|piece| Ok(piece.as_blob()?)).map_err(broken)?;
        let skipped = usize::try_from(start.saturating_sub(at)).unwrap_or(usize::MAX).min(piece.len());
        bytes.extend_from_slice(&piece[skipped..][..(piece.len() - skipped).min(most - bytes.len())]);
    }
    Ok(bytes)
}
