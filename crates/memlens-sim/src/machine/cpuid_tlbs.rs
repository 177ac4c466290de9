//! A processor's data TLBs, as its CPUID tells them.

use core::arch::x86_64::CpuidResult;

use alloc::string::ToString;

use super::description::{TlbDescription, TlbEntries};

/// CPUID by leaf and subleaf: the processor's own, or what another one answered.
pub(super) type Cpuid<'a> = &'a dyn Fn(u32, u32) -> CpuidResult;

/// Whether the leaves from 0x8000_0005 on mean what AMD says.
pub(super) fn is_amd(cpuid: Cpuid<'_>) -> bool {
    // "AuthenticAMD" and "HygonGenuine", by their first four letters.
    matches!(&cpuid(0, 0).ebx.to_le_bytes(), b"Auth" | b"Hygo")
}

/// First and second level; `None` where 4 KB pages are not told of.
pub(super) fn tlbs(cpuid: Cpuid<'_>) -> (Option<TlbDescription>, Option<TlbDescription>) {
    let (dtlb, stlb) = if is_amd(cpuid) { amd_tlbs(cpuid) } else { intel_tlbs(cpuid) };
    (Some(dtlb).filter(|tlb| tlb.size_4k.is_some()), Some(stlb).filter(|tlb| tlb.size_4k.is_some()))
}

/// AMD64 Architecture Programmer's Manual volume 3 (24594), appendix E.4.3 to E.4.15.
fn amd_tlbs(cpuid: Cpuid<'_>) -> (TlbDescription, TlbDescription) {
    let highest = cpuid(0x8000_0000, 0).eax;
    let (mut dtlb, mut stlb) = (TlbDescription::default(), TlbDescription::default());
    if highest >= 0x8000_0005 {
        let leaf = cpuid(0x8000_0005, 0);
        dtlb.size_4k = amd_l1(leaf.ebx);
        dtlb.size_2m = amd_l1(leaf.eax);
    }
    let unit = amd_l2_unit(cpuid, highest);
    if highest >= 0x8000_0006 {
        let leaf = cpuid(0x8000_0006, 0);
        stlb.size_4k = amd_l2(leaf.ebx >> 16, unit);
        stlb.size_2m = amd_l2(leaf.eax >> 16, unit);
    }
    if highest >= 0x8000_0019 {
        let leaf = cpuid(0x8000_0019, 0);
        dtlb.size_1g = amd_l2(leaf.eax >> 16, 1);
        stlb.size_1g = amd_l2(leaf.ebx >> 16, unit);
    }
    dtlb.source = "CPUID leaves 0x8000_0005 and 0x8000_0019".to_string();
    stlb.source = "CPUID leaves 0x8000_0006 and 0x8000_0019".to_string();
    if unit != 1 {
        stlb.source += ", in units of 32 entries (leaf 0x8000_0021, L2TlbSizeX32)";
    }
    (dtlb, stlb)
}

/// What the entries of second-level TLBs are counted in. Twelve bits do not hold Zen 5's 4096: from it on bit
/// 14 of leaf 0x8000_0021's EAX, `L2TlbSizeX32`, says that the unit is 32 (AMD, Processor Programming
/// Reference for Family 1Ah). Hypervisors hide the bit and pass the entries on, so the family decides as well:
/// every Family 1Ah processor of InstLatx64's collection of CPUID dumps has the bit and says 128.
fn amd_l2_unit(cpuid: Cpuid<'_>, highest: u32) -> u32 {
    let has_bit = highest >= 0x8000_0021 && cpuid(0x8000_0021, 0).eax >> 14 & 1 == 1;
    let signature = cpuid(1, 0).eax;
    let family = match signature >> 8 & 0xf {
        0xf => 0xf + (signature >> 20 & 0xff),
        family => family,
    };
    let few = highest >= 0x8000_0006 && cpuid(0x8000_0006, 0).ebx >> 16 & 0xfff < 512;
    if has_bit || family >= 0x1a && few { 32 } else { 1 }
}

