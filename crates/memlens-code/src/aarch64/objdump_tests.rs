//! The decoder against GNU objdump, over a library of a cross compiler.
//!
//! Skipped where there is none of both. Other files: `MEMLENS_A64_FILES=a:b cargo test -p memlens-code objdump -- --nocapture`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use super::decode::{Effect, ZVA_BYTES, decode};
use crate::{AddressExpression, IndexExtension, Register, Transfer};

const OBJDUMP: &str = "aarch64-linux-gnu-objdump";
const LIBRARY: &str = "/usr/aarch64-linux-gnu/lib/libc.so.6";
/// Differences that are shown.
const MOST_SHOWN: usize = 20;

/// The base register that is changed, and what is added to it if that is a constant.
type WriteBack = Option<(u8, Option<i64>)>;

/// What a disassembly says of an instruction.
pub(super) struct Text<'a> {
    pub(super) pc: u64,
    pub(super) word: u32,
    pub(super) mnemonic: &'a str,
    pub(super) operands: Vec<&'a str>,
}

#[derive(Debug, Default, PartialEq)]
struct Expected {
    /// Reads, writes, bytes, where.
    accesses: Vec<(bool, bool, u32, AddressExpression)>,
    written: u32,
    write_back: WriteBack,
    target: Option<u64>,
}

