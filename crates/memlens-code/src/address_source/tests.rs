//! x86-64's machine code; the comment before the bytes is their assembly.

use super::*;

fn loop_code(bytes: &[u8]) -> LoopCode {
    LoopCode::new(Architecture::X86_64, &[(0x1000, bytes)])
}

fn source(bytes: &[u8], pc: u64) -> Option<AddressSource> {
    loop_code(bytes).address_source(pc)
}

#[test]
fn an_array_indexed_by_another() {
    // 1000 mov ecx,[rsi+rax*4]  1003 add [rdi+rcx*8],1  1008 inc rax  100b cmp rax,rdx  100e jne 1000  1010 ret
    let code = [
        0x8b, 0x0c, 0x86, 0x48, 0x83, 0x04, 0xcf, 0x01, 0x48, 0xff, 0xc0, 0x48, 0x39, 0xd0, 0x75, 0xf0, 0xc3,
    ];
    assert_eq!(source(&code, 0x1003), Some(AddressSource::LoadedBy(0x1000)));
    assert_eq!(source(&code, 0x1000), Some(AddressSource::Computed));
    assert_eq!(source(&code, 0x1010), None, "in no loop");
    assert_eq!(source(&code, 0x1001), None, "no instruction");
}

#[test]
fn rbp_is_a_frame_pointer_where_the_function_makes_it_one() {
    // 1000 movslq rdx,[rbp+rax*4]  1005 addsd xmm0,[rbx+rdx*8]  100a inc rax  100d cmp rax,rcx  1010 jne 1000  1012 ret
    let loop_code = [
        0x48, 0x63, 0x54, 0x85, 0x00, 0xf2, 0x0f, 0x58, 0x04, 0xd3, 0x48, 0xff, 0xc0, 0x48, 0x39, 0xc8, 0x75,
        0xee, 0xc3,
    ];
    assert_eq!(source(&loop_code, 0x1005), Some(AddressSource::LoadedBy(0x1000)));
    // 1000 mov rax,[rbp+8]  1004 add rcx,[rax]  1007 add rbp,16  100b cmp rbp,rdx  100e jne 1000  1010 ret
    let pointers = [
        0x48, 0x8b, 0x45, 0x08, 0x48, 0x03, 0x08, 0x48, 0x83, 0xc5, 0x10, 0x48, 0x39, 0xd5, 0x75, 0xf0, 0xc3,
    ];
    assert_eq!(source(&pointers, 0x1004), Some(AddressSource::LoadedBy(0x1000)));
    // Behind `mov rbp,rsp` it is a variable of the frame.
    let framed = [&[0x48, 0x89, 0xe5][..], &pointers].concat();
    assert_eq!(source(&framed, 0x1007), Some(AddressSource::Computed));
}

#[test]
fn a_base_that_is_loaded_again_hides_no_index() {
    // 1000 mov rcx,[rdi+rax*8]  1004 mov rdx,[rsi+8]  1008 mov r8,[rdx+rcx*8]  100c inc rax  100f cmp rax,r9
    // 1012 jne 1000  1014 ret
    let code = [
        0x48, 0x8b, 0x0c, 0xc7, 0x48, 0x8b, 0x56, 0x08, 0x4c, 0x8b, 0x04, 0xca, 0x48, 0xff, 0xc0, 0x4c, 0x39,
        0xc8, 0x75, 0xec, 0xc3,
    ];
    let code = loop_code(&code);
    assert_eq!(code.loaders(0x1008), [0x1004, 0x1000]);
    assert_eq!(code.address_source(0x1008), Some(AddressSource::LoadedBy(0x1004)));
    assert_eq!((code.loaders(0x1000), code.loaders(0x1014)), (vec![], vec![]));
}

#[test]
fn a_list_and_what_hangs_on_it() {
    // 1000 add rcx,[rax+8]  1004 mov rax,[rax]  1007 test rax,rax  100a jne 1000  100c ret
    let code = [0x48, 0x03, 0x48, 0x08, 0x48, 0x8b, 0x00, 0x48, 0x85, 0xc0, 0x75, 0xf4, 0xc3];
    assert_eq!(source(&code, 0x1004), Some(AddressSource::Chain));
    assert_eq!(source(&code, 0x1000), Some(AddressSource::Chain), "its address is a link of the chain");
}

