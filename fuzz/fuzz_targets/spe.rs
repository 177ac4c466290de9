//! The target `spe` of `memlens-fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(target) = memlens_fuzz::target("spe") {
        target.check(bytes);
    }
});
