//! The accounting rules on machines so small that every count is derived in a comment.

use memlens_sim::{
    Batch, CacheDescription, CoreId, Inclusion, Invalidation, MachineDescription, Model, Outcome, PageSize,
    SimdLevel, TlbDescription, TlbEntries, WalkerDescription,
};
use memlens_types::{AccessAttr, AccessKind, AccessKind::*};

/// Fully associative caches of 2, 4 and 8 lines: line n is byte address 64 n.
fn tiny() -> MachineDescription {
    let lines = |lines: u32| CacheDescription::new(64 * u64::from(lines), lines, 64);
    MachineDescription::of_caches(lines(2), lines(2), Some(lines(4)), lines(8))
}

fn access(model: &mut Model, core: u16, accesses: &[(AccessKind, u64, u32)]) -> Outcome {
    let addrs: Vec<u64> = accesses.iter().map(|&(_, addr, _)| addr).collect();
    let attrs: Vec<_> = accesses.iter().map(|&(kind, _, size)| AccessAttr::new(kind, size)).collect();
    let mut out = Outcome::default();
    model.access(CoreId(core), Batch { addrs: &addrs, attrs: &attrs }, &mut out);
    out
}

fn model(machine: &MachineDescription) -> Model {
    Model::new(machine, SimdLevel::detect()).expect("valid")
}

#[test]
fn a_straddling_access_can_miss_twice() {
    let mut model = model(&tiny());
    // Bytes 60 to 67 are lines 0 and 1; then line 1 hits and line 2 misses.
    let out = access(&mut model, 0, &[(Load, 60, 8), (Load, 124, 8), (Load, 0, 0)]);
    assert_eq!(out.l1_misses, [0, 0, 1, 2]); // line 0 was replaced by line 2 in the 2-line L1
    assert_eq!(out.l2_misses, [0, 0, 1]); // but is still in L2
    assert_eq!(out.llc_misses, [0, 0, 1]);
}

#[test]
fn one_dirty_line_reaches_memory_when_all_levels_replaced_it() {
    let mut model = model(&tiny());
    let walk: Vec<_> = (0..15).map(|line| (if line == 0 { Store } else { Load }, 64 * line, 8)).collect();
    let out = access(&mut model, 0, &walk);
    assert_eq!(out.llc_misses.len(), 15);
    // Line 0 leaves L1 for L2 at the fill of line 2, right after it: L2 then is 0* 2 1 (most recent
    // first). It leaves L2 when four newer lines came: at line 6 (0* 2 1 → 3 0* 2 1 → … → 6 5 4 3),
    // and becomes most recent in LLC behind line 6's fill. LLC: 0* 6 5 4 3 2 1. Eight newer lines
    // replace it: 7 8 9 10 11 12 13 14.
    assert_eq!(out.dram_writes, [0]);
    let out = access(&mut model, 0, &[(Load, 0, 8)]);
    assert_eq!(out.llc_misses, [0]);
}

#[test]
fn lines_dirty_at_the_end_are_flushed_once_each() {
    let mut model = model(&tiny());
    access(&mut model, 0, &[(Store, 64, 8), (Modify, 0, 4), (Load, 128, 8), (Prefetch, 192, 1)]);
    let mut out = Outcome::default();
    model.flush_writebacks(&mut out);
    assert_eq!(out.dram_writes, [0, 64]);
    out.clear();
    model.flush_writebacks(&mut out);
    assert_eq!(out.dram_writes, []);
}

#[test]
fn fetches_and_data_share_l2_but_not_l1() {
    let mut model = model(&tiny());
    let out = access(&mut model, 0, &[(Fetch, 0, 4), (Load, 0, 8), (Fetch, 4, 4)]);
    assert_eq!((out.l1i_misses, out.l2i_misses, out.llci_misses), (vec![0], vec![0], vec![0]));
    assert_eq!((out.l1_misses, out.l2_misses), (vec![1], vec![]));
}

fn with_tlbs() -> MachineDescription {
    let entries = |entries| TlbDescription {
        size_4k: Some(TlbEntries::new(entries, entries)),
        size_2m: Some(TlbEntries::new(entries, entries)),
        ..TlbDescription::default()
    };
    let mut machine = tiny();
    machine.dtlb = Some(entries(1));
    machine.stlb = Some(entries(2));
    machine.walker = WalkerDescription {
        enabled: true,
        pde_entries: 2,
        pdpte_entries: 2,
        pml4e_entries: 2,
        ..machine.walker
    };
    machine
}

