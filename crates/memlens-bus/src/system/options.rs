//! What the modelled system is like.

use super::memory::ThpAdvice;
use crate::format::{Header, Packing, Stream, TagRegion};
use memlens_sim::MachineDescription;
use std::ops::Range;

/// Bytes of the region whose accesses are tags, as in the paper.
const TAG_BYTES: u64 = 32 << 20;
/// Bytes of the uncached region of page tables, as in PTAT.
const PTAT_BYTES: u64 = 256 << 20;
const FRAMES_PER_GIB: u64 = 1 << 18;

/// When anonymous memory gets transparent huge pages (`/sys/kernel/mm/transparent_hugepage/enabled`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThpSetting {
    /// Never, but by `MADV_COLLAPSE`.
    Never,
    /// Where the program asks by `MADV_HUGEPAGE`.
    #[default]
    Madvise,
    /// Wherever the program does not forbid it.
    Always,
}

impl ThpSetting {
    /// Whether memory of which the program said this gets them.
    pub fn allows(self, advice: ThpAdvice) -> bool {
        match self {
            Self::Never => false,
            Self::Madvise => advice == ThpAdvice::Huge,
            Self::Always => advice != ThpAdvice::Small,
        }
    }
}

/// What the modelled system is like.
#[derive(Clone, Debug)]
pub struct SystemOptions {
    /// Caches, TLBs, walker.
    pub machine: MachineDescription,
    /// Modelled physical memory, a multiple of 1 GiB.
    pub memory_bytes: u64,
    /// Physical memory of the running machine, whose frames come before the modelled ones, a multiple of 1 GiB; 0: all
    /// frames are modelled.
    pub real_bytes: u64,
    /// Memory nodes (NUMA) of the modelled memory of equal size, of whole GiB each.
    pub nodes: u8,
    /// When anonymous memory gets transparent huge pages.
    pub thp: ThpSetting,
    /// Level of the leaf entries of anonymous memory, where a whole page of that size fits: 1, or, as from
    /// hugetlbfs, 2 (2 MiB) or 3 (1 GiB).
    pub page_level: u8,
    /// Whether page tables below the root lie in an uncached region, so that every walk shows.
    pub ptat: bool,
    /// Cycles a second of the card's clock.
    pub clock_hz: u64,
    /// Cycles a second of a core.
    pub core_hz: u64,
    /// The traced command.
    pub command: Vec<String>,
    /// What all files of the capture carry.
    pub capture: String,
}

impl SystemOptions {
    /// 64 GiB in one node, small pages unless the program asks for others, cached tables, a card of 400 MHz and cores of 2 GHz.
    pub fn new(machine: MachineDescription) -> Self {
        Self {
            machine,
            memory_bytes: 64 << 30,
            real_bytes: 0,
            nodes: 1,
            thp: ThpSetting::default(),
            page_level: 1,
            ptat: false,
            clock_hz: 400_000_000,
            core_hz: 2_000_000_000,
            command: Vec::new(),
            capture: String::new(),
        }
    }

    /// Real and modelled memory.
    pub(crate) fn all_bytes(&self) -> u64 {
        self.real_bytes + self.memory_bytes
    }

    /// Where memory ends that is handed out: the regions at its end are not.
    pub(crate) fn usable_bytes(&self) -> u64 {
        self.all_bytes().saturating_sub(TAG_BYTES + PTAT_BYTES)
    }

    pub(crate) fn ptat_region(&self) -> Range<u64> {
        self.usable_bytes()..self.usable_bytes() + PTAT_BYTES
    }

    /// The modelled frames of each memory node.
    pub(crate) fn node_frames(&self) -> Vec<Range<u64>> {
        let (first, end) = (self.real_bytes >> 12, self.all_bytes() >> 12);
        let nodes = u64::from(self.nodes.max(1));
        let each = ((end - first) / nodes) & !(FRAMES_PER_GIB - 1);
        let start = |node: u64| first + node * each;
        // What is left over belongs to the last one.
        (0..nodes).map(|node| start(node)..if node + 1 < nodes { start(node + 1) } else { end }).collect()
    }

    /// The header of the capture's bus records.
    pub(crate) fn header(&self) -> Header {
        let line_bytes = self.machine.line_bytes;
        let lines = TAG_BYTES / u64::from(line_bytes);
        let tags = TagRegion {
            start: self.usable_bytes() + PTAT_BYTES,
            bytes: TAG_BYTES,
            sequence_bits: lines.ilog2() as u8 - 1,
        };
        Header {
            capture: self.capture.clone(),
            clock_hz: self.clock_hz,
            line_bytes,
            memory_bytes: self.all_bytes(),
            real_bytes: self.real_bytes,
            tags: Some(tags),
            ptat: self.ptat.then_some((self.usable_bytes(), PTAT_BYTES)),
            nodes: match self.nodes {
                0 | 1 => Vec::new(),
                _ => self
                    .node_frames()
                    .iter()
                    .map(|node| (node.start << 12, (node.end - node.start) << 12))
                    .collect(),
            },
            dump: true,
            command: self.command.clone(),
            machine: self.machine.name.clone(),
            ..Header::new(Stream::Bus, Packing::Blocks)
        }
    }
}
