//! Code is written by hand; the comment beside the bytes is their assembly.

use crate::{
    Architecture, Base, Destination, FunctionCode, Register, Target, result_destinations,
    returns_first_argument, slot_destinations,
};

fn destinations(code: &[u8]) -> Vec<Destination> {
    result_destinations(Architecture::X86_64, code, 0x1000, 0x1000, &|_| false)
}

#[test]
fn a_byte_of_code_belongs_to_an_instruction() {
    let code = FunctionCode::new(
        Architecture::X86_64,
        &[
            0xe8, 0xfb, 0x0f, 0x00, 0x00, // 1000 call 2000
            0x06, // 1005 no instruction
            0xc3, // 1006 ret
        ],
        0x1000,
    );
    let around = [0xfff, 0x1000, 0x1004, 0x1005, 0x1006, 0x1007].map(|pc| code.instruction_around(pc));
    assert_eq!(around, [None, Some(0x1000), Some(0x1000), None, Some(0x1006), None]);
}

#[test]
fn a_local_without_optimisation() {
    let found = destinations(&[
        0x48, 0x89, 0x45, 0xf8, // 1000 mov [rbp-8], rax
        0x48, 0x83, 0x7d, 0xf8, 0x00, // 1004 cmp qword [rbp-8], 0
        0x75, 0x01, // 1009 jne 100c
        0xf4, // 100b hlt
        0x31, 0xc0, // 100c xor eax, eax
        0xc3, // 100e ret
    ]);
    // rax holds it until the instruction at 100c has begun.
    assert_eq!(
        found,
        [
            Destination::FrameSlot { base: Register::RBP, disp: -8, pc: 0x1000 },
            // The byte between is not on the path.
            Destination::Register { register: Register::RAX, start: 0x1000, end: 0x100b },
            Destination::Register { register: Register::RAX, start: 0x100c, end: 0x100d },
        ]
    );
}

#[test]
fn a_register_allocated_local_survives_a_call() {
    let found = destinations(&[
        0x48, 0x89, 0xc3, // 1000 mov rbx, rax
        0xe8, 0, 0, 0, 0, // 1003 call 1008
        0x31, 0xdb, // 1008 xor ebx, ebx
        0xc3, // 100a ret
    ]);
    assert_eq!(
        found,
        [
            Destination::Register { register: Register::RAX, start: 0x1000, end: 0x1004 },
            Destination::Register { register: Register(3), start: 0x1003, end: 0x1009 },
        ]
    );
}

#[test]
fn a_wrapper_returns_it_even_through_a_slot() {
    let found = destinations(&[
        0x48, 0x89, 0x45, 0xf8, // 1000 mov [rbp-8], rax
        0x31, 0xc0, // 1004 xor eax, eax
        0x48, 0x8b, 0x45, 0xf8, // 1006 mov rax, [rbp-8]
        0xc9, // 100a leave
        0xc3, // 100b ret
    ]);
    assert!(found.contains(&Destination::Returned { pc: 0x100b }), "{found:?}");
}

/// As of `xcalloc`, which clears what it returns; once with a call, once with a jump in its place.
#[test]
fn a_wrapper_returns_what_a_function_gives_back() {
    let call = [
        0x48, 0x89, 0xc7, // 1000 mov rdi, rax
        0xe8, 0xf8, 0x0f, 0x00, 0x00, // 1003 call 2000
        0x5b, // 1008 pop rbx
        0xc3, // 1009 ret
    ];
    let jump = [
        0x48, 0x89, 0xc7, // 1000 mov rdi, rax
        0xff, 0x25, 0xf7, 0x2f, 0x00, 0x00, // 1003 jmp [rip+0x2ff7]: 4000
    ];
    for (code, target, pc) in
        [(&call[..], Target::Code(0x2000), 0x1009), (&jump[..], Target::Cell(0x4000), 0x1003)]
    {
        let returned = |known| {
            let found =
                result_destinations(Architecture::X86_64, code, 0x1000, 0x1000, &|asked| asked == known);
            found.contains(&Destination::Returned { pc })
        };
        assert!(returned(target) && !returned(Target::Code(0x4000)));
    }
}

#[test]
fn a_function_may_return_its_first_argument() {
    let returns = |code: &[u8]| returns_first_argument(Architecture::X86_64, code, 0x1000, &|_| false);
    // mov qword [rdi], 0; mov rax, rdi; ret
    assert!(returns(&[0x48, 0xc7, 0x07, 0, 0, 0, 0, 0x48, 0x89, 0xf8, 0xc3]));
    // mov rax, [rdi]; ret
    assert!(!returns(&[0x48, 0x8b, 0x07, 0xc3]));
    // mov rax, rsi; ret
    assert!(!returns(&[0x48, 0x89, 0xf0, 0xc3]));
}

#[test]
fn a_field_through_a_local_pointer() {
    let found = destinations(&[
        0x48, 0x89, 0xc2, // 1000 mov rdx, rax
        0x48, 0x8b, 0x45, 0xf0, // 1003 mov rax, [rbp-16]
        0x48, 0x89, 0x50, 0x08, // 1007 mov [rax+8], rdx
        0xc3, // 100b ret
    ]);
    assert!(
        found.contains(&Destination::Field {
            base: Base::FrameSlot { base: Register::RBP, disp: -16, pc: 0x1003 },
            disp: 8,
            indexed: false,
            pc: 0x1007
        }),
        "{found:?}"
    );
    assert!(!found.iter().any(|d| matches!(d, Destination::Returned { .. })));
}

