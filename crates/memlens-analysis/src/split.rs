//! Structures of which few bytes do all the waiting, and the rest is hardly touched.

use std::cmp::Reverse;
use std::collections::HashMap;

use memlens_profile::{Cell, FieldIx};
use memlens_types::Counts;

use crate::{About, Finding, Remedy};

/// The hot fields have at least this part of what the object waits beyond the first level.
const HOT_SHARE: f64 = 0.95;
/// Fields with at least this part of the accesses of the most accessed hot one are used beside it, for all that is known:
/// only the first access to a line misses, and not those to the other fields in it.
const BESIDE: f64 = 0.1;
/// They are at most this part of the structure.
const MOST_HOT_BYTES: f64 = 0.5;
/// With fewer structures there is nothing to gain from their layout.
const LEAST_STRUCTURES: u64 = 64;
/// Types of the languages' libraries are nobody's to change.
const LIBRARIES: [&str; 5] = ["std::", "__gnu_cxx::", "alloc::", "core::", "hashbrown::"];

impl About<'_> {
    /// The fields that wait into an array of their own.
    ///
    /// Their lines then hold nothing else, so that as many fewer are read as bytes are left out; and where all of the
    /// hot bytes fit a cache, nothing misses it.
    pub(crate) fn split(&self) -> Option<Finding> {
        let element = self.object.element.as_ref()?;
        let bytes = self.object.max_live_bytes.or(self.object.bytes)?;
        let structures = bytes / element.bytes.max(1);
        if structures < LEAST_STRUCTURES
            || LIBRARIES.iter().any(|library| element.type_name.starts_with(library))
        {
            return None;
        }
        let mut fields: HashMap<FieldIx, Counts> = HashMap::new();
        let mut counts = Counts::default();
        for cell in self.own {
            counts += &cell.counts.get().without_coherence();
            for (field, piece) in self.shares.pieces(cell) {
                *fields.entry(field).or_default() += &piece.without_coherence();
            }
        }
        let whole = self.stall(&counts);
        let mut by_stall: Vec<(FieldIx, u64)> =
            fields.iter().map(|(&field, counts)| (field, self.stall(counts))).collect();
        by_stall.sort_by_key(|&(field, stall)| (Reverse(stall), field));
        let (mut hot, mut hot_bytes, mut stall, mut most_accesses) = (Vec::new(), 0, 0, 0);
        for (field, of_field) in by_stall {
            let accesses = fields[&field].accesses();
            if stall as f64 >= HOT_SHARE * whole as f64 && (accesses as f64) < BESIDE * most_accesses as f64 {
                continue;
            }
            // Bytes without a name are nothing that could be moved.
            let known = self.profile.fields.get(field.index()).filter(|field| field.name.is_some())?;
            hot_bytes += known.size_bytes?;
            stall += of_field;
            most_accesses = most_accesses.max(accesses);
            hot.push(field);
        }
        if hot.is_empty() || hot_bytes as f64 > MOST_HOT_BYTES * element.bytes as f64 {
            return None;
        }
        let then = self.with_hot_bytes(&counts, hot_bytes, element.bytes, structures);
        let touches = |cell: &&Cell| self.shares.pieces(cell).any(|(field, _)| hot.contains(&field));
        let cells: Vec<&Cell> = self.own.iter().copied().filter(touches).collect();
        let gain = self.saved(&counts, &then);
        let remedy = Remedy::Split { hot, hot_bytes, element_bytes: element.bytes };
        Some(self.finding(remedy, gain, &cells))
    }

    /// What would miss with so many bytes of each structure in lines of their own.
    fn with_hot_bytes(&self, now: &Counts, hot: u64, element: u64, structures: u64) -> Counts {
        let machine = &self.profile.machine;
        // Of a structure of more than a line only the lines of its hot fields are read now, one at least.
        let read = element.min(u64::from(machine.line_bytes).max(hot));
        let kept = (hot as f64 / read.max(1) as f64).min(1.0);
        let part = |misses: u64, cache: Option<u64>| match cache {
            Some(bytes) if hot * structures <= bytes => 0,
            _ => (misses as f64 * kept) as u64,
        };
        let size = |cache: &Option<memlens_profile::CacheInfo>| cache.as_ref().map(|cache| cache.bytes);
        let (l1, l2, llc) = (size(&machine.l1d), size(&machine.l2), size(&machine.llc));
        now.with_misses(
            |misses| part(misses, l1),
            |misses| part(misses, l2.or(l1)),
            |misses| part(misses, llc),
        )
    }
}
