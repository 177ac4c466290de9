//! How ranges of a process's memory are backed: small pages, huge ones, swapped out, nothing yet.
//!
//! `PAGEMAP_SCAN` says it exactly; without it, the mappings' `AnonHugePages` in `smaps` are taken in proportion to the
//! part of the mapping that is meant. Which huge pages are hugetlb's only `smaps` tells: it is read once, when the first
//! huge page is found.

use std::fs::{self, File};

use crate::scan;

/// How some memory is backed, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backing {
    /// Resident.
    pub resident: u64,
    /// Of that, in huge pages: transparent ones mapped as a whole, or hugetlb.
    pub huge: u64,
    /// Of those, hugetlb's.
    pub hugetlb: u64,
    /// Of the resident, in the kernel's page of zeros, small or huge: read, and never written. Only a scan tells it.
    pub zero: u64,
    /// Swapped out.
    pub swapped: u64,
}

impl Backing {
    /// Share of the resident memory that lies in huge pages; None if none is resident.
    pub fn huge_share(&self) -> Option<f64> {
        (self.resident > 0).then(|| self.huge as f64 / self.resident as f64)
    }

    /// Resident in small pages.
    pub fn small(&self) -> u64 {
        self.resident.saturating_sub(self.huge)
    }

    /// Resident in transparent huge pages.
    pub fn transparent(&self) -> u64 {
        self.huge.saturating_sub(self.hugetlb)
    }
}

impl std::ops::AddAssign for Backing {
    fn add_assign(&mut self, other: Self) {
        self.resident += other.resident;
        self.huge += other.huge;
        self.hugetlb += other.hugetlb;
        self.zero += other.zero;
        self.swapped += other.swapped;
    }
}

/// A mapping of a `smaps` file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mapping {
    start: u64,
    end: u64,
    backing: Backing,
    is_hugetlb: bool,
}

/// Reads a process's page maps. Make a new one for each look: mappings are read once.
#[derive(Debug)]
pub struct BackingReader {
    pid: u32,
    pagemap: Option<File>,
    /// The mappings, once they are needed.
    mappings: Option<Vec<Mapping>>,
}

impl BackingReader {
    /// Of a process.
    pub fn new(pid: u32) -> Self {
        Self { pid, pagemap: File::open(format!("/proc/{pid}/pagemap")).ok(), mappings: None }
    }

    /// Of a process, from `smaps` only.
    pub fn from_smaps(pid: u32) -> Self {
        Self { pid, pagemap: None, mappings: None }
    }

    /// How a range is backed now; None if the kernel does not tell.
    pub fn range(&mut self, start: u64, bytes: u64) -> Option<Backing> {
        let end = start.checked_add(bytes)?;
        let Self { pid, pagemap, mappings } = self;
        if let Some(map) = pagemap {
            let found = scanned(map, start, end, |addr| {
                let mappings = known(mappings, *pid).unwrap_or_default();
                mappings
                    .iter()
                    .any(|mapping| mapping.is_hugetlb && (mapping.start..mapping.end).contains(&addr))
            });
            if found.is_some() {
                return found;
            }
            *pagemap = None;
        }
        let mut sum = Backing::default();
        for mapping in known(mappings, *pid)? {
            let overlap = end.min(mapping.end).saturating_sub(start.max(mapping.start));
            let whole = mapping.end - mapping.start;
            let part = |bytes: u64| (u128::from(bytes) * u128::from(overlap) / u128::from(whole)) as u64;
            if overlap > 0 {
                let Backing { resident, huge, hugetlb, zero, swapped } = mapping.backing;
                let [resident, huge, hugetlb, swapped] = [resident, huge, hugetlb, swapped].map(part);
                sum += Backing { resident, huge, hugetlb, zero, swapped };
            }
        }
        Some(sum)
    }
}

