//! Which object lies at a virtual address of a process.

use crate::format::ObjectEvent;
use memlens_types::ObjectKind;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;

/// Of a range, the bytes that an object has already.
fn owned(ranges: &BTreeMap<u64, (u64, u32)>, range: &Range<u64>, object: u32) -> u64 {
    let touched = ranges.range(..range.end).rev().take_while(|(_, (end, _))| *end > range.start);
    let own = touched.filter(|(_, (_, owner))| *owner == object);
    own.map(|(&start, &(end, _))| end.min(range.end) - start.max(range.start)).sum()
}

/// The number of "no object": addresses of which no event told anything.
pub const NO_OBJECT: u32 = 0;

/// An object as reports name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectInfo {
    /// The process that named it first; 0 for "no object".
    pub pid: u32,
    /// Kind.
    #[serde(with = "super::checkpoint::kind")]
    pub kind: ObjectKind,
    /// Name.
    pub name: String,
    /// Call stack of its allocation, innermost first; empty if not told.
    pub site: String,
    /// Bytes of its blocks and regions, summed over the trace.
    pub bytes: u64,
    /// Its blocks and regions.
    pub blocks: u64,
}

/// Address ranges of a layer, by start: end and object.
type Ranges = BTreeMap<u64, (u64, u32)>;

/// Which number a process knows an object by.
type Numbers = FxHashMap<u32, u32>;

/// The objects of one process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Space {
    /// Regions, blocks of the heap, blocks of pools.
    layers: [Ranges; 3],
    /// Here, by the process's number, and the other way round.
    numbers: Numbers,
    ids: Numbers,
}

/// All processes' objects.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ObjectSpaces {
    objects: Vec<ObjectInfo>,
    spaces: FxHashMap<u32, Space>,
}

impl Default for ObjectSpaces {
    fn default() -> Self {
        let nothing = ObjectInfo {
            pid: 0,
            kind: ObjectKind::Unknown,
            name: "no object".into(),
            site: String::new(),
            bytes: 0,
            blocks: 0,
        };
        Self { objects: vec![nothing], spaces: FxHashMap::default() }
    }
}

/// Takes `range` out of non-overlapping ranges.
pub(super) fn cut<T: Copy>(ranges: &mut BTreeMap<u64, (u64, T)>, range: &Range<u64>) {
    if let Some((&start, &(end, object))) = ranges.range(..range.start).next_back()
        && end > range.start
    {
        ranges.insert(start, (range.start, object));
        if end > range.end {
            ranges.insert(range.end, (end, object));
        }
    }
    while let Some((&start, &(end, object))) = ranges.range(range.clone()).next() {
        ranges.remove(&start);
        if end > range.end {
            ranges.insert(range.end, (end, object));
        }
    }
}

impl ObjectSpaces {
    /// Every object ever named; a number is an index.
    pub fn objects(&self) -> &[ObjectInfo] {
        &self.objects
    }

    /// The number here of what a process calls `id`.
    pub fn number(&self, pid: u32, id: u32) -> Option<u32> {
        self.spaces.get(&pid)?.numbers.get(&id).copied()
    }

    /// What the process calls the object of a number here; 0 if it has no name for it.
    pub fn id_of(&self, pid: u32, number: u32) -> u32 {
        self.spaces.get(&pid).and_then(|space| space.ids.get(&number)).copied().unwrap_or(0)
    }

    /// The addresses of which process an event gives to another object, before it happens; `None`: of none.
    pub fn concerned(&self, event: &ObjectEvent) -> Option<(u32, Range<u64>)> {
        match event {
            ObjectEvent::Region { pid, start, bytes, .. }
            | ObjectEvent::Block { pid, start, bytes, .. }
            | ObjectEvent::Clear { pid, start, bytes } => Some((*pid, *start..start.saturating_add(*bytes))),
            ObjectEvent::End { pid, layer, start } => {
                let ranges = &self.spaces.get(pid)?.layers[usize::from(*layer).min(2)];
                ranges.get(start).map(|&(end, _)| (*pid, *start..end))
            }
            ObjectEvent::Fork { child: pid, .. } | ObjectEvent::Exit { pid } => Some((*pid, 0..u64::MAX)),
            ObjectEvent::Object { .. }
            | ObjectEvent::Site { .. }
            | ObjectEvent::Tag
            | ObjectEvent::Started => None,
        }
    }

