//! The slots of which the watchdog has not received yet how they are killed, because its socket was
//! full: one bit for each.

use std::io;

use sandtimer_os::wire::ROWS;

const BITS_PER_ELEMENT: usize = u64::BITS as usize;

/// A set of rows; takes no memory of its own, so that the enforcer can add to it.
#[derive(Debug)]
pub(super) struct UnsentSlots {
    elements: [u64; ROWS / BITS_PER_ELEMENT],
}

impl UnsentSlots {
    pub fn new() -> Self {
        UnsentSlots { elements: [0; ROWS / BITS_PER_ELEMENT] }
    }

    pub fn is_empty(&self) -> bool {
        self.elements.iter().all(|element| *element == 0)
    }

    pub fn insert(&mut self, slot_index: usize) {
        self.elements[slot_index / BITS_PER_ELEMENT] |= 1 << (slot_index % BITS_PER_ELEMENT);
    }

    pub fn clear(&mut self) {
        *self = UnsentSlots::new();
    }

    /// Sends for each row, and removes it, until one cannot be sent now: the socket is full for all
    /// others as well. Any other failure is final.
    pub fn send(&mut self, mut send: impl FnMut(usize) -> io::Result<()>) {
        for index in 0..self.elements.len() {
            while self.elements[index] != 0 {
                let bit = self.elements[index].trailing_zeros() as usize;
                if send(index * BITS_PER_ELEMENT + bit)
                    .is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
                {
                    return;
                }
                self.elements[index] &= self.elements[index] - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_socket_is_tried_once_for_all_slots() {
        let mut unsent = UnsentSlots::new();
        assert!(unsent.is_empty());
        for slot_index in [ROWS - 1, 0, 70, 63, 64, 70] {
            unsent.insert(slot_index);
        }
        let full = || Err(io::ErrorKind::WouldBlock.into());
        let mut tried = Vec::new();
        unsent.send(|slot_index| {
            tried.push(slot_index);
            full()
        });
        assert_eq!(tried, [0], "each other row would have failed as well");
        // Room for two messages, the second of which fails for good.
        let mut tried = Vec::new();
        unsent.send(|slot_index| {
            tried.push(slot_index);
            match tried.len() {
                1 => Ok(()),
                2 => Err(io::ErrorKind::BrokenPipe.into()),
                _ => full(),
            }
        });
        assert_eq!(tried, [0, 63, 64]);
        let mut tried = Vec::new();
        unsent.send(|slot_index| {
            tried.push(slot_index);
            Ok(())
        });
        assert_eq!(tried, [64, 70, ROWS - 1]);
        assert!(unsent.is_empty());
        unsent.insert(5);
        unsent.clear();
        assert!(unsent.is_empty());
    }
}
