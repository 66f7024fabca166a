//! A part of a job's log, and the times of its lines.

use sandtimer::time::instant;

/// The placeholder of an unknown time.
const UNKNOWN_TIME: &str = "-";

/// A part of a job's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobLog {
    /// The bytes, which need not be UTF-8 and may begin inside a line.
    pub bytes: Vec<u8>,
    /// The position after these bytes, from which the next part is read.
    pub next_cursor: u64,
    /// When its pieces were appended, in their order; the first piece begins with the first byte.
    pub times: Vec<LogTime>,
}

/// When a piece of a log was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogTime {
    /// Where the piece begins: an absolute byte position.
    pub start: u64,
    /// The store's moment, in milliseconds since 1970; `None` if an earlier version appended it.
    pub at_ms: Option<u64>,
}

impl JobLog {
    /// Returns the bytes piece by piece, each with the time at which it was appended, in
    /// milliseconds since 1970.
    pub fn pieces(&self) -> impl Iterator<Item = (Option<u64>, &[u8])> {
        let first = self.next_cursor - self.bytes.len() as u64;
        let offset = move |start: u64| usize::try_from(start.saturating_sub(first)).unwrap_or(usize::MAX);
        let starts = self.times.iter().map(move |time| offset(time.start).min(self.bytes.len()));
        let ends = starts.clone().skip(1).chain([self.bytes.len()]);
        self.times
            .iter()
            .zip(starts.zip(ends))
            .map(move |(time, (start, end))| (time.at_ms, &self.bytes[start..end]))
    }
}

/// Writes times before the lines of a log that is read part by part.
#[derive(Debug)]
pub struct LineTimes {
    is_line_start: bool,
}

impl LineTimes {
    /// Makes one for a reader whose first byte follows `before`; `None` at the beginning of the
    /// log.
    pub fn after(before: Option<u8>) -> Self {
        LineTimes { is_line_start: before.is_none_or(|byte| byte == b'\n') }
    }

    /// Returns the next part of the log, with the time of its first byte in RFC 3339 and a space
    /// before each line that begins in it; `-` if the time is not known.
    pub fn stamp(&mut self, log: &JobLog) -> Vec<u8> {
        let mut stamped = Vec::with_capacity(log.bytes.len());
        for (at_ms, piece) in log.pieces() {
            let time = at_ms.map_or_else(|| UNKNOWN_TIME.to_owned(), instant);
            for part in piece.split_inclusive(|byte| *byte == b'\n') {
                if self.is_line_start {
                    stamped.extend_from_slice(time.as_bytes());
                    stamped.push(b' ');
                }
                stamped.extend_from_slice(part);
                self.is_line_start = part.ends_with(b"\n");
            }
        }
        stamped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(pieces: &[(Option<u64>, &str)], first: u64) -> JobLog {
        let mut log = JobLog { bytes: Vec::new(), next_cursor: first, times: Vec::new() };
        for (at_ms, text) in pieces {
            log.times.push(LogTime { start: log.next_cursor, at_ms: *at_ms });
            log.bytes.extend_from_slice(text.as_bytes());
            log.next_cursor += text.len() as u64;
        }
        log
    }

    fn stamped(times: &mut LineTimes, log: &JobLog) -> String {
        String::from_utf8(times.stamp(log)).expect("text")
    }

    #[test]
    fn line_has_the_time_of_the_piece_in_which_it_begins() {
        let mut times = LineTimes::after(None);
        let log = log(&[(Some(0), "one\ntw"), (Some(1_000), "o\n\nthree"), (Some(2_000), "!\n")], 0);
        let expected = "1970-01-01T00:00:00.000Z one\n1970-01-01T00:00:00.000Z two\n1970-01-01T00:00:01.000Z \n\
             1970-01-01T00:00:01.000Z three!\n";
        assert_eq!(stamped(&mut times, &log), expected);
    }

    #[test]
    fn line_that_was_begun_before_has_no_second_time() {
        let mut times = LineTimes::after(Some(b'x'));
        assert_eq!(
            stamped(&mut times, &log(&[(Some(0), "rest\nnew")], 70)),
            "rest\n1970-01-01T00:00:00.000Z new"
        );
        assert_eq!(stamped(&mut times, &log(&[(Some(0), "er\n")], 78)), "er\n");
        assert_eq!(stamped(&mut times, &log(&[(Some(0), "a")], 81)), "1970-01-01T00:00:00.000Z a");
        assert!(LineTimes::after(Some(b'\n')).is_line_start);
    }

    #[test]
    fn unknown_time_is_a_dash() {
        let mut times = LineTimes::after(None);
        let log = log(&[(None, "old\n"), (Some(0), "new\n")], 0);
        assert_eq!(stamped(&mut times, &log), "- old\n1970-01-01T00:00:00.000Z new\n");
    }
}
