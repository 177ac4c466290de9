//! A process: receives its records and keeps its state.

mod allocations;
mod events;
pub(crate) mod fork;
mod live_memory;
pub(crate) mod space_events;
mod unmet_names;

use crate::address_space::AddressSpace;
use crate::batch::Batch;
use crate::block_table::{BlockInfo, BlockTable, Reference, Switch};
use crate::cells::DISCARD;
use crate::cores::Cores;
use crate::fetches::{Attribution, FetchRule};
use crate::hot_loop::{HotLoop, OneBlock, WithFetches, enter_or_leave};
use crate::lanes::{self, Vectors};
use crate::mask::active_bytes;
use crate::shadow_stack::ShadowStack;
use crate::simulator::Simulator;
use crate::snapshot::machine_info;
use crate::stacks::Stacks;
use crate::thread::Thread;
use crate::timeline::Timeline;
use crate::trace::{Context, Tracer};
use crate::windows::Windows;
use memlens_events::{
    BlockDefinition, BlockFlags, Definition, ModuleAnswer, ModuleDefinition, RecordHeader, RecordSink,
    SpecialRole, WordRole,
};
use memlens_fields::Layouts;
use memlens_objects::Merge;
use memlens_objects::alloc_functions::{self, AllocFunction, Effect};
use memlens_patterns::Sources;
use memlens_profile::{Mark, ObjectBacking};
use memlens_sim::{MachineDescription, Model, ModelError, SimdLevel};
use memlens_symbols::{DebugSearch, EntryPoint, Module, Recursion};
use memlens_trace::TraceWriter;
use memlens_types::AccessAttr;

use rustc_hash::FxHashMap;
use std::ops::Range;
use thiserror::Error;
use unmet_names::UnmetName;

/// What to record of a process and how.
#[derive(Clone)]
pub struct ProcessOptions {
    /// The machine to model.
    pub machine: MachineDescription,
    /// Whether heap blocks of one call stack are one object.
    pub merge_sites: bool,
    /// Further allocation functions: `NAME`, `NAME=SIZE_ARGUMENT`, `NAME=free`.
    pub alloc_functions: Vec<String>,
    /// Whether accesses count from the start.
    pub collect_at_start: bool,
    /// Functions on entering which collection begins.
    pub start_on: Vec<String>,
    /// Functions on entering which collection ends.
    pub stop_on: Vec<String>,
    /// Functions on entering which collection begins if it is off, and the other way round.
    pub toggle_on: Vec<String>,
    /// Whether instruction fetches are modelled.
    pub fetches: bool,
    /// Where to look for debug information.
    pub debug_search: DebugSearch,
}

impl ProcessOptions {
    /// Everything, on this machine.
    pub fn new(machine: MachineDescription) -> Self {
        Self {
            machine,
            merge_sites: true,
            alloc_functions: Vec::new(),
            collect_at_start: true,
            start_on: Vec::new(),
            stop_on: Vec::new(),
            toggle_on: Vec::new(),
            fetches: false,
            debug_search: DebugSearch::default(),
        }
    }
}

/// Why a pipeline cannot be set up.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PipelineError {
    /// The machine description cannot be modelled.
    #[error("cannot model machine `{name}`: {source}")]
    Machine {
        /// Its name.
        name: String,
        /// Why.
        source: ModelError,
    },
}

/// Things that went other than they should, for the report.
#[derive(Clone, Copy, Debug, Default)]
pub struct Irregularities {
    /// Records of blocks that were never defined.
    pub undefined_blocks: u64,
    /// Allocation calls whose result was not seen.
    pub results_unseen: u64,
    /// Allocation call stacks that were cut.
    pub stacks_cut: u64,
    /// Records that make no sense.
    pub damaged_records: u64,
}

