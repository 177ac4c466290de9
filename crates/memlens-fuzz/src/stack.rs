//! Call stacks, unwound from any registers and bytes of a stack.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::sync::OnceLock;

use memlens_code::Architecture;
use memlens_sample::{Registers, Sample, StackFrame, StackUnwinder, UnwindCache, UnwindSections};
use memlens_symbols::{CfaRule, DebugSearch, Module, RBP, RSP};
use tempfile::TempDir;

/// Functions with and without a frame pointer, with saved registers and room for arrays.
const PROGRAM: &str = "
int leaf(int *p) { return p[3]; }
__attribute__((noinline)) int middle(int n) { int room[40]; for (int i = 0; i < 40; i++) room[i] = n ^ i; return leaf(room + n % 8) + n; }
__attribute__((noinline)) int outer(int n) { int sum = 0; for (int i = 0; i < n; i++) sum += middle(i) * middle(sum); return sum; }
__attribute__((noinline)) int sized(int n) { int room[n + 1]; room[n] = n; return leaf(room + n - 3) + outer(n); }
int _start(void) { return sized(9) + outer(1); }
";

/// Where the module lies, and how many addresses are its own.
const START: u64 = 0x5555_5000_0000;
const BYTES: u64 = 1 << 24;
/// Where the stacks of seeds lie.
const STACK: u64 = 0x7ffd_0000_1000;
/// No stack lies below.
const LEAST: u64 = 4096;
/// The most frames that are looked for.
const MOST_FRAMES: usize = 512;
/// In the first byte: the ELF file follows the stack, whatever it is; else it is one of the compiled ones.
const OWN_FILE: u8 = 0x80;

/// The program, compiled in one way.
struct Compiled {
    elf: Vec<u8>,
    /// How the CFA is found, by the address in its functions.
    rules: BTreeMap<u64, CfaRule>,
}

/// With frame pointers and without; none where there is no C compiler.
fn compiled() -> &'static [Compiled] {
    static ALL: OnceLock<Vec<Compiled>> = OnceLock::new();
    ALL.get_or_init(|| ["-O0", "-O2", "-Os"].into_iter().filter_map(compile).collect())
}

fn compile(level: &str) -> Option<Compiled> {
    let folder = TempDir::new().ok()?;
    let (source, output) = (folder.path().join("p.c"), folder.path().join("p"));
    fs::write(&source, PROGRAM).ok()?;
    let done = Command::new("cc")
        .args([level, "-fasynchronous-unwind-tables", "-nostdlib", "-static-pie", "-o"])
        .args([&output, &source])
        .output()
        .ok()?;
    let elf = fs::read(&output).ok().filter(|_| done.status.success())?;
    let module = Module::from_bytes("stack", elf.clone(), &DebugSearch::nowhere()).ok()?;
    let code = module.entry_points(&["leaf", "middle", "outer", "sized", "_start"]).into_iter();
    let code = code.filter_map(|entry| module.function_at(entry.svma));
    let rules = code
        .flat_map(|function| function.start..function.end)
        .filter_map(|svma| Some((svma, module.cfa_rule(svma)?)))
        .collect();
    Some(Compiled { elf, rules })
}

/// Registers and stack as they are read from an input.
struct Input<'a> {
    sp: u64,
    bp: u64,
    /// From the module's start on.
    svma: u64,
    stack: &'a [u8],
}

impl<'a> Input<'a> {
    /// The first byte, the input, and what follows its stack.
    fn read(bytes: &'a [u8]) -> Option<(u8, Self, &'a [u8])> {
        let (&selector, rest) = bytes.split_first()?;
        let (registers, rest) = rest.split_first_chunk::<24>()?;
        let (length, rest) = rest.split_first_chunk()?;
        let [sp, bp, svma] = [0, 8, 16].map(|at| word_at(registers, at).unwrap_or_default());
        let (stack, rest) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
        Some((selector, Self { sp, bp, svma, stack }, rest))
    }

    fn write(&self, selector: u8, file: &[u8]) -> Vec<u8> {
        let mut bytes = vec![selector];
        bytes.extend([self.sp, self.bp, self.svma].into_iter().flat_map(u64::to_le_bytes));
        bytes.extend((self.stack.len() as u16).to_le_bytes());
        [&bytes, self.stack, file].concat()
    }

    /// The word of the stack at an address.
    fn word(&self, address: u64) -> Option<u64> {
        word_at(self.stack, usize::try_from(address.checked_sub(self.sp)?).ok()?)
    }
}

fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
}

