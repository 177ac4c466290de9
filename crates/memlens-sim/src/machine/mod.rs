//! Machine descriptions: the type, the shipped ones, overrides, and the host's own.

#[cfg(feature = "std")]
mod cores;
#[cfg(all(feature = "std", target_arch = "x86_64"))]
mod cpuid_tlbs;
mod description;
#[cfg(feature = "std")]
mod host;
mod nearest_word;
mod overrides;
#[cfg(feature = "std")]
mod toml_text;

pub use description::{
    CacheDescription, CoreDescription, Inclusion, MachineDescription, ModelError, Policy,
    PrefetcherDescription, Rules, TlbDescription, TlbEntries, WalkerDescription,
};
pub use overrides::OverrideError;
#[cfg(feature = "std")]
pub use toml_text::MachineError;
