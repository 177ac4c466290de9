//! Index types: a handle knows which table of a profile it points into.

use serde::{Deserialize, Serialize};

macro_rules! index_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The position as a slice index.
            pub fn index(self) -> usize {
                self.0 as usize
            }

            /// The handle for a position; positions beyond 2³² − 1 are clamped and then found by
            /// [`Profile::validate`](crate::Profile::validate).
            pub fn from_index(index: usize) -> Self {
                Self(u32::try_from(index).unwrap_or(u32::MAX))
            }
        }
    };
}

index_type! {
    /// Position in [`Profile::modules`](crate::Profile::modules).
    ModuleIx
}
index_type! {
    /// Position in [`Profile::frames`](crate::Profile::frames).
    FrameIx
}
index_type! {
    /// Position in [`Profile::stacks`](crate::Profile::stacks).
    StackIx
}
index_type! {
    /// Position in [`Profile::paths`](crate::Profile::paths).
    PathIx
}
index_type! {
    /// Position in [`Profile::objects`](crate::Profile::objects); not the object's `id`.
    ObjectIx
}
index_type! {
    /// Position in [`Profile::code`](crate::Profile::code).
    CodeIx
}
index_type! {
    /// Position in [`Profile::fields`](crate::Profile::fields).
    FieldIx
}
index_type! {
    /// Position in [`Profile::slices`](crate::Profile::slices).
    SliceIx
}
index_type! {
    /// Position in [`Profile::threads`](crate::Profile::threads); not the kernel's tid.
    ThreadIx
}
