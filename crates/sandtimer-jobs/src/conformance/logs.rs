//! Times of logs.

use std::time::Duration;

use crate::job::JobStatus;
use serde_json::json;

use super::ConformancePart;

pub(super) fn log_keeps_the_time_of_each_piece(part: &ConformancePart<'_>) {
    let id = part.submit(json!({}));
    let held = part.lease(1).remove(0).held;
    let mut bounds = Vec::new();
    for piece in [b"one\ntw".as_slice(), b"o\nthree", b"\n"] {
        // A server's clock is known here to a millisecond.
        let before = part.store.now_ms() - 5;
        part.store.append_log(&held, piece).expect("written");
        bounds.push((before, part.store.now_ms()));
        (part.pass)(Duration::from_millis(40));
    }
    part.finish(&held, JobStatus::Ok, false);
    let read = |cursor, most| {
        let log = part.store.read_log(&id, cursor, most).expect("readable");
        let pieces = log.pieces().map(|(at_ms, bytes)| (at_ms.expect("known"), bytes.to_vec()));
        pieces.collect::<Vec<_>>()
    };
    let whole = read(0, 100);
    let texts: Vec<&[u8]> = whole.iter().map(|(_, bytes)| bytes.as_slice()).collect();
    assert_eq!(texts, [b"one\ntw".as_slice(), b"o\nthree", b"\n"]);
    for ((at_ms, _), (before, after)) in whole.iter().zip(&bounds) {
        assert!(before <= at_ms && at_ms <= after, "{before} {at_ms} {after}");
    }
    assert!(whole[0].0 + 30 <= whole[1].0 && whole[1].0 + 30 <= whole[2].0, "{whole:?}");
    assert_eq!(read(4, 3), [(whole[0].0, b"tw".to_vec()), (whole[1].0, b"o".to_vec())]);
    assert_eq!(read(8, 2), [(whole[1].0, b"th".to_vec())]);
    assert!(read(14, 9).is_empty());
}
