//! The obvious model: every policy, inclusion mode and number of cores, one access at a time.

mod cache;
mod model;
mod policy;

pub(crate) use cache::{Cache, Line};
pub use model::PlainModel;
pub(crate) use model::{Origin, PrivateState, tlb};
