//! What the client encodes by itself, decoded by a disassembler.

#[path = "../../memlens-exact-client/src/machine_code.rs"]
mod machine_code;

use iced_x86::{Code, Decoder, DecoderOptions, Instruction as Decoded, OpKind, Register as Named};
use machine_code::{Instruction, MAX_BYTES, Operand, Place, Register};

const WIDE: [Named; 16] = [
    Named::RAX,
    Named::RCX,
    Named::RDX,
    Named::RBX,
    Named::RSP,
    Named::RBP,
    Named::RSI,
    Named::RDI,
    Named::R8,
    Named::R9,
    Named::R10,
    Named::R11,
    Named::R12,
    Named::R13,
    Named::R14,
    Named::R15,
];
const FS_PREFIX: u8 = 0x64;
const GS_PREFIX: u8 = 0x65;

fn named(register: Register, is_wide: bool) -> Named {
    let wide = WIDE[usize::from(register)];
    if is_wide { wide } else { wide.full_register32() }
}

/// The one instruction that the bytes are.
fn decoded(instruction: &Instruction) -> Decoded {
    let code = instruction.encode();
    assert!(code.bytes().len() <= MAX_BYTES);
    let mut decoder = Decoder::new(64, code.bytes(), DecoderOptions::NONE);
    let decoded = decoder.decode();
    assert!(!decoded.is_invalid() && !decoder.can_decode(), "{instruction:x?}: {:x?}", code.bytes());
    decoded
}

fn assert_place(decoded: &Decoded, place: &Place) {
    assert_eq!(decoded.memory_base(), place.base.map_or(Named::None, |base| named(base, true)), "{place:?}");
    let (index, scale) = place.index.map_or((Named::None, 1), |(index, scale)| (named(index, true), scale));
    assert_eq!((decoded.memory_index(), decoded.memory_index_scale()), (index, scale.into()), "{place:?}");
    assert_eq!(decoded.memory_displacement64(), i64::from(place.displacement) as u64, "{place:?}");
    let segment = match place.segment_prefix {
        FS_PREFIX => Named::FS,
        GS_PREFIX => Named::GS,
        _ => Named::None,
    };
    assert_eq!(decoded.segment_prefix(), segment, "{place:?}");
}

/// Every base, index and factor, with displacements of all lengths.
fn places() -> impl Iterator<Item = Place> {
    let registers = || (0..16).map(Some).chain([None]);
    let indices = || {
        let all =
            (0..16).filter(|&index| index != 4).flat_map(|index| [1, 2, 4, 8].map(|by| Some((index, by))));
        all.chain([None])
    };
    let displacements = [0, 1, -1, 127, 128, -128, -129, i32::MAX, i32::MIN];
    registers().flat_map(move |base| {
        indices().flat_map(move |index| {
            displacements.map(move |displacement| Place { segment_prefix: 0, base, index, displacement })
        })
    })
}

fn segments() -> impl Iterator<Item = Place> {
    [FS_PREFIX, GS_PREFIX].into_iter().flat_map(|segment_prefix| {
        let bases = [None, Some(0), Some(4), Some(5), Some(12), Some(13)];
        let place = move |base| Place { segment_prefix, base, index: None, displacement: 0x158 };
        bases.map(place)
    })
}

#[test]
fn addresses_are_those_asked_for() {
    for (number, of) in places().enumerate() {
        let to = (number % 16) as Register;
        let decoded = decoded(&Instruction::Address { to, of });
        assert_eq!((decoded.code(), decoded.op0_register()), (Code::Lea_r64_m, named(to, true)));
        assert_place(&decoded, &of);
    }
}

#[test]
fn moves_have_their_registers_sizes_and_places() {
    for (number, place) in places().step_by(7).chain(segments()).enumerate() {
        let (register, is_wide) = ((number % 16) as Register, number / 16 % 2 == 0);
        let load = decoded(&Instruction::Load { to: register, from: Operand::Place(place), is_wide });
        let code = if is_wide { Code::Mov_r64_rm64 } else { Code::Mov_r32_rm32 };
        assert_eq!((load.code(), load.op0_register()), (code, named(register, is_wide)));
        assert_place(&load, &place);
        let store = decoded(&Instruction::Store { to: place, from: register, is_wide });
        let code = if is_wide { Code::Mov_rm64_r64 } else { Code::Mov_rm32_r32 };
        assert_eq!((store.code(), store.op1_register()), (code, named(register, is_wide)));
        assert_place(&store, &place);
        let compare = decoded(&Instruction::Compare { left: register, right: place });
        assert_eq!((compare.code(), compare.op0_register()), (Code::Cmp_r64_rm64, named(register, true)));
        assert_place(&compare, &place);
        for value in [0, 1, -1, i32::MAX, i32::MIN] {
            let store = decoded(&Instruction::StoreImmediate { to: place, value, is_wide });
            let code = if is_wide { Code::Mov_rm64_imm32 } else { Code::Mov_rm32_imm32 };
            assert_eq!(store.code(), code);
            assert_eq!(store.immediate(1) as i32, value);
            assert_place(&store, &place);
        }
    }
    for (to, from) in (0..16).flat_map(|to| (0..16).map(move |from| (to, from))) {
        let copy = decoded(&Instruction::Load { to, from: Operand::Register(from), is_wide: true });
        assert_eq!(copy.code(), Code::Mov_r64_rm64);
        assert_eq!((copy.op0_register(), copy.op1_register()), (named(to, true), named(from, true)));
    }
}

#[test]
fn immediates_fill_the_register() {
    let values =
        [0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 1 << 32, u64::MAX, u64::MAX << 31, u64::MAX << 32];
    for (to, value) in (0..16).flat_map(|to| values.map(|value| (to, value))) {
        let decoded = decoded(&Instruction::Immediate { to, value });
        assert_eq!(decoded.op0_register().full_register(), named(to, true));
        // Writing the lower 32 bits clears the upper ones.
        let is_narrow = decoded.op0_kind() == OpKind::Register && decoded.op0_register().size() == 4;
        let written = decoded.immediate(1) & if is_narrow { u64::from(u32::MAX) } else { u64::MAX };
        assert_eq!(written, value);
    }
}
