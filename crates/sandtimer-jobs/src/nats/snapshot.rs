//! Snapshots: the tables at one place in the log, in an object store of the server, so that the log
//! before them can go.
//!
//! There are two at a time. The log keeps what is after the earlier one: a reader that has just
//! read that snapshot can continue.

use std::collections::HashMap;
use std::io::Write;

use crate::job::StoreError;
use async_nats::jetstream::context::{Context, ObjectStoreErrorKind};
use async_nats::jetstream::object_store::{Config, ObjectMetadata, ObjectStore};
use async_nats::jetstream::stream::Stream;
use tempfile::NamedTempFile;
use tokio::io::AsyncReadExt;

use super::address::NatsAddress;
use super::log_stream::{STREAM, id_of};
use super::replica::Replica;

const BUCKET: &str = "sandtimer-jobs";
/// The two, of which the earlier one is written over.
const NAMES: [&str; 2] = ["even", "odd"];
/// How much of one is in memory at a time.
const PIECE: usize = 128 << 10;

/// A snapshot that is to be written.
#[derive(Debug)]
pub(super) struct Snapshot {
    sequence: u64,
    /// The id of the command at that place in the log.
    last: String,
    file: NamedTempFile,
}

/// What is known of one before it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SnapshotInfo {
    name: &'static str,
    sequence: u64,
    last: String,
}

/// Copies the tables.
pub(super) fn begin(replica: &Replica) -> Result<Snapshot, StoreError> {
    let (sequence, last) = replica.position();
    let last = last.to_owned();
    let file = NamedTempFile::with_prefix("sandtimer-jobs-").map_err(unwritable)?;
    replica.save(file.path())?;
    Ok(Snapshot { sequence, last, file })
}

/// Writes it to the server, and lets the log go that is before the earlier one.
pub(super) async fn write(
    context: &Context,
    address: &NatsAddress,
    snapshot: &Snapshot,
) -> Result<(), StoreError> {
    let failed =
        |error: &dyn std::fmt::Display| address.unreachable(&format!("no snapshot was written: {error}"));
    let config = Config {
        bucket: BUCKET.to_owned(),
        description: Some("snapshots of sandtimer's store of jobs".to_owned()),
        ..Config::default()
    };
    let bucket = match context.get_object_store(BUCKET).await {
        Ok(bucket) => bucket,
        Err(_) => context.create_object_store(config).await.map_err(|error| failed(&error))?,
    };
    let all = known(&bucket).await;
    if all.iter().any(|known| known.sequence >= snapshot.sequence) {
        // Another program was faster.
        return Ok(());
    }
    let earlier = all.into_iter().max_by_key(|known| known.sequence);
    let name = if earlier.as_ref().is_some_and(|known| known.name == NAMES[0]) { NAMES[1] } else { NAMES[0] };
    let metadata = HashMap::from([
        ("sequence".to_owned(), snapshot.sequence.to_string()),
        ("last".to_owned(), snapshot.last.clone()),
    ]);
    let about = ObjectMetadata { name: name.to_owned(), metadata, ..ObjectMetadata::default() };
    let mut file = tokio::fs::File::open(snapshot.file.path()).await.map_err(|error| failed(&error))?;
    bucket.put(about, &mut file).await.map_err(|error| failed(&error))?;
    if let Some(earlier) = earlier {
        let stream = context.get_stream(STREAM).await.map_err(|error| failed(&error))?;
        // The snapshot's own message stays, to check whether the snapshot is of this log.
        stream.purge().sequence(earlier.sequence).await.map_err(|error| failed(&error))?;
    }
    Ok(())
}

/// The tables as of the latest snapshot of this log.
pub(super) async fn latest(
    context: &Context,
    address: &NatsAddress,
    stream: &Stream,
) -> Result<Option<Replica>, StoreError> {
    let failed =
        |error: &dyn std::fmt::Display| address.unreachable(&format!("a snapshot cannot be read: {error}"));
    let bucket = match context.get_object_store(BUCKET).await {
        Ok(bucket) => bucket,
        Err(error) if error.kind() == ObjectStoreErrorKind::GetStore && is_missing(&error) => {
            return Ok(None);
        }
        Err(error) => return Err(failed(&error)),
    };
    let mut all = known(&bucket).await;
    all.sort_by_key(|known| std::cmp::Reverse(known.sequence));
    for one in all {
        let id = id_of(stream, one.sequence).await.map_err(|error| failed(&error))?;
        if id.as_deref() != Some(one.last.as_str()) {
            continue;
        }
        let mut object = bucket.get(one.name).await.map_err(|error| failed(&error))?;
        let mut file = NamedTempFile::with_prefix("sandtimer-jobs-").map_err(unwritable)?;
        let mut piece = vec![0; PIECE];
        loop {
            let read = object.read(&mut piece).await.map_err(|error| failed(&error))?;
            if read == 0 {
                break;
            }
            file.write_all(&piece[..read]).map_err(unwritable)?;
        }
        let replica = Replica::from_snapshot(file.path())?;
        // It may have been overwritten during the read.
        if replica.position() == (one.sequence, one.last.as_str()) {
            return Ok(Some(replica));
        }
        return Err(failed(&"it was written over"));
    }
    Ok(None)
}

async fn known(bucket: &ObjectStore) -> Vec<SnapshotInfo> {
    let mut all = Vec::new();
    for name in NAMES {
        if let Ok(info) = bucket.info(name).await
            && !info.deleted
            && let (Some(sequence), Some(last)) = (info.metadata.get("sequence"), info.metadata.get("last"))
            && let Ok(sequence) = sequence.parse()
        {
            all.push(SnapshotInfo { name, sequence, last: last.clone() });
        }
    }
    all
}

fn is_missing(error: &async_nats::jetstream::context::ObjectStoreError) -> bool {
    std::error::Error::source(error).is_some_and(|source| source.to_string().contains("stream not found"))
}

fn unwritable(error: std::io::Error) -> StoreError {
    StoreError::Broken(format!("a temporary file in {}: {error}", std::env::temp_dir().display()))
}
