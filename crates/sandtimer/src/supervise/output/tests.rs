use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn directory() -> (tempfile::TempDir, Arc<SpoolDirectory>) {
    let path = tempfile::tempdir().unwrap();
    let directory = SpoolDirectory::open(path.path()).unwrap();
    (path, Arc::new(directory))
}

/// A source that keeps its file, so that a test can inspect its contents.
struct RememberingSource(Arc<SpoolDirectory>, Mutex<Option<File>>);

impl SpoolFileSource for RememberingSource {
    fn file(&self) -> io::Result<Box<dyn FileExt + Send + Sync>> {
        let file = self.0.create()?;
        *self.1.lock().unwrap() = Some(file.try_clone()?);
        Ok(Box::new(file))
    }
}

/// A disk that accepts the first `capacity` bytes of its file, and `writes` writes at all.
struct SmallDisk {
    capacity: u64,
    writes: AtomicU64,
    content: Mutex<Vec<u8>>,
}

impl SmallDisk {
    fn new(capacity: u64, writes: u64) -> Arc<Self> {
        Arc::new(Self { capacity, writes: writes.into(), content: Mutex::default() })
    }
}

struct OnSmallDisk(Arc<SmallDisk>);

impl FileExt for OnSmallDisk {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        buffer.copy_from_slice(&self.0.content.lock().unwrap()[offset as usize..][..buffer.len()]);
        Ok(buffer.len())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let room = self.0.capacity.saturating_sub(offset).min(bytes.len() as u64) as usize;
        if room == 0
            || self
                .0
                .writes
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                .is_err()
        {
            return Err(Errno::NOSPC.into());
        }
        let mut content = self.0.content.lock().unwrap();
        let end = offset as usize + room;
        let longer = content.len().max(end);
        content.resize(longer, 0);
        content[offset as usize..end].copy_from_slice(&bytes[..room]);
        Ok(room)
    }
}

struct FullDiskSource(Arc<SmallDisk>);

impl SpoolFileSource for FullDiskSource {
    fn file(&self) -> io::Result<Box<dyn FileExt + Send + Sync>> {
        Ok(Box::new(OnSmallDisk(self.0.clone())))
    }
}

fn memory_capacity(spool: &Spool) -> usize {
    match &spool.store {
        Store::Memory(memory) => memory.capacity(),
        Store::File(_) => 0,
    }
}

/// Compares a spool's reads with a complete copy of the stream.
fn check_against(all: &[u8], spool: &Spool, cursor: u64, max: usize) {
    let total = all.len() as u64;
    assert_eq!(spool.total(), total);
    let kept: Vec<u64> = spool.kept().into_iter().flatten().collect();
    assert!(kept.is_sorted_by(|a, b| a < b) && kept.iter().all(|position| *position < total));
    assert_eq!(spool.dropped(), total - kept.len() as u64);
    assert_eq!(spool.truncated(), kept.len() < all.len());

    let chunk = spool.read(cursor, max).unwrap();
    let clamped = cursor.min(total);
    let first = kept.iter().copied().find(|position| *position >= clamped).unwrap_or(total);
    assert_eq!(chunk.dropped_before, first - clamped);
    assert_eq!(chunk.next_cursor, first + chunk.bytes.len() as u64);
    assert_eq!(chunk.bytes, all[first as usize..chunk.next_cursor as usize]);
    assert!(chunk.bytes.len() <= max);
    assert!(max == 0 || first == total || !chunk.bytes.is_empty(), "a reader must get on");

    let mut followed = Vec::new();
    let mut position = 0;
    while position < total {
        let chunk = spool.read(position, 7).unwrap();
        followed.extend(chunk.bytes);
        assert!(chunk.next_cursor > position);
        position = chunk.next_cursor;
    }
    let expected: Vec<u8> = kept.iter().map(|position| all[*position as usize]).collect();
    assert_eq!(followed, expected);

    let everything = spool.collect(usize::MAX).unwrap();
    assert_eq!((&everything.bytes, everything.dropped), (&expected, spool.dropped()));
    let some = spool.collect(max).unwrap();
    assert_eq!(some.bytes.len(), max.min(expected.len()));
    assert_eq!(some.dropped, total - some.bytes.len() as u64);
    let (front, back) = some.bytes.split_at(some.head_len);
    assert!(expected.starts_with(front) && expected.ends_with(back));
    // Both sides of the joint are in order and without holes.
    let back_start = all.len() - back.len() - (total - kept.last().map_or(total, |last| last + 1)) as usize;
    assert!(all.starts_with(front) && all[back_start..].starts_with(back));
}

