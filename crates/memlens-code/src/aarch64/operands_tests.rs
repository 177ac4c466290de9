//! The registers that instructions read and write against GNU objdump: from the operands as they are written, by the rule that the first
//! is the destination, and from the names of those instructions that are otherwise. What it needs: see `objdump_tests.rs`.

use std::collections::BTreeMap;

use super::decode::decode;
use super::objdump_tests::{Text, assert_none, general, of_libraries, of_random_words};
use super::operands::{Operands, operands};

/// Registers that an operand names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Named {
    general: u32,
    vectors: u32,
}

impl std::ops::BitOr for Named {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self { general: self.general | other.general, vectors: self.vectors | other.vectors }
    }
}

fn number(name: &str) -> Option<u32> {
    let digits: String = name[1..].chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok().filter(|&number| number < 32)
}

/// `x1`, `v3.s[1]`, `d4`, `{v1.16b-v3.16b}[2]`, `[x1, w2, sxtw #3]!`; None: it names something else.
fn named(operand: &str) -> Option<Named> {
    let of_general = |number: u8| if number > 31 { 0 } else { 1 << number };
    if let Some((number, _)) = general(operand) {
        return Some(Named { general: of_general(number), vectors: 0 });
    }
    // An immediate, code's address.
    if operand.starts_with(|c: char| c == '#' || c.is_ascii_digit()) || operand.contains('<') {
        return Some(Named::default());
    }
    if operand.starts_with(['[', '{']) {
        let inner =
            operand.trim_end_matches(|c: char| c != ']' && c != '}').trim_matches(['[', ']', '{', '}', '!']);
        let inner = inner.split('}').next().unwrap_or(inner);
        if let Some((first, last)) = inner.split_once('-').filter(|_| operand.starts_with('{')) {
            let (first, last) = (number(first.trim())?, number(last.trim())?);
            let count = (last + 32 - first) % 32 + 1;
            return Some(Named { general: 0, vectors: ((1u32 << count) - 1).rotate_left(first) });
        }
        let parts = inner.split(',').map(|part| part.trim().split(' ').next().unwrap_or_default());
        return parts.map(|part| if is_kind(part) { Some(Named::default()) } else { named(part) }).sum_all();
    }
    let first = operand.chars().next()?;
    let is_vector = matches!(first, 'v' | 'b' | 'h' | 's' | 'd' | 'q') && operand.len() > 1;
    let vector = is_vector.then(|| number(operand)).flatten()?;
    Some(Named { general: 0, vectors: 1 << vector })
}

/// An extension, a shift, a condition.
fn is_kind(part: &str) -> bool {
    const KINDS: [&str; 13] =
        ["lsl", "lsr", "asr", "ror", "msl", "uxtb", "uxth", "uxtw", "uxtx", "sxtb", "sxth", "sxtw", "sxtx"];
    const CONDITIONS: [&str; 18] = [
        "eq", "ne", "cs", "cc", "mi", "pl", "vs", "vc", "hi", "ls", "ge", "lt", "gt", "le", "al", "nv", "hs",
        "lo",
    ];
    let word = part.split(' ').next().unwrap_or_default();
    KINDS.contains(&word) || CONDITIONS.contains(&word)
}

trait SumAll {
    fn sum_all(self) -> Option<Named>;
}

impl<I: Iterator<Item = Option<Named>>> SumAll for I {
    fn sum_all(self) -> Option<Named> {
        self.into_iter().try_fold(Named::default(), |all, one| Some(all | one?))
    }
}

fn all_of(operands: &[&str]) -> Option<Named> {
    operands.iter().filter(|one| !is_kind(one)).map(|one| named(one)).sum_all()
}

