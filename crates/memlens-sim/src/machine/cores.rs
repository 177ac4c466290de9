//! What present cores can have under way, by the processor's family and model, of Arm's by implementer and part.

use super::description::CoreDescription;
use alloc::string::ToString;

/// Width, window, scheduled, outstanding, stores.
type Numbers = [u32; 5];

// Vector instructions have a queue in front of their schedulers, of 64 entries, and 96 on Zen 5.
const ZEN_5: Numbers = [8, 448, 354, 24, 104];
const ZEN_4: Numbers = [6, 320, 224, 24, 64];
const ZEN_3: Numbers = [6, 256, 224, 24, 64];
const ZEN_2: Numbers = [6, 224, 192, 22, 48];
const GOLDEN_COVE: Numbers = [6, 512, 205, 16, 112];
const SUNNY_COVE: Numbers = [5, 352, 160, 12, 72];
const SKYLAKE: Numbers = [4, 224, 97, 12, 56];
const HASWELL: Numbers = [4, 192, 60, 10, 42];
const SANDY_BRIDGE: Numbers = [4, 168, 54, 10, 36];
const NEHALEM: Numbers = [4, 128, 36, 10, 32];

// Width and window are Arm's; the rest is assumed, as of the machine `arm-neoverse-v2`.
const NEOVERSE_V2: Numbers = [8, 320, 160, 32, 72];
const NEOVERSE_V1: Numbers = [8, 256, 160, 32, 72];
const NEOVERSE_N2: Numbers = [5, 160, 120, 20, 72];
const NEOVERSE_N1: Numbers = [4, 128, 120, 20, 72];

/// Scheduled of general registers, multiplications among them, of vector registers, loads and stores.
type ByKind = [u32; 4];

const ZEN_5_BY_KIND: ByKind = [88, 0, 210, 56];
/// Four schedulers of 24 entries, of which one takes multiplications; loads and stores are in three of them.
const ZEN_4_BY_KIND: ByKind = [96, 24, 128, 0];
const ZEN_2_BY_KIND: ByKind = [64, 16, 100, 28];
/// One scheduler for all that computes.
const GOLDEN_COVE_BY_KIND: ByKind = [97, 0, 0, 108];

/// Between those of the last ten years.
const ASSUMED: Numbers = [6, 320, 160, 16, 64];

/// Cycles from one line of memory to the next that one core gets: 20 to 30 GB/s at 3 to 4 GHz.
const LINE_CYCLES: u32 = 8;

/// The same of the second level, where its path has 32 bytes a cycle, and 64.
const HALF_A_LINE: u32 = 2;
const A_LINE: u32 = 1;

/// The same of the last level: 16 bytes a cycle, as Intel's manual has it sustained (Skylake server), and as measured on Zen 4.
const LLC_LINE_CYCLES: u32 = 4;

/// Cycles from one line to the next into the same set of the first level, by loads, by stores and by both, as measured on Zen 4. Of others it is
/// not known; `memlens calibrate` measures it.
const ZEN_4_SET_CYCLES: [u32; 3] = [11, 17, 45];

const AMD: &str = "AMD, Software Optimization Guides for Family 17h (55723, 56305), 19h (56665, 57647) and 1Ah (58455); the last level's and memory's rates are assumed";
const INTEL: &str = "Intel 64 and IA-32 Architectures Optimization Reference Manual, 248966, each core's buffers; the last level's and memory's rates are assumed";
const ARM: &str = "Arm, Neoverse N1: A. Pellegrini et al., The Arm Neoverse N1 Platform, IEEE Micro 40(2), 2020; V1 and N2: Hot Chips 33, 2021; V2: Hot Chips 2023: width and window; the rest is assumed";

