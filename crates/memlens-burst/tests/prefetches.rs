//! What prefetches ask for is recorded, be it an address or not.
#![cfg(target_arch = "x86_64")]

mod support;

use std::arch::asm;

use memlens_events::burst::Use;
use support::{accesses, begin_now, prepare, summary};

#[test]
fn prefetches_are_recorded_whatever_they_ask_for() {
    const TIMES: usize = 500;
    prepare(100_000);
    let data = [7u64; 64];
    let begins = data.as_ptr() as u64;
    begin_now();
    let mut sum = 0u64;
    for at in 0..TIMES {
        let address = begins + 8 * (at as u64 % 64);
        // Kernel addresses, addresses that are none, and 0 less some bytes: nothing of it faults.
        let wild = u64::MAX - 4096 * at as u64;
        // SAFETY: prefetches do nothing that could be seen, and the load is of the array.
        unsafe {
            asm!(
                "prefetcht0 [{address} + 64]",
                "prefetchnta [{wild}]",
                "prefetchw [{wild} + 2*{address}]",
                "add {sum}, [{address}]",
                address = in(reg) address,
                wild = in(reg) wild,
                sum = inout(reg) sum,
                options(nostack),
            );
        }
    }
    assert_eq!(sum, 7 * TIMES as u64);
    let all = accesses();
    let whole = 0x00ff_ffff_ffff_ffff;
    let loads = all.iter().filter(|(_, address, reference)| {
        reference.used == Use::Read && (begins..begins + 512).contains(address)
    });
    assert!(loads.count() >= TIMES, "{}", summary());
    let prefetches: Vec<u64> =
        all.iter().filter(|(.., reference)| reference.used == Use::Prefetch).map(|known| known.1).collect();
    let expected: Vec<u64> = (0..TIMES as u64)
        .flat_map(|at| {
            let (address, wild) = (begins + 8 * (at % 64), u64::MAX - 4096 * at);
            [address + 64, wild & whole, wild.wrapping_add(2 * address) & whole]
        })
        .collect();
    assert_eq!(prefetches, expected, "{}", summary());
}
