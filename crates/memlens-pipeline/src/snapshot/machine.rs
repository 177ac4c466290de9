//! The machine as profiles have it.

use memlens_profile::{CacheInfo, CoreInfo, Latencies, MachineInfo, TlbInfo, WalkTier};
use memlens_sim::{CacheDescription, MachineDescription, TlbDescription};

/// The machine as reports show it.
pub fn machine_info(machine: &MachineDescription) -> MachineInfo {
    let cache = |cache: &CacheDescription| CacheInfo {
        bytes: cache.bytes,
        ways: cache.ways,
        policy: cache.policy.to_string(),
    };
    let tlb = |tlb: &TlbDescription| {
        tlb.by_page_size()[0].map(|size| TlbInfo { entries: size.entries, ways: size.ways })
    };
    let defaults = Latencies::default();
    let known = |cycles: u32, default: u32| if cycles == 0 { default } else { cycles };
    let l2_cycles = machine.l2.as_ref().map_or(0, |l2| l2.latency_cycles);
    MachineInfo {
        name: machine.name.clone(),
        description: (!machine.description.is_empty()).then(|| machine.description.clone()),
        line_bytes: machine.line_bytes,
        page_bytes: machine.page_bytes,
        l1i: Some(cache(&machine.l1i)),
        l1d: Some(cache(&machine.l1d)),
        l2: machine.l2.as_ref().map(cache),
        llc: Some(cache(&machine.llc)),
        dtlb: machine.dtlb.as_ref().and_then(tlb),
        stlb: machine.stlb.as_ref().and_then(tlb),
        prefetcher_streams: machine.prefetcher.streams,
        latencies: Latencies {
            l1_cycles: known(machine.l1d.latency_cycles, defaults.l1_cycles),
            l2_cycles: known(l2_cycles, defaults.l2_cycles),
            llc_cycles: known(machine.llc.latency_cycles, defaults.llc_cycles),
            dram_cycles: known(machine.dram_latency_cycles, defaults.dram_cycles),
            stlb_cycles: known(machine.stlb_latency_cycles, defaults.stlb_cycles),
            walk_access_cycles: known(machine.walk_access_cycles, defaults.walk_access_cycles),
            transfer_cycles: machine.transfer_latency_cycles,
            remote_cycles: machine.remote_latency_cycles,
        },
        walk_tiers: machine
            .walker
            .tiers
            .iter()
            .map(|&[from_walks, cycles]| WalkTier { from_walks, cycles })
            .collect(),
        llc_told_bytes: (machine.llc_told_bytes > machine.llc.bytes).then_some(machine.llc_told_bytes),
        has_assumed_latencies: machine.has_assumed_latencies(),
        has_brief_latencies: machine.has_brief_latencies(),
        core: machine.core.as_ref().map(|core| CoreInfo {
            width: core.width,
            window: core.window,
            scheduled: core.scheduled,
            integer_scheduled: core.integer_scheduled,
            multiply_scheduled: core.multiply_scheduled,
            vector_scheduled: core.vector_scheduled,
            address_scheduled: core.address_scheduled,
            outstanding: core.outstanding,
            stores: core.stores,
            line_cycles: core.line_cycles,
            alone_line_cycles: core.alone_line_cycles,
            l1_line_cycles: core.l1_line_cycles,
            llc_line_cycles: core.llc_line_cycles,
            set_load_cycles: core.set_load_cycles,
            set_store_cycles: core.set_store_cycles,
            set_modify_cycles: core.set_modify_cycles,
        }),
        nodes: machine.nodes.into(),
        rules: machine.rules.to_string(),
        inclusion: Some(machine.inclusion.to_string()),
    }
}