#[test]
fn a_walk_reads_entries_through_the_caches() {
    let mut model = model(&with_tlbs());
    // Page 0: nothing cached, 4 entries in 4 lines, all from memory. Page 1: the PDE cache spares
    // 3 reads; its PTE lies in the line of page 0's, the last one read before the access of line 0,
    // so it hits the 2-line L1. Page 0 again: out of the dTLB, still in the STLB.
    let out = access(&mut model, 0, &[(Load, 0, 8), (Load, 4096, 8), (Load, 0, 8)]);
    assert_eq!(out.dtlb_misses, [0, 1, 2]);
    assert_eq!(out.stlb_misses, [0, 1]);
    let walks: Vec<_> = out
        .walks
        .iter()
        .map(|walk| (walk.index, walk.entries_read, walk.l1_misses, walk.llc_misses))
        .collect();
    assert_eq!(walks, [(0, 4, 4, 4), (1, 1, 0, 0)]);
    // Lines 0 and 64, and 4 lines of page table.
    assert_eq!(out.llc_misses, [0, 1]);
    assert_eq!(out.dram_reads(), 6);
}

#[test]
fn big_pages_need_fewer_entries_and_translate_more() {
    let mut model = model(&with_tlbs());
    model.set_page_size(0..4 << 20, PageSize::Size2M);
    // One miss for 512 pages' worth of addresses; PML4E, PDPTE, PDE.
    let out =
        access(&mut model, 0, &[(Load, 0, 8), (Load, 4096, 8), (Load, (2 << 20) - 8, 8), (Load, 2 << 20, 8)]);
    assert_eq!(out.dtlb_misses, [0, 3]);
    assert_eq!(out.walks.iter().map(|walk| walk.entries_read).collect::<Vec<_>>(), [3, 1]);
}

#[test]
fn a_write_invalidates_and_a_read_downgrades() {
    let mut model = model(&tiny());
    assert_eq!(access(&mut model, 0, &[(Store, 0, 8)]).llc_misses, [0]); // core 0: M
    let out = access(&mut model, 1, &[(Load, 0, 8)]); //                    core 0: S, core 1: S
    // Core 0's dirty line went to the LLC, which answers.
    assert_eq!((out.l1_misses, out.l2_misses, out.llc_misses), (vec![0], vec![0], vec![]));
    assert_eq!(out.coherence_misses, [0]);
    let out = access(&mut model, 1, &[(Load, 8, 8), (Store, 0, 8), (Store, 0, 8)]); // core 0: I, core 1: M
    // The write hits in L1 but is of a shared line; the second one has it alone.
    assert_eq!((out.l1_misses, out.coherence_misses), (vec![], vec![]));
    assert_eq!(out.invalidations, [Invalidation { index: 1, line_addr: 0, core: CoreId(0) }]);
    let out = access(&mut model, 0, &[(Store, 0, 8)]); // core 0: M, core 1: I
    assert_eq!((out.l1_misses, out.coherence_misses), (vec![0], vec![0]));
    assert_eq!(out.llc_misses, []);
    assert_eq!(out.invalidations, [Invalidation { index: 0, line_addr: 0, core: CoreId(1) }]);
    let mut out = Outcome::default();
    model.flush_writebacks(&mut out);
    assert_eq!(out.dram_writes, [0]);
}

#[test]
fn an_inclusive_last_level_takes_lines_from_above() {
    let mut machine = tiny();
    machine.inclusion = Inclusion::Inclusive;
    let mut model = model(&machine);
    // Line 0 is used all the time in L1, so the LLC, which does not hear of it, replaces it at the
    // fill of its ninth line, and L1 loses it dirty.
    let mut accesses = vec![(Store, 0, 8)];
    for line in 1..=8 {
        accesses.extend([(Load, 64 * line, 8), (Load, 0, 8)]);
    }
    let out = access(&mut model, 0, &accesses);
    assert_eq!(out.dram_writes, [0]);
    // 9 first touches, and line 0 again at the very end.
    assert_eq!(out.llc_misses.len(), 10);
    assert_eq!(out.llc_misses.last(), Some(&16));
    machine.inclusion = Inclusion::NonInclusive;
    let out = access(&mut self::model(&machine), 0, &accesses);
    assert_eq!((out.dram_writes.len(), out.llc_misses.len()), (0, 9));
}

#[test]
fn an_exclusive_last_level_adds_to_the_second() {
    let mut machine = tiny();
    // L2 of 4 and LLC of 8 hold 12 lines together when exclusive, 8 at most when not.
    let round: Vec<_> = (0..12).map(|line| (Load, 64 * line, 8)).collect();
    for (inclusion, misses) in [(Inclusion::Exclusive, 0), (Inclusion::NonInclusive, 12)] {
        machine.inclusion = inclusion;
        let mut model = model(&machine);
        assert_eq!(access(&mut model, 0, &round).llc_misses.len(), 12);
        assert_eq!(access(&mut model, 0, &round).llc_misses.len(), misses, "{inclusion:?}");
    }
}
