//! Where objects' memory lies now, and how the kernel was seen to back it.

use super::Process;
use crate::address_space::AddressSpace;
use memlens_objects::ObjectKey;
use memlens_profile::ObjectBacking;
use memlens_symbols::DataPlace;
use std::ops::Range;

impl Process {
    /// Which process the records come from, if that is known.
    pub fn process_id(&self) -> Option<u32> {
        self.pid
    }

    /// The pieces of at least `least_bytes` bytes that objects lie in now: blocks, mappings, variables that were touched,
    /// each with the object's number. Linear in blocks and objects.
    pub fn live_memory(&self, least_bytes: u64) -> Vec<(Range<u64>, u32)> {
        let mut found = self.space.large_mappings(least_bytes);
        let blocks = self.space.heap.blocks().at_least(least_bytes);
        found.extend(blocks.map(|block| (block.range(), block.object.get())));
        for (id, key, _) in self.space.heap.objects().iter() {
            if let ObjectKey::Global { module, svma } = *key
                && let Some(range) = variable(&self.space, module, svma)
                && range.end - range.start >= least_bytes
            {
                found.push((range, id.get()));
            }
        }
        found
    }

    /// An object's memory was backed like this; see [`ObjectBacking::keep_larger`].
    pub fn note_backing(&mut self, object: u32, backing: ObjectBacking) {
        self.backing.entry(object).or_default().keep_larger(backing);
    }
}

/// Where a variable of a module lies.
fn variable(space: &AddressSpace, module: u32, svma: u64) -> Option<Range<u64>> {
    let module = space.module(module).filter(|module| module.is_loaded())?;
    // Not the list of all variables: it takes the whole debug information to make.
    let DataPlace::Variable(place) = module.symbols.as_ref()?.data_place(svma) else { return None };
    let start = module.load_bias.wrapping_add(svma);
    let end = start.checked_add(place.end - place.start)?;
    (place.start == svma).then_some(start..end)
}
