//! What present cores can have under way, by the processor's family and model.

use super::description::CoreDescription;
use alloc::string::String;
use alloc::string::ToString;

/// Width, window, scheduled, outstanding, stores.
type Numbers = [u32; 5];

const ZEN_5: Numbers = [8, 448, 258, 24, 104];
const ZEN_4: Numbers = [6, 320, 160, 24, 64];
const ZEN_3: Numbers = [6, 256, 160, 24, 64];
const ZEN_2: Numbers = [6, 224, 128, 22, 48];
const GOLDEN_COVE: Numbers = [6, 512, 205, 16, 112];
const SUNNY_COVE: Numbers = [5, 352, 160, 12, 72];
const SKYLAKE: Numbers = [4, 224, 97, 12, 56];
const HASWELL: Numbers = [4, 192, 60, 10, 42];
const SANDY_BRIDGE: Numbers = [4, 168, 54, 10, 36];
const NEHALEM: Numbers = [4, 128, 36, 10, 32];
/// Between those of the last ten years.
const ASSUMED: Numbers = [6, 320, 160, 16, 64];

/// Cycles from one line of memory to the next that one core gets: 20 to 30 GB/s at 3 to 4 GHz.
const LINE_CYCLES: u32 = 8;

const AMD: &str = "AMD, Software Optimization Guides for Family 17h (55723, 56305), 19h (56665, 57647) and 1Ah (58455); memory's rate is assumed";
const INTEL: &str = "Intel 64 and IA-32 Architectures Optimization Reference Manual, 248966, each core's buffers; memory's rate is assumed";

/// The core of the processor that `/proc/cpuinfo` describes; None: it is none of those known.
pub(super) fn known(cpuinfo: &str) -> Option<CoreDescription> {
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.split(':').next().is_some_and(|it| it.trim() == name))?;
        Some(line.split_once(':')?.1.trim())
    };
    let number = |name| field(name)?.parse::<u32>().ok();
    let (family, model) = (number("cpu family")?, number("model")?);
    let (numbers, source) = match (field("vendor_id")?, family, model) {
        ("AuthenticAMD", 0x1a, _) => (ZEN_5, AMD),
        ("AuthenticAMD", 0x19, 0x10..=0x1f | 0x60..=0x7f | 0xa0..=0xaf) => (ZEN_4, AMD),
        ("AuthenticAMD", 0x19, _) => (ZEN_3, AMD),
        ("AuthenticAMD", 0x17, _) => (ZEN_2, AMD),
        // Sapphire, Emerald and Granite Rapids; Alder and Raptor Lake.
        ("GenuineIntel", 6, 143 | 207 | 173 | 174 | 151 | 154 | 183 | 186 | 191) => (GOLDEN_COVE, INTEL),
        // Ice, Tiger and Rocket Lake.
        ("GenuineIntel", 6, 106 | 108 | 125 | 126 | 140 | 141 | 167) => (SUNNY_COVE, INTEL),
        // Skylake to Comet Lake.
        ("GenuineIntel", 6, 78 | 94 | 85 | 142 | 158 | 165 | 166) => (SKYLAKE, INTEL),
        ("GenuineIntel", 6, 60 | 61 | 63 | 69 | 70 | 71 | 79 | 86) => (HASWELL, INTEL),
        ("GenuineIntel", 6, 42 | 45 | 58 | 62) => (SANDY_BRIDGE, INTEL),
        ("GenuineIntel", 6, 26 | 30 | 31 | 37 | 44 | 46 | 47) => (NEHALEM, INTEL),
        _ => return None,
    };
    Some(description(numbers, source))
}

/// A core that nothing is known of.
pub(super) fn assumed() -> CoreDescription {
    description(ASSUMED, "assumed")
}

fn description([width, window, scheduled, outstanding, stores]: Numbers, source: &str) -> CoreDescription {
    let source: String = source.to_string();
    CoreDescription { width, window, scheduled, outstanding, stores, line_cycles: LINE_CYCLES, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_known_by_family_and_model() {
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
        assert_eq!(known(""), None);
    }
}
