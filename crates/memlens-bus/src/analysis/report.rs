//! What an analysis found, as numbers.

use super::backing::{MappedBytes, ObjectBacking};
use super::counts::{ObjectCounts, Points, TotalCounts};
use super::nodes::{NodeCounts, NodeLines};
use super::object_space::ObjectInfo;
use super::reverse_table::ReverseTable;
use super::tags::TagCounts;
use super::time_bins::TimeBins;
use crate::format::{Damage, Header, PageRecord};
use serde::{Deserialize, Serialize};

/// An object and what the bus saw of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObjectRow {
    /// Number, as in points; 0: addresses of no object.
    pub number: u32,
    /// Process that named it first.
    pub pid: u32,
    /// Kind, as in profiles.
    pub kind: &'static str,
    /// Name.
    pub name: String,
    /// Call stack of its allocation, innermost first.
    pub site: String,
    /// Bytes of its blocks, summed over the trace.
    pub bytes: u64,
    /// How many blocks and regions that were.
    pub blocks: u64,
    /// Counts.
    #[serde(flatten)]
    pub counts: ObjectCounts,
    /// How much of it pages of which size mapped.
    #[serde(flatten)]
    pub mapped: PageSizes,
    /// Lines read and written by memory node; empty if the trace names no nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lines_by_node: Vec<u64>,
}

/// How much of an object pages of which size mapped, in all processes together, when most of it was mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PageSizes {
    /// In pages of 4 KiB.
    pub bytes_in_4k_pages: u64,
    /// In pages of 2 MiB.
    pub bytes_in_2m_pages: u64,
    /// In pages of 1 GiB.
    pub bytes_in_1g_pages: u64,
    /// Of those of 2 MiB and 1 GiB, in transparent ones; `None`: the trace does not say of all of them.
    pub bytes_in_transparent_pages: Option<u64>,
    /// The rest, from hugetlbfs.
    pub bytes_in_hugetlb_pages: Option<u64>,
}

impl PageSizes {
    /// In pages of 2 MiB and 1 GiB.
    pub fn huge(&self) -> u64 {
        self.bytes_in_2m_pages + self.bytes_in_1g_pages
    }

    /// In pages of any size.
    pub fn total(&self) -> u64 {
        self.bytes_in_4k_pages + self.huge()
    }
}

impl From<MappedBytes> for PageSizes {
    fn from(mapped: MappedBytes) -> Self {
        let is_told = mapped.huge_of_untold_kind() == 0;
        Self {
            bytes_in_4k_pages: mapped.bytes_in_4k_pages,
            bytes_in_2m_pages: mapped.bytes_in_2m_pages,
            bytes_in_1g_pages: mapped.bytes_in_1g_pages,
            bytes_in_transparent_pages: is_told.then_some(mapped.bytes_in_transparent_pages),
            bytes_in_hugetlb_pages: is_told.then_some(mapped.bytes_in_hugetlb_pages),
        }
    }
}

/// What was lost or odd. Units: records, unless said otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// Bus records that never came, by their numbers.
    pub lost_records: u64,
    /// Places where some are missing.
    pub gaps: u64,
    /// Damage of the bus trace.
    pub bus_damage: Damage,
    /// Damage of the page-table trace.
    pub page_damage: Damage,
    /// Page-table records lost with it, or that make no sense.
    pub lost_page_records: u64,
    /// Page-table records that contradict those before.
    pub contradictions: u64,
    /// Tags of page-table events.
    pub page_tags: TagCounts,
    /// Tags of object events.
    pub object_tags: TagCounts,
    /// The object events have no end.
    pub objects_cut: bool,
    /// Lines of text that make no sense.
    pub bad_lines: u64,
    /// The first few of them.
    pub problems: Vec<String>,
}

/// How walk reads are spread over pages (T5). The counts of a line of entries are divided equally among its
/// entries, because the bus does not tell which one was wanted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WalkedPages {
    /// Entries in lines that were read at least once.
    pub entries: u64,
    /// Reads of leaf entries.
    pub reads: u64,
    /// Reads of an entry at each percent of the entries, fewest reads first: 101 values.
    pub curve: Vec<f64>,
    /// Share of all reads that falls to the entries up to each percent, fewest reads first: 101 values.
    pub cumulative: Vec<f64>,
    /// Share of the reads that the 5 % of the entries with the most reads cause.
    pub top_5_percent: f64,
}

