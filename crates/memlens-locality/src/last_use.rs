//! When each block was last used, in bounded memory.
//!
//! ```text
//!  key ──► front (direct mapped, a few KB: most references end here)
//!            │ another key in its place: that one goes down, this one comes up
//!            ▼
//!          table (open addressing, linear probing, at most 5/8 full)
//! ```
//!
//! The table grows to its limit. Then a random part of the keys is kept, chosen by hash, and what belongs to the
//! present window; the part halves each time that it does not fit (C. A. Waldspurger, N. Park, A. Garthwaite,
//! I. Ahmad, Efficient MRC Construction with SHARDS, FAST 2015, section 3.2). Who interprets a key from an
//! earlier window asks [`LastUse::is_kept`] first and counts it 1 ÷ [`LastUse::rate`] times.

const EMPTY: u64 = u64::MAX;
const SMALLEST: usize = 1 << 12;
/// Tables with so many entries are in the second-level cache, if no other is.
const IN_CACHES: usize = 1 << 14;

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: u64,
    time: u64,
}

const NONE: Entry = Entry { key: EMPTY, time: 0 };

/// What must not be dropped: keys with this tag that were used since.
#[derive(Clone, Copy, Debug)]
struct Window {
    tag: u64,
    start: u64,
}

/// The bits of a key that tell whose window it belongs to.
pub(crate) const TAG_SHIFT: u32 = 52;

/// Times by key. A key is any number but `u64::MAX`.
#[derive(Clone, Debug)]
pub(crate) struct LastUse {
    front: Vec<Entry>,
    front_mask: u64,
    table: Vec<Entry>,
    used: usize,
    limit: usize,
    window: Window,
    /// Keys whose second hash is at most this are kept between windows.
    kept_up_to: u64,
}

