//! The rows whose way of being killed the watchdog is still to be told, because its socket was full: one bit for each.

use std::io;

use sandtimer_os::wire::ROWS;

const WORD_BITS: usize = u64::BITS as usize;

/// A set of rows; takes no memory of its own, so that the enforcer can add to it.
#[derive(Debug)]
pub(super) struct UnsentRows {
    words: [u64; ROWS / WORD_BITS],
}

impl UnsentRows {
    pub fn new() -> Self {
        UnsentRows { words: [0; ROWS / WORD_BITS] }
    }

    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    pub fn insert(&mut self, row: usize) {
        self.words[row / WORD_BITS] |= 1 << (row % WORD_BITS);
    }

    pub fn clear(&mut self) {
        *self = UnsentRows::new();
    }

    /// Sends for each row, and removes it, until one cannot be sent now: the socket is full for all others as well. Any other
    /// failure is final.
    pub fn send(&mut self, mut send: impl FnMut(usize) -> io::Result<()>) {
        for index in 0..self.words.len() {
            while self.words[index] != 0 {
                let bit = self.words[index].trailing_zeros() as usize;
                if send(index * WORD_BITS + bit).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
                {
                    return;
                }
                self.words[index] &= self.words[index] - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_socket_is_tried_once_for_all_rows() {
        let mut unsent = UnsentRows::new();
        assert!(unsent.is_empty());
        for row in [ROWS - 1, 0, 70, 63, 64, 70] {
            unsent.insert(row);
        }
        let full = || Err(io::ErrorKind::WouldBlock.into());
        let mut tried = Vec::new();
        unsent.send(|row| {
            tried.push(row);
            full()
        });
        assert_eq!(tried, [0], "each other row would have failed as well");
        // Room for two messages, the second of which fails for good.
        let mut tried = Vec::new();
        unsent.send(|row| {
            tried.push(row);
            match tried.len() {
                1 => Ok(()),
                2 => Err(io::ErrorKind::BrokenPipe.into()),
                _ => full(),
            }
        });
        assert_eq!(tried, [0, 63, 64]);
        let mut tried = Vec::new();
        unsent.send(|row| {
            tried.push(row);
            Ok(())
        });
        assert_eq!(tried, [64, 70, ROWS - 1]);
        assert!(unsent.is_empty());
        unsent.insert(5);
        unsent.clear();
        assert!(unsent.is_empty());
    }
}
