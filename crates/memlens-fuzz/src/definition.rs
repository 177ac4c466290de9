//! Definitions and record headers from the target.

use memlens_events::{
    BlockDefinition, BlockFlags, Definition, DefinitionKind, ModuleDefinition, RecordHeader,
    ThreadDefinition, Word,
};
use memlens_types::AccessKind;

/// The kind's code in the first byte, then the payload.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let words = (0..5).map(|at| Word::address(AccessKind::Load, 8, at * 4)).collect();
    let block = BlockDefinition {
        id: 77,
        pc: 0x7fff_1234_5678,
        code_bytes: 31,
        instructions: 9,
        flags: BlockFlags::CALL,
        slot_word: 2,
        alloc_function: 5,
        module: 3,
        words,
        lengths: vec![4, 1, 2, 3, 4, 5, 3, 4, 5],
    };
    let path = "/usr/lib/libc.so.6".to_owned();
    let module = ModuleDefinition { id: 3, start: 0x400000, end: 0x500000, load_bias: 4096, path };
    let definitions = [
        Definition::Block(block),
        Definition::Module(module),
        Definition::Thread(ThreadDefinition { slot: 4, tid: 4711 }),
    ];
    let encode = |definition: Definition| {
        let mut bytes = vec![definition.kind() as u8];
        definition.encode(&mut bytes);
        bytes
    };
    definitions.map(encode).into()
}

pub(crate) fn check(bytes: &[u8]) {
    let Some((&kind, payload)) = bytes.split_first() else { return };
    let kind = u32::from(kind);
    if let Some(header) = payload.first_chunk() {
        check_header(u64::from_le_bytes(*header));
    }
    let u16_at = |at: usize| u16::from_le_bytes([payload[at], payload[at + 1]]);
    let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
    let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
    let Ok(definition) = Definition::decode(kind, payload) else {
        // A thread's payload has no wrong values, a module's only its path.
        assert!(kind != DefinitionKind::Thread as u32 || payload.len() < 8);
        let is_path = payload.get(32..).is_some_and(|path| std::str::from_utf8(path).is_ok());
        assert!(kind != DefinitionKind::Module as u32 || !is_path);
        return;
    };
    assert_eq!(definition.kind() as u32, kind);
    match &definition {
        Definition::Block(block) => {
            assert_eq!((block.id, block.flags.0, block.alloc_function), (u32_at(0), u16_at(4), u16_at(6)));
            assert_eq!((block.pc, block.code_bytes, block.instructions), (u64_at(8), u16_at(16), u16_at(18)));
            assert_eq!((block.slot_word, block.words.len()), (payload[20], usize::from(payload[21])));
            assert_eq!(block.module, u32_at(24));
            for (index, word) in block.words.iter().enumerate() {
                let at = 28 + 8 * index;
                assert_eq!((word.attr.0, word.pc_offset), (u32_at(at), u16_at(at + 4)));
                assert_eq!((word.role as u8, word.instruction), (payload[at + 6], payload[at + 7]));
            }
        }
        Definition::Module(module) => {
            assert_eq!((module.id, module.start), (u32_at(0), u64_at(8)));
            assert_eq!((module.end, module.load_bias), (u64_at(16), u64_at(24)));
            assert_eq!(module.path.as_bytes(), &payload[32..]);
        }
        Definition::Thread(thread) => assert_eq!((thread.slot, thread.tid), (u32_at(0), u32_at(4))),
    }
    let mut encoded = Vec::new();
    definition.encode(&mut encoded);
    assert!(encoded.len() <= payload.len());
    assert_eq!(Definition::decode(kind, &encoded), Ok(definition));
}

fn check_header(bits: u64) {
    let header = RecordHeader(bits);
    let again = RecordHeader::new(header.block_id(), header.words(), header.epoch());
    assert_eq!(again.0, bits);
}