#[inline]
fn hash(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Independent of the place in the table.
#[inline]
fn second_hash(key: u64) -> u64 {
    let mixed = (key ^ key >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 32).wrapping_mul(0x94d0_49bb_1331_11eb)
}

impl LastUse {
    /// `front` and `limit`: numbers of entries, powers of two, 16 bytes each.
    pub(crate) fn new(front: usize, limit: usize) -> Self {
        let limit = limit.next_power_of_two().max(SMALLEST);
        let front = front.next_power_of_two();
        Self {
            front: vec![NONE; front],
            front_mask: front as u64 - 1,
            table: vec![NONE; SMALLEST],
            used: 0,
            limit,
            window: Window { tag: 0, start: 0 },
            kept_up_to: u64::MAX,
        }
    }

    /// Which part of the keys outlives its window.
    pub(crate) fn rate(&self) -> f64 {
        (self.kept_up_to as f64 + 1.0) / 2f64.powi(64)
    }

    /// Whether the key outlives its window.
    #[inline]
    pub(crate) fn is_kept(&self, key: u64) -> bool {
        second_hash(key) <= self.kept_up_to
    }

    /// When the key was last used, if that is known; it is now last used at `now`.
    #[inline]
    pub(crate) fn touch(&mut self, key: u64, now: u64) -> Option<u64> {
        let at = self.front_place(key);
        let place = &mut self.front[at];
        if place.key == key {
            return Some(std::mem::replace(&mut place.time, now));
        }
        let out = std::mem::replace(place, Entry { key, time: now });
        self.exchange(key, now, out)
    }

    /// When the key was last used, if it is in front, as what is used all the time is.
    #[inline]
    pub(crate) fn lately(&self, key: u64) -> Option<u64> {
        let place = &self.front[self.front_place(key)];
        (place.key == key).then_some(place.time)
    }

    /// Reads where keys lie that will be touched next. The reads do not wait for each other, as those of
    /// touches one by one would; nothing changes. Of a table that is in the caches none is read.
    pub(crate) fn approach(&self, keys: impl Iterator<Item = u64>) {
        if self.table.len() <= IN_CACHES {
            return;
        }
        let shift = 64 - self.table.len().trailing_zeros();
        let away = keys.filter(|&key| self.front[self.front_place(key)].key != key);
        let sum = away.fold(0u64, |sum, key| sum ^ self.table[(hash(key) >> shift) as usize].key);
        std::hint::black_box(sum);
    }

    #[inline]
    fn front_place(&self, key: u64) -> usize {
        ((key ^ key >> 8) & self.front_mask) as usize
    }

    /// Puts what left the front into the table, and finds `key` there.
    fn exchange(&mut self, key: u64, now: u64, out: Entry) -> Option<u64> {
        if out.key != EMPTY {
            let at = self.place_of(out.key);
            if self.table[at].key == EMPTY {
                self.used += 1;
            }
            self.table[at] = out;
            if !self.fits() {
                self.make_room(key);
            }
        }
        let at = self.place_of(key);
        let found = &mut self.table[at];
        if found.key == key {
            // The front has the right time from now on; the place stays taken.
            return Some(std::mem::replace(&mut found.time, now));
        }
        None
    }

    fn fits(&self) -> bool {
        self.used * 8 <= self.table.len() * 5
    }

    #[inline]
    fn place_of(&self, key: u64) -> usize {
        let mask = self.table.len() - 1;
        let mut at = (hash(key) >> (64 - self.table.len().trailing_zeros())) as usize;
        while self.table[at].key != key && self.table[at].key != EMPTY {
            at = (at + 1) & mask;
        }
        at
    }

    /// Says what belongs to the present window: keys with `tag` above [`TAG_SHIFT`], used at `start` or later.
    pub(crate) fn begin_window(&mut self, tag: u64, start: u64) {
        self.window = Window { tag, start };
    }

    #[cold]
    fn make_room(&mut self, wanted: u64) {
        if self.table.len() < self.limit {
            self.rebuild(self.table.len() * 2, |_| true);
            return;
        }
        // Half full is aimed at, so that the next time is far away.
        while self.used * 2 > self.table.len() {
            self.kept_up_to /= 2;
            let (kept_up_to, window) = (self.kept_up_to, self.window);
            let keep = |entry: &Entry| {
                let current = entry.key >> TAG_SHIFT == window.tag && entry.time >= window.start;
                // One window alone that is too large loses what it knew; no caller makes windows of that size.
                current && kept_up_to > u64::MAX >> 20 || second_hash(entry.key) <= kept_up_to
            };
            for place in &mut self.front {
                if place.key != EMPTY && place.key != wanted && !keep(place) {
                    *place = NONE;
                }
            }
            self.rebuild(self.table.len(), keep);
        }
    }

    fn rebuild(&mut self, size: usize, keep: impl Fn(&Entry) -> bool) {
        let old = std::mem::replace(&mut self.table, vec![NONE; size]);
        self.used = 0;
        for entry in old.into_iter().filter(|entry| entry.key != EMPTY && keep(entry)) {
            let at = self.place_of(entry.key);
            self.table[at] = entry;
            self.used += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn it_is_a_map_until_it_is_full() {
        let mut table = LastUse::new(16, 1 << 16);
        let mut truth = HashMap::new();
        let mut state = 1u64;
        for now in 0..60_000u64 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let key = state >> 40 & 0x3fff;
            assert_eq!(table.touch(key, now), truth.insert(key, now));
        }
        assert_eq!(table.rate(), 1.0);
    }

    #[test]
    fn a_full_table_keeps_a_known_part_and_what_is_current() {
        let mut table = LastUse::new(16, 1 << 14);
        let mut now = 0;
        for window in 0..40u64 {
            table.begin_window(0, now);
            for key in 0..2000 {
                assert_eq!(table.touch(window * 2000 + key, now), None);
                now += 1;
            }
            for key in 0..2000 {
                assert!(table.touch(window * 2000 + key, now).is_some(), "of the present window");
                now += 1;
            }
        }
        assert!(table.rate() <= 0.25, "{}", table.rate());
        let known = (0..70_000).filter(|&key| table.is_kept(key)).count();
        // Binomial around 70,000 × rate: five standard deviations.
        let expected = 70_000.0 * table.rate();
        assert!((known as f64 - expected).abs() < 5.0 * expected.sqrt(), "{known} of {expected}");
        for chunk in 0..700 {
            let mut probe = table.clone();
            for key in chunk * 100..(chunk + 1) * 100 {
                let found = probe.touch(key, now).is_some();
                assert!(found || !table.is_kept(key), "{key} is lost");
            }
        }
    }

    #[test]
    fn a_window_larger_than_the_table_does_not_hang() {
        let mut table = LastUse::new(16, 1 << 12);
        table.begin_window(0, 0);
        for key in 0..20_000 {
            table.touch(key, key);
        }
        assert_eq!(table.touch(19_999, 20_000), Some(19_999));
    }
}
