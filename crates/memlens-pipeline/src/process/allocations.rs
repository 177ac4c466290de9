//! When a block of memory begins and ends, and at which call stack: the calls of allocation functions, paired
//! with their returns.

use super::Process;
use crate::address_space::SiteName;
use crate::stacks::Stacks;
use crate::thread::{PendingAllocation, Thread};
use memlens_objects::alloc_functions::Effect;
use memlens_objects::{Layer, SiteId, split_frame_key};

/// Allocation call stacks are recorded to this depth; deeper ones are cut and counted.
const MAX_STACK_FRAMES: usize = 256;
/// Of so many calls at most recursion is folded.
const MAX_CALLS: usize = 4096;
/// What lies further below a frame's canonical frame address is not thought to be in the frame.
const MAX_FRAME_BYTES: i64 = 1 << 20;

impl Process {
    pub(super) fn alloc_entry(&mut self, thread: &mut Thread, function: u16, arguments: [u64; 4]) {
        let Some(known) = self.functions.get(usize::from(function)) else { return };
        if known.effect == Effect::Free {
            let layer = if known.is_custom { Layer::POOL } else { Layer::HEAP };
            // `operator delete` calls `free`: the second of the two finds nothing.
            if self.space.heap.blocks().block_starting_at(arguments[0], layer).is_some() {
                self.space.freed(arguments[0], layer);
                self.check_generation(Some(thread));
            }
            return;
        }
        let Some(frame) = thread.stack.frames().last() else { return };
        let slot = frame.slot;
        // Calls left by longjmp or an exception.
        let before = thread.pending.len();
        thread.pending.retain(|pending| pending.slot >= slot);
        self.irregularities.results_unseen += (before - thread.pending.len()) as u64;
        thread.pending.push(PendingAllocation { slot, function, arguments });
    }

    /// A return with `value`, through the return address at `slot`, out of an allocation function.
    pub(super) fn alloc_return(&mut self, thread: &mut Thread, slot: u64, value: u64) {
        let Some(pending) = thread.pending.last().copied().filter(|pending| pending.slot <= slot) else {
            return;
        };
        thread.pending.pop();
        if pending.slot != slot {
            self.irregularities.results_unseen += 1;
            return;
        }
        // A function that ended in a jump to another one returned with it.
        let mut outer = pending;
        while let Some(same) = thread.pending.last().copied().filter(|other| other.slot == slot) {
            thread.pending.pop();
            outer = same;
        }
        let effect = self.functions[usize::from(pending.function)].effect;
        if let Effect::AllocateThroughPointer { .. } = effect {
            // The frame that called is gone when the address comes.
            let site = self.site(thread, pending.slot);
            // The variable that receives the address is what the first argument points to.
            let variable =
                self.space.resolve(pending.arguments[0], 0, Stacks::new(&thread.stack, &self.threads)).object;
            let frames = thread.stack.frames();
            let caller = frames.len().checked_sub(2).and_then(|index| frames.get(index));
            let cfa_offset = caller.map(|caller| pending.arguments[0].wrapping_sub(caller.slot + 8) as i64);
            let cfa_offset = cfa_offset.filter(|&offset| (-MAX_FRAME_BYTES..0).contains(&offset));
            // Of a wrapper (`operator new` with an alignment, since GCC 13) it is a variable of the library's; the wrapper returns the
            // block.
            if thread.pending.is_empty() {
                self.space.name_site(site, SiteName::Stored { variable, cfa_offset });
            }
            thread.awaiting_pointer = (value == 0).then_some((pending, site));
            return;
        }
        self.finish_allocation(thread, &pending, value);
        if outer.function != pending.function && self.functions[usize::from(outer.function)].is_custom {
            self.finish_allocation(thread, &outer, value);
        }
    }

    fn finish_allocation(&mut self, thread: &mut Thread, call: &PendingAllocation, address: u64) {
        let function = &self.functions[usize::from(call.function)];
        let argument = |position: u8| call.arguments[usize::from(position) % 4];
        let bytes = |size: u8, count: Option<u8>| argument(size).saturating_mul(count.map_or(1, &argument));
        let layer = if function.is_custom { Layer::POOL } else { Layer::HEAP };
        if address == 0 {
            return;
        }
        match function.effect {
            Effect::Free | Effect::AllocateThroughPointer { .. } => {}
            Effect::Reallocate { size, count } => {
                let (old, len) = (argument(0), bytes(size, count));
                let known = old != 0 && self.space.heap.blocks().block_starting_at(old, layer).is_some();
                let site = self.site(thread, call.slot);
                if known {
                    self.space.reallocated(old, address, len, layer, site, self.serial);
                } else {
                    self.new_block(address, len, layer, site);
                }
            }
            Effect::Allocate { size, count } => {
                let len = bytes(size, count);
                self.allocate(thread, call, address, len, layer, function.is_custom);
            }
        }
        self.check_generation(Some(thread));
    }