/// A process under observation.
pub struct Process {
    pub(crate) machine: MachineDescription,
    pub(crate) blocks: BlockTable,
    pub(crate) space: AddressSpace,
    /// All threads there ever were; empty while one is in hand.
    pub(crate) threads: Vec<Option<Box<Thread>>>,
    /// Number of the thread in each slot.
    slots: Vec<Option<usize>>,
    /// Lines written back, by owner (object number).
    pub(crate) dram_writes: FxHashMap<u32, u64>,
    /// How objects' memory was backed, by object number, where somebody looked.
    pub(crate) backing: FxHashMap<u32, ObjectBacking>,
    pub(crate) marks: Vec<Mark>,
    pub(crate) irregularities: Irregularities,
    pub(crate) merge_sites: bool,
    /// Where single accesses are written, if they are.
    tracer: Option<Box<Tracer>>,
    batch: Batch,
    simulator: Simulator,
    functions: Vec<AllocFunction>,
    switches: Vec<(String, Switch)>,
    /// Functions that were named by an option, and that no module has so far.
    unmet: Vec<UnmetName>,
    switch_pcs: FxHashMap<u64, Switch>,
    collecting: bool,
    /// Whether there was something to collect since the last batch began.
    has_collected: bool,
    /// Thread to whom the batch's last accesses belong.
    current: usize,
    /// Whether memory nodes are told apart.
    has_nodes: bool,
    /// Where threads run.
    cores: Cores,
    /// Whether lines go from core to core, as far as batches have come back.
    takes_turns: bool,
    generation: u64,
    serial: u64,
    pub(crate) pid: Option<u32>,
    first_thread_seen: bool,
    tids: FxHashMap<usize, u32>,
    stack_keys: Vec<u64>,
    recursion: Recursion,
    vectors: Vectors,
    /// When objects cost what.
    pub(crate) timeline: Timeline,
    /// How operands go through memory.
    pub(crate) windows: Windows,
    /// What the code of costly operands was found to say.
    pub(crate) address_sources: Sources,
    /// Structures of the modules, as far as earlier profiles looked at them.
    pub(crate) layouts: Layouts,
    family: fork::Family,
}

impl Process {
    /// A process about to start.
    ///
    /// # Errors
    ///
    /// If the machine cannot be modelled.
    pub fn new(options: ProcessOptions) -> Result<Self, PipelineError> {
        let model = Model::new(&options.machine, SimdLevel::detect())
            .map_err(|source| PipelineError::Machine { name: options.machine.name.clone(), source })?;
        let merge = if options.merge_sites { Merge::BySite } else { Merge::Off };
        let named = |names: Vec<String>, switch| names.into_iter().map(move |name| (name, switch));
        let switches = named(options.start_on, Switch::Start)
            .chain(named(options.stop_on, Switch::Stop))
            .chain(named(options.toggle_on, Switch::Toggle))
            .collect::<Vec<_>>();
        Ok(Self {
            batch: Batch::new(&options.machine, options.fetches),
            simulator: Simulator::new(&options.machine, model, options.fetches),
            blocks: BlockTable::new(options.fetches.then(|| FetchRule::of(&options.machine))),
            cores: Cores::new(options.machine.cores),
            has_nodes: options.machine.nodes > 1,
            timeline: Timeline::new(&machine_info(&options.machine)),
            windows: Windows::new(&options.machine),
            machine: options.machine,
            space: AddressSpace::new(merge, options.debug_search),
            threads: Vec::new(),
            slots: Vec::new(),
            dram_writes: FxHashMap::default(),
            backing: FxHashMap::default(),
            marks: Vec::new(),
            irregularities: Irregularities::default(),
            merge_sites: options.merge_sites,
            tracer: None,
            unmet: UnmetName::all(&options.alloc_functions, &switches),
            functions: alloc_functions::table(&options.alloc_functions),
            switches,
            switch_pcs: FxHashMap::default(),
            collecting: options.collect_at_start,
            has_collected: options.collect_at_start,
            current: usize::MAX,
            takes_turns: false,
            generation: 0,
            serial: 0,
            pid: None,
            first_thread_seen: false,
            tids: FxHashMap::default(),
            stack_keys: Vec::new(),
            recursion: Recursion::default(),
            vectors: Vectors::detect(),
            address_sources: Sources::default(),
            layouts: Layouts::default(),
            family: fork::Family::default(),
        })
    }

    /// What a reader of the profile has to know of names that were given.
    pub(crate) fn notes_on_names(&self) -> impl Iterator<Item = String> {
        self.unmet.iter().map(UnmetName::note)
    }

    /// Says which process the records come from, so that its map of addresses can be read.
    pub fn set_process_id(&mut self, pid: u32) {
        self.pid = Some(pid);
    }

