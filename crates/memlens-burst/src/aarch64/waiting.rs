//! Loops that wait for another thread: whether one goes on is decided by what others write to memory.
//!
//! As on x86-64 a loop waits if it has `YIELD` or `WFE` in it, or if a round leaves everything as it found it: it goes one
//! way, each register that it writes is written before it is read, flags too, and it writes no memory, but for locks that
//! it tries to take: `SWP` and `CAS` of what no load of the round told, and exclusive stores likewise.
//!
//! # Signal safety
//! Without memory of its own. Nothing waits, nothing is locked.

use memlens_events::burst::Use;

use super::decode::{Decoded, Flow, Form, Set, decode};
use super::trace::Decoding;

/// How far to both sides of an instruction its loop is looked for, in bytes: loops that wait are short.
pub const AROUND: u64 = 64;
/// A `YIELD` is looked for so far away.
const YIELD_AROUND: usize = 32;
const YIELD: u32 = 0xd503_203f;
const WFE: u32 = 0xd503_205f;

/// Whether a thread that is about to execute the instruction at `ip` waits in a loop for another one. `code` is what lies around it,
/// [`WAITING_AROUND`](crate::WAITING_AROUND) bytes to both sides if there are so many, `start` the address of its first byte.
pub fn code_waits(code: &[u8], start: u64, ip: u64) -> bool {
    waits_at(code, start, ip, Some(&mut Decoding::new()))
}

/// The same. Where no loop is found, only a `YIELD` nearby tells.
pub fn waits_at(code: &[u8], start: u64, ip: u64, _: Option<&mut Decoding>) -> bool {
    let at = (ip - start) as usize;
    match innermost_loop(&code[at..], ip, start) {
        Some((head, end)) => {
            let code = &code[(head - start) as usize..(end - start) as usize];
            yields(code) || leaves_all_alike(code, head)
        }
        None => yields(&code[at.saturating_sub(YIELD_AROUND)..code.len().min(at + YIELD_AROUND)]),
    }
}

