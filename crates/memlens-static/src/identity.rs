//! What static analysis calls an object.

/// Memory as static analysis knows it, in terms that a profile of the program has, too.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Identity {
    /// Blocks whose allocation was called from there: return addresses (svma), innermost first. The
    /// allocation's stack begins with them.
    Heap {
        /// The return addresses.
        calls: Vec<u64>,
    },
    /// A global or static variable, or an unnamed part of a section.
    Global {
        /// Its first address (svma).
        svma: u64,
        /// Its name; for an unnamed part the section's.
        name: Option<String>,
    },
    /// A thread-local variable.
    ThreadLocal {
        /// Its name, if it has one.
        name: Option<String>,
    },
    /// A local or parameter in a frame.
    Local {
        /// The first address of the function whose frame it is in.
        function: u64,
        /// Its name.
        name: String,
        /// Line of its declaration.
        line: Option<u32>,
    },
    /// The unnamed parts of a function's frames.
    Frame {
        /// The function's first address.
        function: u64,
    },
    /// What a variable points to, when no allocation for it is in sight.
    PointedBy {
        /// The variable's name.
        name: String,
    },
}
