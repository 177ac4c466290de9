//! What the modelled system is like.

use crate::format::{Header, Packing, Stream, TagRegion};
use memlens_sim::MachineDescription;

/// Bytes of the region whose accesses are tags, as in the paper.
const TAG_BYTES: u64 = 32 << 20;
/// Bytes of the uncached region of page tables, as in PTAT.
const PTAT_BYTES: u64 = 256 << 20;

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
    /// Whether anonymous memory gets transparent huge pages (`always`).
    pub thp: bool,
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
    /// 64 GiB, small pages, cached tables, a card of 400 MHz and cores of 2 GHz.
    pub fn new(machine: MachineDescription) -> Self {
        Self {
            machine,
            memory_bytes: 64 << 30,
            real_bytes: 0,
            thp: false,
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

    pub(crate) fn ptat_region(&self) -> std::ops::Range<u64> {
        self.usable_bytes()..self.usable_bytes() + PTAT_BYTES
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
            dump: true,
            command: self.command.clone(),
            machine: self.machine.name.clone(),
            ..Header::new(Stream::Bus, Packing::Blocks)
        }
    }
}
