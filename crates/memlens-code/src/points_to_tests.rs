//! Blocks, loops and pointers of code written by hand; the comment beside the bytes is their assembly.

use crate::{
    Callee, ControlFlow, FunctionParts, Loops, Object, PointsTo, Surroundings, immediate_dominators,
    points_to,
};

/// Two nested loops.
const NESTED: [u8; 17] = [
    0x31, 0xc0, // 1000 xor eax, eax
    0x85, 0xff, // 1002 test edi, edi
    0x74, 0x0a, // 1004 je 1010
    0xff, 0xc0, // 1006 inc eax
    0x39, 0xf0, // 1008 cmp eax, esi
    0x75, 0xfa, // 100a jne 1006
    0xff, 0xcf, // 100c dec edi
    0xeb, 0xf2, // 100e jmp 1002
    0xc3, // 1010 ret
];

#[test]
fn blocks_dominators_and_loops() {
    let flow = ControlFlow::new(&[(0x1000, &NESTED)]);
    // 0: 1000, 1: 1002, 2: 1006, 3: 100c, 4: 1010.
    let starts: Vec<u64> = flow.blocks.iter().map(|block| block.start).collect();
    assert_eq!(starts, [0x1000, 0x1002, 0x1006, 0x100c, 0x1010]);
    let successors: Vec<&[usize]> = flow.blocks.iter().map(|block| &block.successors[..]).collect();
    assert_eq!(successors, [&[1][..], &[2, 4], &[2, 3], &[1], &[]]);
    assert_eq!(flow.blocks[1].predecessors[..], [0, 3]);
    assert_eq!(immediate_dominators(&flow), [Some(0), Some(0), Some(1), Some(2), Some(1)]);
    let loops = Loops::new(&flow);
    let found: Vec<_> = loops.loops.iter().map(|l| (l.header, &l.blocks[..], l.parent, l.depth)).collect();
    assert_eq!(found, [(1, &[1, 2, 3][..], None, 1), (2, &[2][..], Some(0), 2)]);
    assert_eq!(loops.innermost, [None, Some(0), Some(1), Some(0), None]);
    assert_eq!(loops.irreducible, 0);
}

#[test]
fn a_switch_reaches_its_arms() {
    let code = [
        0xff, 0xe0, // 1000 jmp rax
        0xff, 0xc1, // 1002 inc ecx
        0xc3, // 1004 ret
        0x90, // 1005 nop: padding, no arm
        0xc3, // 1006 ret
    ];
    let flow = ControlFlow::new(&[(0x1000, &code)]);
    assert_eq!(flow.blocks[0].successors[..], [1]);
    // Damage ends a part and nothing else.
    let flow = ControlFlow::new(&[(0x1000, &[0x31, 0xc0, 0x06]), (0x2000, &[0xc3])]);
    assert_eq!(flow.instructions.len(), 2);
}

#[test]
fn a_jump_through_a_cell_leaves_the_function() {
    let code = [
        0xff, 0x35, 0x00, 0x20, 0x00, 0x00, // 1000 push [rip+2000]: a linkage table's begin
        0xff, 0x25, 0x00, 0x20, 0x00, 0x00, // 1006 jmp [rip+2000]
        0x0f, 0x1f, 0x40, 0x00, // 100c nop
        0xff, 0x25, 0x00, 0x20, 0x00, 0x00, // 1010 jmp [rip+2000]: a stub
        0x68, 0x00, 0x00, 0x00, 0x00, // 1016 push 0
        0xe9, 0xe0, 0xff, 0xff, 0xff, // 101b jmp 1000
        0xff, 0x25, 0x00, 0x20, 0x00, 0x00, // 1020 jmp [rip+2000]: another one
        0x68, 0x01, 0x00, 0x00, 0x00, // 1026 push 1
        0xe9, 0xd0, 0xff, 0xff, 0xff, // 102b jmp 1000
    ];
    let flow = ControlFlow::new(&[(0x1000, &code)]);
    let jumps = [0x1000, 0x100c, 0x1020].map(|start| flow.blocks.iter().find(|it| it.start == start));
    assert!(jumps.iter().flatten().all(|block| block.successors.is_empty()), "{:?}", flow.blocks);
    assert_eq!(jumps.iter().flatten().count(), 3);
    let found = Loops::new(&flow);
    assert_eq!((found.loops, found.irreducible), (Vec::new(), 0));
}

/// An allocation function at 0x5000, a variable at 0x3000.
struct File;

impl Surroundings for File {
    fn callee(&self, svma: u64) -> Callee {
        if svma == 0x5000 { Callee::Allocates } else { Callee::Unknown }
    }

    fn imported(&self, _: u64) -> Option<Callee> {
        None
    }

    fn data_start(&self, svma: u64) -> Option<u64> {
        (0x3000..0x3100).contains(&svma).then_some(0x3000)
    }
}

