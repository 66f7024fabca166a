//! Values by row of the table that engine and watchdog share.

use sandtimer_os::wire::ROWS;

/// What the enforcer has by row. Memory for every row is reserved, so that nothing here allocates;
/// it is touched, and searched, only up to the last row that was ever used: most engines use few.
#[derive(Debug)]
pub(super) struct SlotMap<T>(Vec<Option<T>>);

impl<T> SlotMap<T> {
    pub fn new() -> Self {
        SlotMap(Vec::with_capacity(ROWS))
    }

    pub fn get(&self, slot_index: usize) -> Option<&T> {
        self.0.get(slot_index)?.as_ref()
    }

    pub fn get_mut(&mut self, slot_index: usize) -> Option<&mut T> {
        self.0.get_mut(slot_index)?.as_mut()
    }

    /// Puts a value into a row; returns the one before.
    pub fn replace(&mut self, slot_index: usize, value: T) -> Option<T> {
        if slot_index >= self.0.len() {
            self.0.resize_with(slot_index + 1, || None);
        }
        self.0[slot_index].replace(value)
    }

    pub fn take(&mut self, slot_index: usize) -> Option<T> {
        self.0.get_mut(slot_index)?.take()
    }

    /// Every row that may have a value.
    pub fn slot_indexes(&self) -> std::ops::Range<usize> {
        0..self.0.len()
    }

    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_has_room_without_allocation() {
        let mut map = SlotMap::new();
        let reserved = map.0.capacity();
        assert_eq!((map.take(3), map.get(ROWS - 1), map.slot_indexes().len()), (None, None, 0));
        for slot_index in [7, ROWS - 1, 0] {
            assert_eq!(map.replace(slot_index, slot_index), None);
        }
        assert_eq!(map.0.capacity(), reserved);
        assert_eq!(map.values().copied().collect::<Vec<_>>(), [0, 7, ROWS - 1]);
        assert_eq!(
            (map.replace(7, 8), map.get(7).copied(), map.take(7), map.take(7)),
            (Some(7), Some(8), Some(8), None)
        );
        assert_eq!(map.slot_indexes(), 0..ROWS);
    }
}
