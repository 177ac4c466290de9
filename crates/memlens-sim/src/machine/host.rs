//! This computer's own geometry, from `/sys` and CPUID.

use super::cores;
use super::description::{
    ASSUMED_LATENCIES, CacheDescription, Inclusion, MachineDescription, PrefetcherDescription, Rules,
    TlbDescription, TlbEntries, WalkerDescription,
};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Nehalem (2008) and Family 10h (2007) have 512 and no server since has fewer: a hypervisor that tells of
/// less makes it up, and most page walks of a report would be false.
const FEWEST_STLB_ENTRIES: u32 = 512;
/// What an entry that a walk reads is taken to cost in a virtual machine: it lies in memory whose addresses are translated once more (AMD64 APM
/// volume 2, 15.25.5), whose tables may have left the caches. Walks took 44 cycles on a Zen 3's and 74 to 122 on a Zen 4's, mostly of one entry.
const VIRTUAL_WALK_ACCESS_CYCLES: u32 = 60;

/// What a virtual machine has of a last level for each of its processors, in bytes, until it is measured: of 32 MiB, virtual
/// machines of two processors were served 4, 8 and 16, of 480 MiB 32.
const SHARE_BYTES: u64 = 8 << 20;

/// Where Linux describes the caches of the first processor.
const CACHES: &str = "/sys/devices/system/cpu/cpu0/cache";

/// Where Linux describes the memory nodes.
const NODES: &str = "/sys/devices/system/node";