/// The core of the processor that `/proc/cpuinfo` describes; None: it is none of those known. Of several kinds it is the first.
pub(super) fn known(cpuinfo: &str) -> Option<CoreDescription> {
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.split(':').next().is_some_and(|it| it.trim() == name))?;
        Some(line.split_once(':')?.1.trim())
    };
    let number = |name| field(name)?.parse::<u32>().ok();
    // The main ID register's fields (each core's Technical Reference Manual, MIDR_EL1).
    if let Some((implementer, part)) = field("CPU implementer").zip(field("CPU part")) {
        let numbers = match (implementer, part) {
            ("0x41", "0xd4f") => NEOVERSE_V2,
            ("0x41", "0xd40") => NEOVERSE_V1,
            ("0x41", "0xd49") => NEOVERSE_N2,
            ("0x41", "0xd0c") => NEOVERSE_N1,
            _ => return None,
        };
        return Some(description(numbers, A_LINE, ARM));
    }
    let (family, model) = (number("cpu family")?, number("model")?);
    let (numbers, l1_line_cycles, source) = match (field("vendor_id")?, family, model) {
        ("AuthenticAMD", 0x1a, _) => (ZEN_5, A_LINE, AMD),
        ("AuthenticAMD", 0x19, 0x10..=0x1f | 0x60..=0x7f | 0xa0..=0xaf) => (ZEN_4, HALF_A_LINE, AMD),
        ("AuthenticAMD", 0x19, _) => (ZEN_3, HALF_A_LINE, AMD),
        ("AuthenticAMD", 0x17, _) => (ZEN_2, HALF_A_LINE, AMD),
        // Sapphire, Emerald and Granite Rapids; Alder and Raptor Lake.
        ("GenuineIntel", 6, 143 | 207 | 173 | 174 | 151 | 154 | 183 | 186 | 191) => {
            (GOLDEN_COVE, A_LINE, INTEL)
        }
        // Ice, Tiger and Rocket Lake.
        ("GenuineIntel", 6, 106 | 108 | 125 | 126 | 140 | 141 | 167) => (SUNNY_COVE, A_LINE, INTEL),
        // Skylake to Comet Lake.
        ("GenuineIntel", 6, 78 | 94 | 85 | 142 | 158 | 165 | 166) => (SKYLAKE, A_LINE, INTEL),
        ("GenuineIntel", 6, 60 | 61 | 63 | 69 | 70 | 71 | 79 | 86) => (HASWELL, A_LINE, INTEL),
        ("GenuineIntel", 6, 42 | 45 | 58 | 62) => (SANDY_BRIDGE, HALF_A_LINE, INTEL),
        ("GenuineIntel", 6, 26 | 30 | 31 | 37 | 44 | 46 | 47) => (NEHALEM, HALF_A_LINE, INTEL),
        _ => return None,
    };
    let [set_load_cycles, set_store_cycles, set_modify_cycles] =
        if numbers == ZEN_4 { ZEN_4_SET_CYCLES } else { [0; 3] };
    let [integer_scheduled, multiply_scheduled, vector_scheduled, address_scheduled] = match numbers {
        ZEN_5 => ZEN_5_BY_KIND,
        ZEN_4 | ZEN_3 => ZEN_4_BY_KIND,
        ZEN_2 => ZEN_2_BY_KIND,
        GOLDEN_COVE => GOLDEN_COVE_BY_KIND,
        _ => [0; 4],
    };
    Some(CoreDescription {
        integer_scheduled,
        multiply_scheduled,
        vector_scheduled,
        address_scheduled,
        set_load_cycles,
        set_store_cycles,
        set_modify_cycles,
        ..description(numbers, l1_line_cycles, source)
    })
}

/// A core that nothing is known of.
pub(super) fn assumed() -> CoreDescription {
    description(ASSUMED, HALF_A_LINE, "assumed")
}

fn description(numbers: Numbers, l1_line_cycles: u32, source: &str) -> CoreDescription {
    let [width, window, scheduled, outstanding, stores] = numbers;
    CoreDescription {
        width,
        window,
        scheduled,
        outstanding,
        stores,
        line_cycles: LINE_CYCLES,
        alone_line_cycles: 0,
        l1_line_cycles,
        llc_line_cycles: LLC_LINE_CYCLES,
        integer_scheduled: 0,
        multiply_scheduled: 0,
        vector_scheduled: 0,
        address_scheduled: 0,
        set_load_cycles: 0,
        set_store_cycles: 0,
        set_modify_cycles: 0,
        source: source.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_known_by_family_and_model_or_implementer_and_part() {
        let window = |vendor, family, model| {
            let text = alloc::format!(
                "processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: x\n"
            );
            known(&text).map(|core| core.window)
        };
        assert_eq!(window("AuthenticAMD", 26, 2), Some(448));
        assert_eq!(window("AuthenticAMD", 25, 1), Some(256));
        assert_eq!(window("AuthenticAMD", 25, 17), Some(320));
        assert_eq!(window("GenuineIntel", 6, 143), Some(512));
        assert_eq!(window("GenuineIntel", 6, 26), Some(128));
        assert_eq!(window("GenuineIntel", 6, 0), None);
        assert_eq!(window("HygonGenuine", 24, 1), None);
        let arm = |implementer, part| {
            let text = alloc::format!(
                "processor\t: 0\nBogoMIPS\t: 243.75\nCPU implementer\t: {implementer}\nCPU architecture: 8\nCPU variant\t: 0x3\n\
                 CPU part\t: {part}\nCPU revision\t: 1\n"
            );
            known(&text).map(|core| core.window)
        };
        assert_eq!(
            ["0xd0c", "0xd40", "0xd49", "0xd4f"].map(|part| arm("0x41", part)),
            [128, 256, 160, 320].map(Some)
        );
        assert_eq!((arm("0x41", "0xd03"), arm("0x48", "0xd0c")), (None, None));
        assert_eq!(known(""), None);
    }
}
