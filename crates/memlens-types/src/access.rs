//! What kind of access an instruction makes, and its packed form.

/// What one memory operand does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum AccessKind {
    /// Reads memory.
    Load = 0,
    /// Writes memory.
    Store = 1,
    /// Reads, then writes the same bytes in one instruction (`add [mem], 1`). Counts as one load
    /// and one store of an object, and as one (writing) access of a cache.
    Modify = 2,
    /// A software prefetch: touches the caches, is neither load nor store.
    Prefetch = 3,
    /// An instruction fetch.
    Fetch = 4,
}

impl AccessKind {
    /// All kinds, in the order of their codes.
    pub const ALL: [Self; 5] = [Self::Load, Self::Store, Self::Modify, Self::Prefetch, Self::Fetch];

    /// The kind with this code, if there is one.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Whether the access reads data.
    pub fn reads(self) -> bool {
        matches!(self, Self::Load | Self::Modify)
    }

    /// Whether the access writes data.
    pub fn writes(self) -> bool {
        matches!(self, Self::Store | Self::Modify)
    }

    /// The word used in traces and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Store => "store",
            Self::Modify => "modify",
            Self::Prefetch => "prefetch",
            Self::Fetch => "fetch",
        }
    }
}

/// Size and kind of an access in 32 bits: what a memory model needs besides the address.
///
/// ```text
///  31          16 15      4    3     2    0
/// ┌──────────────┬─────────┬────────┬──────┐
/// │ size, bytes  │ 0       │ locked │ kind │
/// └──────────────┴─────────┴────────┴──────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct AccessAttr(pub u32);

impl AccessAttr {
    const LOCKED: u32 = 8;

    /// Packs a kind and a size in bytes (at most 65,535; larger sizes are clamped).
    pub fn new(kind: AccessKind, size_bytes: u32) -> Self {
        Self((size_bytes.min(0xffff) << 16) | kind as u32)
    }

    /// The same of an access that is atomic for all cores: nothing passes it, and no store waits behind it to be done together.
    pub fn locked(self) -> Self {
        Self(self.0 | Self::LOCKED)
    }

    /// Whether it is: see [`Self::locked`].
    pub fn is_locked(self) -> bool {
        self.0 & Self::LOCKED != 0
    }

    /// What the access does.
    pub fn kind(self) -> AccessKind {
        AccessKind::from_code((self.0 & 7) as u8).unwrap_or(AccessKind::Load)
    }

    /// How many bytes it touches.
    pub fn size_bytes(self) -> u32 {
        self.0 >> 16
    }

    /// 1 for store and modify, 0 otherwise; without a branch.
    pub fn write_bit(self) -> u32 {
        // Codes 1 (store) and 2 (modify) are the only ones with exactly one of the low two bits
        // set and bit 2 clear.
        ((self.0 ^ (self.0 >> 1)) & !(self.0 >> 2)) & 1
    }
}

/// The line in which an access begins, as its address in lines, and which sixty-fourths of the line it uses: bit 0 is the first. What goes
/// over the line's end is cut. `line_bytes` is a power of two; sizes of 0 count as 1.
#[inline]
pub fn parts_of_line(address: u64, size_bytes: u32, line_bytes: u64) -> (u64, u64) {
    debug_assert!(line_bytes.is_power_of_two());
    let shift = line_bytes.trailing_zeros();
    let offset = address & (line_bytes - 1);
    let last = (offset + u64::from(size_bytes.max(1)) - 1).min(line_bytes - 1);
    let part = |offset: u64| (offset * 64) >> shift;
    (address >> shift, (u64::MAX << part(offset)) & (u64::MAX >> (63 - part(last))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attr_round_trips_and_write_bit_agrees_with_the_kind() {
        for kind in AccessKind::ALL {
            for size in [0, 1, 8, 64, 4096, 65535] {
                let attr = AccessAttr::new(kind, size);
                for (attr, is_locked) in [(attr, false), (attr.locked(), true)] {
                    assert_eq!((attr.kind(), attr.size_bytes(), attr.is_locked()), (kind, size, is_locked));
                    assert_eq!(attr.write_bit() == 1, kind.writes(), "{kind:?}");
                }
            }
        }
    }

    #[test]
    fn an_access_uses_a_part_of_its_line() {
        assert_eq!(parts_of_line(0x1000, 1, 64), (0x40, 1));
        assert_eq!(parts_of_line(0x1008, 8, 64), (0x40, 0xff00));
        assert_eq!(parts_of_line(0x103f, 8, 64), (0x40, 1 << 63), "what follows is the next line's");
        assert_eq!(parts_of_line(0x1000, 64, 64), (0x40, u64::MAX));
        assert_eq!(parts_of_line(0x1001, 0, 128), (0x20, 1), "two bytes a part");
        assert_eq!(
            parts_of_line(0x1001, 1, 32),
            (0x80, 0b100),
            "two parts a byte, of which the first is told"
        );
    }
}
