//! How the kernel backs ranges of a process's memory: small pages, huge ones, nothing yet.
//!
//! `PAGEMAP_SCAN` (Linux 6.7, Documentation/admin-guide/mm/pagemap.rst) says it exactly; before, the mappings'
//! `AnonHugePages` in `smaps` are taken in proportion to the part of the mapping that is meant.

use std::fs::{self, File};
use std::os::fd::AsRawFd;

/// How some memory is backed, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backing {
    /// Resident.
    pub resident: u64,
    /// Resident in huge pages: transparent ones mapped as a whole, or hugetlb.
    pub huge: u64,
}

impl Backing {
    /// Share of the resident memory that lies in huge pages; None if none is resident.
    pub fn huge_share(&self) -> Option<f64> {
        (self.resident > 0).then(|| self.huge as f64 / self.resident as f64)
    }

    fn add(&mut self, other: Self) {
        self.resident += other.resident;
        self.huge += other.huge;
    }
}

/// Reads a process's page maps.
#[derive(Debug)]
pub struct BackingReader {
    pid: u32,
    pagemap: Option<File>,
    /// Start, end and backing of mappings, where the page map cannot be scanned.
    mappings: Option<Vec<(u64, u64, Backing)>>,
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
        if let Some(pagemap) = &self.pagemap {
            if let Some(backing) = scan(pagemap, start, end) {
                return Some(backing);
            }
            self.pagemap = None;
        }
        if self.mappings.is_none() {
            let text = fs::read_to_string(format!("/proc/{}/smaps", self.pid)).ok()?;
            self.mappings = Some(mappings(&text));
        }
        let mut sum = Backing::default();
        for &(first, last, backing) in self.mappings.as_deref()? {
            let overlap = end.min(last).saturating_sub(start.max(first));
            let part =
                |bytes: u64| (u128::from(bytes) * u128::from(overlap) / u128::from(last - first)) as u64;
            if overlap > 0 {
                sum.add(Backing { resident: part(backing.resident), huge: part(backing.huge) });
            }
        }
        Some(sum)
    }
}

/// `struct page_region` (linux/fs.h).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg` (linux/fs.h).
#[repr(C)]
#[derive(Default)]
struct ScanArguments {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_used: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_any_of: u64,
    return_mask: u64,
}

/// `PAGEMAP_SCAN`: `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::c_ulong =
    3 << 30 | (size_of::<ScanArguments>() as libc::c_ulong) << 16 | (b'f' as libc::c_ulong) << 8 | 16;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_HUGE: u64 = 1 << 6;
const PAGE_BYTES: u64 = 4096;

fn scan(pagemap: &File, start: u64, end: u64) -> Option<Backing> {
    let mut regions = [PageRegion::default(); 256];
    let (mut at, end) = (start & !(PAGE_BYTES - 1), end.checked_next_multiple_of(PAGE_BYTES)?);
    let mut sum = Backing::default();
    while at < end {
        let mut arguments = ScanArguments {
            size: size_of::<ScanArguments>() as u64,
            start: at,
            end,
            regions: regions.as_mut_ptr() as u64,
            regions_used: regions.len() as u64,
            category_mask: PAGE_IS_PRESENT,
            return_mask: PAGE_IS_PRESENT | PAGE_IS_HUGE,
            ..ScanArguments::default()
        };
        // SAFETY: the structure says its size and how many regions there is room for; the kernel fills both.
        let found = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut arguments) };
        let found = regions.get(..usize::try_from(found).ok()?)?;
        for region in found {
            let bytes = region.end - region.start;
            sum.resident += bytes;
            if region.categories & PAGE_IS_HUGE != 0 {
                sum.huge += bytes;
            }
        }
        if arguments.walk_end <= at {
            break;
        }
        at = arguments.walk_end;
    }
    Some(sum)
}

/// The mappings of a `smaps` file (proc_pid_smaps(5)).
fn mappings(text: &str) -> Vec<(u64, u64, Backing)> {
    let mut found: Vec<(u64, u64, Backing)> = Vec::new();
    for line in text.lines() {
        let word = line.split_whitespace().next().unwrap_or_default();
        let range = word.split_once('-').and_then(|(start, end)| {
            Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
        });
        if let Some((start, end)) = range.filter(|(start, end)| start < end) {
            found.push((start, end, Backing::default()));
        } else if let (Some(bytes), Some((_, _, backing))) = (kib(line), found.last_mut()) {
            match word {
                "Rss:" => backing.resident += bytes,
                // hugetlb's pages do not count as resident.
                "Private_Hugetlb:" | "Shared_Hugetlb:" => {
                    backing.resident += bytes;
                    backing.huge += bytes;
                }
                "AnonHugePages:" => backing.huge += bytes,
                _ => {}
            }
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
    Some(Backing { resident: value("Anonymous:")?, huge: value("AnonHugePages:")? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use memmap2::{Advice, MmapMut};

    #[test]
    fn smaps_are_read_as_the_kernel_writes_them() {
        let text = "7f0000000000-7f0000400000 rw-p 00000000 00:00 0 \nSize: 4096 kB\nRss: 3072 kB\n\
                    AnonHugePages: 2048 kB\nVmFlags: rd wr\n55-56 r--p 0 0 0 /x\nRss: 4 kB\n";
        let expected = [
            (0x7f00_0000_0000, 0x7f00_0040_0000, Backing { resident: 3 << 20, huge: 2 << 20 }),
            (0x55, 0x56, Backing { resident: 4096, huge: 0 }),
        ];
        assert_eq!(mappings(text), expected);
        assert_eq!(expected[0].2.huge_share(), Some(2.0 / 3.0));
        assert_eq!(Backing::default().huge_share(), None);
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
            scan(&File::open("/proc/self/pagemap").expect("there"), start, start + 16 * MIB as u64)
        {
            assert_eq!(scanned, smaps);
        }
    }
}
