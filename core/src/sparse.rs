//! A table of things with ids that are never used again: look-up is two indices, and ids that are gone cost nothing but
//! their share of an empty row. A pool may be old, and an image hostile: neither sizes memory by an id alone.
//! A row is as long as its highest id wants, so a table of a few things is small.

use alloc::vec::Vec;

/// Ids of one row of a table by chunks: the largest, 2^30, is worth 48 MiB of empty rows.
pub(crate) const CHUNK_ROW: usize = 512;

/// `ROW` is the ids of one row, at most.
#[derive(Clone)]
pub(crate) struct Sparse<T, const ROW: usize = 128> {
    /// Empty: nothing in this row.
    rows: Vec<Vec<Option<T>>>,
}

impl<T, const ROW: usize> Default for Sparse<T, ROW> {
    fn default() -> Self {
        Sparse { rows: Vec::new() }
    }
}

impl<T, const ROW: usize> Sparse<T, ROW> {
    pub(crate) fn get(&self, id: usize) -> Option<&T> {
        self.rows.get(id / ROW)?.get(id % ROW)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: usize) -> Option<&mut T> {
        self.rows.get_mut(id / ROW)?.get_mut(id % ROW)?.as_mut()
    }

    pub(crate) fn put(&mut self, id: usize, value: T) {
        if self.rows.len() <= id / ROW {
            self.rows.resize_with(id / ROW + 1, Vec::new);
        }
        let row = &mut self.rows[id / ROW];
        if row.len() <= id % ROW {
            row.resize_with(id % ROW + 1, || None);
        }
        row[id % ROW] = Some(value);
    }

    pub(crate) fn take(&mut self, id: usize) -> Option<T> {
        let row = self.rows.get_mut(id / ROW)?;
        let value = row.get_mut(id % ROW)?.take();
        if row.iter().all(Option::is_none) {
            *row = Vec::new();
        }
        value
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.rows.iter().flatten().flatten()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.rows.iter_mut().flatten().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn it_is_a_map_by_id() {
        let (mut table, mut twin) = (Sparse::<usize>::default(), BTreeMap::new());
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
        assert!(table.rows.iter().all(Vec::is_empty) && table.get(1 << 30).is_none());
    }
}
