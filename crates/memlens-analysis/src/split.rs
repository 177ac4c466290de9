//! Structures of which few bytes do all the waiting, and the rest is hardly touched.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use memlens_profile::{Cell, FieldIx};
use memlens_types::Counts;

use crate::{About, Finding, Member, Remedy, sum_alone};

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
    ///
    /// Of all objects of the row that consist of one structure: it has one order of fields for them all.
    pub(crate) fn split(&self) -> Vec<Finding> {
        let mut by_element: BTreeMap<(&str, u64), Vec<&Member<'_>>> = BTreeMap::new();
        for member in &self.members {
            if let Some(element) = &member.object.element {
                by_element.entry((&element.type_name, element.bytes)).or_default().push(member);
            }
        }
        let finding = |((type_name, bytes), members): ((&str, u64), Vec<&Member<'_>>)| {
            self.split_element(type_name, bytes, &members)
        };
        by_element.into_iter().filter_map(finding).collect()
    }

    fn split_element(&self, type_name: &str, element_bytes: u64, members: &[&Member<'_>]) -> Option<Finding> {
        let bytes: u64 = members.iter().filter_map(|member| member.bytes()).sum();
        let structures = bytes / element_bytes.max(1);
        if structures < LEAST_STRUCTURES || LIBRARIES.iter().any(|library| type_name.starts_with(library)) {
            return None;
        }
        let own: Vec<&Cell> = members.iter().flat_map(|member| member.own.iter().copied()).collect();
        let mut fields: HashMap<FieldIx, Counts> = HashMap::new();
        for cell in &own {
            for (field, piece) in self.pieces(cell) {
                *fields.entry(field).or_default() += &piece.without_coherence();
            }
        }
        let counts = sum_alone(&own);
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
            let fields = &self.known.profile.fields;
            let known = fields.get(field.index()).filter(|field| field.name.is_some())?;
            hot_bytes += known.size_bytes?;
            stall += of_field;
            most_accesses = most_accesses.max(accesses);
            hot.push(field);
        }
        if hot.is_empty() || hot_bytes as f64 > MOST_HOT_BYTES * element_bytes as f64 {
            return None;
        }
        let then = self.with_hot_bytes(&counts, hot_bytes, element_bytes, structures);
        let touches = |cell: &&Cell| self.pieces(cell).any(|(field, _)| hot.contains(&field));
        let cells: Vec<&Cell> = own.into_iter().filter(touches).collect();
        let gain = self.saved(&counts, &then);
        Some(self.finding(Remedy::Split { hot, hot_bytes, element_bytes }, gain, &cells))
    }

    /// What would miss with so many bytes of each structure in lines of their own.
    fn with_hot_bytes(&self, now: &Counts, hot: u64, element: u64, structures: u64) -> Counts {
        let machine = &self.known.profile.machine;
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