#[test]
fn a_call_through_memory_loads_no_stack_pointer() {
    // 1000 mov rax,[rbx]  1003 call [rax+10h]  1006 inc qword [rsp+8]  100b add rbx,8  100f cmp rbx,r12  1012 jne 1000
    // 1014 ret
    let code = [
        0x48, 0x8b, 0x03, 0xff, 0x50, 0x10, 0x48, 0xff, 0x44, 0x24, 0x08, 0x48, 0x83, 0xc3, 0x08, 0x4c, 0x39,
        0xe3, 0x75, 0xec, 0xc3,
    ];
    assert_eq!(source(&code, 0x1006), Some(AddressSource::Computed));
    assert_eq!(source(&code, 0x1003), Some(AddressSource::LoadedBy(0x1000)));
}

#[test]
fn a_base_loaded_before_the_loop_and_a_spilled_index_are_no_sources() {
    // 1000 mov rsi,[rdi]  1003 mov rax,[rsp+8]  1008 mov ecx,[rsi+rax*4]  100b inc qword [rsp+8]
    // 1010 cmp ecx,edx  1012 jne 1003  1014 ret
    let code = [
        0x48, 0x8b, 0x37, 0x48, 0x8b, 0x44, 0x24, 0x08, 0x8b, 0x0c, 0x86, 0x48, 0xff, 0x44, 0x24, 0x08, 0x39,
        0xd1, 0x75, 0xef, 0xc3,
    ];
    assert_eq!(source(&code, 0x1008), Some(AddressSource::Computed));
}

#[test]
fn a_buckets_nodes_are_counted_by_those_of_its_loop_and_what_comes_before() {
    // 1000 mov rax,[rdi+rcx*8]  1004 test rax,rax  1007 je 1017  1009 cmp [rax+8],rdx  100d je 1017  100f mov rax,[rax]
    // 1012 test rax,rax  1015 jne 1009  1017 inc rcx  101a cmp rcx,rsi  101d jne 1000  101f ret
    let code = [
        0x48, 0x8b, 0x04, 0xcf, 0x48, 0x85, 0xc0, 0x74, 0x0e, 0x48, 0x39, 0x50, 0x08, 0x74, 0x08, 0x48, 0x8b,
        0x00, 0x48, 0x85, 0xc0, 0x75, 0xf2, 0x48, 0xff, 0xc1, 0x48, 0x39, 0xf1, 0x75, 0xe1, 0xc3,
    ];
    let code = loop_code(&code);
    assert_eq!([0x1009, 0x100f].map(|pc| code.links(pc)), [1, 1]);
    assert_eq!([0x1000, 0x100f, 0x101f].map(|pc| code.loop_at(pc)), [Some(0x1000), Some(0x1009), None]);
    let places = |inside: &[u64], before: &[u64], returns: &[u64], exits| {
        let [inside, before, returns] = [inside, before, returns].map(<[u64]>::to_vec);
        Some(LoopPlaces { inside, before, beside: Vec::new(), returns, exits })
    };
    assert_eq!(code.loop_places(0x1009), places(&[0x1009, 0x100f], &[0x1000], &[], 2));
    assert_eq!(code.loop_places(0x1000), places(&[0x1000], &[], &[0x101f], 1));
    assert_eq!(code.loop_places(0x100f), None, "no loop begins there");
}

#[test]
fn a_loop_that_only_repeats_another_is_looked_past() {
    // 1000 mov rdx,[rsi]  1003 xor eax,eax  1005 add rdx,[rdi+rax*8]  1009 inc rax  100c cmp rax,rcx  100f jne 1005
    // 1011 dec r8  1014 jne 1003  1016 ret
    let code = [
        0x48, 0x8b, 0x16, 0x31, 0xc0, 0x48, 0x03, 0x14, 0xc7, 0x48, 0xff, 0xc0, 0x48, 0x39, 0xc8, 0x75, 0xf4,
        0x49, 0xff, 0xc8, 0x75, 0xed, 0xc3,
    ];
    let places = loop_code(&code).loop_places(0x1005).expect("a loop");
    assert_eq!((places.inside, places.before, places.exits), (vec![0x1005], vec![0x1000], 1));
    assert_eq!(places.beside, [], "it only repeats it");
}