    /// Writes every access that is counted from now on to `writer`, too.
    pub fn trace_to(&mut self, writer: TraceWriter) {
        self.tracer = Some(Box::new(Tracer::new(writer, self.instructions())));
    }

    /// Gives the trace back, if there is one, to be ended.
    pub fn take_trace(&mut self) -> Option<TraceWriter> {
        self.tracer.take().map(|tracer| tracer.into_writer())
    }

    /// Instructions executed so far, in all threads.
    pub fn instructions(&self) -> u64 {
        self.all_threads().map(|thread| thread.instructions).sum()
    }

    /// Accesses seen so far.
    pub fn accesses(&self) -> u64 {
        self.serial
    }

    /// Pairs of an operand and an object that accesses were counted for, thread by thread.
    pub fn cell_count(&self) -> usize {
        self.all_threads().map(|thread| thread.references.cells().count()).sum()
    }

    /// All threads, in the order of their start.
    pub(crate) fn all_threads(&self) -> impl Iterator<Item = &Thread> {
        self.threads.iter().flatten().map(|thread| &**thread)
    }

    /// Whether accesses count from now on.
    pub(crate) fn set_collecting(&mut self, on: bool) {
        self.collecting = on;
        self.has_collected |= on;
    }

    /// The kernel has taken these pages back: of several nodes, whoever touches them next has them.
    fn pages_are_gone(&mut self, in_hand: &mut Thread, memory: Range<u64>) {
        if self.has_nodes {
            self.run_batch(Some(in_hand));
            self.batch.unmapped_before(memory);
        }
    }

    /// Hands the batch to the model and books what has come back. `in_hand` is the thread taken out.
    fn run_batch(&mut self, in_hand: Option<&mut Thread>) {
        if self.batch.is_empty() {
            return;
        }
        let mut next = self.simulator.empty_batch();
        if self.current != usize::MAX {
            next.begin(self.current, self.cores.of(self.current));
        }
        let mut batch = std::mem::replace(&mut self.batch, next);
        batch.instructions = self.instructions() + in_hand.as_deref().map_or(0, |thread| thread.instructions);
        self.timeline.hands_over(batch.instructions, self.space.heap.objects());
        batch.is_collected = std::mem::replace(&mut self.has_collected, self.collecting);
        if let Some(done) = self.simulator.submit(batch) {
            self.book(done, in_hand);
        }
    }

    /// Runs everything and books it.
    pub(crate) fn drain(&mut self) {
        self.run_batch(None);
        while let Some(done) = self.simulator.next_finished() {
            self.book(done, None);
        }
    }

    /// Books a batch's findings.
    fn book(&mut self, done: Batch, mut in_hand: Option<&mut Thread>) {
        self.takes_turns = done.took_turns();
        let Self { threads, timeline, blocks, .. } = self;
        done.findings(|number, finding, stretch| {
            let thread = match &mut threads[number] {
                Some(thread) => &mut **thread,
                None => match &mut in_hand {
                    Some(thread) => thread,
                    None => return,
                },
            };
            timeline.book(finding, stretch, (number, thread.references.cells_mut()), blocks);
        });
        timeline.has_booked(done.instructions, |number| {
            let thread = threads.get(number)?.as_deref().or(in_hand.as_deref())?;
            Some(thread.references.cells())
        });
        let stack = in_hand.as_deref().map(|thread| &thread.stack);
        let nobody = ShadowStack::new(0, 0..0);
        let stacks = Stacks::new(stack.unwrap_or(&nobody), &self.threads);
        let written = if done.is_collected { done.dram_writes() } else { &[] };
        for &line in written {
            // Who owns the line now: an object that ended since it was written loses the write-back to
            // what took its place.
            let owner = self.space.owner(line, stacks).get();
            *self.dram_writes.entry(owner).or_default() += 1;
        }
        self.simulator.recycle(done);
    }

