//! How the kernel backs the memory of a running process: in pages of which size, in which physical frames.
//!
//! ```text
//! /proc/PID/pagemap ── PAGEMAP_SCAN ──► scan.rs ──► backing.rs: 4 KiB, transparent huge, hugetlb, swapped out
//!        │  words                          │          ▲
//!        ▼                                 ▼          │ where the map cannot be scanned; what is hugetlb
//!    frames.rs: the frame of a page ◄── is it huge?   smaps
//!    page_sizes.rs: only that ◄───────────┘
//!    touched.rs: how much of a range was
//!
//! move_pages(2) ──► page_nodes.rs: in which memory nodes pages lie
//! /sys/devices/system/node ──► nodes.rs: which there are, and whose processors are which
//! ```
//!
//! It knows the kernel's page maps. It deliberately knows nothing of objects, profiles or models, and it never stops
//! or changes the process: what it says was true when the kernel was asked. Addresses and sizes are in bytes, frames
//! and pages are of [`PAGE_BYTES`].
//!
//! | what | needs |
//! |---|---|
//! | page sizes, exactly | `PAGEMAP_SCAN` (Linux 6.7), and the right to trace the process (ptrace(2)) |
//! | page sizes of whole mappings, in proportion | `/proc/PID/smaps` |
//! | what was touched | the right to trace the process |
//! | memory nodes of pages | the right to trace the process, and move_pages(2), which filters of containers may forbid |
//! | frames | besides, `CAP_SYS_ADMIN`: without it the kernel says 0 (proc_pid_pagemap(5)) |
//!
//! # Unsafe code
//!
//! The one `ioctl`, and the one call of move_pages(2). What the crate offers is safe.

mod backing;
mod frames;
mod nodes;
mod page_nodes;
mod page_sizes;
mod scan;
mod touched;

pub use backing::{Backing, BackingReader, process_anonymous};
pub use frames::{Frame, FrameError, FrameReader, memory_bytes};
pub use nodes::MemoryNodes;
pub use page_nodes::{NodeError, PageNode, page_nodes, probe as probe_page_nodes};
pub use page_sizes::PageSizeReader;
pub use touched::touched_bytes;

/// Bytes of a page and of a frame.
pub const PAGE_BYTES: u64 = 4096;
