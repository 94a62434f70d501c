//! A table of things with ids that are never used again: look-up is two indices, and ids that are gone cost nothing but
//! their share of an empty row. A pool may be old, and an image hostile: neither sizes memory by an id alone.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// Ids of one row. The largest id there is, 2^30, is worth 64 MiB of empty rows.
const ROW: usize = 128;

pub(crate) struct Sparse<T> {
    rows: Vec<Option<Box<[Option<T>; ROW]>>>,
}

impl<T> Default for Sparse<T> {
    fn default() -> Self {
        Sparse { rows: Vec::new() }
    }
}

impl<T> Sparse<T> {
    pub(crate) fn get(&self, id: usize) -> Option<&T> {
        self.rows.get(id / ROW)?.as_ref()?[id % ROW].as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: usize) -> Option<&mut T> {
        self.rows.get_mut(id / ROW)?.as_mut()?[id % ROW].as_mut()
    }

    pub(crate) fn put(&mut self, id: usize, value: T) {
        if self.rows.len() <= id / ROW {
            self.rows.resize_with(id / ROW + 1, || None);
        }
        let row = self.rows[id / ROW].get_or_insert_with(|| Box::new(core::array::from_fn(|_| None)));
        row[id % ROW] = Some(value);
    }

    pub(crate) fn take(&mut self, id: usize) -> Option<T> {
        let row = self.rows.get_mut(id / ROW)?;
        let value = row.as_mut()?[id % ROW].take();
        if row.as_ref().is_some_and(|row| row.iter().all(Option::is_none)) {
            *row = None;
        }
        value
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.rows.iter().flatten().flat_map(|row| row.iter().flatten())
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.rows.iter_mut().flatten().flat_map(|row| row.iter_mut().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn it_is_a_map_by_id() {
        let (mut table, mut twin) = (Sparse::default(), BTreeMap::new());
        for i in 0..2000usize {
            let id = i * i * 31 % 1009;
            match i % 3 {
                0 | 1 => {
                    table.put(id, i);
                    twin.insert(id, i);
                }
                _ => assert_eq!(table.take(id), twin.remove(&id)),
            }
            if let (Some(a), Some(b)) = (table.get_mut(i % 1009), twin.get_mut(&(i % 1009))) {
                (*a, *b) = (*a + 1, *b + 1);
            }
            assert_eq!(table.get(id), twin.get(&id));
        }
        table.iter_mut().for_each(|v| *v += 1);
        assert!(table.iter().copied().eq(twin.values().map(|v| v + 1)));
        for id in 0..1009 {
            table.take(id);
        }
        assert!(table.rows.iter().all(Option::is_none) && table.get(1 << 30).is_none());
    }
}