fn numbered(from: usize, length: usize) -> Vec<u8> {
    (from..from + length).map(|number| (number % 251) as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_a_stream_of_which_everything_is_remembered(
        limit in proptest::option::weighted(0.9, 0u64..200),
        memory in 0usize..64,
        writes in vec(0usize..120, 0..12),
        cursor in 0u64..800,
        max in 0usize..300,
    ) {
        let (_path, directory) = directory();
        let watched = Arc::new(RememberingSource(directory, Mutex::default()));
        let mut spool = Spool::with_memory(limit, memory, watched.clone());
        let mut all = Vec::new();
        for (number, length) in writes.into_iter().enumerate() {
            let bytes = numbered(all.len(), length);
            spool.write(&bytes, number as u64);
            all.extend(&bytes);
            check_against(&all, &spool, cursor, max);

            // Exactly the first and last half of the limit, and no more room than that.
            let limit = limit.unwrap_or(u64::MAX);
            let total = all.len() as u64;
            let [head, tail] = spool.kept();
            let expected = if total <= limit {
                [0..total, total..total]
            } else {
                [0..limit / 2, total - (limit - limit / 2)..total]
            };
            assert_eq!([head, tail], expected);
            assert!(memory_capacity(&spool) <= memory);
            let file = watched.1.lock().unwrap().as_ref().map(|file| file.metadata().unwrap().len());
            assert_eq!(file.is_some(), total > memory as u64 && limit > memory as u64);
            assert!(file.unwrap_or(0) <= limit);
        }
        prop_assert!(spool.spill_error().is_none());
    }

    #[test]
    fn a_full_disk_costs_bytes_and_nothing_else(
        limit in proptest::option::weighted(0.7, 0u64..200),
        memory in 0usize..64,
        capacity in 0u64..150,
        allowed_writes in prop_oneof![Just(u64::MAX), 0u64..10],
        writes in vec(0usize..120, 0..12),
        cursor in 0u64..800,
        max in 0usize..300,
    ) {
        let mut spool = Spool::with_memory(limit, memory, Arc::new(FullDiskSource(SmallDisk::new(capacity, allowed_writes))));
        let mut all = Vec::new();
        for (number, length) in writes.into_iter().enumerate() {
            let bytes = numbered(all.len(), length);
            spool.write(&bytes, number as u64);
            all.extend(&bytes);
            check_against(&all, &spool, cursor, max);
            assert!(memory_capacity(&spool) <= memory);
            let dropped_below_limit = spool.dropped() > 0 && (all.len() as u64) <= limit.unwrap_or(u64::MAX);
            assert!(!dropped_below_limit || spool.spill_error().is_some());
        }
    }
}

#[test]
fn a_disk_that_is_full_still_keeps_the_newest_bytes() {
    let all = numbered(0, 1000);
    // The disk fills while the file grows: 100 bytes fit.
    let mut spool = Spool::with_memory(None, 10, Arc::new(FullDiskSource(SmallDisk::new(100, u64::MAX))));
    all.chunks(30).for_each(|bytes| spool.write(bytes, 0));
    assert_eq!(spool.kept(), [0..50, 950..1000]);
    // Not even what memory held fits: memory continues alone.
    let mut spool = Spool::with_memory(None, 64, Arc::new(FullDiskSource(SmallDisk::new(20, u64::MAX))));
    all.chunks(30).for_each(|bytes| spool.write(bytes, 0));
    assert_eq!(spool.kept(), [0..32, 968..1000]);
    assert_eq!(spool.spill_error().unwrap().kind(), io::ErrorKind::StorageFull);
    // The disk fails in the middle of overwriting: what was stored before stays readable.
    let mut spool = Spool::with_memory(Some(100), 10, Arc::new(FullDiskSource(SmallDisk::new(100, 3))));
    all.chunks(60).for_each(|bytes| spool.write(bytes, 0));
    let [head, tail] = spool.kept();
    assert_eq!(head, 0..50);
    assert!(tail.end < 1000 && spool.truncated());
    check_against(&all, &spool, 60, 1000);
}

#[test]
fn output_costs_no_heap_at_first_and_64_kib_later() {
    let (_path, directory) = directory();
    let mut spool = Spool::new(None, directory);
    assert_eq!(memory_capacity(&spool), 0);
    assert!(size_of::<Spool>() <= 160, "{}", size_of::<Spool>());
    assert_eq!(spool.last_write_ns(), None);
    let mut most = 0;
    for number in 0..2000 {
        spool.write(&[b'x'; 100], number);
        most = most.max(memory_capacity(&spool));
    }
    assert_eq!(most, MEMORY_BYTES);
    assert_eq!(memory_capacity(&spool), 0, "memory is given back once the file has the bytes");
    assert_eq!(spool.last_write_ns(), Some(1999));
    spool.write(&[], 5000);
    assert_eq!(spool.last_write_ns(), Some(1999), "no bytes, no output");
}

#[test]
fn a_limit_below_64_kib_never_touches_the_disk() {
    let mut spool = Spool::with_memory(
        Some(MEMORY_BYTES as u64),
        MEMORY_BYTES,
        Arc::new(FullDiskSource(SmallDisk::new(0, 0))),
    );
    (0..100).for_each(|_| spool.write(&[b'x'; 5000], 0));
    assert!(spool.spill_error().is_none() && memory_capacity(&spool) == MEMORY_BYTES);
}

#[test]
fn gibibyte_through_10_mib_limit_takes_10_mib_of_disk() {
    const MEBIBYTE: usize = 1 << 20;
    let (_path, directory) = directory();
    let watched = Arc::new(RememberingSource(directory, Mutex::default()));
    let mut spool = Spool::with_memory(Some(10 << 20), MEMORY_BYTES, watched.clone());
    let mut slice = vec![0; MEBIBYTE];
    for number in 0..1024u64 {
        slice[..8].copy_from_slice(&number.to_le_bytes());
        spool.write(&slice, number);
    }
    let file = watched.1.lock().unwrap().take().unwrap();
    assert_eq!(file.metadata().unwrap().len(), 10 << 20);
    assert_eq!((spool.total(), spool.dropped()), (1 << 30, (1 << 30) - (10 << 20)));
    assert_eq!(spool.kept(), [0..5 << 20, (1 << 30) - (5 << 20)..1 << 30]);
    // The tail holds the last five slices, each where it belongs.
    for number in 1019..1024u64 {
        let chunk = spool.read(number << 20, 8).unwrap();
        assert_eq!(chunk.bytes, number.to_le_bytes());
    }
}

#[test]
fn one_enormous_slice_writes_only_what_is_kept() {
    let disk = SmallDisk::new(u64::MAX, u64::MAX);
    let mut spool = Spool::with_memory(Some(1 << 20), MEMORY_BYTES, Arc::new(FullDiskSource(disk.clone())));
    let slice = numbered(0, 64 << 20);
    spool.write(&slice, 0);
    // Head, and the ring in two pieces.
    assert!(u64::MAX - disk.writes.load(Ordering::Relaxed) <= 3);
    assert_eq!(spool.collect(usize::MAX).unwrap().bytes.len(), 1 << 20);
    let last = spool.read((64 << 20) - 5, 5).unwrap().bytes;
    assert_eq!(last, slice[slice.len() - 5..]);
}

#[test]
fn spool_files_have_no_name_either_way_they_are_made() {
    let (path, directory) = directory();
    for file in [directory.create().unwrap(), directory.create_and_unlink().unwrap()] {
        file.write_all_at(b"abc", 0).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::nlink(&file.metadata().unwrap()), 0);
    }
    assert_eq!(std::fs::read_dir(path.path()).unwrap().count(), 0);
}

#[test]
fn a_directory_that_takes_no_file_is_refused() {
    let error =
        SpoolDirectory::open(std::path::Path::new("/proc/self")).expect_err("nothing can be made there");
    assert_ne!(error.raw_os_error(), None, "{error}");
}

#[test]
fn a_directory_that_is_gone_leaves_the_stream_in_memory() {
    let (path, directory) = directory();
    path.close().unwrap();
    let mut spool = Spool::new(None, directory);
    spool.write(&[b'x'; 100_000], 0);
    assert!(spool.spill_error().is_some());
    assert_eq!((spool.total(), spool.dropped()), (100_000, 100_000 - MEMORY_BYTES as u64));
}