fn analyse(functions: &[(u64, &[u8])], initial: &[(u64, u64)]) -> PointsTo {
    let functions: Vec<FunctionParts<'_>> =
        functions.iter().map(|&part| FunctionParts { parts: vec![part] }).collect();
    points_to(&functions, initial, &File)
}

/// The objects of the operand at `pc`.
fn at(found: &PointsTo, pc: u64) -> Vec<(Object, Option<i64>)> {
    let operands = found.functions.values().flat_map(|(_, operands)| operands);
    let operand = operands.rev().find(|operand| operand.pc == pc).expect("an operand");
    operand.pointers.iter().map(|p| (found.objects[p.object.0 as usize].clone(), p.offset)).collect()
}

fn block(calls: &[u64]) -> Object {
    Object::Heap { calls: calls.to_vec() }
}

#[test]
fn an_alias_is_the_same_object() {
    let code = [
        0x48, 0x83, 0xec, 0x08, // 1000 sub rsp, 8
        0xbf, 0x40, 0, 0, 0, // 1004 mov edi, 64
        0xe8, 0xf2, 0x3f, 0, 0, // 1009 call 5000
        0x48, 0x89, 0x04, 0x24, // 100e mov [rsp], rax
        0x48, 0x8b, 0x14, 0x24, // 1012 mov rdx, [rsp]
        0x48, 0x89, 0xd1, // 1016 mov rcx, rdx
        0x8b, 0x04, 0xb1, // 1019 mov eax, [rcx+rsi*4]
        0x8b, 0x05, 0xde, 0x1f, 0, 0, // 101c mov eax, [rip+0x1fde]: 3000
        0x48, 0x83, 0xc4, 0x08, // 1022 add rsp, 8
        0xc3, // 1026 ret
    ];
    let found = analyse(&[(0x1000, &code)], &[]);
    assert_eq!(at(&found, 0x1019), [(block(&[0x100e]), None)]);
    assert_eq!(at(&found, 0x101c), [(Object::Global { svma: 0x3000 }, Some(0))]);
    // The slot is 16 below the canonical frame address; the return address 8.
    let frame = Object::Frame { function: 0x1000 };
    assert_eq!(at(&found, 0x100e), [(frame.clone(), Some(-16))]);
    assert_eq!(at(&found, 0x1026), [(frame, Some(-8))]);
    assert!(!found.cut_short);
}

#[test]
fn arguments_and_results_flow_through_calls() {
    // A wrapper of the allocation, called twice; each result is passed to a function that reads it.
    let wrapper = [
        0x48, 0x83, 0xec, 0x08, // 2000 sub rsp, 8
        0xe8, 0xf7, 0x2f, 0, 0, // 2004 call 5000
        0x48, 0x83, 0xc4, 0x08, // 2009 add rsp, 8
        0xc3, // 200d ret
    ];
    let reader = [0x8b, 0x47, 0x04, 0xc3]; // 2100 mov eax, [rdi+4]; ret
    let main = [
        0x53, // 1000 push rbx
        0xe8, 0xfa, 0x0f, 0, 0, // 1001 call 2000
        0x48, 0x89, 0xc3, // 1006 mov rbx, rax
        0xe8, 0xf2, 0x0f, 0, 0, // 1009 call 2000
        0x89, 0x08, // 100e mov [rax], ecx
        0x89, 0x0b, // 1010 mov [rbx], ecx
        0x48, 0x89, 0xc7, // 1012 mov rdi, rax
        0xe8, 0xe6, 0x10, 0, 0, // 1015 call 2100
        0x48, 0x89, 0xdf, // 101a mov rdi, rbx
        0xe8, 0xde, 0x10, 0, 0,    // 101d call 2100
        0x5b, // 1022 pop rbx
        0xc3, // 1023 ret
    ];
    let found = analyse(&[(0x1000, &main), (0x2000, &wrapper), (0x2100, &reader)], &[]);
    let (first, second) = (block(&[0x2009, 0x1006]), block(&[0x2009, 0x100e]));
    assert_eq!(at(&found, 0x1010), [(first.clone(), Some(0))]);
    assert_eq!(at(&found, 0x100e), [(second.clone(), Some(0))]);
    let mut read = at(&found, 0x2100);
    read.sort_by_key(|(object, _)| format!("{object:?}"));
    let mut both = vec![(first, Some(4)), (second, Some(4))];
    both.sort_by_key(|(object, _)| format!("{object:?}"));
    assert_eq!(read, both);
}