/// Those whose destination is an operand, too.
fn keeps_destination(text: &Text<'_>) -> bool {
    const NAMES: [&str; 56] = [
        "movk",
        "bfi",
        "bfxil",
        "bfc",
        "mla",
        "mls",
        "fmla",
        "fmls",
        "saba",
        "uaba",
        "sadalp",
        "uadalp",
        "ssra",
        "usra",
        "srsra",
        "ursra",
        "sri",
        "sli",
        "tbx",
        "bsl",
        "bit",
        "bif",
        "suqadd",
        "usqadd",
        "sdot",
        "udot",
        "usdot",
        "sudot",
        "bfdot",
        "bfmmla",
        "smmla",
        "ummla",
        "usmmla",
        "sqrdmlah",
        "sqrdmlsh",
        "fcmla",
        "aese",
        "aesd",
        "sha1c",
        "sha1p",
        "sha1m",
        "sha1su0",
        "sha1su1",
        "sha256h",
        "sha256h2",
        "sha256su0",
        "sha256su1",
        "sha512h",
        "sha512h2",
        "sha512su0",
        "sha512su1",
        "sm3partw1",
        "sm3partw2",
        "sm4e",
        "bfmlalb",
        "bfmlalt",
    ];
    const BEGINS: [&str; 14] = [
        "smlal", "umlal", "smlsl", "umlsl", "sqdmlal", "sqdmlsl", "fmlal", "fmlsl", "sabal", "uabal",
        "sm3tt", "pacia", "pacib", "pacd",
    ];
    // Into the upper half.
    const NARROWING: [&str; 19] = [
        "xtn2",
        "sqxtn2",
        "uqxtn2",
        "sqxtun2",
        "shrn2",
        "rshrn2",
        "sqshrn2",
        "uqshrn2",
        "sqrshrn2",
        "uqrshrn2",
        "sqshrun2",
        "sqrshrun2",
        "addhn2",
        "raddhn2",
        "subhn2",
        "rsubhn2",
        "fcvtn2",
        "fcvtxn2",
        "bfcvtn2",
    ];
    let mnemonic = text.mnemonic;
    let first = text.operands.first().copied().unwrap_or_default();
    let is_vector = first.starts_with('v');
    let is_lane = is_vector && first.ends_with(']');
    let is_changed_by_immediate = is_vector
        && matches!(mnemonic, "orr" | "bic")
        && text.operands.get(1).is_some_and(|one| one.starts_with('#'));
    NAMES.contains(&mnemonic)
        || BEGINS.iter().any(|begin| mnemonic.starts_with(begin)) && mnemonic != "pacga"
        || NARROWING.contains(&mnemonic)
        || ["autia", "autib", "autd", "xpaci", "xpacd"].iter().any(|begin| mnemonic.starts_with(begin))
        || is_lane
        || is_changed_by_immediate
}

fn reads_flags(mnemonic: &str) -> bool {
    const NAMES: [&str; 22] = [
        "csel", "csinc", "csinv", "csneg", "cset", "csetm", "cinc", "cinv", "cneg", "ccmp", "ccmn", "adc",
        "adcs", "sbc", "sbcs", "ngc", "ngcs", "fcsel", "fccmp", "fccmpe", "cfinv", "axflag",
    ];
    const OTHERS: [&str; 4] = ["xaflag", "rmif", "setf8", "setf16"];
    NAMES.contains(&mnemonic) || OTHERS.contains(&mnemonic) || is_conditional(mnemonic)
}

fn is_conditional(mnemonic: &str) -> bool {
    (mnemonic.starts_with("b.") || mnemonic.starts_with("bc."))
        && !mnemonic.ends_with(".al")
        && !mnemonic.ends_with(".nv")
}

fn writes_flags(mnemonic: &str) -> bool {
    const NAMES: [&str; 25] = [
        "adds", "subs", "ands", "bics", "negs", "adcs", "sbcs", "ngcs", "cmp", "cmn", "tst", "ccmp", "ccmn",
        "fcmp", "fcmpe", "fccmp", "fccmpe", "cfinv", "axflag", "xaflag", "rmif", "setf8", "setf16", "subps",
        "fjcvtzs",
    ];
    NAMES.contains(&mnemonic) || mnemonic == "cmpp"
}

