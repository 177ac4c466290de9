//! The target `mappings` of `memlens-fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(target) = memlens_fuzz::target("mappings") {
        target.check(bytes);
    }
});
