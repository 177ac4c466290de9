//! What calls of `malloc` and `free` cost by what the allocator keeps in the heap: sizes and links beside and between blocks, which it has to
//! look at to find a free one, and to put one back.

use memlens_profile::{ALLOCATOR_DATA, Cell, ObjectIx};
use memlens_types::ObjectKind;

use crate::{About, Finding, Known, MOST_PLACES, Remedy};

/// Sites with a smaller part of all blocks are not named.
const LEAST_PART: f64 = 0.05;
/// With fewer blocks there is little to spare.
const FEWEST_BLOCKS: u64 = 1000;

/// Blocks of one line of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocating {
    /// The row of the report.
    pub row: Vec<ObjectIx>,
    /// How many blocks it had.
    pub blocks: u64,
    /// Their bytes in all.
    pub bytes: u64,
}

/// What would go away without these calls: all that waits for the allocator's data. In a program with several heaps the finding is about the one
/// that waits most.
pub(crate) fn fewer_calls(
    known: &Known<'_>,
    rows: &[Vec<ObjectIx>],
    cells: &[Vec<&Cell>],
) -> Option<Finding> {
    let profile = known.profile;
    let object = |at: &ObjectIx| profile.objects.get(at.index());
    let is_allocators =
        |at: &ObjectIx| object(at).is_some_and(|object| object.name.starts_with(ALLOCATOR_DATA));
    let of_row = |row: &Vec<ObjectIx>| -> Vec<&Cell> {
        let of = row.iter().filter_map(|at| cells.get(at.index()));
        of.flatten().copied().collect()
    };
    let wait =
        |cells: &[&Cell]| -> u64 { cells.iter().map(|cell| profile.wait_cycles(&cell.counts.get())).sum() };
    let heaps = rows.iter().filter(|row| row.first().is_some_and(is_allocators));
    let (row, theirs) = heaps.map(|row| (row, of_row(row))).max_by_key(|(_, cells)| wait(cells))?;
    let (allocating, blocks) = most_allocating(known, rows);
    if blocks < FEWEST_BLOCKS || allocating.is_empty() {
        return None;
    }
    let about = About { known, row, members: Vec::new() };
    let gain = wait(&theirs) as f64 / known.whole as f64;
    let remedy = Remedy::Allocate { blocks, allocating };
    // Where they are made is the allocator's code.
    Some(Finding { code: Vec::new(), objects: row.clone(), ..about.finding(remedy, gain, &theirs) })
}

/// The rows with most blocks of the heap, and how many there are in all.
fn most_allocating(known: &Known<'_>, rows: &[Vec<ObjectIx>]) -> (Vec<Allocating>, u64) {
    let of_row = |row: &Vec<ObjectIx>| {
        let objects = row.iter().filter_map(|at| known.profile.objects.get(at.index()));
        let heap = objects.filter(|object| object.kind == ObjectKind::Heap);
        let (blocks, bytes) = heap.fold((0, 0), |(blocks, bytes), object| {
            (blocks + object.blocks, bytes + object.bytes.unwrap_or(0))
        });
        Allocating { row: row.clone(), blocks, bytes }
    };
    let mut all: Vec<Allocating> = rows.iter().map(of_row).collect();
    let blocks = all.iter().map(|row| row.blocks).sum::<u64>();
    all.retain(|row| row.blocks as f64 >= LEAST_PART * blocks as f64 && row.blocks > 0);
    all.sort_by(|one, other| other.blocks.cmp(&one.blocks).then(one.row.cmp(&other.row)));
    all.truncate(MOST_PLACES);
    (all, blocks)
}

#[cfg(test)]
mod tests {
    use memlens_profile::{Cell, CodeIx, CodeLocation, Object, Profile, Thread, ThreadIx};
    use memlens_types::Counts;

    use super::*;
    use crate::advice;

    /// An allocator's data with three of four misses, and two rows of blocks.
    fn profile(blocks: u64) -> Profile {
        let mut profile = Profile::default();
        let object = |id, kind, name: &str| Object { id, kind, name: name.into(), ..Object::default() };
        profile.objects = vec![
            object(1, ObjectKind::Mmap, "allocator data (brk heap)"),
            Object { blocks, bytes: Some(100 * blocks), ..object(2, ObjectKind::Heap, "keys") },
            Object { blocks: blocks / 50, bytes: Some(blocks), ..object(3, ObjectKind::Heap, "table") },
        ];
        profile.code = vec![CodeLocation { id: 1, size_bytes: 8, ..CodeLocation::default() }];
        let cell = |object, l1_load_misses| {
            let counts =
                Counts { loads: 1000, l1_load_misses, stall_cycles: l1_load_misses, ..Counts::default() };
            Cell { code: CodeIx(0), object: ObjectIx(object), thread: ThreadIx(0), counts: counts.into() }
        };
        profile.cells = vec![cell(0, 300), cell(1, 100)];
        profile.threads = vec![Thread::default()];
        profile.run.core_cycles = Some(1000);
        profile.sum_cells();
        profile
    }

    #[test]
    fn who_allocates_most_is_told_where_the_allocator_waits() {
        let found = advice(&profile(5000)).findings;
        let [finding] = found.as_slice() else { panic!("{found:?}") };
        let keys = Allocating { row: vec![ObjectIx(1)], blocks: 5000, bytes: 500_000 };
        assert_eq!(finding.remedy, Remedy::Allocate { blocks: 5100, allocating: vec![keys] });
        assert_eq!((finding.row.as_slice(), finding.counts.loads), (&[ObjectIx(0)][..], 1000));
        let profile = profile(5000);
        let [theirs, whole] =
            [&profile.objects[0].counts, &profile.totals()].map(|it| profile.wait_cycles(it));
        assert_eq!(finding.gain, theirs as f64 / whole as f64);
        // All that they stall, and not what they wait.
        assert_eq!(finding.time_gain, Some(0.3));
    }

    #[test]
    fn few_blocks_are_nothing_to_spare() {
        assert_eq!(advice(&profile(900)).findings, []);
    }
}
