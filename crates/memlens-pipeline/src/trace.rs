//! The trace: every counted access by itself, with its object.
//!
//! A traced block is walked here before it is counted: the same words, the same state of memory and
//! calls, but each address looked up anew and nothing kept between accesses. Of what the hot loop does
//! with ranges and cells this is the obvious slow twin: the rows of a trace add up to the profile.

use crate::address_space::{AddressSpace, CacheRange};
use crate::block_table::{BlockTable, Reference};
use crate::mask::active_bytes;
use crate::shadow_stack::ShadowStack;
use crate::snapshot::Builder;
use crate::stacks::Stacks;
use crate::thread::Thread;
use memlens_events::{BlockFlags, Word, WordRole};
use memlens_objects::{ObjectId, ObjectKey, SiteId, split_frame_key};
use memlens_trace::{CodeInfo, ObjectInfo, TraceRow, TraceSink, TraceWriter};
use memlens_types::AccessAttr;
use rustc_hash::FxHashMap;

/// Unnamed parts of a frame have no beginning; offsets in them count from a multiple of this below the
/// frame address, so that a slot has the same offset in every call.
const FRAME_PIECE: u64 = 4096;

/// Makes rows of accesses and hands them to a trace.
pub struct Tracer {
    writer: TraceWriter,
    /// Executed by all threads before the block at hand.
    instructions: u64,
    /// Row of the code table for each reference; 0 = not yet asked.
    code_of: Vec<u32>,
    /// Row of the code table for each place, as a frame key.
    code: FxHashMap<u64, u32>,
    /// Which objects are defined, by number.
    defined: Vec<bool>,
    /// Names of sites whose blocks are objects of their own.
    site_names: FxHashMap<SiteId, String>,
    /// Numbers of heap blocks from 1, by object and allocation.
    blocks: FxHashMap<(ObjectId, u64), u64>,
}

/// What the accesses of a block have in common.
pub struct Context<'a> {
    /// The code.
    pub table: &'a BlockTable,
    /// What lies at an address.
    pub space: &'a mut AddressSpace,
    /// Who runs it.
    pub thread: &'a Thread,
    /// All other threads.
    pub others: &'a [Option<Box<Thread>>],
}

impl Tracer {
    /// A trace that begins after so many instructions.
    pub fn new(writer: TraceWriter, instructions: u64) -> Self {
        Self {
            writer,
            instructions,
            code_of: Vec::new(),
            code: FxHashMap::default(),
            defined: Vec::new(),
            site_names: FxHashMap::default(),
            blocks: FxHashMap::default(),
        }
    }

    /// What writes the trace.
    pub fn into_writer(self) -> TraceWriter {
        self.writer
    }

    /// A thread is about to run a block with these words.
    pub fn block(&mut self, context: Context<'_>, is_counted: bool, id: u32, words: &[u64]) {
        let instructions = context.table.block(id).instructions;
        if is_counted {
            self.accesses(context, id, words, u64::MAX);
        }
        self.instructions += u64::from(instructions);
    }

    /// Writes the accesses of a block by its instructions before the address `end_pc`.
    pub fn accesses(&mut self, mut context: Context<'_>, id: u32, words: &[u64], end_pc: u64) {
        // After the limit or an error nothing would be kept.
        if !self.writer.is_writing() {
            return;
        }
        let table = context.table;
        let block = table.block(id);
        if block.flags.contains(BlockFlags::IRREGULAR) {
            let before = |word: &&Word| block.pc + u64::from(word.pc_offset) < end_pc;
            let roles = table.words(id);
            let count = roles.iter().take_while(before).count().min(words.len());
            self.irregular(&mut context, block.first_reference, &roles[..count], words);
            return;
        }
        for (reference, &addr) in (block.first_reference..).zip(words) {
            let Some(known) = table.references().get(reference as usize).filter(|r| r.pc < end_pc) else {
                return;
            };
            self.access(&mut context, reference, addr, known.attr.size_bytes());
        }
    }

