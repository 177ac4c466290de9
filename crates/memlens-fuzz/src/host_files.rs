//! What Linux says of the processor and its caches: `/proc/cpuinfo`, and the folders of sysfs.

use std::collections::BTreeMap;

use memlens_sim::{CacheDescription, MachineDescription};

const CACHES: &str = "/sys/devices/system/cpu/cpu0/cache/";
const CPUINFO: &str = "/proc/cpuinfo";

/// A file a line: its path, a blank, and its text; `\n` in it stands for the end of a line.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let caches = |caches: &[[&str; 5]]| {
        let names = ["level", "type", "size", "ways_of_associativity", "coherency_line_size"];
        let files = caches.iter().enumerate().flat_map(|(index, cache)| {
            names
                .iter()
                .zip(cache)
                .map(move |(name, text)| format!("{CACHES}index{index}/{name} {text}\\n\n"))
        });
        files.collect::<String>()
    };
    let zen = [
        ["1", "Data", "48K", "12", "64"],
        ["1", "Instruction", "32K", "8", "64"],
        ["2", "Unified", "1024K", "16", "64"],
        ["3", "Unified", "32768K", "16", "64"],
    ];
    let cpuinfo =
        "processor\\t: 0\\nvendor_id\\t: AuthenticAMD\\nmodel\\t\\t: 68\\nmodel name\\t: AMD Ryzen 7\\n";
    let odd = [
        ["1", "Data", "32K", "0", "128"],
        ["1", "Instruction", "18014398509481984K", "8", "128"],
        ["4", "Unified", "1000K", "12", "128"],
        ["2", "Unified", "256K", "4", "128"],
    ];
    let small = [["1", "Data", "32K", "8", "64"], ["2", "Unified", "2M", "8", "64"]];
    vec![
        (caches(&zen) + &format!("{CPUINFO} {cpuinfo}\n")).into(),
        caches(&odd).into(),
        (caches(&small) + &format!("{CPUINFO} model name\n")).into(),
        Vec::new(),
    ]
}

pub(crate) fn check(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let files: BTreeMap<&str, String> = text
        .split('\n')
        .filter_map(|line| line.split_once(' '))
        .map(|(path, text)| (path, text.replace("\\n", "\n").replace("\\t", "\t")))
        .collect();
    let machine = MachineDescription::host(&|path| files.get(path).cloned());
    machine.validate().expect("a model can have what is described");
    let cpuinfo = files.get(CPUINFO).map_or("", |text| text.as_str());
    let named = |line: &&str| line.starts_with("model name") && line.contains(':');
    let name = cpuinfo.lines().find(named).and_then(|line| Some(line.split_once(':')?.1));
    assert_eq!(machine.description, name.map_or("this computer", str::trim));
    let caches: Vec<Cache> = (0..16).filter_map(|index| Cache::read(&files, index)).collect();
    let last = caches.iter().map(|cache| cache.level).max().unwrap_or(3);
    assert_eq!(machine.l2.is_some(), last > 2);
    let spared = machine.told_llc_bytes() - machine.llc.bytes;
    assert!(spared <= machine.told_llc_bytes() / 20, "{:?}", machine.llc);
    let told_llc = CacheDescription { bytes: machine.told_llc_bytes(), ..machine.llc.clone() };
    let levels = [
        ("L1 data cache", 1, "Data", Some(&machine.l1d)),
        ("L1 instruction cache", 1, "Instruction", Some(&machine.l1i)),
        ("L2 cache", 2, "Unified", machine.l2.as_ref()),
        ("last-level cache", last, "Unified", Some(&told_llc)),
    ];
    for (place, level, kind, described) in levels {
        let Some(described) = described else { continue };
        let told = caches.iter().find(|cache| cache.level == level && cache.kind == kind);
        let told = told.filter(|cache| cache.is_possible() && cache.line == u64::from(machine.line_bytes));
        let is_assumed = machine.notes.iter().any(|note| note.contains(&format!("describe its {place};")));
        assert_eq!(told.is_none(), is_assumed, "{place}: {:?}", machine.notes);
        assert!(told.is_none_or(|told| told.is(described)), "{place}: {described:?}");
    }
}

/// A folder of [`CACHES`] that has all that is asked of it.
struct Cache {
    level: u32,
    kind: String,
    bytes: u64,
    ways: u64,
    line: u64,
}

impl Cache {
    fn read(files: &BTreeMap<&str, String>, index: u32) -> Option<Self> {
        let text = |name: &str| Some(files.get(format!("{CACHES}index{index}/{name}").as_str())?.trim());
        let number = |name: &str| text(name)?.parse::<u32>().ok();
        let (ways, line) = (number("ways_of_associativity")?, number("coherency_line_size")?);
        let kilobytes: u64 = text("size")?.strip_suffix('K')?.parse().ok()?;
        let bytes = u64::try_from(u128::from(kilobytes) << 10).ok()?;
        let lines = bytes.checked_div(line.into()).unwrap_or(0);
        // No ways: one set, which has all lines.
        let ways = if ways == 0 { lines } else { ways.into() };
        Some(Self { level: number("level")?, kind: text("type")?.to_owned(), bytes, ways, line: line.into() })
    }

    /// Lines of a power of two, and a whole number of sets, of which a model has 2^26 at most.
    fn is_possible(&self) -> bool {
        let &Self { bytes, ways, line, .. } = self;
        (3..=12).any(|power| line == 1 << power)
            && (1..1 << 32).contains(&ways)
            && bytes % (ways * line) == 0
            && (1..=1 << 26).contains(&(bytes / (ways * line)))
    }

    fn is(&self, other: &CacheDescription) -> bool {
        (self.bytes, self.ways, self.line) == (other.bytes, other.ways.into(), other.line.into())
    }
}