    /// Takes the thread in `slot` in hand.
    fn take_thread(&mut self, slot: usize) -> Option<(usize, Box<Thread>)> {
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, None);
        }
        let number = *self.slots[slot].get_or_insert_with(|| {
            // Its start event comes first; until then nothing is known of its stack. Only the thread that
            // a forked process starts with was there before.
            let tid = self.tids.get(&slot).copied().unwrap_or(0);
            let forked = self.family.first_thread.take();
            let mut thread = forked.unwrap_or_else(|| Box::new(Thread::new(tid, ShadowStack::new(0, 0..0))));
            thread.tid = tid;
            self.threads.push(Some(thread));
            self.threads.len() - 1
        });
        if self.current != number {
            let before = (self.current != usize::MAX).then_some(self.current);
            let core = self.cores.change(before, number, self.serial);
            self.current = number;
            self.batch.begin(number, core);
            if let Some(thread) = &mut self.threads[number] {
                thread.fetches.forget_lines();
            }
        }
        let mut thread = self.threads[number].take()?;
        thread.references.reserve(&self.blocks);
        Some((number, thread))
    }

    // ---- blocks --------------------------------------------------------------------------------

    fn define_block(&mut self, definition: &BlockDefinition) {
        let end = definition.pc + u64::from(definition.code_bytes);
        let switch = self.switch_pcs.get(&definition.pc).copied().unwrap_or_default();
        // Not what is mapped there now: definitions are ahead of the events that say so.
        let module = self.space.code_module(definition.module);
        self.blocks.define(definition, module, self.space.frame_key_in(module, end), switch);
    }

    fn define_module(&mut self, definition: &ModuleDefinition) -> ModuleAnswer {
        let range = definition.start..definition.end;
        let number = self.space.add_module(definition.id, range, definition.load_bias, &definition.path);
        let Some(module) = self.space.module(number) else { return ModuleAnswer::new() };
        let Some(symbols) = &module.symbols else { return ModuleAnswer::new() };
        let bias = definition.load_bias;
        let mut answer = ModuleAnswer::new();
        let mut has_value_returns = false;
        for entry in self.allocation_entries(symbols) {
            let start = entry.svma.wrapping_add(bias);
            let function = entry.index as u16;
            let effect = self.functions[entry.index].effect;
            let role = match effect {
                Effect::AllocateThroughPointer { .. } => SpecialRole::PointerAllocEntry(function),
                _ => SpecialRole::AllocEntry(function),
            };
            answer.push((role, start, 0));
            if matches!(effect, Effect::Allocate { .. } | Effect::Reallocate { .. }) && !has_value_returns {
                has_value_returns = true;
                answer.push((SpecialRole::ValueReturns, definition.start, definition.end));
            }
            let end = symbols.function_at(entry.svma).map_or(start + 16, |f| f.end.wrapping_add(bias));
            match effect {
                Effect::Free => {}
                Effect::AllocateThroughPointer { .. } => {
                    answer.push((SpecialRole::AllocReturns, start, end));
                    answer.push((SpecialRole::PointerAllocReturns, start, end));
                }
                _ => answer.push((SpecialRole::AllocReturns, start, end)),
            }
        }
        let wanted: Vec<&str> = self.switches.iter().map(|(name, _)| name.as_str()).collect();
        // A copy of a function is as good: its arguments do not matter.
        let by_symbol = symbols.entry_points(&wanted).into_iter().chain(symbols.clone_entry_points(&wanted));
        for entry in by_symbol.chain(symbols.source_entry_points(&wanted).0) {
            let switch = self.switches[entry.index].1;
            self.switch_pcs.insert(entry.svma.wrapping_add(bias), switch);
        }
        self.unmet.retain_mut(|unmet| !unmet.is_met_in(symbols));
        answer
    }

    /// Where a module's allocation functions begin, by their numbers. The program's own go by the names that the source gives
    /// them, too.
    fn allocation_entries(&self, symbols: &Module) -> Vec<EntryPoint> {
        let names: Vec<&str> = self.functions.iter().map(|function| function.name.as_str()).collect();
        let custom: Vec<usize> = (0..names.len()).filter(|&at| self.functions[at].is_custom).collect();
        let custom_names: Vec<&str> = custom.iter().map(|&at| names[at]).collect();
        let mut entries = symbols.entry_points(&names);
        for mut entry in symbols.source_entry_points(&custom_names).0 {
            entry.index = custom[entry.index];
            if !entries.iter().any(|known| (known.index, known.svma) == (entry.index, entry.svma)) {
                entries.push(entry);
            }
        }
        entries.retain(|entry| !entry.is_ifunc);
        entries
    }

    /// A block's instructions are fetched, if that is modelled.
    fn fetch_block(&mut self, thread: &mut Thread, id: u32) {
        let Self { ref blocks, ref mut batch, ref mut space, ref threads, .. } = *self;
        let Thread { stack, references, fetches, .. } = thread;
        let stacks = Stacks::new(stack, threads);
        let put = |addr, attr, cell| batch.push_fetch(addr, attr, cell);
        match self.collecting {
            true => fetches.count(Attribution { blocks, space, stacks, references }, id, put),
            false => fetches.pass(blocks, id, u64::MAX, put),
        }
    }

    /// A block with plain addresses only.
    fn regular_block(&mut self, thread: &mut Thread, id: u32, words: &[u64]) {
        let Self { ref blocks, ref mut batch, ref mut space, threads: ref others, .. } = *self;
        self.serial += words.len() as u64;
        if self.collecting {
            lanes::dispatch(self.vectors, OneBlock { blocks, batch, space, thread, others, id, words });
            return;
        }
        for (reference, &word) in blocks.references_of(id).zip(words) {
            batch.push(word, blocks.references()[reference as usize].attr, DISCARD);
        }
    }

    /// A block with string instructions, masks, arguments or return values.
    fn irregular_block(&mut self, thread: &mut Thread, id: u32, block: &BlockInfo, words: &[u64]) {
        let roles = self.blocks.words(id);
        let mut reference = block.first_reference;
        let mut arguments = [0; 4];
        let mut repeated: Vec<(u32, AccessAttr, u64)> = Vec::new();
        let mut index = 0;
        while index < words.len().min(roles.len()) {
            let (word, value) = (roles[index], words[index]);
            index += 1;
            match word.role {
                WordRole::Argument => {
                    arguments[word.attr.size_bytes() as usize % 4] = value;
                }
                WordRole::Address => {
                    let mask = roles.get(index).filter(|next| next.role == WordRole::Mask);
                    let lanes = mask.map(|mask| (mask.attr.size_bytes(), words.get(index).copied()));
                    self.masked_access(thread, reference, word.attr, value, lanes);
                    reference += 1;
                    index += usize::from(mask.is_some());
                }
                WordRole::RepStart => {
                    repeated.push((reference, word.attr, value));
                    reference += 1;
                }
                WordRole::RepEnd => {
                    self.repeated_access(thread, &repeated, value);
                    repeated.clear();
                }
                WordRole::ReturnValue | WordRole::Mask => {}
            }
        }
        if block.flags.contains(BlockFlags::ALLOC_ENTRY) {
            self.alloc_entry(thread, block.alloc_function, arguments);
        }
    }

    /// One access, with the active lanes of its mask: lane size (0 = unknown) and mask bits.
    fn masked_access(
        &mut self,
        thread: &mut Thread,
        reference: u32,
        attr: AccessAttr,
        addr: u64,
        lanes: Option<(u32, Option<u64>)>,
    ) {
        let mut extra = 0;
        if let Some((lane_bytes, Some(mask))) = lanes {
            let Some((_, used)) = active_bytes(attr, lane_bytes, mask) else { return };
            extra = i64::from(used) - i64::from(attr.size_bytes());
        }
        self.access(thread, reference, attr, addr, 1, extra);
    }

    /// `count` accesses of the operand's own size, seen by the caches as one access of `attr`.
    fn access(
        &mut self,
        thread: &mut Thread,
        reference: u32,
        attr: AccessAttr,
        addr: u64,
        count: u64,
        extra_bytes: i64,
    ) {
        self.serial += count;
        let mut cell = DISCARD;
        if self.collecting {
            let Thread { stack, references, .. } = &mut *thread;
            let Self { ref blocks, ref mut space, ref threads, .. } = *self;
            let stacks = Stacks::new(stack, threads);
            let Some(found) = references.count(space, stacks, blocks, (reference, addr), count) else {
                return;
            };
            cell = found;
            if extra_bytes != 0 {
                references.cells_mut().add_bytes(cell, extra_bytes);
            }
            if count > 1 {
                references.cells_mut().add_followers(cell, count - 1);
            }
        }
        self.batch.push(addr, attr, cell);
        if self.batch.is_full() {
            self.run_batch(Some(thread));
        }
    }

    /// A string instruction: each element is an access; the caches see each line of each operand once
    /// per pass, in the order in which the operands advance.
    fn repeated_access(&mut self, thread: &mut Thread, operands: &[(u32, AccessAttr, u64)], end: u64) {
        let Some(&(_, last_attr, last_start)) = operands.last() else { return };
        let element = u64::from(last_attr.size_bytes().max(1));
        let distance = end.wrapping_sub(last_start) as i64;
        let elements = distance.unsigned_abs() / element;
        if self.collecting {
            let Reference { pc, block, .. } = self.reference(operands[0].0);
            thread.fetches.string(&self.blocks, thread.references.cells_mut(), (block, pc), elements);
            let references = operands.iter().map(|&(reference, ..)| reference);
            self.windows.ran_for(&self.blocks, &thread.stack, references, elements);
            for &(reference, _, start) in operands {
                let bytes = element as i64 * (elements.max(1) as i64 - 1);
                let low = if distance < 0 { start.wrapping_sub(bytes as u64) } else { start };
                let known = (&self.blocks, &self.space);
                self.windows.ran(known, reference, (low, element as u32, elements));
            }
        }
        let line = u64::from(self.machine.line_bytes.max(1));
        let mut done = 0;
        while done < elements {
            // As many elements as fit the line of the first operand.
            let at = |start: u64, index: u64| {
                let offset = (index * element) as i64 * distance.signum();
                start.wrapping_add_signed(offset)
            };
            let first = at(operands[0].2, done);
            let in_line = if distance > 0 {
                (line - first % line).div_ceil(element)
            } else {
                (first % line) / element + 1
            };
            let now = in_line.clamp(1, elements - done);
            for &(reference, attr, start) in operands {
                let (low, high) = (at(start, done), at(start, done + now - 1));
                if now > 1 && self.is_border(thread, reference, low, high) {
                    (done..done + now).for_each(|i| self.access(thread, reference, attr, at(start, i), 1, 0));
                    continue;
                }
                let bytes = (now * element) as u32;
                let merged = AccessAttr::new(attr.kind(), bytes);
                self.access(thread, reference, merged, low.min(high), now, 0);
            }
            done += now;
        }
    }

    /// Whether two addresses that an instruction accesses lie in different objects.
    fn is_border(&mut self, thread: &Thread, reference: u32, first: u64, last: u64) -> bool {
        let pc = self.reference(reference).pc;
        let stacks = Stacks::new(&thread.stack, &self.threads);
        let mut object = |addr| self.space.resolve(addr, pc, stacks).object;
        self.collecting && object(first) != object(last)
    }

    /// A block that a fault ended before the instruction at `pc`.
    fn partial_block(&mut self, thread: &mut Thread, payload: &[u64]) {
        let [header, pc, words @ ..] = payload else { return };
        let id = RecordHeader(*header).block_id();
        let block = self.blocks.block(id);
        if id == 0 || !(block.pc..block.end_pc.max(block.pc + 1)).contains(pc) {
            return;
        }
        if let Some(tracer) = self.tracer.as_mut().filter(|_| self.collecting) {
            let Self { blocks: table, space, threads: others, .. } = self;
            tracer.accesses(Context { table, space, thread, others }, id, words, *pc);
        }
        // As with instructions: those of blocks that did not end are not counted.
        let Self { blocks, batch, .. } = self;
        thread.fetches.pass(blocks, id, *pc, |addr, attr, cell| batch.push_fetch(addr, attr, cell));
        let references = self.blocks.references_of(id);
        if block.flags.contains(BlockFlags::IRREGULAR) {
            let roles = self.blocks.words(id);
            let count = roles.iter().take_while(|word| block.pc + u64::from(word.pc_offset) < *pc).count();
            let count = count.min(words.len());
            let harmless = BlockInfo { flags: BlockFlags::IRREGULAR, ..block };
            self.irregular_block(thread, id, &harmless, &words[..count]);
            return;
        }
        for (reference, &addr) in references.zip(words) {
            let Reference { pc: at, attr, .. } = self.reference(reference);
            if at >= *pc {
                break;
            }
            self.access(thread, reference, attr, addr, 1, 0);
        }
    }

    fn reference(&self, number: u32) -> Reference {
        self.blocks.references()[number as usize]
    }

    /// A record that the hot loop does not take.
    fn special_record(&mut self, thread: &mut Thread, number: usize, id: u32, words: &[u64]) {
        if id == 0 {
            self.event(thread, number, words);
            return;
        }
        let block = self.blocks.block(id);
        if block.end_pc == 0 {
            self.irregularities.undefined_blocks += 1;
            return;
        }
        thread.instructions += u64::from(block.instructions);
        match block.switch {
            Switch::None => {}
            Switch::Start => self.set_collecting(true),
            Switch::Stop => self.set_collecting(false),
            Switch::Toggle => self.set_collecting(!self.collecting),
        }
        if self.blocks.fetch_rule().is_some() {
            self.fetch_block(thread, id);
        }
        // What an allocation function returns stands behind the accesses.
        let (words, value) = match words.split_last() {
            Some((value, words)) if block.flags.contains(BlockFlags::RETURNS_VALUE) => (words, Some(*value)),
            _ => (words, None),
        };
        if let Some(tracer) = &mut self.tracer {
            let Self { blocks: table, space, threads: others, collecting, .. } = self;
            tracer.block(Context { table, space, thread, others }, *collecting, id, words);
        }
        if block.flags.contains(BlockFlags::IRREGULAR) {
            self.irregular_block(thread, id, &block, words);
        } else {
            self.regular_block(thread, id, words);
        }
        if let Some(value) = value.filter(|_| !thread.pending.is_empty()) {
            let slot = words.get(usize::from(block.slot_word)).copied().unwrap_or(0);
            self.alloc_return(thread, slot, value);
        }
        if block.flags.0 & (BlockFlags::CALL.0 | BlockFlags::RETURN.0) != 0
            && let Some(&slot) = words.get(usize::from(block.slot_word))
        {
            let block = (id, block.flags.contains(BlockFlags::CALL));
            enter_or_leave(&self.blocks, &mut self.space, &mut thread.stack, block, slot);
        }
    }
}

