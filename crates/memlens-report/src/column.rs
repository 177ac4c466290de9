//! The columns of tables and CSV files, by the words that `--sort` takes.

use std::str::FromStr;

use crate::UnknownWord;
use crate::row::Row;

/// A column. Words are those of the JSON report; `-` stands for `_` as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant is the word of the same name, explained in `Column::meaning`")]
#[non_exhaustive]
pub enum Column {
    Share,
    ShareLow,
    ShareHigh,
    StallLow,
    StallHigh,
    Samples,
    WaitCycles,
    StallCycles,
    StallShare,
    Id,
    Name,
    Kind,
    Type,
    Blocks,
    Offset,
    Bytes,
    MaxLiveBytes,
    Accesses,
    Loads,
    Stores,
    Modifies,
    LoadBytes,
    StoreBytes,
    L1Misses,
    L1LoadMisses,
    L1StoreMisses,
    L1MissRatio,
    L2Misses,
    L2LoadMisses,
    L2StoreMisses,
    LlcMisses,
    LlcLoadMisses,
    LlcStoreMisses,
    LlcMissRatio,
    L2Prefetched,
    LlcPrefetched,
    LlcPrefetchedRatio,
    DtlbMisses,
    StlbMisses,
    PageWalkAccesses,
    DramReads,
    DramWrites,
    Invalidations,
    CoherenceMisses,
    FalseSharing,
    FalseSharingRatio,
    RemoteMisses,
    RemoteRatio,
    FirstTouches,
    Fetches,
    L1iMisses,
    L2iMisses,
    LlciMisses,
    Pattern,
    Objects,
    Where,
    HugeShare,
    When,
    LiveAtPeakBytes,
    LiveAtEndBytes,
}

/// What a row holds in a column; `None` is unknown.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content<'a> {
    Text(Option<&'a str>),
    Count(Option<u64>),
    Bytes(Option<u64>),
    Ratio(Option<f64>),
}

impl Content<'_> {
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Self::Text(None) | Self::Count(None) | Self::Bytes(None) | Self::Ratio(None))
    }
}

impl Column {
    /// All columns, in the order of the CSV file.
    pub const ALL: [Self; 60] = [
        Self::Share,
        Self::WaitCycles,
        Self::Id,
        Self::Name,
        Self::Kind,
        Self::Type,
        Self::Blocks,
        Self::Bytes,
        Self::MaxLiveBytes,
        Self::Accesses,
        Self::Loads,
        Self::Stores,
        Self::Modifies,
        Self::LoadBytes,
        Self::StoreBytes,
        Self::L1Misses,
        Self::L1LoadMisses,
        Self::L1StoreMisses,
        Self::L1MissRatio,
        Self::L2Misses,
        Self::L2LoadMisses,
        Self::L2StoreMisses,
        Self::LlcMisses,
        Self::LlcLoadMisses,
        Self::LlcStoreMisses,
        Self::LlcMissRatio,
        Self::DtlbMisses,
        Self::StlbMisses,
        Self::PageWalkAccesses,
        Self::DramReads,
        Self::DramWrites,
        Self::Invalidations,
        Self::Pattern,
        Self::Objects,
        Self::Where,
        Self::ShareLow,
        Self::ShareHigh,
        Self::Samples,
        Self::StallCycles,
        Self::HugeShare,
        Self::Offset,
        Self::L2Prefetched,
        Self::LlcPrefetched,
        Self::LlcPrefetchedRatio,
        Self::Fetches,
        Self::L1iMisses,
        Self::L2iMisses,
        Self::LlciMisses,
        Self::CoherenceMisses,
        Self::FalseSharing,
        Self::FalseSharingRatio,
        Self::StallShare,
        Self::StallLow,
        Self::StallHigh,
        Self::When,
        Self::LiveAtPeakBytes,
        Self::LiveAtEndBytes,
        Self::RemoteMisses,
        Self::RemoteRatio,
        Self::FirstTouches,
    ];