#[test]
fn an_element_of_an_array_in_a_register() {
    let found = destinations(&[
        0x49, 0x89, 0x04, 0xdc, // 1000 mov [r12+rbx*8], rax
        0xf4, // 1004 hlt
    ]);
    assert_eq!(
        found[0],
        Destination::Field {
            base: Base::Register { register: Register(12) },
            disp: 0,
            indexed: true,
            pc: 0x1000
        }
    );
}

#[test]
fn an_element_of_an_array_whose_address_a_loop_keeps() {
    let code = [
        0x55, // 1000 push rbp
        0x48, 0x8d, 0x2d, 0xf8, 0x2f, 0x00, 0x00, // 1001 lea rbp, [rip+0x2ff8]: 0x4000
        0xe8, 0, 0, 0, 0, // 1008 call 100d
        0x48, 0x89, 0x44, 0xdd, 0x10, // 100d mov [rbp+rbx*8+0x10], rax
        0x5d, // 1012 pop rbp
        0xc3, // 1013 ret
    ];
    let element = Destination::Element { svma: 0x4010, pc: 0x100d };
    let found = result_destinations(Architecture::X86_64, &code, 0x1000, 0x100d, &|_| false);
    assert_eq!(found[1], element, "{found:?}");
    // With another value in the register at another place, nothing tells which one it is.
    let mut twice = code.to_vec();
    twice.extend([0x48, 0x89, 0xc5]); // mov rbp, rax
    let found = result_destinations(Architecture::X86_64, &twice, 0x1000, 0x100d, &|_| false);
    assert!(!found.contains(&element), "{found:?}");
}

#[test]
fn an_element_of_an_array_at_an_address_in_the_instruction() {
    let found = destinations(&[
        0x48, 0x89, 0x04, 0xdd, 0x00, 0x40, 0x00, 0x00, // 1000 mov [rbx*8+0x4000], rax
        0xf4,
    ]);
    assert_eq!(found[0], Destination::Element { svma: 0x4000, pc: 0x1000 });
}

#[test]
fn a_slot_that_the_call_filled() {
    let code = [
        0x85, 0xc0, // 1000 test eax, eax
        0x75, 0x07, // 1002 jne 100b
        0x4c, 0x8b, 0x7c, 0x24, 0x18, // 1004 mov r15, [rsp+0x18]
        0xf4, // 1009 hlt
        0xf4, // 100a hlt
        0xc3, // 100b ret
    ];
    let found =
        slot_destinations(Architecture::X86_64, &code, 0x1000, 0x1000, (Register::RSP, 0x18), &|_| false);
    // Until after the return instruction.
    assert_eq!(found, [Destination::Register { register: Register(15), start: 0x1009, end: 0x100c }]);
    // Another slot, and the status in rax, are not the result.
    assert_eq!(
        slot_destinations(Architecture::X86_64, &code, 0x1000, 0x1000, (Register::RSP, 0x10), &|_| false),
        []
    );
}

#[test]
fn both_halves_of_a_vector_store() {
    let found = destinations(&[
        0x66, 0x48, 0x0f, 0x6e, 0xc0, // 1000 movq xmm0, rax
        0x66, 0x0f, 0x6c, 0xc0, // 1005 punpcklqdq xmm0, xmm0
        0x0f, 0x29, 0x44, 0x24, 0x10, // 1009 movaps [rsp+16], xmm0
        0xf4, // 100e hlt
    ]);
    assert_eq!(
        found[..2],
        [
            Destination::FrameSlot { base: Register::RSP, disp: 16, pc: 0x1009 },
            Destination::FrameSlot { base: Register::RSP, disp: 24, pc: 0x1009 },
        ]
    );
}

#[test]
fn thread_locals_and_globals() {
    let found = destinations(&[
        0x64, 0x48, 0x89, 0x04, 0x25, 0xf0, 0xff, 0xff, 0xff, // 1000 mov fs:[-16], rax
        0x48, 0x89, 0x04, 0x25, 0x00, 0x40, 0x00, 0x00, // 1009 mov [0x4000], rax
        0xf4,
    ]);
    assert_eq!(found[0], Destination::ThreadLocal { offset: -16, pc: 0x1000 });
    assert_eq!(found[1], Destination::Global { svma: 0x4000, pc: 0x1009 });
}

#[test]
fn no_bytes_panic() {
    // Every pair of leading bytes, followed by bytes that decode as something long.
    for a in 0..=255u8 {
        for b in 0..=255u8 {
            let code = [a, b, 0x84, 0x24, 0xff, 0xff, 0xff, 0x7f, 0x90, 0xeb, 0xf4];
            let _ = destinations(&code);
            let _ = result_destinations(
                Architecture::X86_64,
                &code[..3],
                0xffff_ffff_ffff_fffe,
                0xffff_ffff_ffff_fffe,
                &|_| true,
            );
        }
    }
    assert_eq!(
        result_destinations(Architecture::X86_64, &[], 0, 5, &|_| true),
        [Destination::Register { register: Register::RAX, start: 5, end: 5 }]
    );
}
