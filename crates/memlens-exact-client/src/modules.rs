//! Modules of the target and the special addresses in them.

use crate::blocks::BLOCKS;
use crate::channel::CHANNEL;
use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, Ordering};
use dynamorio_sys::{dr_rwlock_create, dr_rwlock_read_lock, dr_rwlock_read_unlock, module_data_t};
use dynamorio_sys::{dr_rwlock_write_lock, dr_rwlock_write_unlock};
use memlens_events::{Definition, ModuleDefinition, SpecialRole};
use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::atomic::AtomicPtr;

static NEXT_ID: AtomicU32 = AtomicU32::new(1);

/// How much code after the target of a jump out of an allocation function may hold its return: more
/// than glibc's functions that are reached so have (`_mid_memalign`, `memset`).
pub const CONTINUATION_BYTES: u64 = 1024;

/// More jumps out of allocation functions than this are not followed.
const MAX_CONTINUATIONS: usize = 256;

/// Addresses that need more than the recording of accesses.
pub struct Specials {
    lock: AtomicPtr<core::ffi::c_void>,
    inner: UnsafeCell<Inner>,
}

struct Inner {
    entries: Vec<(u64, AllocEntry)>,
    returns: Vec<(u64, u64)>,
    value_returns: Vec<(u64, u64)>,
    pointer_returns: Vec<(u64, u64)>,
    /// Where allocation functions end by a jump.
    continuations: Vec<u64>,
    /// Where modules are, and their ids.
    modules: Vec<(Range<u64>, u32)>,
}

/// The beginning of an allocation function.
#[derive(Clone, Copy)]
pub struct AllocEntry {
    /// memlens's number for it.
    pub function: u16,
    /// Whether it stores the block's address where its first argument points.
    pub through_pointer: bool,
}

// SAFETY: `inner` is only reached under `lock`.
unsafe impl Sync for Specials {}

/// The one table.
pub static SPECIALS: Specials = Specials {
    lock: AtomicPtr::new(core::ptr::null_mut()),
    inner: UnsafeCell::new(Inner {
        entries: Vec::new(),
        returns: Vec::new(),
        value_returns: Vec::new(),
        pointer_returns: Vec::new(),
        continuations: Vec::new(),
        modules: Vec::new(),
    }),
};

impl Specials {
    /// Prepares the lock. Call once, first.
    pub fn initialise(&self) {
        // SAFETY: DynamoRIO is initialised.
        self.lock.store(unsafe { dr_rwlock_create() }, Ordering::Relaxed);
    }

    fn read<R>(&self, look: impl FnOnce(&Inner) -> R) -> R {
        let lock = self.lock.load(Ordering::Relaxed);
        // SAFETY: the lock was created in `initialise`; under it nobody writes.
        unsafe {
            dr_rwlock_read_lock(lock);
            let result = look(&*self.inner.get());
            dr_rwlock_read_unlock(lock);
            result
        }
    }

    fn write<R>(&self, change: impl FnOnce(&mut Inner) -> R) -> R {
        let lock = self.lock.load(Ordering::Relaxed);
        // SAFETY: as above; the write lock excludes everybody else.
        unsafe {
            dr_rwlock_write_lock(lock);
            let result = change(&mut *self.inner.get());
            dr_rwlock_write_unlock(lock);
            result
        }
    }

    /// The allocation function that begins at `pc`.
    pub fn alloc_entry(&self, pc: u64) -> Option<AllocEntry> {
        self.read(|inner| {
            let at = inner.entries.binary_search_by_key(&pc, |entry| entry.0).ok()?;
            Some(inner.entries[at].1)
        })
    }

    /// Whether a return at `pc` may be that of an allocation function.
    pub fn is_alloc_return(&self, pc: u64) -> bool {
        self.read(|inner| inner.returns.iter().any(|&(start, end)| (start..end).contains(&pc)))
    }

    /// Whether an allocation function may end in the return at `pc`, without being around it.
    pub fn is_value_return(&self, pc: u64) -> bool {
        self.read(|inner| inner.value_returns.iter().any(|&(start, end)| (start..end).contains(&pc)))
    }

    /// Whether a return at `pc` leaves a function that stores a block's address through a pointer.
    pub fn is_pointer_return(&self, pc: u64) -> bool {
        self.read(|inner| inner.pointer_returns.iter().any(|&(start, end)| (start..end).contains(&pc)))
    }