/// None: nothing is expected of it.
fn expected(text: &Text<'_>) -> Option<Operands> {
    const WITHOUT_DESTINATION: [&str; 21] = [
        "cmp", "cmn", "tst", "ccmp", "ccmn", "fcmp", "fcmpe", "fccmp", "fccmpe", "cbz", "cbnz", "tbz",
        "tbnz", "br", "blr", "rmif", "setf8", "setf16", "cmpp", "b", "bl",
    ];
    let mnemonic = text.mnemonic;
    let flags = Operands {
        reads_flags: reads_flags(mnemonic),
        writes_flags: writes_flags(mnemonic),
        ..Operands::default()
    };
    let link = 1 << 30;
    match mnemonic {
        "bl" => return Some(Operands { writes: link, ..flags }),
        "braa" | "brab" | "braaz" | "brabz" => {
            return Some(Operands { reads: all_of(&text.operands)?.general, ..flags });
        }
        "blr" | "blraa" | "blrab" | "blraaz" | "blrabz" => {
            return Some(Operands { writes: link, reads: all_of(&text.operands)?.general, ..flags });
        }
        "ret" => {
            let to = text.operands.first().map_or(Some(link), |to| Some(named(to)?.general))?;
            return Some(Operands { reads: to, ..flags });
        }
        "svc" | "hvc" | "smc" => return Some(Operands { writes: 1, ..flags }),
        "paciasp" | "autiasp" | "pacibsp" | "autibsp" => {
            return Some(Operands { reads: link | 1 << 31, writes: link, ..flags });
        }
        "nop" | "bti" | "dmb" | "dsb" | "isb" | "yield" | "csdb" | "wfe" | "sev" | "adr" | "adrp" => {
            let writes = if mnemonic.starts_with("adr") { named(text.operands[0])?.general } else { 0 };
            return Some(Operands { writes, ..flags });
        }
        _ if is_conditional(mnemonic) || mnemonic.starts_with("b.") => return Some(flags),
        "mrs" | "msr" | "dc" | "ic" | "sys" | "sysl" | "tlbi" | "at" | "hint" => return None,
        _ => {}
    }
    let at = text.operands.iter().position(|one| one.starts_with('['));
    if let Some(at) = at {
        return expected_with_memory(text, at);
    }
    if mnemonic == "prfm" {
        return Some(Operands { is_prefetch: true, ..flags });
    }
    if WITHOUT_DESTINATION.contains(&mnemonic) {
        let Named { general, vectors } = all_of(&text.operands)?;
        return Some(Operands { reads: general, vector_reads: vectors, ..flags });
    }
    let (first, others) = text.operands.split_first()?;
    let (to, mut from) = (named(first)?, all_of(others)?);
    // Half of the register, to and from.
    if keeps_destination(text) || mnemonic == "fmov" && first.ends_with(']') {
        from = from | to;
    }
    Some(Operands {
        reads: from.general,
        vector_reads: from.vectors,
        writes: to.general,
        vector_writes: to.vectors,
        ..flags
    })
}

fn expected_with_memory(text: &Text<'_>, at: usize) -> Option<Operands> {
    let mnemonic = text.mnemonic;
    let memory = named(text.operands[at])?.general;
    let is_pre = text.operands[at].ends_with('!');
    let behind = text.operands.get(at + 1).map_or(Some(Named::default()), |behind| named(behind))?;
    let base = named(text.operands[at].trim_matches(['[', ']', '!']).split(',').next()?)?.general;
    let moves = if is_pre || at + 1 < text.operands.len() { base } else { 0 };
    let all = Operands { address: memory | behind.general, moves, ..Operands::default() };
    let values = &text.operands[..at];
    if mnemonic.starts_with("prf") {
        return Some(Operands { is_prefetch: true, ..all });
    }
    let these = all_of(values)?;
    let is_list = values.first().is_some_and(|one| one.starts_with('{'));
    let is_atomic = ["ldadd", "ldclr", "ldeor", "ldset", "ldsmax", "ldsmin", "ldumax", "ldumin", "swp"]
        .iter()
        .any(|begin| mnemonic.starts_with(begin));
    match mnemonic {
        // Tags and what moves all of its operands are looked at elsewhere.
        _ if mnemonic != "stgp"
            && ["cpy", "set", "stg", "st2g", "stz", "ldg", "ld64", "st64"]
                .iter()
                .any(|begin| mnemonic.starts_with(begin)) =>
        {
            None
        }
        _ if mnemonic.starts_with("cas") => {
            let half = &values[..values.len() / 2];
            Some(Operands { reads: these.general, writes: all_of(half)?.general, ..all })
        }
        _ if is_atomic && values.len() == 2 => {
            let [from, to] = [named(values[0])?, named(values[1])?];
            Some(Operands { reads: from.general, writes: to.general, ..all })
        }
        _ if mnemonic.starts_with("ldclrp")
            || mnemonic.starts_with("ldsetp")
            || mnemonic.starts_with("swpp") =>
        {
            Some(Operands { reads: these.general, writes: these.general, ..all })
        }
        // Exclusive stores have their status first.
        _ if ["stxr", "stlxr", "stxp", "stlxp"].iter().any(|begin| mnemonic.starts_with(begin)) => {
            let [status, others] = [named(values[0])?, all_of(&values[1..])?];
            Some(Operands { reads: others.general, writes: status.general, ..all })
        }
        _ if mnemonic.starts_with("st") => {
            Some(Operands { reads: these.general, vector_reads: these.vectors, ..all })
        }
        // Where the base is loaded, too, it is not defined what becomes of it.
        _ if mnemonic.starts_with("ld") && these.general & moves != 0 => None,
        _ if mnemonic.starts_with("ld") => {
            let is_lane = is_list && values[0].ends_with(']');
            Some(Operands {
                writes: these.general,
                vector_writes: these.vectors,
                vector_reads: if is_lane { these.vectors } else { 0 },
                ..all
            })
        }
        _ => None,
    }
}

