//! What the operation filter leaves out, and how often that is said to have happened.
#![cfg(target_arch = "x86_64")]

mod support;

use std::arch::asm;

use memlens_burst::filter_operations;
use memlens_events::burst::Use;
use support::{accesses, begin_now, left_out, prepare, summary};

static FIXED: u64 = 5;
const TIMES: u64 = 500;

#[test]
fn stack_and_fixed_addresses_are_left_out_and_counted() {
    prepare(100_000);
    filter_operations(true);
    let data = [7u64; 64];
    let (mut sum, first, last): (u64, u64, u64);
    begin_now();
    // SAFETY: the loads are of the array, a static, and the words that were pushed right before.
    unsafe {
        asm!(
            "lea {first}, [rip + 2f]",
            "lea {last}, [rip + 6f]",
            "push {data}",
            "push {data}",
            "xor {sum:e}, {sum:e}",
            "2:",
            "add {sum}, [{data}]",
            "add {sum}, [{data} + 8]",
            "add {sum}, [rip + {fixed}]",
            "mov {spare}, [rsp]",
            "test {times:l}, 1",
            "jz 3f",
            "mov {spare}, [rsp + 8]",
            "add {sum}, [{spare} + 16]",
            "3:",
            "call 4f",
            "dec {times}",
            "jnz 2b",
            "jmp 6f",
            "4:",
            "test {times:l}, 1",
            "jz 5f",
            "5:",
            "ret",
            "6:",
            "add rsp, 16",
            data = in(reg) data.as_ptr(),
            times = inout(reg_abcd) TIMES => _,
            fixed = sym FIXED,
            sum = out(reg) sum,
            spare = out(reg) _,
            first = out(reg) first,
            last = out(reg) last,
        );
    }
    assert_eq!(sum, TIMES * (7 + 7 + 5) + TIMES / 2 * 7);
    let is_inside = |pc: u64| (first..last).contains(&pc);
    let recorded: Vec<_> = accesses().into_iter().filter(|(pc, ..)| is_inside(*pc)).collect();
    let begins = data.as_ptr() as u64;
    assert!(recorded.iter().all(|(_, address, _)| (begins..begins + 24).contains(address)));
    assert_eq!(recorded.len() as u64, 2 * TIMES + TIMES / 2, "{}", summary());
    // The fixed address, the stack, a call and its return; every second time once more the stack, behind a way out.
    assert_eq!(left_out(is_inside), 4 * TIMES + TIMES / 2, "{}", summary());
    assert!(recorded.iter().all(|(.., reference)| reference.used == Use::Read));
}