    /// Notes that the code at `pc`, in the block that begins at `block`, jumps to `target`. True when
    /// that leaves an allocation function for code not known so far: its result comes back by a
    /// return there (glibc: `aligned_alloc` continues in `_mid_memalign`, `calloc` in `memset` through
    /// its linkage table).
    pub fn follow_jump(&self, block: u64, pc: u64, target: u64) -> bool {
        let contains = |ranges: &[(u64, u64)], pc| ranges.iter().any(|&(s, e)| (s..e).contains(&pc));
        let is_new = |inner: &Inner| {
            let is_first = inner.continuations.contains(&block);
            let is_neighbour = inner.continuations.iter().any(|&s| (s..s + CONTINUATION_BYTES).contains(&pc));
            contains(&inner.returns, pc)
                && !contains(&inner.returns, target)
                // Of what lies behind a jump's target, only the first block belongs to it for certain.
                && (is_first || !is_neighbour)
                && inner.continuations.len() < MAX_CONTINUATIONS
        };
        if !self.read(is_new) {
            return false;
        }
        self.write(|inner| {
            let is_pointer = contains(&inner.pointer_returns, pc);
            inner.continuations.push(target);
            inner.returns.push((target, target + CONTINUATION_BYTES));
            if is_pointer {
                inner.pointer_returns.push((target, target + CONTINUATION_BYTES));
            }
        });
        true
    }

    /// The id of the module that the code at `pc` lies in; 0: in none.
    pub fn module_at(&self, pc: u64) -> u32 {
        self.read(|inner| {
            let found = inner.modules.iter().rev().find(|(addresses, _)| addresses.contains(&pc));
            found.map_or(0, |&(_, id)| id)
        })
    }

    /// A module was mapped: tells memlens and remembers what it answers. Returns the module's id, unless it was told before.
    pub fn module_loaded(&self, data: &module_data_t) -> Option<u32> {
        // SAFETY: the union's variants are the same pointer.
        let start = unsafe { data.__bindgen_anon_1.start as u64 };
        if self.read(|inner| inner.modules.iter().any(|module| module.0.start == start)) {
            return None;
        }
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the union's variants are the same pointer; DynamoRIO's strings are zero-ended or
        // null.
        let (start, path) = unsafe {
            let path = if data.full_path.is_null() { c"" } else { CStr::from_ptr(data.full_path) };
            (data.__bindgen_anon_1.start as u64, path.to_string_lossy().into_owned())
        };
        let definition = Definition::Module(ModuleDefinition {
            id,
            start,
            end: data.end as u64,
            load_bias: start.wrapping_sub(data.preferred_base as u64),
            path,
        });
        let answers = CHANNEL.define_module(&definition, id);
        self.write(|inner| {
            inner.modules.push((start..data.end as u64, id));
            for (role, start, end) in answers {
                match SpecialRole::from_code(role) {
                    Some(SpecialRole::AllocEntry(function)) => {
                        inner.entries.push((start, AllocEntry { function, through_pointer: false }));
                    }
                    Some(SpecialRole::PointerAllocEntry(function)) => {
                        inner.entries.push((start, AllocEntry { function, through_pointer: true }));
                    }
                    Some(SpecialRole::AllocReturns) => inner.returns.push((start, end)),
                    Some(SpecialRole::PointerAllocReturns) => inner.pointer_returns.push((start, end)),
                    Some(SpecialRole::ValueReturns) => inner.value_returns.push((start, end)),
                    None => {}
                }
            }
            inner.entries.sort_unstable_by_key(|entry| entry.0);
            inner.entries.dedup_by_key(|entry| entry.0);
        });
        Some(id)
    }

    /// Memory is about to be unmapped. Returns the id of the module that it is, if it is one: DynamoRIO tells only of
    /// those of which code ran.
    pub fn unmapped(&self, memory: Range<u64>) -> Option<u32> {
        let is_it = |module: &(Range<u64>, u32)| module.0.start == memory.start && module.0.end <= memory.end;
        let module = self.read(|inner| inner.modules.iter().find(|module| is_it(module)).cloned())?;
        self.forget(module.0)
    }

    /// A module is about to be unmapped: forgets its addresses. Returns its id.
    pub fn module_unloaded(&self, data: &module_data_t) -> Option<u32> {
        // SAFETY: the union's variants are the same pointer.
        self.forget(unsafe { data.__bindgen_anon_1.start as u64..data.end as u64 })
    }

    fn forget(&self, Range { start, end }: Range<u64>) -> Option<u32> {
        BLOCKS.forget(start..end);
        self.write(|inner| {
            inner.entries.retain(|entry| !(start..end).contains(&entry.0));
            inner.returns.retain(|range| !(start..end).contains(&range.0));
            inner.value_returns.retain(|range| !(start..end).contains(&range.0));
            inner.pointer_returns.retain(|range| !(start..end).contains(&range.0));
            inner.continuations.retain(|target| !(start..end).contains(target));
            let at = inner.modules.iter().position(|module| module.0.start == start)?;
            Some(inner.modules.swap_remove(at).1)
        })
    }
}