    /// The block of a function that stores its address through a pointer.
    pub(super) fn pointer_stored(
        &mut self,
        thread: &mut Thread,
        call: &PendingAllocation,
        site: SiteId,
        address: u64,
    ) {
        let Effect::AllocateThroughPointer { size } = self.functions[usize::from(call.function)].effect
        else {
            return;
        };
        // A wrapper's block is the one that it wraps.
        let is_wrapped = !thread.pending.is_empty()
            && self.space.heap.blocks().block_starting_at(address, Layer::HEAP).is_some();
        if address != 0 && !is_wrapped {
            self.new_block(address, call.arguments[usize::from(size) % 4], Layer::HEAP, site);
            self.check_generation(Some(thread));
        }
    }

    fn allocate(
        &mut self,
        thread: &Thread,
        call: &PendingAllocation,
        address: u64,
        len: u64,
        layer: Layer,
        is_custom: bool,
    ) {
        // A wrapper (`operator new`, the user's `xmalloc`) returns what `malloc` gave it.
        let inner = self.space.heap.blocks().block_starting_at(address, Layer::HEAP);
        if inner.is_some() && (is_custom || !thread.pending.is_empty() || self.is_wrapper(call)) {
            return;
        }
        let site = self.site(thread, call.slot);
        self.new_block(address, len, layer, site);
    }

    /// Whether a function may get its blocks from another one of the table.
    fn is_wrapper(&self, call: &PendingAllocation) -> bool {
        self.functions[usize::from(call.function)].name.starts_with("_Zn")
    }

    pub(super) fn new_block(&mut self, address: u64, len: u64, layer: Layer, site: SiteId) {
        self.space.allocated(address, len, layer, site, self.serial);
    }

    /// The site of an allocation whose call returns through `slot`: the call stack of the outermost
    /// allocation function under way.
    pub(super) fn site(&mut self, thread: &Thread, slot: u64) -> SiteId {
        let outermost = thread.pending.first().map_or(slot, |pending| pending.slot.max(slot));
        let mut keys = std::mem::take(&mut self.stack_keys);
        let is_whole = thread.stack.call_stack(outermost, &mut keys, MAX_CALLS);
        self.site_of(keys, is_whole, None)
    }

    /// The site of a region that the program says is an object, by a request behind which `key` lies: one for each name.
    pub(super) fn region_site(&mut self, thread: &Thread, key: Option<u64>, name: Option<&str>) -> SiteId {
        let slot = thread.stack.frames().last().map_or(0, |frame| frame.slot);
        let mut keys = std::mem::take(&mut self.stack_keys);
        let is_whole = thread.stack.call_stack(slot, &mut keys, MAX_CALLS);
        if let Some(key) = key {
            keys.insert(0, key);
        }
        self.site_of(keys, is_whole, name)
    }

    /// The site of these calls, innermost first.
    fn site_of(&mut self, mut keys: Vec<u64>, mut is_whole: bool, name: Option<&str>) -> SiteId {
        let space = &self.space;
        self.recursion.fold(&mut keys, |key| {
            let (module, svma) = split_frame_key(key);
            let symbols = space.module(module.into()).and_then(|module| module.symbols.as_ref());
            symbols.map(|symbols| symbols.locate(svma.wrapping_sub(1))).unwrap_or_default()
        });
        is_whole &= keys.len() <= MAX_STACK_FRAMES;
        keys.truncate(MAX_STACK_FRAMES);
        self.irregularities.stacks_cut += u64::from(!is_whole);
        let sites = self.space.heap.sites_mut();
        let site = match name {
            Some(name) => sites.intern_named(&keys, name),
            None => sites.intern(&keys),
        };
        self.stack_keys = keys;
        site
    }

    /// After a change of what lies where: ranges kept by references may no longer hold.
    pub(super) fn check_generation(&mut self, current: Option<&mut Thread>) {
        let generation = self.space.generation();
        if generation != self.generation {
            self.generation = generation;
            for thread in self.threads.iter_mut().flatten() {
                thread.references.forget_volatile();
            }
            if let Some(thread) = current {
                thread.references.forget_volatile();
            }
        }
    }
}