/// Bits 31 to 24: ways, 0xff = all; bits 23 to 16: entries.
fn amd_l1(register: u32) -> Option<TlbEntries> {
    let entries = register >> 16 & 0xff;
    let ways = register >> 24;
    tlb_entries(entries, if ways == 0xff { entries } else { ways })
}

/// Bits 15 to 12: ways, coded; bits 11 to 0: entries.
fn amd_l2(half: u32, unit: u32) -> Option<TlbEntries> {
    let entries = (half & 0xfff) * unit;
    let ways = match half >> 12 & 0xf {
        0xf => entries,
        code => {
            let (least, most) = (amd_ways(code).unwrap_or(0), amd_most_ways(code));
            let has_even_sets =
                |ways: &u32| entries.is_multiple_of(*ways) && (entries / ways).is_power_of_two();
            (least.max(1)..=most).find(has_even_sets).unwrap_or(least)
        }
    };
    tlb_entries(entries, ways)
}

/// The ways that AMD's 4-bit code stands for in leaf 0x8000_0006, the lowest number where it is a range; 0xf,
/// fully associative, is left to the caller. `None`: no ways, or a code without a meaning.
pub(super) fn amd_ways(code: u32) -> Option<u32> {
    match code {
        1..=4 => Some(code),
        5 => Some(6),
        6 => Some(8),
        8 => Some(16),
        0xa => Some(32),
        0xb => Some(48),
        0xc => Some(64),
        0xd => Some(96),
        0xe => Some(128),
        _ => None,
    }
}

/// The largest number of the same range. Of a second-level TLB that one is meant with which the sets are a power of two: on Zen 4, where 3072
/// entries have 8 to 15 ways, steps of 3 pages reach as many pages as steps of one, steps of 2 and of 6 half as many, steps of 8 an eighth (a
/// chain through 512, 1024 and 2048 pages), as in 256 sets of 12 ways.
fn amd_most_ways(code: u32) -> u32 {
    match code {
        5 => 7,
        6 => 15,
        8 => 31,
        0xa => 47,
        0xb => 63,
        0xc => 95,
        0xd => 127,
        code => amd_ways(code).unwrap_or(0),
    }
}

/// Numbers that fit together; else the largest number of ways that divides the entries and is not above the
/// told one.
fn tlb_entries(entries: u32, ways: u32) -> Option<TlbEntries> {
    let ways = (1..=ways.min(entries)).rev().find(|&ways| entries.is_multiple_of(ways))?;
    Some(TlbEntries::new(entries, ways))
}

/// Intel SDM volume 2A, CPUID, leaf 0x18, else leaf 2 and its table of descriptors.
fn intel_tlbs(cpuid: Cpuid<'_>) -> (TlbDescription, TlbDescription) {
    let highest = cpuid(0, 0).eax;
    let (mut dtlb, mut stlb) = (TlbDescription::default(), TlbDescription::default());
    if highest >= 0x18 {
        for subleaf in 0..=cpuid(0x18, 0).eax.min(32) {
            let leaf = cpuid(0x18, subleaf);
            // Types: 1 data, 3 unified, 4 load only (the stores' own TLB is not modelled).
            let tlb = match (leaf.edx & 0x1f, leaf.edx >> 5 & 7) {
                (1 | 4, 1) => &mut dtlb,
                (1 | 3 | 4, 2) => &mut stlb,
                _ => continue,
            };
            let ways = leaf.ebx >> 16;
            let entries = tlb_entries(ways.saturating_mul(leaf.ecx), ways);
            for (bit, size) in [(0, &mut tlb.size_4k), (1, &mut tlb.size_2m), (3, &mut tlb.size_1g)] {
                if leaf.ebx >> bit & 1 == 1 {
                    *size = side_by_side(*size, entries);
                }
            }
        }
    }
    dtlb.source = "CPUID leaf 0x18".to_string();
    if dtlb.size_4k.is_none() && highest >= 2 {
        intel_descriptors(cpuid, &mut dtlb, &mut stlb);
        dtlb.source = "CPUID leaf 2".to_string();
    }
    stlb.source = dtlb.source.clone();
    (dtlb, stlb)
}

