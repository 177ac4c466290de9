//! The target `condition` of `memlens-fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(target) = memlens_fuzz::target("condition") {
        target.check(bytes);
    }
});