fn words(code: &[u8]) -> impl Iterator<Item = u32> {
    code.chunks_exact(4).map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

fn yields(code: &[u8]) -> bool {
    words(code).any(|word| matches!(word, YIELD | WFE))
}

/// What an instruction does, of exclusive ones, too: they only tell where a burst ends.
fn decoded(word: u32, pc: u64) -> Decoded {
    /// LDXR, LDAXR, STXR, STLXR: bit 23 makes them LDLAR, LDAR, STLLR, STLR, of which bits 20:16 are all ones.
    const KIND: u32 = 0x3fa0_7c00;
    const EXCLUSIVE: u32 = 0x0800_7c00;
    const ORDERED: u32 = 1 << 23 | 31 << 16;
    if word & KIND != EXCLUSIVE {
        return decode(word, pc);
    }
    let decoded = decode(word | ORDERED, pc);
    let status = word >> 16 & 31;
    match decoded.operand.map(|operand| operand.used) {
        Some(Use::Write) if status < 31 => Decoded { written: decoded.written | 1 << status, ..decoded },
        _ => decoded,
    }
}

/// The first branch back to `ip` or before it: where it leads to, and its own end.
fn innermost_loop(code: &[u8], ip: u64, start: u64) -> Option<(u64, u64)> {
    for (pc, word) in (ip..).step_by(4).zip(words(code)) {
        let target = match decoded(word, pc).flow {
            Flow::Conditional(target) | Flow::Jump(target) => Some(target),
            Flow::Next => None,
            Flow::Native(_) if matches!(word, YIELD | WFE) => None,
            _ => return None,
        };
        match target {
            Some(target) if (start..=ip).contains(&target) => return Some((target, pc + 4)),
            Some(_) if matches!(decoded(word, pc).flow, Flow::Jump(_)) => return None,
            _ => {}
        }
    }
    None
}

/// Whether a round of the loop that this code at `head` is writes nothing that the next one reads.
fn leaves_all_alike(code: &[u8], head: u64) -> bool {
    let end = head + code.len() as u64;
    let mut written: Set = 0;
    // Read before a round has written them.
    let mut needed: Set = 0;
    // What the round's loads told.
    let mut loaded: Set = 0;
    let (mut flags_are_set, mut needs_flags, mut changes_flags) = (false, false, false);
    for (pc, word) in (head..).step_by(4).zip(words(code)) {
        let decoded = decoded(word, pc);
        let is_last = pc + 4 == end;
        let has_one_way = match decoded.flow {
            Flow::Next => true,
            Flow::Conditional(target) => is_last || !(head..end).contains(&target),
            Flow::Jump(_) => is_last,
            _ => false,
        };
        let used = decoded.operand.map(|operand| operand.used);
        let stored = written_to_memory(word, &decoded);
        let tries_lock = stored.is_some_and(|stored| loaded & stored == 0);
        let writes = matches!(used, Some(Use::Write | Use::Both));
        if !has_one_way || !decoded.is_whole || writes && !tries_lock {
            return false;
        }
        needed |= decoded.read & !written;
        let tells = used.is_some() || decoded.read & loaded != 0;
        written |= decoded.written;
        loaded = if tells { loaded | decoded.written } else { loaded & !decoded.written };
        needs_flags |= decoded.reads_flags && !flags_are_set;
        flags_are_set |= decoded.sets_flags;
        changes_flags |= decoded.sets_flags;
    }
    written & needed == 0 && !(changes_flags && needs_flags)
}

/// What an instruction that may take a lock stores, as bits by number: SWP, CAS, STXR.
fn written_to_memory(word: u32, decoded: &Decoded) -> Option<Set> {
    let bit = |at: u32| if word >> at & 31 == 31 { 0 } else { 1 << (word >> at & 31) };
    match decoded.form {
        // SWP
        _ if word & 0x3f20_fc00 == 0x3820_8000 => Some(bit(16)),
        // CAS
        _ if word & 0x3fa0_7c00 == 0x08a0_7c00 => Some(bit(0)),
        // STXR, STLXR
        Form::Plain if word & 0x3fe0_7c00 == 0x0800_7c00 => Some(bit(0)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x1000;

    /// Of a thread that is `at` instructions into this code.
    fn waits(code: &[u32], at: u64) -> bool {
        let bytes: Vec<u8> = code.iter().flat_map(|word| word.to_le_bytes()).collect();
        code_waits(&bytes, START, START + 4 * at)
    }

    #[test]
    fn loops_whose_rounds_are_all_alike_wait() {
        let cases: [(&str, &[u32]); 8] = [
            ("ldr w0, [x1] ; cbz w0", &[0xb940_0020, 0x34ff_ffe0]),
            ("ldar x0, [x1] ; cmp x0, x2 ; b.ne", &[0xc8df_fc20, 0xeb02_001f, 0x54ff_ffc1]),
            ("ldaxr w0, [x1] ; cbnz w0", &[0x885f_fc20, 0x35ff_ffe0]),
            ("mov w2, #1 ; swpa w2, w0, [x1] ; cbnz w0", &[0x5280_0022, 0xb8a2_8020, 0x35ff_ffc0]),
            ("mov w0, #0 ; casa w0, w2, [x1] ; cbnz w0", &[0x5280_0000, 0x88e0_7c22, 0x35ff_ffc0]),
            ("ldaxr w0, [x1] ; stxr w3, w2, [x1] ; cbnz w3", &[0x885f_fc20, 0x8803_7c22, 0x35ff_ffc3]),
            ("ldrb w0, [x1] ; cbnz w0, out ; b", &[0x3940_0020, 0x3500_0040, 0x17ff_fffe]),
            ("b to itself", &[0x1400_0000]),
        ];
        for (text, code) in cases {
            assert!(waits(code, 0), "{text}");
            assert!(waits(code, code.len() as u64 - 1), "{text}, at its end");
        }
        assert!(waits(&[0x5100_0400, YIELD, 0x35ff_ffc0], 0), "sub w0, w0, #1 ; yield ; cbnz w0");
        assert!(waits(&[0xd503_201f, YIELD, 0xd65f_03c0], 0), "yield nearby");
    }

    #[test]
    fn loops_that_go_on_by_themselves_do_not_wait() {
        let cases: [(&str, &[u32]); 8] = [
            ("sub w0, w0, #1 ; cbnz w0", &[0x5100_0400, 0x35ff_ffe0]),
            ("ldr x0, [x0] ; cbnz x0", &[0xf940_0000, 0xb5ff_ffe0]),
            ("ldr w0, [x1], #4 ; cbnz w0", &[0xb840_4420, 0x35ff_ffe0]),
            ("str w0, [x1] ; ldr w2, [x1] ; cbnz w2", &[0xb900_0020, 0xb940_0022, 0x35ff_ffc2]),
            ("ldaxr w0, [x1] ; stxr w3, w0, [x1] ; cbnz w3", &[0x885f_fc20, 0x8803_7c20, 0x35ff_ffc3]),
            ("ldr q0, [x1] ; cbnz w0", &[0x3dc0_0020, 0x35ff_ffe0]),
            ("ldr w0, [x1] ; ccmp w0, #0, #0, eq ; b.ne", &[0xb940_0020, 0x7a40_0800, 0x54ff_ffc1]),
            ("ldr w0, [x1] ; blr x2 ; cbnz w0", &[0xb940_0020, 0xd63f_0040, 0x35ff_ffc0]),
        ];
        for (text, code) in cases {
            assert!(!waits(code, 0), "{text}");
        }
        assert!(!waits(&[0xd503_201f, 0xd503_201f], 0), "no loop");
    }
}