#[test]
fn what_a_variable_points_to_has_a_name_of_its_own() {
    // 1000 mov rax, [rip+0x1ff9]: 3000; mov rdx, [rax+8]; mov eax, [rdx]; ret
    let code = [0x48, 0x8b, 0x05, 0xf9, 0x1f, 0, 0, 0x48, 0x8b, 0x50, 0x08, 0x8b, 0x02, 0xc3];
    let found = analyse(&[(0x1000, &code)], &[]);
    let [(Object::Pointee { of, offset: Some(0) }, Some(8))] = at(&found, 0x1007)[..] else {
        panic!("{:?}", at(&found, 0x1007))
    };
    assert_eq!(found.objects[of.0 as usize], Object::Global { svma: 0x3000 });
    assert!(matches!(at(&found, 0x100b)[..], [(Object::Pointee { offset: Some(8), .. }, Some(0))]));
    // A pointer that stands there from the start is followed.
    let found = analyse(&[(0x1000, &code)], &[(0x3000, 0x3010), (0x3018, 0x3020)]);
    assert_eq!(at(&found, 0x1007), [(Object::Global { svma: 0x3000 }, Some(0x18))]);
    assert_eq!(at(&found, 0x100b), [(Object::Global { svma: 0x3000 }, Some(0x20))]);
}

#[test]
fn a_pointer_that_walks_settles() {
    let code = [
        0x48, 0x8d, 0x05, 0xf9, 0x1f, 0, 0, // 1000 lea rax, [rip+0x1ff9]: 3000
        0x48, 0x83, 0xc0, 0x08, // 1007 add rax, 8
        0x8b, 0x10, // 100b mov edx, [rax]
        0x85, 0xd2, // 100d test edx, edx
        0x75, 0xf6, // 100f jne 1007
        0xc3, // 1011 ret
    ];
    let found = analyse(&[(0x1000, &code)], &[]);
    assert_eq!(at(&found, 0x100b), [(Object::Global { svma: 0x3000 }, None)]);
}

#[test]
fn an_argument_nobody_passes_is_an_object() {
    let found = analyse(&[(0x1000, &[0x8b, 0x04, 0xb7, 0xc3])], &[]); // mov eax, [rdi+rsi*4]; ret
    assert_eq!(at(&found, 0x1000), [(Object::Argument { function: 0x1000, register: 7 }, None)]);
}

#[test]
fn a_vector_that_was_computed_with_holds_no_pointer() {
    let code = [
        0x48, 0x8d, 0x05, 0xf9, 0x1f, 0, 0, // 1000 lea rax, [rip+0x1ff9]: 3000
        0x66, 0x48, 0x0f, 0x6e, 0xc0, // 1007 movq xmm0, rax
        0x66, 0x48, 0x0f, 0x7e, 0xc1, // 100c movq rcx, xmm0
        0x8b, 0x11, // 1011 mov edx, [rcx]
        0x66, 0x0f, 0xef, 0xc0, // 1013 pxor xmm0, xmm0
        0x66, 0x48, 0x0f, 0x7e, 0xc1, // 1017 movq rcx, xmm0
        0x8b, 0x11, // 101c mov edx, [rcx]
        0xc3, // 101e ret
    ];
    let found = analyse(&[(0x1000, &code)], &[]);
    assert_eq!(at(&found, 0x1011), [(Object::Global { svma: 0x3000 }, Some(0))]);
    assert_eq!(at(&found, 0x101c), []);
}

#[test]
fn what_follows_a_call_that_never_returns_is_not_reached() {
    // 2000: jmp to itself, no return. In the caller, the block behind the call belongs to another path.
    let code = [
        0x48, 0x8d, 0x05, 0xf9, 0x1f, 0, 0, // 1000 lea rax, [rip+0x1ff9]: 3000
        0x85, 0xff, // 1007 test edi, edi
        0x74, 0x08, // 1009 je 1013
        0x48, 0x89, 0xf0, // 100b mov rax, rsi
        0xe8, 0xed, 0x0f, 0, 0, // 100e call 2000
        0x8b, 0x10, // 1013 mov edx, [rax]
        0xc3, // 1015 ret
    ];
    let found = analyse(&[(0x1000, &code), (0x2000, &[0xeb, 0xfe])], &[]);
    assert_eq!(at(&found, 0x1013), [(Object::Global { svma: 0x3000 }, Some(0))]);
}

#[test]
fn no_bytes_panic() {
    // Any bytes: blocks tile the instructions, and edges are the same from both ends.
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for _ in 0..2000 {
        let mut bytes = [0u8; 64];
        for byte in &mut bytes {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *byte = (state >> 32) as u8;
        }
        let flow = ControlFlow::new(&[(0x1000, &bytes)]);
        let mut next = 0;
        for (index, block) in flow.blocks.iter().enumerate() {
            assert_eq!(block.instructions.start, next);
            next = block.instructions.end;
            for &to in block.successors.iter() {
                assert!(flow.blocks[to].predecessors.contains(&index));
            }
        }
        assert_eq!(next, flow.instructions.len());
        let loops = Loops::new(&flow);
        for natural in &loops.loops {
            assert!(natural.blocks.contains(&natural.header));
        }
        let _ = analyse(&[(0x1000, &bytes)], &[]);
    }
}
