//! Dense numbers for objects and sites.

use core::fmt;
use core::num::NonZeroU32;

macro_rules! dense_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(transparent)]
        pub struct $name(NonZeroU32);

        impl $name {
            /// The id with this number, `None` for 0.
            #[inline(always)]
            pub fn new(number: u32) -> Option<Self> {
                NonZeroU32::new(number).map(Self)
            }

            /// Its number, from 1.
            #[inline(always)]
            pub fn get(self) -> u32 {
                self.0.get()
            }

            /// Its place in a dense table, from 0.
            #[inline(always)]
            pub fn index(self) -> usize {
                self.0.get() as usize - 1
            }

            /// The id of the entry at `index` of a dense table; the index saturates at 2³² − 2.
            pub(crate) fn from_index(index: usize) -> Self {
                let number = u32::try_from(index).unwrap_or(u32::MAX).saturating_add(1);
                Self(NonZeroU32::new(number).unwrap_or(NonZeroU32::MAX))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

dense_id!(
    /// An object: what accesses are counted for. Dense from 1; `Option<ObjectId>` is 4 bytes.
    ObjectId
);
dense_id!(
    /// An interned allocation call stack. Dense from 1.
    SiteId
);
