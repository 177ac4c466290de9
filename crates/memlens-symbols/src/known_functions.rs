//! Functions that were asked for, by address.

use std::collections::HashMap;

use crate::FunctionRef;

/// Each function once, however many of its addresses are asked for: profilers ask for tens of thousands.
#[derive(Debug, Default)]
pub(crate) struct KnownFunctions {
    /// Positions in `functions`; None: no function is there.
    by_address: HashMap<u64, Option<u32>>,
    /// Positions by first address and end.
    by_extent: HashMap<(u64, u64), u32>,
    functions: Vec<FunctionRef>,
}

impl KnownFunctions {
    /// What [`Self::insert`] was told of an address; None: nothing yet.
    pub(crate) fn get(&self, svma: u64) -> Option<Option<FunctionRef>> {
        let position = *self.by_address.get(&svma)?;
        Some(position.and_then(|position| self.functions.get(position as usize).cloned()))
    }

    /// Which function an address belongs to.
    pub(crate) fn insert(&mut self, svma: u64, function: Option<FunctionRef>) {
        let position = function.map(|function| self.position(function));
        self.by_address.insert(svma, position);
    }

    fn position(&mut self, function: FunctionRef) -> u32 {
        let extent = (function.start, function.end);
        let known = self.by_extent.get(&extent).copied();
        if let Some(known) = known.filter(|&known| self.functions[known as usize] == function) {
            return known;
        }
        let position = self.functions.len() as u32;
        self.by_extent.insert(extent, position);
        self.functions.push(function);
        position
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_function_share_it() {
        let function = |start: u64, end: u64| FunctionRef {
            start,
            end,
            name: Some(format!("f{start}").into()),
            raw_name: None,
        };
        let mut known = KnownFunctions::default();
        assert_eq!(known.get(0x10), None);
        known.insert(0x10, Some(function(0x10, 0x20)));
        known.insert(0x18, Some(function(0x10, 0x20)));
        // Another one from the same address on, as overlapping symbols have.
        known.insert(0x28, Some(function(0x10, 0x30)));
        known.insert(0x40, None);
        assert_eq!(known.get(0x18), Some(Some(function(0x10, 0x20))));
        assert_eq!(known.get(0x28), Some(Some(function(0x10, 0x30))));
        assert_eq!(known.get(0x40), Some(None));
        assert_eq!(known.functions.len(), 2);
    }
}
