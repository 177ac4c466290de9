//! What the profile of `bfs` may say of when things were done.

use memlens_profile::{Clock, ObjectIx, Profile, Slice, SliceIx, SliceUse};
use memlens_types::Counts;

/// The profile of a breadth-first search with four slices: in the second the graph is read, in those behind it searched.
pub fn with_slices(mut profile: Profile) -> Profile {
    let instructions = profile.run.instructions.unwrap_or(0);
    profile.run.clock = Some(Clock::Instructions);
    profile.slices =
        (0..4).map(|at| Slice { begin: instructions * at / 4, end: instructions * (at + 1) / 4 }).collect();
    for (object, at_peak, at_end) in [(0, 512, 512), (2, 4, 4), (4, 32, 0)] {
        let object = &mut profile.objects[object];
        (object.live_at_peak_bytes, object.live_at_end_bytes) = (Some(at_peak << 20), Some(at_end << 20));
    }
    // First-level misses that cost what slices have: ten cycles more than a hit each. `rowstarts` is small in all of them.
    profile.objects.iter_mut().for_each(|object| object.counts = Counts::default());
    for (object, misses) in [(0, 610), (1, 2), (2, 400), (4, 3)] {
        profile.objects[object].counts =
            Counts { loads: misses, l1_load_misses: misses, ..Counts::default() };
    }
    profile.run.heap_peak_bytes = Some(549 << 20);
    // Object, and of each slice what it cost and how many MiB it had live.
    let uses = [
        (Some(0), [(0, 0), (100, 512), (4000, 512), (2000, 512)]),
        (Some(2), [(0, 0), (0, 0), (1000, 4), (3000, 4)]),
        (Some(4), [(0, 0), (0, 0), (10, 32), (20, 0)]),
        (None, [(10, 0), (0, 0), (0, 0), (10, 0)]),
    ];
    for (object, of_slices) in uses {
        for (slice, (cost, live)) in (0..).zip(of_slices) {
            let live_bytes = Some(live << 20).filter(|&live| live > 0);
            if cost > 0 || live_bytes.is_some() {
                let (slice, object) = (SliceIx(slice), object.map(ObjectIx));
                let dram_reads = Some(cost / 200);
                profile.slice_uses.push(SliceUse { slice, object, cost, dram_reads, live_bytes });
            }
        }
    }
    profile
}