impl WalkedPages {
    fn of(table: &ReverseTable, line_bytes: u32) -> Self {
        let entries_per_line = u64::from(line_bytes / 8).max(1);
        let leaves = table.tables().iter().filter(|table| table.has_leaves);
        let mut lines: Vec<u32> =
            leaves.flat_map(|table| table.reads.iter().copied()).filter(|&reads| reads > 0).collect();
        lines.sort_unstable();
        let reads: u64 = lines.iter().map(|&reads| u64::from(reads)).sum();
        if reads == 0 {
            return Self::default();
        }
        let mut sums = Vec::with_capacity(lines.len() + 1);
        sums.push(0_u64);
        for &line in &lines {
            sums.push(sums[sums.len() - 1] + u64::from(line));
        }
        // A share of the entries may end inside a line.
        let up_to = |part: f64| {
            let place = part * lines.len() as f64;
            let whole = (place as usize).min(lines.len() - 1);
            let rest = (place - whole as f64) * f64::from(lines[whole]);
            (sums[whole] as f64 + rest) / reads as f64
        };
        let percents = || (0..=100).map(|percent| f64::from(percent) / 100.0);
        Self {
            entries: lines.len() as u64 * entries_per_line,
            reads,
            curve: percents()
                .map(|part| {
                    let at = ((part * lines.len() as f64) as usize).min(lines.len() - 1);
                    f64::from(lines[at]) / entries_per_line as f64
                })
                .collect(),
            cumulative: percents().map(up_to).collect(),
            top_5_percent: 1.0 - up_to(0.95),
        }
    }
}

/// Reads of the leaf entries of one memory line, which the bus does not tell apart (T5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkedLine {
    /// Process.
    pub pid: u32,
    /// Virtual address of the first entry's page.
    pub vaddr: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Entries in the line.
    pub entries: u64,
    /// Its reads: TLB misses of these pages, where each shows on the bus.
    pub reads: u32,
}

impl WalkedLine {
    /// All that were read, most reads first.
    fn all(table: &ReverseTable) -> Vec<Self> {
        let mut lines = Vec::new();
        for leaves in table.tables().iter().filter(|table| table.has_leaves) {
            for (line, &reads) in leaves.reads.iter().enumerate().filter(|(_, reads)| **reads > 0) {
                let pages = table.pages_of_line(leaves, line);
                let page_bytes = PageRecord::pages(leaves.level) << 12;
                let entries = ((pages.end - pages.start) << 12) / page_bytes;
                lines.push(Self { pid: leaves.pid, vaddr: pages.start << 12, page_bytes, entries, reads });
            }
        }
        lines.sort_by_key(|line| (std::cmp::Reverse(line.reads), line.pid, line.vaddr));
        lines
    }
}

/// Everything that an analysis found.
#[derive(Clone, Debug, Serialize)]
pub struct Analysis {
    /// Constants of the trace.
    pub header: Header,
    /// Clock cycles from start to end.
    pub cycles: u64,
    /// The same in seconds.
    pub seconds: f64,
    /// Sums.
    pub totals: TotalCounts,
    /// What was lost or odd.
    pub losses: Losses,
    /// Objects that the bus saw, those with the most reads and writes first.
    pub objects: Vec<ObjectRow>,
    /// What each memory node delivered; empty if the trace names no nodes.
    pub nodes: Vec<NodeCounts>,
    /// Walk reads by page.
    pub walked_pages: WalkedPages,
    /// The same line by line.
    #[serde(skip)]
    pub walked_lines: Vec<WalkedLine>,
    /// Reads and writes over time.
    pub bins: TimeBins,
    /// Addresses over time.
    #[serde(skip)]
    pub points: Points,
}

impl Analysis {
    pub(super) fn new(
        header: Header,
        cycles: u64,
        totals: TotalCounts,
        losses: Losses,
        (infos, counts, backing): (&[ObjectInfo], &[ObjectCounts], &ObjectBacking),
        table: &ReverseTable,
        (bins, points, nodes): (TimeBins, Points, NodeLines),
    ) -> Self {
        let rows = infos.iter().zip(counts).enumerate().map(|(number, (info, &counts))| ObjectRow {
            number: number as u32,
            pid: info.pid,
            kind: info.kind.as_str(),
            name: info.name.clone(),
            site: info.site.clone(),
            bytes: info.bytes,
            blocks: info.blocks,
            counts,
            mapped: backing.of_object(number as u32).into(),
            lines_by_node: nodes.of_object(number as u32),
        });
        let mut objects: Vec<ObjectRow> = rows.filter(|row| row.counts != ObjectCounts::default()).collect();
        objects.sort_by_key(|row| std::cmp::Reverse(row.counts.reads + row.counts.writes));
        Self {
            cycles,
            seconds: cycles as f64 / header.clock_hz as f64,
            totals,
            losses,
            objects,
            nodes: nodes.into_counts(),
            walked_pages: WalkedPages::of(table, header.line_bytes),
            walked_lines: WalkedLine::all(table),
            bins,
            points,
            header,
        }
    }

    /// Bytes a second over the whole trace; `None` if it took no time.
    pub fn bandwidth(&self) -> Option<f64> {
        let bytes = self.totals.records as f64 * f64::from(self.header.line_bytes);
        (self.cycles > 0).then(|| bytes / self.seconds)
    }
}