/// The process's mappings, read at the first time.
fn known(mappings: &mut Option<Vec<Mapping>>, pid: u32) -> Option<&[Mapping]> {
    if mappings.is_none() {
        // Names are bytes, of which not all are UTF-8.
        *mappings = Some(parsed(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/smaps")).ok()?)));
    }
    mappings.as_deref()
}

/// What the page map says of a range; with huge pages in it `is_hugetlb` is asked about their addresses.
fn scanned(pagemap: &File, start: u64, end: u64, mut is_hugetlb: impl FnMut(u64) -> bool) -> Option<Backing> {
    let mut sum = Backing::default();
    scan::scan(pagemap, start, end, |region| {
        let bytes = region.end - region.start;
        if region.categories & scan::PRESENT == 0 {
            sum.swapped += bytes;
            return;
        }
        sum.resident += bytes;
        if region.categories & scan::ZERO != 0 {
            sum.zero += bytes;
        }
        if region.categories & scan::HUGE != 0 {
            sum.huge += bytes;
            if is_hugetlb(region.start) {
                sum.hugetlb += bytes;
            }
        }
    })?;
    Some(sum)
}

/// The mappings of a `smaps` file (proc_pid_smaps(5)).
fn parsed(text: &str) -> Vec<Mapping> {
    let mut found: Vec<Mapping> = Vec::new();
    for line in text.lines() {
        let word = line.split_whitespace().next().unwrap_or_default();
        let range = word.split_once('-').and_then(|(start, end)| {
            Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
        });
        if let Some((start, end)) = range.filter(|(start, end)| start < end) {
            found.push(Mapping { start, end, ..Mapping::default() });
            continue;
        }
        let Some(mapping) = found.last_mut() else { continue };
        if word == "VmFlags:" {
            mapping.is_hugetlb = line.split_whitespace().any(|flag| flag == "ht");
            continue;
        }
        let Some(bytes) = kib(line) else { continue };
        let backing = &mut mapping.backing;
        match word {
            "Rss:" => backing.resident += bytes,
            "Swap:" => backing.swapped += bytes,
            // hugetlb's pages do not count as resident.
            "Private_Hugetlb:" | "Shared_Hugetlb:" => {
                backing.resident += bytes;
                backing.huge += bytes;
                backing.hugetlb += bytes;
            }
            "AnonHugePages:" => backing.huge += bytes,
            _ => {}
        }
    }
    found
}

/// The bytes that a line like `Rss:  12 kB` names.
fn kib(line: &str) -> Option<u64> {
    line.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(1024)
}

/// A process's anonymous memory as a whole (`smaps_rollup`); None if the kernel does not tell.
pub fn process_anonymous(pid: u32) -> Option<Backing> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let value = |name: &str| text.lines().find(|line| line.starts_with(name)).and_then(kib);
    Some(Backing {
        resident: value("Anonymous:")?,
        huge: value("AnonHugePages:")?,
        swapped: value("Swap:").unwrap_or(0),
        ..Backing::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use memmap2::{Advice, MmapMut};

    #[test]
    fn smaps_are_read_as_the_kernel_writes_them() {
        let text = "7f0000000000-7f0000400000 rw-p 00000000 00:00 0 \nSize: 4096 kB\nRss: 3072 kB\n\
                    AnonHugePages: 2048 kB\nSwap: 8 kB\nVmFlags: rd wr\n55-56 r--p 0 0 0 /x\nRss: 4 kB\n\
                    7f0000600000-7f0000800000 rw-p 0 0 0 /anon_hugepage (deleted)\nRss: 0 kB\n\
                    Private_Hugetlb: 2048 kB\nVmFlags: rd wr ht\n";
        let resident = Backing { resident: 3 << 20, huge: 2 << 20, swapped: 8192, ..Backing::default() };
        let reserved = Backing { resident: 2 << 20, huge: 2 << 20, hugetlb: 2 << 20, ..Backing::default() };
        let mapping = |start, end, backing, is_hugetlb| Mapping { start, end, backing, is_hugetlb };
        let expected = [
            mapping(0x7f00_0000_0000, 0x7f00_0040_0000, resident, false),
            mapping(0x55, 0x56, Backing { resident: 4096, ..Backing::default() }, false),
            mapping(0x7f00_0060_0000, 0x7f00_0080_0000, reserved, true),
        ];
        assert_eq!(parsed(text), expected);
        assert_eq!(resident.huge_share(), Some(2.0 / 3.0));
        assert_eq!((resident.small(), resident.transparent()), (1 << 20, 2 << 20));
        assert_eq!((reserved.small(), reserved.transparent()), (0, 0));
        assert_eq!(Backing::default().huge_share(), None);
    }

    #[test]
    fn what_was_only_read_is_the_page_of_zeros() {
        const BYTES: usize = 1 << 20;
        let mut map = MmapMut::map_anon(BYTES).expect("mapped");
        map[..BYTES / 4].fill(1);
        let sum: u64 = map.iter().map(|&byte| u64::from(byte)).sum();
        assert_eq!(sum, BYTES as u64 / 4);
        let mut reader = BackingReader::new(std::process::id());
        let found = reader.range(map.as_ptr() as u64, BYTES as u64);
        // Elsewhere a kernel before 6.7, or a container, does not tell.
        if let Some(found) = found.filter(|_| reader.pagemap.is_some()) {
            // One huge page may lie around what was written.
            assert!(found.huge > 0 || found.zero == 3 * BYTES as u64 / 4, "{found:?}");
        }
    }

    /// Both ways of asking about this process's own memory agree, whatever the kernel decided.
    #[test]
    fn both_ways_see_the_same_pages() {
        const MIB: usize = 1 << 20;
        let mut map = MmapMut::map_anon(16 * MIB).expect("mapped");
        // The advice also keeps the mapping apart from its neighbours, which smaps would mix in.
        if map.advise(Advice::HugePage).is_err() {
            return;
        }
        map[..12 * MIB].fill(1);
        let (pid, start) = (std::process::id(), map.as_ptr() as u64);
        let smaps = BackingReader::from_smaps(pid).range(start, 16 * MIB as u64).expect("this is Linux");
        // 12 MiB were written; a huge page may reach past them.
        assert!((12 * MIB as u64..=14 * MIB as u64).contains(&smaps.resident), "{smaps:?}");
        if let Some(scanned) =
            scanned(&File::open("/proc/self/pagemap").expect("there"), start, start + 16 * MIB as u64, |_| {
                false
            })
        {
            assert_eq!(scanned, smaps);
        }
    }
}