#[test]
fn a_search_whose_key_is_computed_is_counted_by_what_is_done_with_what_it_found() {
    // 1000 mov r8,[rdi]  1003 imul r8,rdx  1007 mov rax,rcx  100a cmp [rax+20],r8  100e je 1019  1010 mov rax,[rax+10]
    // 1014 test rax,rax  1017 jne 100a  1019 add rbp,[rax+28]  101d dec rsi  1020 jne 1003  1022 ret
    let code = [
        0x4c, 0x8b, 0x07, 0x4c, 0x0f, 0xaf, 0xc2, 0x48, 0x89, 0xc8, 0x4c, 0x39, 0x40, 0x20, 0x74, 0x09, 0x48,
        0x8b, 0x40, 0x10, 0x48, 0x85, 0xc0, 0x75, 0xf1, 0x48, 0x03, 0x68, 0x28, 0x48, 0xff, 0xce, 0x75, 0xe1,
        0xc3,
    ];
    let places = loop_code(&code).loop_places(0x100a).expect("a loop");
    assert_eq!((places.inside, places.before), (vec![0x100a, 0x1010], vec![0x1000]));
    assert_eq!(places.beside, [0x1019], "the key is in registers, and read from memory once before all");
}

#[test]
fn trees_have_several_links() {
    let links = |bytes: &[u8], pc| loop_code(bytes).links(pc);
    // 1000 cmp [rax+20],rdx  1004 jl 100c  1006 mov rax,[rax+10]  100a jmp 1010  100c mov rax,[rax+18]  1010 test rax,rax
    // 1013 jne 1000  1015 ret
    let sides = [
        0x48, 0x39, 0x50, 0x20, 0x7c, 0x06, 0x48, 0x8b, 0x40, 0x10, 0xeb, 0x04, 0x48, 0x8b, 0x40, 0x18, 0x48,
        0x85, 0xc0, 0x75, 0xeb, 0xc3,
    ];
    assert_eq!(links(&sides, 0x1000), 2);
    // 1000 xor ecx,ecx  1002 cmp [rax+10],rdx  1006 setl cl  1009 mov rax,[rax+rcx*8]  100d test rax,rax  1010 jne 1000  1012 ret
    let chosen = [
        0x31, 0xc9, 0x48, 0x39, 0x50, 0x10, 0x0f, 0x9c, 0xc1, 0x48, 0x8b, 0x04, 0xc8, 0x48, 0x85, 0xc0, 0x75,
        0xee, 0xc3,
    ];
    assert_eq!(links(&chosen, 0x1009), 2);
    // 1000 mov eax,[rdi+rax*4]  1003 test eax,eax  1005 jne 1000  1007 ret
    assert_eq!(links(&[0x8b, 0x04, 0x87, 0x85, 0xc0, 0x75, 0xf9, 0xc3], 0x1000), 1, "a list in an array");
    // 1000 mov rax,[r8+rcx*8+40]  1005 test rax,rax  1008 je 1017  100a cmp [rax],rdi  100d jae 1017  100f mov r8,rax  1012 jmp 1000
    // 1017 dec rcx  101a jns 1000: one loop for both; 1000 again from 1012 as from 101a
    let levels = [
        0x49, 0x8b, 0x44, 0xc8, 0x40, 0x48, 0x85, 0xc0, 0x74, 0x0d, 0x48, 0x39, 0x38, 0x73, 0x08, 0x49, 0x89,
        0xc0, 0xeb, 0xec, 0x90, 0x90, 0x90, 0x48, 0xff, 0xc9, 0x79, 0xe4, 0xc3,
    ];
    assert_eq!(links(&levels, 0x100a), 2, "a skip list");
    // 1000 mov rax,[r8+rcx*8+40]  1005 test rax,rax  1008 je 101b  100a cmp [rax],rdi  100d jae 101b  100f mov r8,rax
    // 1012 mov rax,[r8+rcx*8+40]  1017 test eax,eax  1019 jne 100a  101b dec rcx  101e jns 1000  1020 ret
    let levels = [
        0x49, 0x8b, 0x44, 0xc8, 0x40, 0x48, 0x85, 0xc0, 0x74, 0x11, 0x48, 0x39, 0x38, 0x73, 0x0c, 0x49, 0x89,
        0xc0, 0x49, 0x8b, 0x44, 0xc8, 0x40, 0x85, 0xc0, 0x75, 0xef, 0x48, 0xff, 0xc9, 0x79, 0xe0, 0xc3,
    ];
    assert_eq!(links(&levels, 0x100a), 2, "with a loop for each level");
    assert_eq!(loop_code(&levels).loop_at(0x100a), Some(0x1000), "that of the levels");
    // 1000 mov rdx,[rdi+rax*8]  1004 inc rax  1007 cmp rax,rcx  100a jne 1000  100c ret
    let stream = [0x48, 0x8b, 0x14, 0xc7, 0x48, 0xff, 0xc0, 0x48, 0x39, 0xc8, 0x75, 0xf4, 0xc3];
    assert_eq!(links(&stream, 0x1000), 0);
}