    /// Lets an event happen; returns the addresses of which process it concerns.
    pub fn apply(&mut self, event: &ObjectEvent) -> Option<(u32, Range<u64>)> {
        match event {
            ObjectEvent::Object { pid, id, kind, name } => {
                let known = self.number(*pid, *id).map(|number| &self.objects[number as usize]);
                // A forked process names its objects again.
                if known.is_none_or(|known| (known.kind, &known.name) != (*kind, name)) {
                    let number = self.objects.len() as u32;
                    let (pid, kind, name) = (*pid, *kind, name.clone());
                    self.objects.push(ObjectInfo {
                        pid,
                        kind,
                        name,
                        site: String::new(),
                        bytes: 0,
                        blocks: 0,
                    });
                    let space = self.spaces.entry(pid).or_default();
                    space.numbers.insert(*id, number);
                    space.ids.insert(number, *id);
                }
                None
            }
            ObjectEvent::Site { pid, id, text } => {
                let number = self.number(*pid, *id)?;
                self.objects[number as usize].site.clone_from(text);
                None
            }
            ObjectEvent::Region { pid, start, bytes, id } => self.begin(*pid, 0, *start, *bytes, *id),
            ObjectEvent::Block { pid, layer, start, bytes, id } => {
                self.begin(*pid, usize::from(*layer).min(2), *start, *bytes, *id)
            }
            ObjectEvent::Clear { pid, start, bytes } => {
                let range = *start..start.saturating_add(*bytes);
                cut(&mut self.spaces.get_mut(pid)?.layers[0], &range);
                Some((*pid, range))
            }
            ObjectEvent::End { pid, layer, start } => {
                let ranges = &mut self.spaces.get_mut(pid)?.layers[usize::from(*layer).min(2)];
                let (end, _) = ranges.remove(start)?;
                Some((*pid, *start..end))
            }
            ObjectEvent::Fork { parent, child } => {
                let space = self.spaces.get(parent).cloned().unwrap_or_default();
                self.spaces.insert(*child, space);
                Some((*child, 0..u64::MAX))
            }
            ObjectEvent::Exit { pid } => {
                // Its objects keep their names for what is still in the caches.
                self.spaces.get_mut(pid)?.layers = Default::default();
                Some((*pid, 0..u64::MAX))
            }
            ObjectEvent::Tag | ObjectEvent::Started => None,
        }
    }

    fn begin(
        &mut self,
        pid: u32,
        layer: usize,
        start: u64,
        bytes: u64,
        id: u32,
    ) -> Option<(u32, Range<u64>)> {
        let range = start..start.saturating_add(bytes);
        let space = self.spaces.entry(pid).or_default();
        let number = space.numbers.get(&id).copied().unwrap_or(NO_OBJECT);
        if range.is_empty() {
            return None;
        }
        // A module's variables are told again with each of its parts.
        let known = if layer == 0 { owned(&space.layers[layer], &range, number) } else { 0 };
        cut(&mut space.layers[layer], &range);
        space.layers[layer].insert(start, (range.end, number));
        let object = &mut self.objects[number as usize];
        object.bytes += bytes - known;
        object.blocks += u64::from(known == 0);
        Some((pid, range))
    }

    /// The object at an address, and the addresses around it for which that holds.
    pub fn at(&self, pid: u32, addr: u64) -> (u32, Range<u64>) {
        let Some(space) = self.spaces.get(&pid) else { return (NO_OBJECT, 0..u64::MAX) };
        let mut bounds = 0..u64::MAX;
        // The innermost layer that has it wins; the others' borders bound the answer.
        for layer in space.layers.iter().rev() {
            let before = layer.range(..=addr).next_back();
            if let Some((_, &(end, object))) = before.filter(|(_, (end, _))| addr < *end) {
                let start = before.map_or(0, |(&start, _)| start);
                return (object, start.max(bounds.start)..end.min(bounds.end));
            }
            bounds.start = bounds.start.max(before.map_or(0, |(_, &(end, _))| end));
            let next = layer.range(addr..).next().map_or(u64::MAX, |(&start, _)| start);
            bounds.end = bounds.end.min(next);
        }
        (NO_OBJECT, bounds)
    }