/// Stacks of six frames, whose return addresses are any instructions of the program.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (selector, compiled) in compiled().iter().enumerate() {
        let code: Vec<u64> = compiled.rules.keys().copied().collect();
        for first in 0..4 {
            let pc = |frame: usize| code[(first * 37 + frame * 61) % code.len()];
            let (mut stack, mut bp) = (Vec::new(), 0);
            // Where the last frame pointer is to be stored; None: in the register.
            let mut bp_at: Option<usize> = None;
            for frame in 0..6 {
                let rule = compiled.rules[&pc(frame)];
                let mut cfa = stack.len() + rule.offset as usize;
                if rule.register == RBP {
                    let at = stack.len() + 32;
                    cfa = at + 16;
                    stack.resize(cfa, 0x11);
                    let value = STACK + at as u64;
                    match bp_at.replace(at) {
                        Some(place) => stack[place..place + 8].copy_from_slice(&value.to_le_bytes()),
                        None => bp = value,
                    }
                }
                stack.resize(cfa, 0x22);
                // What is looked up is the byte before a return address.
                stack[cfa - 8..].copy_from_slice(&(START + pc(frame + 1) + 1).to_le_bytes());
            }
            let input = Input { sp: STACK, bp, svma: pc(0), stack: &stack };
            seeds.push(input.write(selector as u8, &[]));
            if first == 0 {
                seeds.push(input.write(OWN_FILE, &compiled.elf));
            }
        }
    }
    seeds
}

pub(crate) fn check(bytes: &[u8]) {
    let Some((selector, input, file)) = Input::read(bytes) else { return };
    let known = compiled();
    let known = match selector & OWN_FILE {
        0 if known.is_empty() => return,
        0 => Some(&known[usize::from(selector) % known.len()]),
        _ => None,
    };
    let Ok(object) = object::File::parse(known.map_or(file, |known| &known.elf[..])) else { return };
    let mut unwinder = StackUnwinder::default();
    unwinder.add(START, START + BYTES, START, &UnwindSections::of(&object, Some(Architecture::X86_64)));
    let mut registers =
        Registers { ip: START.wrapping_add(input.svma), ..Registers::new(Architecture::X86_64, &[], 0) };
    (registers.values[usize::from(RSP)], registers.values[usize::from(RBP)]) = (input.sp, input.bp);
    let sample = Sample { registers: Some(registers), stack: input.stack.to_vec(), ..Sample::default() };
    let (mut cache, mut frames, mut again) = (UnwindCache::default(), Vec::new(), Vec::new());
    let is_whole = unwinder.unwind(&sample, &mut cache, &mut frames);
    assert!((1..=MOST_FRAMES).contains(&frames.len()));
    assert_eq!(frames[0].pc, registers.ip);
    let cfas: Vec<u64> = frames.iter().filter_map(|frame| frame.cfa).collect();
    assert!(cfas.len() + 1 >= frames.len(), "only the last has none: {frames:x?}");
    assert!(cfas.is_sorted(), "stacks grow downwards: {frames:x?}");
    if let Some(known) = known {
        // Not of any file: where an unusual rule finds no stack to read, framehop 0.16 keeps what it falls back to.
        let is_whole_again = unwinder.unwind(&sample, &mut cache, &mut again);
        assert_eq!((is_whole, &frames), (is_whole_again, &again), "rules that were kept are the same");
        follow(known, &input, &frames);
    }
}

/// Follows a stack by the rules for CFAs alone: a return address is the word below one (System V ABI AMD64 1.0,
/// section 3.2.2).
fn follow(known: &Compiled, input: &Input<'_>, frames: &[StackFrame]) {
    let (mut sp, mut bp) = (input.sp, Some(input.bp));
    for (index, frame) in frames.iter().enumerate() {
        let svma = frame.pc.wrapping_sub(START).wrapping_sub(u64::from(index > 0));
        let rule = known.rules.get(&svma);
        let value = rule.and_then(|rule| match rule.register {
            RSP => Some(sp),
            RBP => bp,
            _ => None,
        });
        let cfa = rule.zip(value).and_then(|(rule, value)| value.checked_add_signed(rule.offset));
        let below = |cfa: u64| input.word(cfa.wrapping_sub(8));
        let next = frames.get(index + 1);
        if let Some(next) = next {
            let found = frame.cfa.expect("a frame with a caller");
            assert!(value.is_none() || cfa == Some(found), "{index}: {frames:x?}");
            assert_eq!(Some(next.pc), below(found), "{index}: {frames:x?}");
            sp = found;
            // A frame pointer points to the caller's.
            bp = rule.and(cfa).filter(|_| rule.is_some_and(|rule| rule.register == RBP));
            bp = bp.and_then(|cfa| input.word(cfa.wrapping_sub(16)));
        } else if rule.is_some_and(|rule| rule.register == RSP) && sp >= LEAST && index + 1 < MOST_FRAMES {
            let caller = cfa.and_then(below).filter(|&address| address != 0);
            assert_eq!(caller, None, "there is one more: {frames:x?}");
        }
    }
}
