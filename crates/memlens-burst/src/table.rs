//! A vector of fixed capacity in memory of our own.

use core::ops::{Deref, DerefMut};

use crate::sys::{Populated, give_back, own_array, populate};

/// Elements are numbers and structures of numbers: zeroed memory is a valid one.
#[derive(Debug)]
pub struct Table<T: Copy> {
    start: *mut T,
    length: usize,
    capacity: usize,
    populated: Populated,
}

impl<T: Copy> Table<T> {
    /// None: the kernel has no memory.
    pub fn with_capacity(capacity: usize) -> Option<Self> {
        Some(Self { start: own_array(capacity)?, length: 0, capacity, populated: Populated::default() })
    }

    /// Appends an element; its index. The caller has asked for [`Self::room`].
    pub fn push(&mut self, element: T) -> usize {
        assert!(self.length < self.capacity, "room was asked for");
        let bytes = |elements: usize| elements * size_of::<T>();
        if let Some(new) = self.populated.reach(bytes(self.length + 1), bytes(self.capacity)) {
            populate(self.start.cast::<u8>().wrapping_add(new.start), new.len(), true);
        }
        // SAFETY: below the capacity, in memory that is this table's alone.
        unsafe { self.start.add(self.length).write(element) };
        self.length += 1;
        self.length - 1
    }

    /// How many more fit.
    pub fn room(&self) -> usize {
        self.capacity - self.length
    }

    /// Forgets what is behind `length`.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Gives its memory back.
    pub fn discard(self) {
        // SAFETY: its own memory, which nobody can borrow any more.
        unsafe { give_back(self.start, self.capacity) };
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.length = 0;
    }
}

impl<T: Copy> Deref for Table<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the first `length` elements were written.
        unsafe { core::slice::from_raw_parts(self.start, self.length) }
    }
}

impl<T: Copy> DerefMut for Table<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and the table is borrowed for writing.
        unsafe { core::slice::from_raw_parts_mut(self.start, self.length) }
    }
}
