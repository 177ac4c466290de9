//! The files of a trace: bus records, page-table records, object events, and the virtual card's truth.

mod blocks;
mod bus;
mod bus_block;
mod bus_columns;
mod bus_text;
mod error;
mod fixed;
mod folder;
mod header;
mod merge;
mod objects;
mod pages;
mod raw_block;
mod truth;

pub use blocks::{BlockReader, BlockWriter, Damage};
pub use bus::{BusPosition, BusReader, BusWriter};
pub use bus_block::{BusBlock, Gap};
pub use error::FormatError;
pub use fixed::FixedLayout;
pub use folder::{TraceFolder, TraceSource};
pub use header::{Endian, Header, Packing, Stream, TagRegion};
pub use merge::{MergedBus, MergedPosition, PackedBus, Sequencer};
pub use objects::{ObjectEvent, ObjectPosition, ObjectReader, ObjectWriter};
pub use pages::{FrameUse, HugeKind, PageEvent, PagePosition, PageReader, PageRecord, PageWriter};
pub use truth::{TruthKind, TruthReader, TruthRecord, TruthWriter};
