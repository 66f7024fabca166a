//! From an instruction of a code object to the line of its source.

use super::layout::LineTableKind;

/// The line of the instruction that begins `offset` bytes after the first one; `None` if it has
/// none.
pub(super) fn line(kind: LineTableKind, table: &[u8], first: i64, offset: i64) -> Option<u32> {
    let line = match kind {
        LineTableKind::Table => by_table(table, first, offset),
        LineTableKind::Ranges => by_ranges(table, first, offset)?,
        LineTableKind::Locations => by_locations(table, first, offset)?,
    };
    u32::try_from(line).ok().filter(|line| *line > 0)
}

fn by_table(table: &[u8], first: i64, offset: i64) -> i64 {
    let (mut line, mut at) = (first, 0);
    for pair in table.chunks_exact(2) {
        at += i64::from(pair[0]);
        if at > offset {
            break;
        }
        line += i64::from(pair[1] as i8);
    }
    line
}

fn by_ranges(table: &[u8], first: i64, offset: i64) -> Option<i64> {
    const NONE: i8 = -128;
    let (mut line, mut end) = (first, 0);
    for pair in table.chunks_exact(2) {
        let step = pair[1] as i8;
        line += if step == NONE { 0 } else { i64::from(step) };
        end += i64::from(pair[0]);
        if offset < end {
            return (step != NONE).then_some(line);
        }
    }
    None
}

fn by_locations(table: &[u8], first: i64, offset: i64) -> Option<i64> {
    let (mut line, mut end) = (first, 0);
    let mut bytes = table.iter().copied();
    while let Some(head) = bytes.next() {
        let form = head >> 3 & 15;
        match form {
            0..=9 => _ = bytes.next(),
            10..=12 => {
                line += i64::from(form) - 10;
                bytes.nth(1);
            }
            13 => line += signed(&mut bytes)?,
            14 => {
                line += signed(&mut bytes)?;
                for _ in 0..3 {
                    unsigned(&mut bytes)?;
                }
            }
            _ => {}
        }
        end += (i64::from(head & 7) + 1) * 2;
        if offset < end {
            return (form != 15).then_some(line);
        }
    }
    None
}

/// Six bits of each byte, the lowest first.
fn unsigned(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let (mut number, mut shift) = (0, 0);
    loop {
        let byte = bytes.next()?;
        number |= i64::from(byte & 0x3f) << shift;
        shift += 6;
        if byte & 0x40 == 0 {
            return Some(number);
        }
        if shift > 30 {
            return None;
        }
    }
}

fn signed(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let number = unsigned(bytes)?;
    Some(if number & 1 == 1 { -(number >> 1) } else { number >> 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_table_is_read() {
        let at = |kind, table: &[u8], offset| line(kind, table, 10, offset);
        let pairs = [4, 1, 6, 0xff, 2, 3];
        assert_eq!(
            [0, 4, 10, 12].map(|offset| at(LineTableKind::Table, &pairs, offset)),
            [10, 11, 10, 13].map(Some)
        );
        let ranges = [4, 1, 6, 0x80, 2, 3];
        assert_eq!(
            [0, 4, 10, 12].map(|offset| at(LineTableKind::Ranges, &ranges, offset)),
            [Some(11), None, Some(14), None]
        );
        // One line further in short form, on the same line, and a jump back by five in long form.
        let locations =
            [0x80 | 11 << 3 | 1, 0, 0, 0x80 | 2 << 3, 0, 0x80 | 14 << 3, 11, 0, 0, 0, 0x80 | 15 << 3];
        let found = [0, 2, 4, 6, 8, 10].map(|offset| at(LineTableKind::Locations, &locations, offset));
        assert_eq!(found, [Some(11), Some(11), Some(11), Some(6), None, None]);
    }

    #[test]
    fn nonsense_is_no_line() {
        for kind in [LineTableKind::Table, LineTableKind::Ranges, LineTableKind::Locations] {
            for table in [vec![0xff; 4096], vec![0; 3], vec![], vec![0x80 | 14 << 3; 64]] {
                let _ = (line(kind, &table, i64::from(i32::MAX), 1 << 40), line(kind, &table, -5, -1));
            }
        }
        assert_eq!(line(LineTableKind::Locations, &[0xf0], 1, 0), None);
    }
}
