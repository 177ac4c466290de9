//! Block ids: one for each distinct piece of code, stable when DynamoRIO builds the block again.

use crate::channel::CHANNEL;
use core::sync::atomic::{AtomicPtr, Ordering};
use dynamorio_sys::{dr_mutex_create, dr_mutex_lock, dr_mutex_unlock};
use memlens_events::{BLOCK_ID_LIMIT, BlockDefinition, Definition};
use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::ops::Range;

/// The table of blocks seen so far.
pub struct Blocks {
    lock: AtomicPtr<core::ffi::c_void>,
    inner: UnsafeCell<Inner>,
}

struct Inner {
    next_id: u32,
    by_pc: BTreeMap<u64, Vec<(u64, u32)>>,
    /// Where each block begins, from number 1 on.
    pcs: Vec<u64>,
}

// SAFETY: `inner` is only reached under `lock`.
unsafe impl Sync for Blocks {}

/// The one table.
pub static BLOCKS: Blocks = Blocks {
    lock: AtomicPtr::new(core::ptr::null_mut()),
    inner: UnsafeCell::new(Inner { next_id: 1, by_pc: BTreeMap::new(), pcs: Vec::new() }),
};

impl Blocks {
    /// Prepares the lock. Call once, first.
    pub fn initialise(&self) {
        // SAFETY: DynamoRIO is initialised.
        self.lock.store(unsafe { dr_mutex_create() }, Ordering::Relaxed);
    }

    /// The id of a block, which is defined to memlens if it is new. `None` when ids ran out.
    pub fn id_of(&self, mut block: BlockDefinition) -> Option<u32> {
        let fingerprint = fingerprint(&block);
        let lock = self.lock.load(Ordering::Relaxed);
        // SAFETY: created in `initialise`; `inner` is only touched while the lock is held.
        let (id, is_new) = unsafe {
            dr_mutex_lock(lock);
            let inner = &mut *self.inner.get();
            let known = inner.by_pc.entry(block.pc).or_default();
            let found = match known.iter().find(|(seen, _)| *seen == fingerprint) {
                Some(&(_, id)) => (Some(id), false),
                None if inner.next_id < BLOCK_ID_LIMIT => {
                    let id = inner.next_id;
                    inner.next_id += 1;
                    known.push((fingerprint, id));
                    inner.pcs.push(block.pc);
                    (Some(id), true)
                }
                None => (None, false),
            };
            dr_mutex_unlock(lock);
            found
        };
        if is_new && let Some(id) = id {
            block.id = id;
            CHANNEL.define(&Definition::Block(block));
        }
        id
    }
}

impl Blocks {
    /// The code at these addresses is gone: what comes there is other code, even where it looks alike.
    pub fn forget(&self, addresses: Range<u64>) {
        let lock = self.lock.load(Ordering::Relaxed);
        // SAFETY: as in [`Self::id_of`].
        unsafe {
            dr_mutex_lock(lock);
            let by_pc = &mut (*self.inner.get()).by_pc;
            let end = addresses.end.max(addresses.start);
            let pcs: Vec<u64> = by_pc.range(addresses.start..end).map(|(&pc, _)| pc).collect();
            for pc in pcs {
                by_pc.remove(&pc);
            }
            dr_mutex_unlock(lock);
        }
    }

    /// Where a block begins.
    pub fn pc_of(&self, id: u32) -> Option<u64> {
        let lock = self.lock.load(Ordering::Relaxed);
        // SAFETY: as in [`Self::id_of`].
        unsafe {
            dr_mutex_lock(lock);
            let pcs = &(*self.inner.get()).pcs;
            let pc = (id as usize).checked_sub(1).and_then(|at| pcs.get(at)).copied();
            dr_mutex_unlock(lock);
            pc
        }
    }
}

/// FNV-1a over everything but the id.
fn fingerprint(block: &BlockDefinition) -> u64 {
    let mut bytes = Vec::with_capacity(64 + block.words.len() * 8);
    Definition::Block(BlockDefinition { id: 0, ..block.clone() }).encode(&mut bytes);
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