    /// The accesses of words that are not all addresses.
    fn irregular(&mut self, context: &mut Context<'_>, first: u32, roles: &[Word], words: &[u64]) {
        let mut reference = first;
        let mut repeated: Vec<(u32, AccessAttr, u64)> = Vec::new();
        for (index, (word, &value)) in roles.iter().zip(words).enumerate() {
            match word.role {
                WordRole::Address => {
                    let mask = roles.get(index + 1).filter(|next| next.role == WordRole::Mask);
                    let mask = mask.and_then(|mask| Some((mask.attr, *words.get(index + 1)?)));
                    match mask {
                        None => self.access(context, reference, value, word.attr.size_bytes()),
                        Some((lane, bits)) => {
                            if let Some((skipped, size)) = active_bytes(word.attr, lane.size_bytes(), bits) {
                                self.access(context, reference, value.wrapping_add(skipped), size);
                            }
                        }
                    }
                    reference += 1;
                }
                WordRole::RepStart => {
                    repeated.push((reference, word.attr, value));
                    reference += 1;
                }
                WordRole::RepEnd => {
                    self.repeated(context, &repeated, value);
                    repeated.clear();
                }
                WordRole::Mask | WordRole::Argument | WordRole::ReturnValue => {}
            }
        }
    }

    /// A string instruction: element by element, as it runs. `end`: where its last operand ended.
    fn repeated(&mut self, context: &mut Context<'_>, operands: &[(u32, AccessAttr, u64)], end: u64) {
        let Some(&(_, attr, start)) = operands.last() else { return };
        let element = i64::from(attr.size_bytes().max(1));
        let distance = end.wrapping_sub(start) as i64;
        let elements = distance.unsigned_abs() / element.unsigned_abs();
        let step = element * distance.signum();
        let mut moved = 0_i64;
        for _ in 0..elements {
            if !self.writer.is_writing() {
                return;
            }
            for &(reference, attr, start) in operands {
                self.access(context, reference, start.wrapping_add_signed(moved), attr.size_bytes());
            }
            moved = moved.wrapping_add(step);
        }
    }

    fn access(&mut self, context: &mut Context<'_>, reference: u32, addr: u64, size: u32) {
        let Context { table, space, thread, others } = context;
        let Some(&known) = table.references().get(reference as usize) else { return };
        let resolved = space.resolve(addr, known.pc, Stacks::new(&thread.stack, others));
        let object = resolved.object;
        let Some(&key) = space.heap.objects().key(object) else { return };
        let (start, block) = self.start(space, &thread.stack, addr, (object, &key), resolved.range);
        if self.defined.get(object.index()) != Some(&true) {
            self.define_object(space, object, &key);
        }
        let code = match self.code_of.get(reference as usize) {
            Some(&code) if code != 0 => code,
            _ => self.define_code(space, reference, &known),
        };
        self.writer.access(&TraceRow {
            kind: known.attr.kind(),
            addr,
            size,
            instructions: self.instructions + u64::from(known.instruction) + 1,
            thread: thread.tid,
            code,
            object: object.get(),
            offset: addr.wrapping_sub(start),
            block,
        });
    }