/// The text of a file of this computer.
pub(super) fn read_file(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// Describes the computer whose files are these; what they do not tell is assumed and noted.
pub(super) fn host(read: &dyn Fn(&str) -> Option<String>) -> MachineDescription {
    let mut notes = Vec::new();
    let caches = sysfs_caches(read);
    // Models have lines of one size.
    let data = caches.iter().find(|cache| cache.level == 1 && cache.kind == "Data");
    let line = data.and_then(SysfsCache::description).map_or(64, |data| data.line);
    let mut level = |place: &str, level: u32, kind: &str, fallback: CacheDescription| {
        let found = caches.iter().find(|cache| cache.level == level && cache.kind == kind);
        match found.and_then(SysfsCache::description).filter(|cache| cache.line == line) {
            Some(description) => description,
            None => {
                notes.push(format!(
                    "the host does not describe its {place}; {} bytes are assumed",
                    fallback.bytes
                ));
                fallback
            }
        }
    };
    let l1i = level("L1 instruction cache", 1, "Instruction", CacheDescription::new(32 << 10, 8, line));
    let l1d = level("L1 data cache", 1, "Data", CacheDescription::new(32 << 10, 8, line));
    let last = caches.iter().map(|cache| cache.level).max().unwrap_or(3);
    let (l2, llc) = if last <= 2 {
        (None, level("last-level cache", last, "Unified", CacheDescription::new(1 << 20, 16, line)))
    } else {
        let l2 = level("L2 cache", 2, "Unified", CacheDescription::new(1 << 20, 16, line));
        (Some(l2), level("last-level cache", last, "Unified", CacheDescription::new(32 << 20, 16, line)))
    };
    if last > 3 {
        notes.push(format!("level {last} is modelled as the last level, level 3 is left out"));
    }
    let (dtlb, stlb) = tlbs();
    let assumed_tlb = |entries, ways, place: &str, notes: &mut Vec<String>| {
        notes.push(format!("the host does not describe its {place}; {entries} entries are assumed"));
        TlbDescription {
            size_4k: Some(TlbEntries::new(entries, ways)),
            source: "assumed".to_string(),
            ..Default::default()
        }
    };
    let dtlb = dtlb.unwrap_or_else(|| assumed_tlb(64, 4, "first-level data TLB", &mut notes));
    let mut stlb = stlb.unwrap_or_else(|| assumed_tlb(1536, 12, "second-level TLB", &mut notes));
    let few = stlb.size_4k.filter(|tlb| is_virtual() && tlb.entries < FEWEST_STLB_ENTRIES);
    if let Some(TlbEntries { entries, .. }) = few {
        stlb.size_4k = Some(TlbEntries::new(2048, 16));
        notes.push(format!(
            "the hypervisor tells of {entries} second-level TLB entries only; 2048 are assumed, use an override \
             such as stlb=3072,12 for the real number"
        ));
    }
    notes.push(
        "replacement policies cannot be read; LRU is assumed, clock for large fully associative TLBs"
            .to_string(),
    );
    notes.push("whether the last level is inclusive is not used; non-inclusive is assumed".to_string());
    notes.push("the hardware prefetcher cannot be read; one that follows 32 streams is assumed".to_string());
    notes.push("paging-structure caches cannot be read; 32, 4 and 2 entries are assumed".to_string());
    let core = cores::known(&read("/proc/cpuinfo").unwrap_or_default()).unwrap_or_else(|| {
        let core = cores::assumed();
        notes.push(format!("the host's core is not known; a reorder buffer of {} is assumed", core.window));
        core
    });
    let mut machine = MachineDescription {
        name: "host".to_string(),
        description: model_name(read),
        line_bytes: l1d.line,
        page_bytes: 4096,
        cores: std::thread::available_parallelism().map_or(1, |cores| cores.get().min(1024) as u16),
        rules: Rules::Memlens,
        inclusion: Inclusion::NonInclusive,
        dram_latency_cycles: 300,
        transfer_latency_cycles: 100,
        nodes: nodes(read),
        remote_latency_cycles: 0,
        stlb_latency_cycles: 0,
        walk_access_cycles: 0,
        l1i,
        l1d,
        l2,
        llc,
        dtlb: Some(dtlb),
        stlb: Some(stlb),
        walker: WalkerDescription {
            enabled: true,
            pde_entries: 32,
            pdpte_entries: 4,
            pml4e_entries: 2,
            tiers: Vec::new(),
            source: "assumed".to_string(),
        },
        prefetcher: PrefetcherDescription { streams: 32, source: "assumed".to_string() },
        llc_told_bytes: 0,
        core: Some(core),
        notes,
    };
    machine.notes.push(ASSUMED_LATENCIES.to_string());
    for (cache, cycles) in [(&mut machine.l1i, 4), (&mut machine.l1d, 4), (&mut machine.llc, 50)] {
        cache.latency_cycles = cycles;
    }
    if let Some(l2) = &mut machine.l2 {
        l2.latency_cycles = 14;
    }
    machine.spread_llc();
    machine
}

/// Memory nodes that have processors, as far as there are processors for us; 0: it is not told.
fn nodes(read: &dyn Fn(&str) -> Option<String>) -> u16 {
    let numbers = |what: &str| numbers(read(&format!("{NODES}/{what}"))?.trim());
    let (Some(memory), Some(processors)) = (numbers("has_memory"), numbers("has_cpu")) else { return 0 };
    let count = memory.iter().filter(|node| processors.contains(node)).count();
    count.min(std::thread::available_parallelism().map_or(1, usize::from)) as u16
}

/// Numbers as the kernel lists them: `0-1,4`.
fn numbers(list: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for piece in list.split(',').filter(|piece| !piece.is_empty()) {
        let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
        numbers.extend(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?);
    }
    Some(numbers)
}

/// On a virtual machine, the part of the last level that is assumed to be served: see [`SHARE_BYTES`].
pub(super) fn assume_share(machine: &mut MachineDescription) {
    if is_virtual() {
        let processors = machine.cores.max(1);
        machine.share_llc(SHARE_BYTES * u64::from(processors));
    }
}

/// On a virtual machine, what walks are assumed to cost.
pub(super) fn assume_walks(machine: &mut MachineDescription) {
    if is_virtual() {
        machine.walk_access_cycles = VIRTUAL_WALK_ACCESS_CYCLES;
        machine.notes.push(format!(
            "an entry that a page walk reads is assumed to cost {VIRTUAL_WALK_ACCESS_CYCLES} cycles, as in virtual machines, where it was not measured"
        ));
    }
}

/// Takes I1, D1 and LL from this CPU as cachegrind does: on AMD processors from CPUID leaves
/// 0x8000_0005 and 0x8000_0006 (valgrind 3.19, `coregrind/m_cache.c`), on others from what the
/// system tells, which is Intel's CPUID leaf 4. A last level whose number of sets is no power of
/// two gets the next lower one and as many more ways (`cg_arch.c`, `maybe_tweak_LLc`).
pub(super) fn take_cachegrind_geometry(machine: &mut MachineDescription) {
    let found = amd_cachegrind_caches().or_else(|| {
        let caches = sysfs_caches(&read_file);
        let last = caches.iter().filter(|cache| cache.kind == "Unified").max_by_key(|cache| cache.level)?;
        let level1 = |kind| caches.iter().find(|cache| cache.level == 1 && cache.kind == kind);
        Some([level1("Instruction")?.description()?, level1("Data")?.description()?, last.description()?])
    });
    let Some([l1i, l1d, llc]) = found else {
        machine
            .notes
            .push("the host does not describe its caches; cachegrind's defaults are used".to_string());
        return;
    };
    machine.line_bytes = l1d.line;
    (machine.l1i, machine.l1d, machine.llc) = (l1i, l1d, with_power_of_two_sets(llc));
    machine.llc_told_bytes = 0;
}

fn with_power_of_two_sets(cache: CacheDescription) -> CacheDescription {
    let row = u64::from(cache.ways) * u64::from(cache.line);
    let sets = cache.bytes.checked_div(row).unwrap_or(0);
    if sets == 0 {
        return cache;
    }
    let lower = 1u64 << sets.ilog2();
    // Rounded half up, as cachegrind rounds.
    let ways = if lower == sets {
        u64::from(cache.ways)
    } else {
        (2 * sets * u64::from(cache.ways) + lower) / (2 * lower)
    };
    CacheDescription { bytes: lower * ways * u64::from(cache.line), ways: ways as u32, ..cache }
}

/// One directory of [`CACHES`].
struct SysfsCache {
    level: u32,
    kind: String,
    bytes: u64,
    ways: u32,
    line: u32,
}

impl SysfsCache {
    /// None: no model can have such a cache.
    fn description(&self) -> Option<CacheDescription> {
        let mut description = CacheDescription::new(self.bytes, self.ways, self.line);
        // 0 ways mean fully associative (Linux, Documentation/ABI/testing/sysfs-devices-system-cpu).
        if self.ways == 0 {
            description.ways = u32::try_from(self.bytes.checked_div(u64::from(self.line))?).ok()?;
        }
        description.source = CACHES.to_string();
        description.check("").is_ok().then_some(description)
    }
}

fn sysfs_caches(read: &dyn Fn(&str) -> Option<String>) -> Vec<SysfsCache> {
    let mut caches = Vec::new();
    for index in 0..16 {
        let read = |file: &str| -> Option<String> {
            Some(read(&format!("{CACHES}/index{index}/{file}"))?.trim().to_string())
        };
        let cache = (|| {
            let size = read("size")?;
            Some(SysfsCache {
                level: read("level")?.parse().ok()?,
                kind: read("type")?,
                bytes: size.strip_suffix('K')?.parse::<u64>().ok()?.checked_mul(1024)?,
                ways: read("ways_of_associativity")?.parse().ok()?,
                line: read("coherency_line_size")?.parse().ok()?,
            })
        })();
        caches.extend(cache);
    }
    caches
}

fn model_name(read: &dyn Fn(&str) -> Option<String>) -> String {
    let text = read("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or_else(|| "this computer".to_string(), |(_, name)| name.trim().to_string())
}

#[cfg(not(target_arch = "x86_64"))]
fn tlbs() -> (Option<TlbDescription>, Option<TlbDescription>) {
    (None, None)
}

#[cfg(not(target_arch = "x86_64"))]
fn amd_cachegrind_caches() -> Option<[CacheDescription; 3]> {
    None
}

#[cfg(not(target_arch = "x86_64"))]
fn is_virtual() -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
use x86::{amd_cachegrind_caches, is_virtual, tlbs};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;
    use crate::machine::cpuid_tlbs;
    use crate::simd::cpuid;

    pub(super) fn tlbs() -> (Option<TlbDescription>, Option<TlbDescription>) {
        cpuid_tlbs::tlbs(&cpuid)
    }

    /// CPUID leaf 1, ECX bit 31: "not used, always 0" on processors, set by hypervisors (AMD64 APM volume 3,
    /// E.3.2).
    pub(super) fn is_virtual() -> bool {
        cpuid(1, 0).ecx >> 31 == 1
    }

    pub(super) fn amd_cachegrind_caches() -> Option<[CacheDescription; 3]> {
        if !cpuid_tlbs::is_amd(&cpuid) || cpuid(0x8000_0000, 0).eax < 0x8000_0006 {
            return None;
        }
        let level1 = cpuid(0x8000_0005, 0);
        let level23 = cpuid(0x8000_0006, 0);
        let l1 = |register: u32| {
            CacheDescription::new(u64::from(register >> 24) << 10, register >> 16 & 0xff, register & 0xff)
        };
        // cachegrind takes fully associative, and codes that it does not know, for direct-mapped.
        let ways = |code: u32| match code {
            3 | 5 => 1,
            code => cpuid_tlbs::amd_ways(code).unwrap_or(1),
        };
        let (l2, l3) = (level23.ecx, level23.edx);
        let llc = if l3 >> 18 > 0 {
            CacheDescription::new(u64::from(l3 >> 18) << 19, ways(l3 >> 12 & 0xf), l3 & 0xff)
        } else {
            CacheDescription::new(u64::from(l2 >> 16) << 10, ways(l2 >> 12 & 0xf), l2 & 0xff)
        };
        let mut caches = [l1(level1.edx), l1(level1.ecx), llc];
        for cache in &mut caches {
            cache.source = "CPUID leaves 0x8000_0005 and 0x8000_0006, as cachegrind reads them".to_string();
        }
        caches.iter().all(|cache| cache.sets() > 0).then_some(caches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Model, SimdLevel};

    #[test]
    fn what_no_model_can_have_is_assumed_and_noted() {
        // A hypervisor's last level that is no whole number of sets, and a second level with lines of its own.
        let read = |path: &str| {
            let (index, file) = path.strip_prefix(CACHES)?.strip_prefix("/index")?.split_once('/')?;
            let [level, kind, size, ways, line] = match index {
                "0" => ["1", "Data", "48K", "12", "64"],
                "1" => ["2", "Unified", "1024K", "16", "128"],
                "2" => ["3", "Unified", "1000K", "12", "64"],
                _ => return None,
            };
            let text = match file {
                "level" => level,
                "type" => kind,
                "size" => size,
                "ways_of_associativity" => ways,
                _ => line,
            };
            Some(format!("{text}\n"))
        };
        let machine = host(&read);
        assert_eq!(machine.validate(), Ok(()));
        assert_eq!((machine.l1d.bytes, machine.l1d.ways), (48 << 10, 12));
        let noted = |place: &str| machine.notes.iter().any(|note| note.contains(place));
        assert!(noted("L2 cache") && noted("last-level cache") && !noted("L1 data"), "{:?}", machine.notes);
    }

    #[test]
    fn nodes_with_memory_and_processors_count() {
        let nodes = |memory: &'static str, processors: &'static str| {
            nodes(&|path| match path.strip_prefix(NODES)? {
                "/has_memory" => Some(format!("{memory}\n")),
                "/has_cpu" => Some(format!("{processors}\n")),
                _ => None,
            })
        };
        // The third one has memory only, as those of CXL have.
        let most = std::thread::available_parallelism().map_or(1, usize::from) as u16;
        assert_eq!(nodes("0-1,4", "0-1"), 2.min(most));
        assert_eq!((nodes("0", "0"), nodes("", "0"), nodes("0-x", "0")), (1, 0, 0));
        assert_eq!(numbers("0-2,5,7-8"), Some(Vec::from([0, 1, 2, 5, 7, 8])));
    }

    #[test]
    fn of_a_shared_last_level_whole_sets_are_taken() {
        let mut machine = host(&|_| None);
        // 32 MiB in 16 ways: 32,768 sets become 509 · 64.
        assert_eq!((machine.llc.sets(), machine.llc_told_bytes), (32_576, 32 << 20));
        (machine.llc, machine.llc_told_bytes) = (CacheDescription::new(480 << 20, 12, 64), 0);
        machine.share_llc(16 << 20);
        // Of 21,845 sets of 12 lines, 677 · 32.
        assert_eq!((machine.llc.bytes, machine.llc_told_bytes), (21_664 * 12 * 64, 480 << 20));
        assert_eq!(machine.validate(), Ok(()));
        let shared = machine.llc.bytes;
        machine.share_llc(16 << 20);
        assert_eq!((machine.llc.bytes, machine.llc_told_bytes), (shared, 480 << 20));
    }

    #[test]
    fn a_share_of_a_last_level_is_nearly_what_was_asked_for_and_is_one_for_the_staged_engine() {
        for ways in [11, 12, 15, 16, 20, 24] {
            for bytes in (1..=64).map(|quarters: u64| quarters << 18) {
                let mut machine = host(&|_| None);
                (machine.llc, machine.llc_told_bytes) = (CacheDescription::new(300 << 20, ways, 64), 0);
                machine.share_llc(bytes);
                let lost = bytes - machine.llc.bytes;
                assert!(lost <= bytes / 20 + u64::from(ways) * 64, "{ways} ways: {lost} of {bytes} bytes");
                let model = Model::new(&machine, SimdLevel::SCALAR).expect("valid");
                assert!(model.split().is_ok(), "{ways} ways, {bytes} bytes");
            }
        }
    }

    #[test]
    fn last_levels_get_a_power_of_two_of_sets_as_in_cachegrind() {
        // 12 MB, 16 ways, 64 B: 12,288 sets become 8,192 and 16 × 1.5 = 24 ways.
        let cache = with_power_of_two_sets(CacheDescription::new(12 << 20, 16, 64));
        assert_eq!((cache.bytes, cache.ways), (12 << 20, 24));
        // 384 MB, 1 way: 6,291,456 sets become 4,194,304; 1.5 ways are rounded to 2: 512 MB.
        let cache = with_power_of_two_sets(CacheDescription::new(384 << 20, 1, 64));
        assert_eq!((cache.bytes, cache.ways), (512 << 20, 2));
    }
}