/// Commas outside of brackets and braces separate operands.
fn split(operands: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    for (at, c) in operands.char_indices() {
        match c {
            '[' | '{' => depth += 1,
            ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(operands[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(operands[start..].trim());
    found.retain(|operand| !operand.is_empty());
    found
}

fn text(line: &str) -> Option<Text<'_>> {
    let mut columns = line.split('\t');
    let pc = u64::from_str_radix(columns.next()?.trim().strip_suffix(':')?, 16).ok()?;
    let word = u32::from_str_radix(columns.next()?.trim(), 16).ok()?;
    let mnemonic = columns.next()?.trim();
    let operands = columns.next().unwrap_or_default();
    let operands = operands.split("//").next().unwrap_or_default();
    Some(Text { pc, word, mnemonic, operands: split(operands) })
}

/// A general-purpose register and its bytes; 31 is sp, 32 zero.
pub(super) fn general(name: &str) -> Option<(u8, u32)> {
    match name {
        "sp" => return Some((31, 8)),
        "wsp" => return Some((31, 4)),
        "xzr" => return Some((32, 8)),
        "wzr" => return Some((32, 4)),
        _ => {}
    }
    let bytes = match name.as_bytes().first()? {
        b'x' => 8,
        b'w' => 4,
        _ => return None,
    };
    name[1..].parse().ok().filter(|&number| number < 31).map(|number| (number, bytes))
}

/// Bytes of a scalar register.
fn bytes_of(name: &str) -> Option<u32> {
    if let Some((_, bytes)) = general(name) {
        return Some(bytes);
    }
    let bytes = match name.as_bytes().first()? {
        b'b' => 1,
        b'h' => 2,
        b's' => 4,
        b'd' => 8,
        b'q' => 16,
        _ => return None,
    };
    name[1..].parse::<u8>().ok().map(|_| bytes)
}

fn immediate(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('#')?;
    let (sign, digits) = digits.strip_prefix('-').map_or((1, digits), |digits| (-1, digits));
    let value = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()? as i64,
        None => digits.parse().ok()?,
    };
    Some(sign * value)
}

/// `401000 <main>`, or `0x401000` where there are no symbols.
fn code_address(text: &str) -> Option<u64> {
    u64::from_str_radix(text.split(' ').next()?.trim_start_matches("0x"), 16).ok()
}

/// Bytes of a list of vector registers, or of their elements.
fn list_bytes(list: &str, replicated: bool) -> Option<u32> {
    let inner = list.strip_prefix('{')?;
    let (inner, rest) = inner.split_once('}')?;
    let is_element = rest.starts_with('[');
    let registers = match inner.split_once('-') {
        Some((first, last)) => {
            let number = |name: &str| name.trim()[1..].split('.').next().and_then(|n| n.parse::<u32>().ok());
            (number(last)? + 32 - number(first)?) % 32 + 1
        }
        None => inner.split(',').count() as u32,
    };
    let shape = inner.split('.').nth(1)?.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    let shape: String = shape.chars().take_while(char::is_ascii_alphanumeric).collect();
    let element = match shape.chars().last()? {
        'b' => 1,
        'h' => 2,
        's' => 4,
        'd' => 8,
        _ => return None,
    };
    let count: u32 = shape[..shape.len() - 1].parse().unwrap_or(1);
    Some(registers * if is_element || replicated { element } else { element * count })
}

/// `[x1, w2, sxtw #3]` and what follows it, for an access of so many bytes.
fn address(memory: &str, behind: Option<&str>) -> Option<(AddressExpression, WriteBack)> {
    let is_pre = memory.ends_with('!');
    let inner = memory.trim_end_matches('!').strip_prefix('[')?.strip_suffix(']')?;
    let parts: Vec<&str> = inner.split(',').map(str::trim).collect();
    let (base, _) = general(parts[0])?;
    let mut address =
        AddressExpression { base: Some(Register(u16::from(base))), ..AddressExpression::NOTHING };
    match parts.get(1) {
        None => {}
        Some(part) if part.starts_with('#') => address.disp = immediate(part)?,
        Some(part) => {
            let (index, _) = general(part)?;
            if index < 31 {
                address.index = Some(Register(u16::from(index)));
                let (kind, shift) = parts.get(2).map_or(("lsl", 0), |part| match part.split_once(' ') {
                    Some((kind, shift)) => (kind, immediate(shift).unwrap_or(0)),
                    None => (*part, 0),
                });
                address.scale = 1 << shift;
                address.index_extension = match kind {
                    "uxtw" => IndexExtension::Unsigned32,
                    "sxtw" => IndexExtension::Signed32,
                    _ => IndexExtension::None,
                };
            }
        }
    }
    let write_back = match behind {
        _ if is_pre => Some((base, Some(address.disp))),
        Some(behind) => Some((base, immediate(behind))),
        None => None,
    };
    Some((address, write_back))
}

/// What an instruction that touches memory does; None: it does not, or nothing is expected of it.
fn expected_access(text: &Text<'_>) -> Option<Expected> {
    let mnemonic = text.mnemonic;
    let bit =
        |name: &str| general(name).map_or(0, |(number, _)| if number > 31 { 0 } else { 1u32 << number });
    if mnemonic == "dc" && text.operands.first() == Some(&"zva") {
        let (base, _) = general(text.operands[1])?;
        let address =
            AddressExpression { base: Some(Register(u16::from(base))), ..AddressExpression::NOTHING };
        return Some(Expected { accesses: vec![(false, true, ZVA_BYTES, address)], ..Expected::default() });
    }
    if mnemonic.starts_with("cpy") || mnemonic.starts_with("set") && text.operands[0].starts_with('[') {
        let side = |operand: &str| {
            let (base, _) = general(operand.trim_end_matches('!').trim_matches(['[', ']']))?;
            Some(AddressExpression {
                base: Some(Register(u16::from(base))),
                is_partial: true,
                ..AddressExpression::NOTHING
            })
        };
        let mut accesses = vec![(false, true, 0, side(text.operands[0])?)];
        if mnemonic.starts_with("cpy") {
            accesses.push((true, false, 0, side(text.operands[1])?));
        }
        let changed = text.operands.iter().filter_map(|operand| operand.strip_suffix('!'));
        let written = changed.map(|name| bit(name.trim_matches(['[', ']']))).fold(0, |all, one| all | one);
        return Some(Expected { accesses, written, ..Expected::default() });
    }
    let at = text.operands.iter().position(|operand| operand.starts_with('['));
    let registers = &text.operands[..at.unwrap_or(1).min(text.operands.len())];
    // `ldr x0, 1234 <name>` of a literal.
    let (address, write_back) = match at {
        Some(at) => address(text.operands[at], text.operands.get(at + 1).copied())?,
        None if mnemonic.starts_with("ldr") => {
            let svma = code_address(text.operands.get(1)?)?;
            (AddressExpression { disp: svma as i64, ..AddressExpression::NOTHING }, None)
        }
        None if mnemonic == "prfm" => return Some(Expected::default()),
        None => return None,
    };
    if mnemonic.starts_with("prfm") || mnemonic.starts_with("prfum") {
        return Some(Expected { write_back, ..Expected::default() });
    }
    let first = *registers.first()?;
    let back = write_back.map_or(0, |(base, _)| 1u32 << base);
    let done = |reads, writes, bytes, written: u32| {
        Some(Expected {
            accesses: vec![(reads, writes, bytes, address)],
            written: written | back,
            write_back,
            target: None,
        })
    };
    // Tags
    match mnemonic {
        "ldg" | "ldgm" => return Some(Expected { written: bit(first), ..Expected::default() }),
        "stg" | "st2g" | "stgm" | "stzgm" => {
            return Some(Expected { written: back, write_back, ..Expected::default() });
        }
        "stzg" => return done(false, true, 16, 0),
        "stz2g" => return done(false, true, 32, 0),
        _ => {}
    }
    // LD1 to LD4, ST1 to ST4
    if first.starts_with('{') {
        let bytes = list_bytes(first, mnemonic.ends_with('r') && mnemonic.len() == 4)?;
        return done(mnemonic.starts_with("ld"), mnemonic.starts_with("st"), bytes, 0);
    }
    // Atomic operations
    for (name, register) in [
        ("ldadd", 1),
        ("ldclr", 1),
        ("ldeor", 1),
        ("ldset", 1),
        ("ldsmax", 1),
        ("ldsmin", 1),
        ("ldumax", 1),
        ("ldumin", 1),
        ("swp", 1),
        ("casp", 4),
        ("cas", 0),
        ("stadd", 9),
        ("stclr", 9),
        ("steor", 9),
        ("stset", 9),
        ("stsmax", 9),
        ("stsmin", 9),
        ("stumax", 9),
        ("stumin", 9),
    ] {
        if let Some(rest) = mnemonic.strip_prefix(name) {
            let bytes = match rest.chars().last() {
                Some('b') => 1,
                Some('h') => 2,
                _ => bytes_of(first)?,
            };
            return match register {
                4 => done(true, true, 2 * bytes, bit(first) | bit(registers[1])),
                9 => done(true, true, bytes, 0),
                _ => done(true, true, bytes, bit(registers[register])),
            };
        }
    }
    let is_load = mnemonic.starts_with("ld");
    if !is_load && !mnemonic.starts_with("st") {
        return None;
    }
    // Exclusive stores have their status first.
    let has_status =
        ["stxr", "stlxr", "stxp", "stlxp", "st64bv"].iter().any(|name| mnemonic.starts_with(name));
    let values = if has_status { &registers[1..] } else { registers };
    let sized = values.first()?;
    let bytes = match mnemonic {
        "ldpsw" => 8,
        "ldraa" | "ldrab" => 8,
        _ if mnemonic.contains("64b") => 64,
        _ if mnemonic.ends_with("sw") => 4,
        _ if values.len() == 2 => 2 * bytes_of(sized)?,
        _ if general(sized).is_some() && mnemonic.ends_with('b') => 1,
        _ if general(sized).is_some() && mnemonic.ends_with('h') => 2,
        _ => bytes_of(sized)?,
    };
    let written = match (is_load, has_status) {
        (true, _) if bytes == 64 => 0xff << general(first)?.0,
        (true, _) => values.iter().map(|value| bit(value)).fold(0, |all, one| all | one),
        (false, true) => bit(first),
        (false, false) => 0,
    };
    done(is_load, !is_load, bytes, written)
}

/// The access of an SVE instruction; None: it has none, or it is of SVE 2.1.
fn expected_scalable(text: &Text<'_>) -> Option<Vec<(bool, bool, u32, AddressExpression)>> {
    let mnemonic = text.mnemonic;
    if mnemonic.starts_with("prf") {
        return Some(Vec::new());
    }
    let memory = text.operands.iter().find(|operand| operand.starts_with('['))?;
    let parts: Vec<&str> = memory.trim_matches(['[', ']']).split(',').map(str::trim).collect();
    let base = general(parts[0]).map(|base| Register(u16::from(base.0)));
    let mut address = AddressExpression { base, is_partial: base.is_none(), ..AddressExpression::NOTHING };
    match (parts.get(1), parts.last()) {
        (Some(part), Some(&"mul vl")) => address.is_partial = immediate(part) != Some(0),
        (Some(part), _) if part.starts_with('#') && base.is_some() => address.disp = immediate(part)?,
        (Some(part), _) if base.is_some() => match general(part) {
            Some((32, _)) => {}
            Some((index, _)) => {
                address.index = Some(Register(u16::from(index)));
                let shift = parts.get(2).and_then(|part| immediate(part.split_once(' ')?.1));
                address.scale = 1 << shift.unwrap_or(0);
            }
            None => address.is_partial = true,
        },
        _ => {}
    }
    let size = match mnemonic.strip_prefix("ld1r") {
        Some(kind) if kind.starts_with('q') => 16,
        Some(kind) if kind.starts_with('o') => 32,
        Some(kind) => match kind.chars().last()? {
            'b' => 1,
            'h' => 2,
            'w' => 4,
            _ => 8,
        },
        None => 0,
    };
    let is_load = mnemonic.starts_with("ld");
    Some(vec![(is_load, !is_load, size, address)])
}

/// The registers that an instruction without memory operand writes to.
fn expected_written(text: &Text<'_>) -> Option<u32> {
    let first = text.operands.first().copied().unwrap_or_default();
    let none = [
        "cmp", "cmn", "tst", "ccmp", "ccmn", "msr", "tlbi", "at", "nop", "bti", "dmb", "dsb", "isb", "clrex",
        "yield", "csdb", "hint", "sb", "wfe", "sev", "b", "br", "cbz", "cbnz", "tbz", "tbnz", "ret", "brk",
        "hlt", "dc", "ic", "sys", "fcmp", "fcmpe", "fccmp", "setf8", "setf16", "rmif", "wfi", "sevl", "udf",
        "retaa",
    ];
    match text.mnemonic {
        "paciasp" | "autiasp" | "pacibsp" | "autibsp" | "xpaclri" => Some(1 << 30),
        "chkfeat" => Some(1 << 16),
        mnemonic if none.contains(&mnemonic) || mnemonic.starts_with("b.") => Some(0),
        _ => match general(first) {
            Some((number, _)) => Some(if number > 31 { 0 } else { 1 << number }),
            // Scalars and vectors.
            None if bytes_of(first).is_some() || (first.starts_with('v') && first.contains('.')) => Some(0),
            None => None,
        },
    }
}

/// What an instruction leaves in a register, where the decoder must tell.
fn expected_effect(text: &Text<'_>) -> Option<Effect> {
    let (to, bytes) = general(text.operands.first()?)?;
    let is_wide = bytes == 8;
    let register = |at: usize| general(text.operands.get(at)?);
    let value = |at: usize| immediate(text.operands.get(at)?);
    let plain = |register: u8| if register == 32 { 31 } else { register };
    let is_load = text.mnemonic.starts_with("ld")
        && !text.mnemonic.starts_with("ldxp")
        && !text.mnemonic.starts_with("ldaxp");
    match text.mnemonic {
        _ if to == 32 && !matches!(text.mnemonic, "ldr" | "ldp" | "str" | "stp") => None,
        "adr" | "adrp" => Some(Effect::Value { to, value: code_address(text.operands[1])? }),
        "mov" if text.operands[1].starts_with('#') && is_wide => {
            Some(Effect::Value { to, value: value(1)? as u64 })
        }
        "mov" if register(1) == Some((32, 8)) => Some(Effect::Value { to, value: 0 }),
        "mov" if register(1)?.0 < 32 => Some(Effect::Plus { to, from: register(1)?.0, by: 0, is_wide }),
        "add" | "sub" | "adds" | "subs" if value(2).is_some() => {
            let shift = text.operands.get(3).map_or(0, |_| 12);
            let by = value(2)? << shift;
            let by = if text.mnemonic.starts_with("sub") { -by } else { by };
            Some(Effect::Plus { to, from: register(1)?.0, by, is_wide })
        }
        "add" | "sub" | "adds" | "subs" if is_wide && register(2)?.0 < 32 && register(1)?.0 < 32 => {
            let (kind, shift) = match text.operands.get(3).map(|kind| kind.split_once(' ')) {
                None => ("lsl", 0),
                Some(Some((kind, shift))) => (kind, immediate(shift)? as u8),
                Some(None) => (text.operands[3], 0),
            };
            let extension = match kind {
                "lsl" | "uxtx" | "sxtx" => Some(IndexExtension::None),
                "uxtw" => Some(IndexExtension::Unsigned32),
                "sxtw" => Some(IndexExtension::Signed32),
                _ => None,
            };
            let (base, index) = (register(1)?.0, register(2)?.0);
            Some(match extension {
                Some(extension) if text.mnemonic.starts_with("add") => {
                    Effect::Sum { to, base, index, shift, extension }
                }
                _ => Effect::Minus { to, from: base },
            })
        }
        "and" | "ands"
            if is_wide
                && (value(2)?.unsigned_abs().is_power_of_two() && value(2)? < 0 && register(1)?.0 < 32) =>
        {
            Some(Effect::Aligned { to, from: register(1)?.0 })
        }
        "csel" if is_wide => {
            Some(Effect::Choice { to, first: plain(register(1)?.0), second: plain(register(2)?.0) })
        }
        "mrs" if text.operands[1] == "tpidr_el0" => Some(Effect::ThreadPointer { to }),
        "ldr" | "ldur" | "ldar" | "ldapr" | "ldxr" | "ldaxr" | "ldapur" | "ldtr" | "ldlar"
            if is_wide && is_load =>
        {
            Some(Effect::Load { to: plain(to), second: None })
        }
        "ldp" | "ldnp" if is_wide => {
            Some(Effect::Load { to: plain(to), second: Some(plain(register(1)?.0)) })
        }
        "str" | "stur" | "stlr" | "stlur" | "sttr" | "stllr" if is_wide => {
            Some(Effect::Store { from: plain(to), second: None })
        }
        "stp" | "stnp" if is_wide => {
            Some(Effect::Store { from: plain(to), second: Some(plain(register(1)?.0)) })
        }
        "cmp" if is_wide && value(1) == Some(0) => Some(Effect::Test { register: to }),
        "tst" if is_wide && text.operands[0] == text.operands[1] && text.operands.len() == 2 => {
            Some(Effect::Test { register: to })
        }
        "cbz" | "cbnz" if is_wide => Some(Effect::Test { register: to }),
        _ => None,
    }
}

#[derive(Default)]
struct Count {
    instructions: usize,
    accesses: usize,
    written: usize,
    effects: usize,
    targets: usize,
    scalable: usize,
    unchecked: BTreeMap<String, usize>,
    wrong: Vec<String>,
}

fn check(text: &Text<'_>, count: &mut Count) {
    if text.mnemonic.starts_with('.') || text.mnemonic.contains("undefined") {
        return;
    }
    count.instructions += 1;
    let decoded = decode(text.word, text.pc);
    let found: Vec<_> = decoded
        .accesses
        .iter()
        .flatten()
        .map(|access| (access.reads, access.writes, access.size_bytes, access.address))
        .collect();
    let mut wrong = |what: String| {
        count
            .wrong
            .push(format!("{:x} {:08x} {} {:?}: {what}", text.pc, text.word, text.mnemonic, text.operands));
    };
    // SME; SVE
    if text.word >> 25 & 15 == 0 && text.word >> 31 == 1 {
        return;
    }
    if text.word >> 25 & 15 == 2 {
        count.scalable += 1;
        let expected = if text.word >> 31 == 1 { expected_scalable(text) } else { Some(Vec::new()) };
        if expected.as_ref().is_some_and(|expected| *expected != found) {
            wrong(format!("{found:?}, expected {expected:?}"));
        }
        let general = text.operands.first().and_then(|first| general(first));
        if let Some((register, _)) = general.filter(|general| general.0 < 32)
            && text.word >> 31 == 0
            && !text.mnemonic.starts_with("cterm")
            && decoded.written != 1 << register
        {
            wrong(format!("written {:#x}", decoded.written));
        }
        return;
    }
    if let Some(expected) = expected_effect(text) {
        count.effects += 1;
        if expected != decoded.effect {
            wrong(format!("{:?}, expected {expected:?}", decoded.effect));
        }
    }
    if let Some(expected) = expected_access(text) {
        count.accesses += 1;
        if expected.accesses != found || expected.write_back != decoded.write_back {
            wrong(format!("{found:?} {:?}, expected {expected:?}", decoded.write_back));
        } else if expected.written != decoded.written {
            wrong(format!("written {:#x}, expected {:#x}", decoded.written, expected.written));
        }
        return;
    }
    if !found.is_empty() {
        return wrong(format!("{found:?}, expected no access"));
    }
    if decoded.transfer.is_call() {
        let expected = text.mnemonic.starts_with("bl") || matches!(text.mnemonic, "svc" | "hvc" | "smc");
        if !expected {
            return wrong("a call".to_owned());
        }
    }
    if let (Some(target), true) = (
        text.operands.last(),
        matches!(decoded.transfer, Transfer::Branch(_) | Transfer::Jump(_) | Transfer::Call(Some(_))),
    ) {
        let expected = code_address(target);
        let found = match decoded.transfer {
            Transfer::Call(target) => target,
            other => other.target(),
        };
        count.targets += 1;
        if found != expected {
            wrong(format!("to {found:x?}, expected {expected:x?}"));
        }
        return;
    }
    if decoded.transfer != Transfer::Next {
        return;
    }
    match expected_written(text) {
        Some(expected) => {
            count.written += 1;
            if expected != decoded.written {
                wrong(format!("written {:#x}, expected {expected:#x}", decoded.written));
            }
        }
        None => *count.unchecked.entry(text.mnemonic.to_owned()).or_default() += 1,
    }
}

/// Everything that a disassembly has goes to `check`; false: there is no objdump.
fn disassemble(options: &[&str], file: &Path, check: &mut impl FnMut(&Text<'_>)) -> bool {
    let child = Command::new(OBJDUMP)
        .args(options)
        .arg(file)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else { return false };
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    for line in lines.map_while(Result::ok) {
        if let Some(text) = text(&line) {
            check(&text);
        }
    }
    child.wait().expect("it ends");
    true
}

/// The same of the libraries.
pub(super) fn of_libraries(check: &mut impl FnMut(&Text<'_>)) {
    let files = std::env::var("MEMLENS_A64_FILES").unwrap_or_else(|_| LIBRARY.to_owned());
    for file in files.split(':').map(Path::new).filter(|file| file.exists()) {
        if !disassemble(&["-d", "-z"], file, check) {
            eprintln!("skipped: no {OBJDUMP}");
        }
    }
}

/// The same of random words: instructions that no compiler makes are seldom in libraries. Names tell the file of one test from another's.
pub(super) fn of_random_words(name: &str, check: &mut impl FnMut(&Text<'_>)) {
    let words: usize =
        std::env::var("MEMLENS_A64_WORDS").ok().and_then(|words| words.parse().ok()).unwrap_or(1 << 17);
    let mut state = 1u64;
    let mut bytes = Vec::with_capacity(4 * words);
    for _ in 0..words {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend(((state >> 32) as u32).to_le_bytes());
    }
    let file = std::env::temp_dir().join(format!("memlens-a64-{name}-{}.bin", std::process::id()));
    std::fs::write(&file, bytes).expect("a file");
    let found = disassemble(&["-D", "-z", "-b", "binary", "-m", "aarch64"], &file, check);
    let _ = std::fs::remove_file(&file);
    if !found {
        eprintln!("skipped: no {OBJDUMP}");
    }
}

fn report(count: &Count) {
    let Count { instructions, accesses, written, effects, targets, scalable, unchecked, wrong } = count;
    println!(
        "{instructions} instructions: {accesses} with accesses, {written} by what they write, {targets} by their target, {effects} by their result, \
         {scalable} of SVE; unchecked: {unchecked:?}; {} wrong",
        wrong.len()
    );
    assert_none(wrong);
}

pub(super) fn assert_none(wrong: &[String]) {
    wrong.iter().take(MOST_SHOWN).for_each(|one| println!("{one}"));
    assert!(wrong.is_empty(), "{} differ", wrong.len());
}

#[test]
fn libraries_as_objdump_has_them() {
    let mut count = Count::default();
    of_libraries(&mut |text| check(text, &mut count));
    report(&count);
}

#[test]
fn random_words_as_objdump_has_them() {
    let mut count = Count::default();
    of_random_words("decoded", &mut |text| check(text, &mut count));
    report(&count);
}