    /// Where the object that `addr` lies in begins, or its block, if it has several; and the block's
    /// number, 0 where there is none.
    fn start(
        &mut self,
        space: &mut AddressSpace,
        stack: &ShadowStack,
        addr: u64,
        (object, key): (ObjectId, &ObjectKey),
        range: CacheRange,
    ) -> (u64, u64) {
        let bias = |space: &AddressSpace, module| space.module(module).map_or(0, |module| module.load_bias);
        let start = match *key {
            ObjectKey::HeapSite(_) | ObjectKey::HeapBlock { .. } => {
                let Some(block) = space.heap.blocks().block_at(addr) else { return (addr, 0) };
                let next = self.blocks.len() as u64 + 1;
                return (block.start, *self.blocks.entry((object, block.serial)).or_insert(next));
            }
            ObjectKey::Global { module, svma } | ObjectKey::DataGap { module, section_svma: svma } => {
                bias(space, module).wrapping_add(svma)
            }
            ObjectKey::Code { module } => bias(space, module),
            ObjectKey::Local { cfa_offset, .. } => {
                frame_address(stack, addr, range).wrapping_add_signed(cfa_offset)
            }
            ObjectKey::StackFrame { .. } => {
                let below = frame_address(stack, addr, range).wrapping_sub(addr);
                addr.wrapping_add(below).wrapping_sub(below.next_multiple_of(FRAME_PIECE))
            }
            ObjectKey::Tls { module, offset_bytes } if module != 0 && offset_bytes != u64::MAX => match range
            {
                CacheRange::Volatile { start, .. } => start,
                _ => addr,
            },
            ObjectKey::Unknown { .. } => 0,
            _ => space.region_around(addr).map_or(addr, |region| region.start),
        };
        (start, 0)
    }

    #[cold]
    fn define_object(&mut self, space: &AddressSpace, object: ObjectId, key: &ObjectKey) {
        let index = object.index();
        if self.defined.len() <= index {
            self.defined.resize(index + 1, false);
        }
        self.defined[index] = true;
        let describe = || Builder::for_names(space).describe(object, key);
        let (name, declared) = match *key {
            ObjectKey::HeapBlock { site, block } => {
                let name = self.site_names.entry(site).or_insert_with(|| describe().name);
                (format!("{name} #{block}"), None)
            }
            _ => {
                let row = describe();
                (row.name, row.declared)
            }
        };
        self.writer.object(ObjectInfo {
            id: object.get(),
            kind: key.kind(),
            name,
            declared: declared.map(|place| (place.file, place.line)),
            site: key.site().map_or(0, SiteId::get),
        });
    }

    /// The row of the code table for the instruction of a reference; defines it if it is new.
    #[cold]
    fn define_code(&mut self, space: &AddressSpace, reference: u32, known: &Reference) -> u32 {
        let place = space.frame_key_in(known.module, known.pc);
        let next = self.code.len() as u32 + 1;
        let code = *self.code.entry(place).or_insert(next);
        let index = reference as usize;
        if self.code_of.len() <= index {
            self.code_of.resize((index + 1).next_power_of_two(), 0);
        }
        self.code_of[index] = code;
        if code != next {
            return code;
        }
        let (module, offset) = split_frame_key(place);
        let mut builder = Builder::for_names(space);
        let frame = builder.innermost_frame(place).cloned().unwrap_or_default();
        self.writer.code(CodeInfo {
            id: code,
            function: frame.function.unwrap_or_default().to_string(),
            file: frame.file.unwrap_or_default().to_string(),
            line: frame.line.unwrap_or(0),
            module: space.module(module.into()).map_or_else(String::new, |module| module.path.clone()),
            offset,
        });
        code
    }
}

/// The canonical frame address of the call that `addr` on a stack belongs to, for which `range` was found.
fn frame_address(stack: &ShadowStack, addr: u64, range: CacheRange) -> u64 {
    if let CacheRange::OtherFrame { cfa, .. } = range {
        return cfa;
    }
    if addr < stack.cfa() {
        return stack.cfa();
    }
    let frame = stack.frame_of(addr).and_then(|index| stack.frames().get(index));
    frame.map_or(addr, |frame| frame.slot.wrapping_add(8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_on_the_stack_belongs_to_the_call_below_whose_frame_address_it_lies() {
        let mut stack = ShadowStack::new(0x1000, 0..0x2000);
        stack.call(0xf00, 1, 1);
        stack.call(0xe00, 2, 2);
        assert_eq!(frame_address(&stack, 0xe07, CacheRange::Nothing), 0xe08);
        assert_eq!(frame_address(&stack, 0xe08, CacheRange::Nothing), 0xf08);
        let other = CacheRange::OtherFrame { cfa: 0x5008, start: -8 };
        assert_eq!(frame_address(&stack, 0x5000, other), 0x5008);
    }
}