    /// Whether it is a number by which things are found, and not how much there is of something.
    pub(crate) fn is_place(self) -> bool {
        matches!(self, Self::Id | Self::Offset)
    }

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        self.describe().0
    }

    /// What it holds, for help texts.
    pub fn meaning(self) -> &'static str {
        self.describe().1
    }

    fn describe(self) -> (&'static str, &'static str) {
        match self {
            Self::Share => (
                "share",
                "part of the whole program's wait cycles (samples: of its time; bus: of the lines read), 0 to 1",
            ),
            Self::ShareLow => {
                ("share_low", "lower end of the share's 95 % interval; samples and bursts only")
            }
            Self::ShareHigh => {
                ("share_high", "upper end of the share's 95 % interval; samples and bursts only")
            }
            Self::Samples => ("samples", "samples that hit it"),
            Self::WaitCycles => {
                ("wait_cycles", "accesses weighted by the latency of the level that serves them")
            }
            Self::StallCycles => (
                "stall_cycles",
                "the part of the wait that nothing hides: cycles in which the modelled core could retire nothing because of it",
            ),
            Self::StallShare => ("stall_share", "part of the whole program's stall cycles, 0 to 1"),
            Self::StallLow => ("stall_low", "lower end of the stall share's 95 % interval; bursts only"),
            Self::StallHigh => ("stall_high", "upper end of the stall share's 95 % interval; bursts only"),
            Self::Id => ("id", "the object's number; of several in a row the costliest's"),
            Self::Name => ("name", "name of the object, function, line …"),
            Self::Kind => ("kind", "kind of object, or of access"),
            Self::Type => ("type", "type as the source spells it"),
            Self::Blocks => ("blocks", "allocations merged into the object"),
            Self::Offset => ("offset", "bytes from the structure's, else the block's beginning to the field"),
            Self::Bytes => {
                ("bytes", "bytes requested over the whole run; of blocks that grew, what they grew by")
            }
            Self::MaxLiveBytes => ("max_live_bytes", "most bytes live at one time"),
            Self::LiveAtPeakBytes => {
                ("live_at_peak_bytes", "bytes live when most of the whole heap was; of the heap only")
            }
            Self::LiveAtEndBytes => ("live_at_end_bytes", "bytes live at the end: never freed"),
            Self::Accesses => ("accesses", "loads and stores; a modify is one access"),
            Self::Loads => ("loads", "loads, modifies included"),
            Self::Stores => ("stores", "stores, modifies included"),
            Self::Modifies => ("modifies", "accesses that read, then write the same bytes"),
            Self::LoadBytes => ("load_bytes", "bytes read"),
            Self::StoreBytes => ("store_bytes", "bytes written"),
            Self::L1Misses => ("l1_misses", "first-level data cache misses"),
            Self::L1LoadMisses => ("l1_load_misses", "those of loads"),
            Self::L1StoreMisses => ("l1_store_misses", "those of stores"),
            Self::L1MissRatio => ("l1_miss_ratio", "first-level misses per access"),
            Self::L2Misses => ("l2_misses", "second-level misses"),
            Self::L2LoadMisses => ("l2_load_misses", "those of loads"),
            Self::L2StoreMisses => ("l2_store_misses", "those of stores"),
            Self::LlcMisses => ("llc_misses", "last-level cache misses"),
            Self::LlcLoadMisses => ("llc_load_misses", "those of loads"),
            Self::LlcStoreMisses => ("llc_store_misses", "those of stores"),
            Self::LlcMissRatio => ("llc_miss_ratio", "last-level misses per access"),
            Self::L2Prefetched => (
                "l2_prefetched",
                "second-level misses that a hardware prefetcher covers: nobody waits for them",
            ),
            Self::LlcPrefetched => ("llc_prefetched", "last-level misses that it covers"),
            Self::LlcPrefetchedRatio => {
                ("llc_prefetched_ratio", "part of the last-level misses that it covers")
            }
            Self::DtlbMisses => ("dtlb_misses", "first-level data TLB misses"),
            Self::StlbMisses => ("stlb_misses", "second-level TLB misses: page walks"),
            Self::PageWalkAccesses => ("page_walk_accesses", "page-table entries read by walks"),
            Self::DramReads => ("dram_reads", "lines read from memory"),
            Self::DramWrites => ("dram_writes", "lines written back to memory"),
            Self::Invalidations => ("invalidations", "lines lost to another core's write"),
            Self::CoherenceMisses => {
                ("coherence_misses", "misses that another core's modified copy of the line serves")
            }
            Self::FalseSharing => {
                ("false_sharing", "those whose bytes the other cores did not write, only bytes beside them")
            }
            Self::FalseSharingRatio => ("false_sharing_ratio", "part of the coherence misses that these are"),
            Self::RemoteMisses => {
                ("remote_misses", "last-level misses whose line lies in another node's memory (NUMA)")
            }
            Self::RemoteRatio => ("remote_ratio", "part of the last-level misses that these are"),
            Self::FirstTouches => (
                "first_touches",
                "pages that nobody had touched before: they come from the node of the thread that does",
            ),
            Self::Fetches => ("fetches", "instructions fetched; with --fetches only"),
            Self::L1iMisses => ("l1i_misses", "first-level instruction cache misses; with --fetches only"),
            Self::L2iMisses => ("l2i_misses", "second-level misses of instruction fetches"),
            Self::LlciMisses => ("llci_misses", "last-level misses of instruction fetches"),
            Self::Pattern => (
                "pattern",
                "how addresses follow one another where it waits: stream, stride, indirect, pointer-chase, irregular …",
            ),
            Self::Objects => ("objects", "the objects that the code touches, by cost"),
            Self::HugeShare => {
                ("huge_share", "part of its memory that lay in huge pages when most of it was there, 0 to 1")
            }
            Self::When => ("when", "its cost over the run's time, against its own most"),
            Self::Where => ("where", "where it was allocated or declared, or where the code is"),
        }
    }

    /// Whether it has words, no figures.
    pub(crate) fn is_text(self) -> bool {
        matches!(
            self,
            Self::Name | Self::Kind | Self::Type | Self::Pattern | Self::Objects | Self::Where | Self::When
        )
    }

    /// Whether it is a part of something, 0 to 1 (ratios of misses may be more).
    pub(crate) fn is_ratio(self) -> bool {
        matches!(
            self,
            Self::Share
                | Self::ShareLow
                | Self::ShareHigh
                | Self::StallShare
                | Self::StallLow
                | Self::StallHigh
                | Self::L1MissRatio
                | Self::LlcMissRatio
                | Self::LlcPrefetchedRatio
                | Self::FalseSharingRatio
                | Self::RemoteRatio
                | Self::HugeShare
        )
    }

    /// Whether it counts bytes.
    pub(crate) fn is_bytes(self) -> bool {
        let is_live = matches!(self, Self::MaxLiveBytes | Self::LiveAtPeakBytes | Self::LiveAtEndBytes);
        is_live || matches!(self, Self::Bytes | Self::LoadBytes | Self::StoreBytes)
    }

    /// Whether it says how much there is of something. Ends of intervals do not.
    pub(crate) fn is_amount(self) -> bool {
        let is_end = matches!(self, Self::ShareLow | Self::ShareHigh | Self::StallLow | Self::StallHigh);
        !is_end && !self.is_text() && !self.is_place()
    }

    /// Whether the program decides it alone: the same on each machine, and counted in each mode that has it.
    pub(crate) fn is_of_program(self) -> bool {
        let is_live = matches!(self, Self::MaxLiveBytes | Self::LiveAtPeakBytes | Self::LiveAtEndBytes);
        is_live || matches!(self, Self::Blocks | Self::Bytes)
    }

    /// Whether two profiles can have more and less of it: [`Column::Share`] stands for the cost.
    pub fn adds_up(self) -> bool {
        self == Self::Share || (self.is_amount() && !self.is_ratio())
    }

    /// The word in running text: `LLC misses`.
    pub(crate) fn in_words(self) -> String {
        let word = |word: &str| match word {
            "l1" | "l2" | "llc" | "l1i" | "l2i" | "llci" | "dtlb" | "stlb" | "dram" => word.to_uppercase(),
            word => word.to_owned(),
        };
        self.as_str().split('_').map(word).collect::<Vec<_>>().join(" ")
    }

    /// Whether it counts accesses or their bytes: what each mode that sees accesses counts, whatever the machine.
    pub(crate) fn is_of_accesses(self) -> bool {
        matches!(
            self,
            Self::Accesses | Self::Loads | Self::Stores | Self::Modifies | Self::LoadBytes | Self::StoreBytes
        )
    }

    pub(crate) fn content(self, row: &Row) -> Content<'_> {
        let known = &row.known;
        let ratio = |misses: Option<u64>| {
            let accesses = known.accesses().filter(|&accesses| accesses > 0)?;
            misses.map(|misses| misses as f64 / accesses as f64)
        };
        match self {
            Self::Share => Content::Ratio(row.share),
            Self::ShareLow => Content::Ratio(row.share_interval().map(|(low, _)| low)),
            Self::ShareHigh => Content::Ratio(row.share_interval().map(|(_, high)| high)),
            Self::Samples => Content::Count(known.samples),
            Self::WaitCycles => Content::Count(row.waits.then_some(row.cost)),
            Self::StallCycles => Content::Count(row.stall),
            Self::StallShare => Content::Ratio(row.stall_share),
            Self::StallLow => Content::Ratio(row.stall_interval().map(|(low, _)| low)),
            Self::StallHigh => Content::Ratio(row.stall_interval().map(|(_, high)| high)),
            Self::Id => Content::Count(row.ids.first().copied().map(u64::from)),
            Self::Name => Content::Text(Some(&row.name)),
            Self::Kind => Content::Text(row.kind.as_deref()),
            Self::Type => Content::Text(row.type_name.as_deref()),
            Self::Blocks => Content::Count(row.blocks),
            Self::Offset => Content::Count(row.offset),
            Self::Bytes => Content::Bytes(row.bytes),
            Self::MaxLiveBytes => Content::Bytes(row.max_live_bytes),
            Self::LiveAtPeakBytes => Content::Bytes(row.live_at_peak_bytes),
            Self::LiveAtEndBytes => Content::Bytes(row.live_at_end_bytes),
            Self::Accesses => Content::Count(known.accesses()),
            Self::Loads => Content::Count(known.loads),
            Self::Stores => Content::Count(known.stores),
            Self::Modifies => Content::Count(known.modifies),
            Self::LoadBytes => Content::Bytes(known.load_bytes),
            Self::StoreBytes => Content::Bytes(known.store_bytes),
            Self::L1Misses => Content::Count(known.l1_misses()),
            Self::L1LoadMisses => Content::Count(known.l1_load_misses),
            Self::L1StoreMisses => Content::Count(known.l1_store_misses),
            Self::L1MissRatio => Content::Ratio(ratio(known.l1_misses())),
            Self::L2Misses => Content::Count(known.l2_misses()),
            Self::L2LoadMisses => Content::Count(known.l2_load_misses),
            Self::L2StoreMisses => Content::Count(known.l2_store_misses),
            Self::LlcMisses => Content::Count(known.llc_misses()),
            Self::LlcLoadMisses => Content::Count(known.llc_load_misses),
            Self::LlcStoreMisses => Content::Count(known.llc_store_misses),
            Self::LlcMissRatio => Content::Ratio(ratio(known.llc_misses())),
            Self::L2Prefetched => Content::Count(known.l2_prefetched),
            Self::LlcPrefetched => Content::Count(known.llc_prefetched),
            Self::LlcPrefetchedRatio => Content::Ratio(known.llc_prefetched_ratio()),
            Self::DtlbMisses => Content::Count(known.dtlb_misses),
            Self::StlbMisses => Content::Count(known.stlb_misses),
            Self::PageWalkAccesses => Content::Count(known.page_walk_accesses),
            Self::DramReads => Content::Count(known.dram_reads),
            Self::DramWrites => Content::Count(known.dram_writes),
            Self::Invalidations => Content::Count(known.invalidations),
            Self::CoherenceMisses => Content::Count(known.coherence_misses),
            Self::FalseSharing => Content::Count(known.false_sharing),
            Self::FalseSharingRatio => Content::Ratio(known.false_sharing_ratio()),
            Self::RemoteMisses => Content::Count(known.remote_misses),
            Self::RemoteRatio => Content::Ratio(known.remote_ratio()),
            Self::FirstTouches => Content::Count(known.first_touches),
            Self::Fetches => Content::Count(known.fetches),
            Self::L1iMisses => Content::Count(known.l1i_misses),
            Self::L2iMisses => Content::Count(known.l2i_misses),
            Self::LlciMisses => Content::Count(known.llci_misses),
            Self::Pattern => Content::Text(row.pattern.as_deref()),
            Self::Objects => Content::Text(row.objects.as_deref()),
            Self::When => Content::Text(row.when.as_deref()),
            Self::Where => Content::Text(row.place.as_deref()),
            Self::HugeShare => Content::Ratio(row.huge_share),
        }
    }
}

/// What people call some of them.
const CALLED: [(&str, Column); 10] = [
    ("wait", Column::Share),
    ("cost", Column::Share),
    ("stall", Column::StallCycles),
    ("object", Column::Name),
    ("function", Column::Name),
    ("line", Column::Name),
    ("tlb_misses", Column::DtlbMisses),
    ("walks", Column::StlbMisses),
    ("page_walks", Column::StlbMisses),
    ("site", Column::Where),
];

impl FromStr for Column {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        let wanted = word.to_lowercase().replace('-', "_");
        let called = CALLED.iter().copied();
        let words = called.chain(Self::ALL.into_iter().map(|column| (column.as_str(), column)));
        let found = words.clone().find(|&(known, _)| known == wanted);
        let unknown = || UnknownWord::new("column", &wanted, words.clone().map(|(known, _)| known), true);
        found.map(|(_, column)| column).ok_or_else(unknown)
    }
}
