//! Machines and accesses for the tests that hold the fast engines against the obvious model.

use memlens_sim::{
    CacheDescription, MachineDescription, Policy, SimdLevel, TlbDescription, TlbEntries, WalkerDescription,
    Width,
};
use memlens_types::AccessKind;
use proptest::prelude::*;

/// The vector units of this processor, each width once.
pub fn levels() -> Vec<SimdLevel> {
    let mut levels: Vec<SimdLevel> = Vec::new();
    for width in [Width::Scalar, Width::Avx2, Width::Avx512] {
        let level = SimdLevel::detect_up_to(width);
        if !levels.contains(&level) {
            levels.push(level);
        }
    }
    levels
}

/// Kinds of access: for eight loads so many stores, of which coherence is about, and one of each other kind.
pub fn kind(stores: u32) -> impl Strategy<Value = AccessKind> {
    prop_oneof![
        8 => Just(AccessKind::Load),
        stores => Just(AccessKind::Store),
        1 => Just(AccessKind::Modify),
        1 => Just(AccessKind::Prefetch),
        1 => Just(AccessKind::Fetch),
    ]
}

/// Entries for one size of page, or none.
fn tlb_entries() -> impl Strategy<Value = Option<TlbEntries>> {
    let sizes = prop_oneof![
        3 => (1u32..20, 1u32..9),
        // Fully associative, as many first-level TLBs are; a clock above 16 entries if nothing is said.
        1 => (Just(1), 9u32..140),
        // In sets, as second levels are.
        1 => (prop::sample::select(&[128u32, 256, 384][..]), 1u32..34),
    ];
    let entries = sizes.prop_flat_map(|(sets, ways)| {
        let entries = TlbEntries::new(sets * ways, ways);
        // Clock in sets is only known to the obvious model.
        const POLICIES: [Option<Policy>; 3] = [None, Some(Policy::Lru), Some(Policy::Clock)];
        let known = if sets == 1 { &POLICIES[..] } else { &POLICIES[..2] };
        prop::sample::select(known).prop_map(move |policy| TlbEntries { policy, ..entries })
    });
    prop::option::weighted(0.8, entries)
}

fn tlb() -> impl Strategy<Value = Option<TlbDescription>> {
    let sizes = (tlb_entries(), tlb_entries(), tlb_entries());
    let tlb = sizes.prop_map(|(size_4k, size_2m, size_1g)| TlbDescription {
        size_4k,
        size_2m,
        size_1g,
        ..TlbDescription::default()
    });
    prop::option::weighted(0.9, tlb)
}

fn walker() -> impl Strategy<Value = WalkerDescription> {
    let tiers = prop::sample::select(vec![vec![], vec![[0, 9]], vec![[0, 9], [3, 20], [20, 80]]]);
    (any::<bool>(), 0u32..5, 0u32..5, 0u32..5, tiers).prop_map(
        |(enabled, pde_entries, pdpte_entries, pml4e_entries, tiers)| WalkerDescription {
            enabled,
            pde_entries,
            pdpte_entries,
            pml4e_entries,
            tiers,
            ..WalkerDescription::disabled()
        },
    )
}

/// Level 1 of instructions, of data, level 2, last level.
pub type Caches = (CacheDescription, CacheDescription, Option<CacheDescription>, CacheDescription);

/// Machines with these caches, any TLBs and any page walker.
pub fn machine(caches: impl Strategy<Value = Caches>) -> impl Strategy<Value = MachineDescription> {
    (caches, tlb(), tlb(), walker()).prop_map(|((l1i, l1d, l2, llc), dtlb, stlb, walker)| {
        let mut machine = MachineDescription::of_caches(l1i, l1d, l2, llc);
        machine.stlb = stlb.filter(|_| dtlb.is_some());
        machine.dtlb = dtlb;
        machine.walker = walker;
        machine
    })
}

/// Numbers that look like chance: xorshift (Marsaglia, Xorshift RNGs, Journal of Statistical Software 8(14),
/// 2003), the shifts 13, 7, 17.
pub fn next_draw(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}
