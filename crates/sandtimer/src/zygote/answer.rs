//! The packets of a job, as they come from a process that may do anything: the one that it answers
//! with, and reports before.

use sandtimer_os::wire::{CHANNEL_PACKET, channel};

/// Parts of an answer that are too long for its packet.
pub const MAX_PARTS: usize = 2048;
/// The beginning of a packet with a progress report; a line as on a progress channel follows.
pub const REPORT: &[u8] = b"P";
const HEADER: usize = 16;
const ENTRY: usize = 16;
const IMMUTABLE: u64 = 1 << 63;

/// The kind of an answer, according to the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerKind {
    /// A value.
    Value,
    /// The description of an exception.
    Raised,
    /// Why the value could not be written down.
    Refused,
}

/// A part of the answer in the job's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerPart {
    pub(crate) address: u64,
    /// Bytes.
    pub length: u64,
    /// The reader should make something of it that cannot be changed.
    pub immutable: bool,
}

/// An answer, as far as it came in the packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallAnswer {
    /// What kind of answer it is.
    pub kind: AnswerKind,
    /// What was written down, where it is short; else it is the first part.
    pub inline: Vec<u8>,
    /// Buffers that lie outside of the packet, in order.
    pub parts: Vec<AnswerPart>,
}

/// The packet is none that the program of a child writes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the job sent something that is not an answer: {0}")]
pub struct MalformedAnswer(pub &'static str);

impl CallAnswer {
    /// Reads a packet: a letter, the kind, two zeros, the number of parts (u32), the length of what
    /// is inline (u64), an address and a length (u64) for each part, and the inline bytes; integers
    /// little-endian. The highest bit of a length means that the part is immutable.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(packet: &[u8]) -> Result<Self, MalformedAnswer> {
        if packet.len() > CHANNEL_PACKET {
            return Err(MalformedAnswer("the packet is too long"));
        }
        let (Some(header), Some(rest)) = (packet.get(..HEADER), packet.get(HEADER..)) else {
            return Err(MalformedAnswer("the packet is too short"));
        };
        if header[0] != channel::ANSWER || header[2..4] != [0, 0] {
            return Err(MalformedAnswer("it does not begin like one"));
        }
        let kind = match header[1] {
            0 => AnswerKind::Value,
            1 => AnswerKind::Raised,
            2 => AnswerKind::Refused,
            _ => return Err(MalformedAnswer("its kind is unknown")),
        };
        let count = read_u64(&header[..8]) >> 32;
        let inline = read_u64(&header[8..]);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if count > MAX_PARTS || rest.len() < count * ENTRY {
            return Err(MalformedAnswer("it names more parts than it lists"));
        }
        let (table, bytes) = rest.split_at(count * ENTRY);
        if bytes.len() as u64 != inline {
            return Err(MalformedAnswer("its length differs from the one in its header"));
        }
        let parts = table
            .chunks_exact(ENTRY)
            .map(|entry| AnswerPart {
                address: read_u64(&entry[..8]),
                length: read_u64(&entry[8..]) & !IMMUTABLE,
                immutable: read_u64(&entry[8..]) & IMMUTABLE != 0,
            })
            .collect();
        Ok(CallAnswer { kind, inline: bytes.to_vec(), parts })
    }

    /// Bytes altogether; saturates.
    pub fn size(&self) -> u64 {
        self.parts.iter().fold(self.inline.len() as u64, |sum, part| sum.saturating_add(part.length))
    }
}

fn read_u64(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(kind: u8, parts: &[(u64, u64)], inline: &[u8]) -> Vec<u8> {
        let mut packet = vec![b'A', kind, 0, 0];
        packet.extend((parts.len() as u32).to_le_bytes());
        packet.extend((inline.len() as u64).to_le_bytes());
        for (address, length) in parts {
            packet.extend(address.to_le_bytes());
            packet.extend(length.to_le_bytes());
        }
        packet.extend(inline);
        packet
    }

    #[test]
    fn an_answer_is_read_back() {
        let answer = CallAnswer::parse(&packet(1, &[(7, 9), (1 << 40, 3)], b"abc")).expect("well formed");
        assert_eq!((answer.kind, answer.inline.as_slice()), (AnswerKind::Raised, b"abc".as_slice()));
        assert_eq!(answer.parts[1], AnswerPart { address: 1 << 40, length: 3, immutable: false });
        assert_eq!(answer.size(), 15);
    }

    #[test]
    fn every_truncation_and_every_lie_is_refused() {
        let whole = packet(0, &[(7, 9)], b"abc");
        for length in 0..whole.len() {
            assert!(CallAnswer::parse(&whole[..length]).is_err(), "cut to {length}");
        }
        let mut long = whole.clone();
        long.push(0);
        assert!(CallAnswer::parse(&long).is_err());
        for (at, value) in [(0, b'B'), (1, 3), (2, 1), (4, 2), (7, 0xff), (8, 4), (15, 0xff)] {
            let mut forged = whole.clone();
            forged[at] = value;
            assert!(CallAnswer::parse(&forged).is_err(), "byte {at} = {value}");
        }
        let huge = CallAnswer::parse(&packet(0, &[(0, u64::MAX); 3], b"")).expect("bounded later");
        assert_eq!((huge.size(), huge.parts[0].immutable), (u64::MAX, true));
    }
}