#[derive(Default)]
struct Count {
    checked: usize,
    unchecked: BTreeMap<String, usize>,
    wrong: Vec<String>,
}

fn check(text: &Text<'_>, count: &mut Count) {
    let is_unknown =
        text.mnemonic.starts_with('.') || text.mnemonic.contains("undefined") || text.mnemonic == "udf";
    let group = text.word >> 25 & 15;
    // SME
    if is_unknown || group == 0 {
        return;
    }
    if group == 2 {
        return check_scalable(text, count);
    }
    let found = operands(text.word, text.pc, &decode(text.word, text.pc));
    match expected(text) {
        None => *count.unchecked.entry(text.mnemonic.to_owned()).or_default() += 1,
        Some(expected) => {
            count.checked += 1;
            if expected != found {
                let Text { pc, word, mnemonic, operands } = text;
                count.wrong.push(format!(
                    "{pc:x} {word:08x} {mnemonic} {operands:?}: {found:x?}, expected {expected:x?}"
                ));
            }
        }
    }
}

/// SVE, of which no vector is read or written that is not said to be; what else is said to be read does no harm.
fn check_scalable(text: &Text<'_>, count: &mut Count) {
    let Text { pc, word, mnemonic, operands: names } = text;
    let found = operands(*word, *pc, &decode(*word, *pc));
    let scalable = |operand: &str| {
        let inner = operand.trim_start_matches(['{', '[']).split('}').next().unwrap_or_default();
        let numbered =
            |name: &str| name.trim().strip_prefix('z').and_then(|name| number(&format!("z{name}")));
        match inner.split_once('-').filter(|_| operand.starts_with('{')) {
            Some((first, last)) => match (numbered(first), numbered(last)) {
                (Some(first), Some(last)) => {
                    ((1u32 << ((last + 32 - first) % 32 + 1)) - 1).rotate_left(first)
                }
                _ => 0,
            },
            None => inner.split(',').filter_map(numbered).fold(0, |all, number| all | 1 << number),
        }
    };
    let counts =
        ["inc", "dec", "sqinc", "sqdec", "uqinc", "uqdec"].iter().any(|begin| mnemonic.starts_with(begin));
    let of_general = |operand: &&&str| {
        general(operand).map_or(0, |(number, _)| if number > 31 { 0 } else { 1u32 << number })
    };
    let all = |operands: &[&str]| operands.iter().map(|it| of_general(&it)).fold(0, |all, one| all | one);
    let Some((first, others)) = names.split_first() else { return };
    let is_destination =
        !mnemonic.starts_with("cterm") && !mnemonic.starts_with("st") && !mnemonic.starts_with("prf");
    let to = if is_destination { all(&[*first]) } else { 0 };
    let reads = all(if is_destination && !counts { others } else { names });
    let vectors = |operands: &[&str]| operands.iter().map(|it| scalable(it)).fold(0, |all, one| all | one);
    // Scalar registers that SVE writes to are not looked at.
    let is_scalar = first.starts_with(['v', 'b', 'h', 's', 'd', 'q']) && *first != "sp";
    let vector_to = if is_destination { vectors(&[*first]) } else { 0 };
    let from = vectors(if is_destination { others } else { names });
    let all_read = found.vector_reads | found.vector_address;
    count.checked += 1;
    if (found.reads, found.writes) != (reads, to)
        || (!is_scalar && found.vector_writes != vector_to)
        || from & !all_read != 0
    {
        count.wrong.push(format!("{pc:x} {word:08x} {mnemonic} {names:?}: {found:x?}"));
    }
}

fn report(count: &Count) {
    println!("{} instructions; unchecked: {:?}; {} wrong", count.checked, count.unchecked, count.wrong.len());
    assert_none(&count.wrong);
}

#[test]
fn registers_of_libraries_as_objdump_has_them() {
    let mut count = Count::default();
    of_libraries(&mut |text| check(text, &mut count));
    report(&count);
}

#[test]
fn registers_of_random_words_as_objdump_has_them() {
    let mut count = Count::default();
    of_random_words("operands", &mut |text| check(text, &mut count));
    report(&count);
}
