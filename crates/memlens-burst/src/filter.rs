//! Whether operands that seldom miss are left out of the record: which those are, the architecture's `filter.rs` says.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::runtime::code_has_changed;

static IS_WANTED: AtomicBool = AtomicBool::new(false);

/// Whether bursts that begin from now on leave out what is relative to the stack's registers alone, or at a fixed address.
/// Blocks tell of it: [`memlens_events::burst::Source::LeftOut`]. Off at first.
pub fn filter_operations(is_wanted: bool) {
    if IS_WANTED.swap(is_wanted, Ordering::Relaxed) != is_wanted {
        code_has_changed();
    }
}

/// Whether that is asked for.
pub fn is_filter_wanted() -> bool {
    IS_WANTED.load(Ordering::Relaxed)
}