impl RecordSink for Process {
    fn define(&mut self, definition: Definition) -> ModuleAnswer {
        match definition {
            Definition::Block(block) => self.define_block(&block),
            Definition::Module(module) => {
                let answer = self.define_module(&module);
                // It was mapped before it is known to be a module.
                self.check_generation(None);
                return answer;
            }
            Definition::Thread(thread) => {
                let slot = thread.slot as usize;
                self.tids.insert(slot, thread.tid);
                // The slot has a new owner: what the last one did is complete.
                if let Some(owner) = self.slots.get_mut(slot) {
                    *owner = None;
                }
            }
        }
        ModuleAnswer::new()
    }

    fn fork_answer(&mut self) -> Option<u64> {
        self.take_fork_answer()
    }

    fn wants_turns(&self) -> bool {
        self.takes_turns
    }

    fn records(&mut self, slot: usize, words: &[u64]) {
        // Taken out so that it and the rest can be borrowed at the same time.
        let Some((number, mut thread)) = self.take_thread(slot) else { return };
        let mut at = 0;
        if self.collecting && self.windows.is_due(self.serial) {
            self.windows.look(&self.blocks, &self.space, (number, self.serial), words);
        }
        if self.collecting && self.windows.are_paths_due(words.len()) {
            self.windows.look_for_paths(&self.blocks, &self.space, &thread.stack, words);
        }
        while at < words.len() {
            if self.collecting && self.tracer.is_none() {
                let Self { ref blocks, ref mut batch, ref mut space, ref mut serial, .. } = *self;
                let (thread, others, words) = (&mut *thread, &self.threads, &words[at..]);
                let hot = HotLoop { blocks, batch, space, thread, others, words, serial };
                at += match blocks.fetch_rule() {
                    None => lanes::dispatch(self.vectors, hot),
                    Some(_) => lanes::dispatch(self.vectors, WithFetches(hot)),
                };
            }
            if self.batch.is_full() {
                self.run_batch(Some(&mut thread));
                continue;
            }
            let Some(&header) = words.get(at) else { break };
            let header = RecordHeader(header);
            let end = at + 1 + header.words();
            let Some(payload) = words.get(at + 1..end) else {
                self.irregularities.damaged_records += 1;
                break;
            };
            self.special_record(&mut thread, number, header.block_id(), payload);
            at = end;
        }
        self.threads[number] = Some(thread);
    }
}