    /// All objects in a range of addresses, with the bytes of each piece, in order.
    pub fn pieces(&self, pid: u32, range: Range<u64>, mut piece: impl FnMut(u32, u64)) {
        let mut at = range.start;
        while at < range.end {
            let (object, bounds) = self.at(pid, at);
            let end = bounds.end.min(range.end);
            piece(object, end - at);
            at = end;
        }
    }

    /// The object that has the most bytes of a range; the first of several.
    pub fn largest(&self, pid: u32, range: Range<u64>) -> u32 {
        let mut sums: Vec<(u32, u64)> = Vec::new();
        self.pieces(pid, range, |object, bytes| match sums.iter_mut().find(|(known, _)| *known == object) {
            Some((_, sum)) => *sum += bytes,
            None => sums.push((object, bytes)),
        });
        // `max_by_key` takes the last of equals.
        sums.into_iter().rev().max_by_key(|&(_, bytes)| bytes).map_or(NO_OBJECT, |(object, _)| object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spaces(lines: &[&str]) -> ObjectSpaces {
        let mut spaces = ObjectSpaces::default();
        for line in lines {
            spaces.apply(&ObjectEvent::parse(line).expect("sound"));
        }
        spaces
    }

    #[test]
    fn inner_layers_win_and_bound_the_outer_ones() {
        let spaces = spaces(&[
            "object 1 10 mmap heap",
            "object 1 11 heap a",
            "object 1 12 heap pool",
            "region 1 0x1000 4096 10",
            "block 1 1 0x1100 256 11",
            "block 1 2 0x1140 16 12",
        ]);
        assert_eq!(spaces.at(1, 0x1000), (1, 0x1000..0x1100));
        assert_eq!(spaces.at(1, 0x1100), (2, 0x1100..0x1140));
        assert_eq!(spaces.at(1, 0x1140), (3, 0x1140..0x1150));
        assert_eq!(spaces.at(1, 0x11ff), (2, 0x1150..0x1200));
        assert_eq!(spaces.at(1, 0x1200), (1, 0x1200..0x2000));
        assert_eq!(spaces.at(1, 0x2000), (NO_OBJECT, 0x2000..u64::MAX));
        assert_eq!(spaces.at(2, 0x1000).0, NO_OBJECT);
        // 16 bytes of the pool's block, 48 of the heap's.
        assert_eq!(spaces.largest(1, 0x1140..0x1180), 2);
    }

    #[test]
    fn what_is_told_again_is_no_larger() {
        let mut spaces = spaces(&[
            "object 1 1 global table",
            "region 1 0x1000 0x1000 1",
            "region 1 0x1000 0x1000 1",
            "region 1 0x1800 0x1000 1",
        ]);
        let table = |spaces: &ObjectSpaces| (spaces.objects[1].bytes, spaces.objects[1].blocks);
        assert_eq!(table(&spaces), (0x1800, 1));
        spaces.apply(&ObjectEvent::parse("region 1 0x9000 0x1000 1").expect("sound"));
        assert_eq!(table(&spaces), (0x2800, 2));
    }

    #[test]
    fn later_regions_cut_earlier_ones_and_a_fork_goes_its_own_way() {
        let mut spaces = spaces(&[
            "object 1 1 mmap x",
            "object 1 2 mmap y",
            "region 1 0 0x3000 1",
            "region 1 0x1000 0x1000 2",
            "fork 1 5",
            "clear 1 0 0x1800",
        ]);
        assert_eq!((spaces.at(5, 0).0, spaces.at(5, 0x1000).0, spaces.at(5, 0x2fff).0), (1, 2, 1));
        assert_eq!(
            (spaces.at(1, 0).0, spaces.at(1, 0x1800), spaces.at(1, 0x2000).0),
            (0, (2, 0x1800..0x2000), 1)
        );
        // The copy names its objects again: the same ones.
        spaces.apply(&ObjectEvent::parse("object 5 1 mmap x").expect("sound"));
        assert_eq!((spaces.number(5, 1), spaces.objects().len()), (Some(1), 3));
        spaces.apply(&ObjectEvent::parse("exit 1").expect("sound"));
        assert_eq!((spaces.at(1, 0x2000).0, spaces.at(5, 0x2fff).0), (0, 1));
    }
}
