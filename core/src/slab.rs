//! A table with reusable places: ids are small, look-up is an index, and nothing is allocated once it has grown.

use alloc::vec::Vec;

#[derive(Clone)]
pub(crate) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(id) => {
                let place = &mut self.places[id as usize];
                // Said so that there is nothing to drop.
                assert!(place.is_none(), "a free place is empty");
                *place = Some(value);
                id
            }
            None => {
                self.places.push(Some(value));
                (self.places.len() - 1) as u32
            }
        }
    }

    pub(crate) fn remove(&mut self, id: u32) -> T {
        let value = self.places[id as usize].take().expect("an id is removed once");
        self.free.push(id);
        value
    }

    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        self.places.get(id as usize)?.as_ref()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().flatten()
    }

    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.places.get_mut(id as usize)?.as_mut()
    }

    /// Ids in use are below.
    pub(crate) fn ids_end(&self) -> u32 {
        self.places.len() as u32
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

impl<T> core::ops::Index<u32> for Slab<T> {
    type Output = T;
    fn index(&self, id: u32) -> &T {
        self.places[id as usize].as_ref().expect("the id is in use")
    }
}

impl<T> core::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, id: u32) -> &mut T {
        self.places[id as usize].as_mut().expect("the id is in use")
    }
}
