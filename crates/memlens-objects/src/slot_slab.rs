//! Where block records lie, grouped by object.

use crate::ObjectId;

/// Slots per page of the slab.
const PAGE_SLOTS: u32 = 16;
/// An object gets pages of its own from this many blocks on; before, its blocks share pages, so
/// that a thousand objects of one block do not cost a thousand pages.
const OWN_PAGE_AFTER: u32 = 4;
/// The object of pages that several objects share.
const SHARED: u32 = 0;
const NO_PAGE: u32 = u32::MAX;

/// Hands out slot numbers such that the object of a slot can be told from its page: one load from
/// a table 16 times smaller than the table of slots, which mostly stays in cache.
///
/// Slots start at 1 (0 means "nobody" in [`crate::ObjectPages`]). A page whose last slot is freed
/// can go to any object.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlotSlab {
    /// Object of each page, [`SHARED`] for several.
    page_object: Vec<u32>,
    pages: Vec<Page>,
    /// Pages nobody uses.
    empty_pages: Vec<u32>,
    /// First page with a free slot, by object; entry 0 is that of the shared pages.
    heads: Vec<Head>,
}

/// Free slots of a page, and its neighbours in its object's list of pages that have some.
#[derive(Debug, Clone, Copy)]
struct Page {
    free: u16,
    previous: u32,
    next: u32,
}

#[derive(Debug, Clone, Copy)]
struct Head {
    first: u32,
    /// Slots handed out so far, saturating at [`OWN_PAGE_AFTER`].
    handed_out: u32,
}

impl SlotSlab {
    /// The object of a slot in use, `None` when the page is shared and the slot's record must say.
    #[inline(always)]
    pub(crate) fn object_of(&self, slot: u32) -> Option<ObjectId> {
        ObjectId::new(self.page_object[(slot / PAGE_SLOTS) as usize])
    }

    /// A slot for a block of `object`, `None` when slot numbers would pass `max`.
    #[inline]
    pub(crate) fn take(&mut self, object: ObjectId, max: u32) -> Option<u32> {
        let at = object.get() as usize;
        if at >= self.heads.len() {
            self.heads.resize(at + 1, Head { first: NO_PAGE, handed_out: 0 });
        }
        let owner = if self.heads[at].handed_out < OWN_PAGE_AFTER {
            self.heads[at].handed_out += 1;
            SHARED
        } else {
            object.get()
        };
        if self.heads[owner as usize].first == NO_PAGE {
            self.add_page(owner, max)?;
        }
        let first = self.heads[owner as usize].first;
        let page = &mut self.pages[first as usize];
        let bit = page.free.trailing_zeros();
        page.free &= page.free - 1;
        if page.free == 0 {
            self.unlink(first);
        }
        Some(first * PAGE_SLOTS + bit)
    }

    /// Takes a slot back.
    #[inline]
    pub(crate) fn give_back(&mut self, slot: u32) {
        let number = slot / PAGE_SLOTS;
        let page = &mut self.pages[number as usize];
        let was_full = page.free == 0;
        page.free |= 1 << (slot % PAGE_SLOTS);
        let usable = if number == 0 { !1 } else { !0 };
        let now_empty = page.free == usable;
        if was_full {
            self.link(number);
        }
        // Page 0 lacks slot 0; it stays with its first user. The last page of a list stays too, so
        // that a block that comes and goes does not move pages each time.
        let alone =
            self.pages[number as usize].next == NO_PAGE && self.pages[number as usize].previous == NO_PAGE;
        if now_empty && !alone && number != 0 {
            self.unlink(number);
            self.empty_pages.push(number);
        }
    }

    /// How many slots there have ever been at one time, rounded up to pages.
    pub(crate) fn capacity(&self) -> usize {
        self.pages.len() * PAGE_SLOTS as usize
    }

    /// Bytes taken from the allocator.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.page_object.capacity() * 4
            + self.pages.capacity() * size_of::<Page>()
            + self.empty_pages.capacity() * 4
            + self.heads.capacity() * size_of::<Head>()
    }

    fn add_page(&mut self, owner: u32, max: u32) -> Option<()> {
        let number = match self.empty_pages.pop() {
            Some(number) => number,
            None => {
                let number = self.pages.len() as u32;
                if number * PAGE_SLOTS + (PAGE_SLOTS - 1) > max {
                    return None;
                }
                let free = if number == 0 { !1 } else { !0 };
                self.pages.push(Page { free, previous: NO_PAGE, next: NO_PAGE });
                self.page_object.push(owner);
                number
            }
        };
        self.page_object[number as usize] = owner;
        self.link(number);
        Some(())
    }

    /// Puts a page at the head of its object's list.
    fn link(&mut self, number: u32) {
        let head = &mut self.heads[self.page_object[number as usize] as usize];
        let next = core::mem::replace(&mut head.first, number);
        let page = &mut self.pages[number as usize];
        (page.previous, page.next) = (NO_PAGE, next);
        if next != NO_PAGE {
            self.pages[next as usize].previous = number;
        }
    }

    fn unlink(&mut self, number: u32) {
        let Page { previous, next, .. } = self.pages[number as usize];
        if previous == NO_PAGE {
            self.heads[self.page_object[number as usize] as usize].first = next;
        } else {
            self.pages[previous as usize].next = next;
        }
        if next != NO_PAGE {
            self.pages[next as usize].previous = previous;
        }
        let page = &mut self.pages[number as usize];
        (page.previous, page.next) = (NO_PAGE, NO_PAGE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(id: u32) -> ObjectId {
        ObjectId::new(id).unwrap()
    }

    #[test]
    fn slots_of_one_page_belong_to_one_object_after_the_first_few() {
        let mut slab = SlotSlab::default();
        // Four shared slots each: 1 to 8 of page 0 (slot 0 is never used).
        for expected in 1..=4 {
            assert_eq!(slab.take(object(1), 1000), Some(expected));
        }
        for expected in 5..=8 {
            assert_eq!(slab.take(object(2), 1000), Some(expected));
        }
        assert_eq!(slab.object_of(8), None);
        // The fifth block of each opens a page of its own: pages 1 (slots 16..32) and 2 (32..48).
        assert_eq!(slab.take(object(1), 1000), Some(16));
        assert_eq!(slab.take(object(2), 1000), Some(32));
        assert_eq!(slab.take(object(1), 1000), Some(17));
        assert_eq!((slab.object_of(17), slab.object_of(32)), (Some(object(1)), Some(object(2))));
        slab.give_back(16);
        assert_eq!(slab.take(object(1), 1000), Some(16));
    }

    #[test]
    fn a_page_that_empties_goes_to_another_object() {
        let mut slab = SlotSlab::default();
        for _ in 0..4 + 32 {
            slab.take(object(1), 1000);
        }
        // Object 1 holds pages 1 and 2 in full. Page 2 is freed after page 1 got a free slot.
        slab.give_back(16);
        for slot in 32..48 {
            slab.give_back(slot);
        }
        for _ in 0..4 {
            slab.take(object(2), 1000);
        }
        assert_eq!(slab.take(object(2), 1000), Some(32));
        assert_eq!(slab.capacity(), 48);
    }

    #[test]
    fn numbers_above_the_maximum_are_not_handed_out() {
        let mut slab = SlotSlab::default();
        // One page of 15 usable slots fits below 31 once: the second page would end at slot 31.
        assert_eq!((0..40).filter(|_| slab.take(object(1), 30).is_some()).count(), 4);
        assert_eq!((0..40).filter(|_| slab.take(object(1), 31).is_some()).count(), 16);
    }
}