/// Two structures that hold pages of the same size: one with the ways of both where they have as many sets,
/// as in Sapphire Rapids, whose 4 KB pages go to two arrays of 8 ways; else the larger one.
fn side_by_side(one: Option<TlbEntries>, other: Option<TlbEntries>) -> Option<TlbEntries> {
    let (Some(one), Some(other)) = (one, other) else { return one.or(other) };
    let entries = one.entries.saturating_add(other.entries);
    match one.entries / one.ways == other.entries / other.ways {
        true => Some(TlbEntries::new(entries, one.ways.saturating_add(other.ways))),
        false => Some(if one.entries < other.entries { other } else { one }),
    }
}

fn intel_descriptors(cpuid: Cpuid<'_>, dtlb: &mut TlbDescription, stlb: &mut TlbDescription) {
    let leaf = cpuid(2, 0);
    let registers = [leaf.eax & !0xff, leaf.ebx, leaf.ecx, leaf.edx];
    let descriptors = registers.into_iter().filter(|register| register >> 31 == 0).flat_map(u32::to_le_bytes);
    let tlb = |entries, ways| Some(TlbEntries::new(entries, ways));
    for descriptor in descriptors {
        match descriptor {
            0x03 => dtlb.size_4k = tlb(64, 4),
            0x5a => dtlb.size_2m = tlb(32, 4),
            0x63 => (dtlb.size_2m, dtlb.size_1g) = (tlb(32, 4), tlb(4, 4)),
            0x64 => dtlb.size_4k = tlb(512, 4),
            0xb3 => dtlb.size_4k = tlb(128, 4),
            0xb4 => dtlb.size_4k = tlb(256, 4),
            0xc1 => (stlb.size_4k, stlb.size_2m) = (tlb(1024, 8), tlb(1024, 8)),
            0xc3 => (stlb.size_4k, stlb.size_2m, stlb.size_1g) = (tlb(1536, 6), tlb(1536, 6), tlb(16, 4)),
            0xc4 => dtlb.size_2m = tlb(32, 4),
            0xca => stlb.size_4k = tlb(512, 4),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Leaf = (u32, u32, [u32; 4]);

    /// Entries and ways of 4 KB, 2 MB and 1 GB pages, first level and second.
    fn of(leaves: &[Leaf]) -> [[Option<(u32, u32)>; 3]; 2] {
        let cpuid = |leaf: u32, subleaf: u32| {
            let found = leaves.iter().find(|known| (known.0, known.1) == (leaf, subleaf));
            let [eax, ebx, ecx, edx] = found.map_or([0; 4], |known| known.2);
            CpuidResult { eax, ebx, ecx, edx }
        };
        let (dtlb, stlb) = tlbs(&cpuid);
        [dtlb, stlb].map(|tlb| {
            let sizes = tlb.unwrap_or_default().by_page_size();
            sizes.map(|size| size.map(|tlb| (tlb.entries, tlb.ways)))
        })
    }

    const INTEL: [u32; 3] = [0x756e_6547, 0x6c65_746e, 0x4965_6e69];
    const AMD: [u32; 3] = [0x6874_7541, 0x444d_4163, 0x6974_6e65];

    fn vendor(highest: u32, [ebx, ecx, edx]: [u32; 3]) -> Leaf {
        (0, 0, [highest, ebx, ecx, edx])
    }

    // The leaves below are those of InstLatx64's collection (github.com/InstLatx64/InstLatx64), named by file.

    /// GenuineIntel00306E4_IvyBridgeEP_CPUID.txt: descriptors 01 5A 03 76, FF B2 F0, CA.
    #[test]
    fn ivy_bridge() {
        let leaves = [vendor(0xd, INTEL), (2, 0, [0x7603_5a01, 0x00f0_b2ff, 0, 0x00ca_0000])];
        assert_eq!(of(&leaves), [[Some((64, 4)), Some((32, 4)), None], [Some((512, 4)), None, None]]);
    }

    /// GenuineIntel00806F8_SapphireRapids_06_CPUID.txt.
    #[test]
    fn sapphire_rapids() {
        let leaves = [
            vendor(0x20, INTEL),
            (2, 0, [0x00fe_ff01, 0xf0, 0, 0]),
            (0x18, 0, [8, 0, 0, 0]),
            (0x18, 1, [0, 0x0008_0001, 0x20, 0x4022]),
            (0x18, 2, [0, 0x0008_0006, 0x04, 0x4022]),
            (0x18, 3, [0, 0x0010_000f, 0x01, 0x4125]),
            (0x18, 4, [0, 0x0004_0001, 0x10, 0x4024]),
            (0x18, 5, [0, 0x0004_0006, 0x08, 0x4024]),
            (0x18, 6, [0, 0x0008_0008, 0x01, 0x4124]),
            (0x18, 7, [0, 0x0008_0007, 0x80, 0x4043]),
            (0x18, 8, [0, 0x0008_0009, 0x80, 0x4043]),
        ];
        // The instructions' and the stores' own TLBs, subleaves 1 to 3, are left out. Subleaf 7 holds 4 KB and
        // 2 MB pages, subleaf 8 4 KB and 1 GB.
        let l1 = [Some((64, 4)), Some((32, 4)), Some((8, 8))];
        assert_eq!(of(&leaves), [l1, [Some((2048, 16)), Some((1024, 8)), Some((1024, 8))]]);
    }

    fn amd(signature: u32, leaf6: [u32; 2], leaf5: u32, leaf19: [u32; 2]) -> [Leaf; 6] {
        [
            vendor(0x10, AMD),
            (1, 0, [signature, 0, 0, 0]),
            (0x8000_0000, 0, [0x8000_0028, 0, 0, 0]),
            (0x8000_0005, 0, [leaf5, leaf5, 0, 0]),
            (0x8000_0006, 0, [leaf6[0], leaf6[1], 0, 0]),
            (0x8000_0019, 0, [leaf19[0], leaf19[1], 0, 0]),
        ]
    }

    fn with_leaf_21(leaves: [Leaf; 6], eax: u32) -> alloc::vec::Vec<Leaf> {
        leaves.into_iter().chain([(0x8000_0021, 0, [eax, 0, 0, 0])]).collect()
    }

    /// AuthenticAMD0A10F11_K19_Genoa_01_CPUID.txt.
    #[test]
    fn zen_4() {
        let leaves = amd(0x00a1_0f11, [0x5c00_2200, 0x6c00_4200], 0xff48_ff40, [0xf048_f040, 0xf040_0000]);
        let l1 = [Some((72, 72)); 3];
        let l2 = [Some((3072, 12)), Some((3072, 6)), Some((64, 64))];
        assert_eq!(of(&with_leaf_21(leaves, 0x0006_2fcf)), [l1, l2]);
    }

    /// AuthenticAMD0B00F21_K20_Turin_01_CPUID.txt; then as a hypervisor passes it on.
    #[test]
    fn zen_5_counts_in_units_of_32() {
        let leaves = amd(0x00b0_0f21, [0x4080_2040, 0x6080_4040], 0xff60_ff40, [0xf060_f040, 0x4020_0000]);
        let l1 = [Some((96, 96)); 3];
        let l2 = [Some((4096, 8)), Some((4096, 4)), Some((1024, 4))];
        assert_eq!(of(&with_leaf_21(leaves, 0xd93f_ffcf)), [l1, l2]);
        assert_eq!(of(&with_leaf_21(leaves, 0x0000_0204)), [l1, l2], "the bit is hidden");
    }
}
