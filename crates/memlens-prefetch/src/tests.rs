//! Hand-assembled loops.
