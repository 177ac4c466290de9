//! The columns of every table, in order, with what they mean.

use memlens_types::Counts;

use super::columns::{Columns, Row};
use crate::{
    AccessPattern, CallPath, Cell, CodeLocation, Element, Field, FieldUse, Frame, Mark, Module, Object,
    ObjectBacking, ObjectPattern, PathCell, Slice, SliceUse, SourceLine, Stack, Thread,
};

impl Row for Module {
    const TABLE: &'static str = "modules";
    const DOC: &'static str = "An executable or library that was mapped.";

    fn columns(&mut self, c: &mut impl Columns) {
        c.column("path", "path when it ran", &mut self.path);
        c.column("build_id", "GNU build-id, lower-case hex", &mut self.build_id);
        c.column("has_debug", "whether debug information was found", &mut self.has_debug);
    }
}

impl Row for Frame {
    const TABLE: &'static str = "frames";
    const DOC: &'static str = "A code position: one level of a call stack, inlined levels included.";

    fn columns(&mut self, c: &mut impl Columns) {
        c.column("module", "row of `modules`; null: code outside of every file", &mut self.module);
        c.column("offset", "module offset (svma) in bytes; an address if `module` is null", &mut self.offset);
        c.column("function", "demangled name", &mut self.function);
        c.column("file", "source file as the debug information names it", &mut self.file);
        c.column("line", "source line, from 1", &mut self.line);
        c.column("column", "source column, from 1", &mut self.column);
        c.column("inlined", "whether the level is inlined into the next one", &mut self.inlined);
        c.column("source_text", "the source line itself", &mut self.source_text);
    }
}

impl Row for Stack {
    const TABLE: &'static str = "stacks";
    const DOC: &'static str = "A call stack.";

    fn columns(&mut self, c: &mut impl Columns) {
        c.column("frames", "rows of `frames`, innermost first", &mut self.0);
    }
}

/// What bytes on memory nodes are counted in.
const NODE_PAGE_BYTES: u64 = 4096;

impl Row for Object {
    const TABLE: &'static str = "objects";
    const DOC: &'static str = "A data object: all blocks of one allocation site, or one variable.";

    fn columns(&mut self, c: &mut impl Columns) {
        c.column("id", "number for people, from 1", &mut self.id);
        c.column(
            "kind",
            "`heap`, `global`, `local`, `tls`, `stack`, `code`, `mmap`, `kernel`, `unknown` or `computation`",
            &mut self.kind,
        );
        c.column("name", "variable or function name, or a made-up one", &mut self.name);
        c.column("type", "type as the source spells it", &mut self.type_name);
        let (mut element, mut element_bytes) = match self.element.take() {
            Some(Element { type_name, bytes }) => (Some(type_name), Some(bytes)),
            None => (None, None),
        };
        c.column("element_type", "structure that it consists of, once or again and again", &mut element);
        c.column("element_bytes", "size of that structure", &mut element_bytes);
        self.element = element.zip(element_bytes).map(|(type_name, bytes)| Element { type_name, bytes });
        c.column("site", "where it was allocated: row of `stacks`", &mut self.site);
        c.column("named_at", "frame of `site` that gave the name, from 0 innermost", &mut self.named_at);
        let (mut file, mut line) = match self.declared.take() {
            Some(SourceLine { file, line }) => (Some(file), Some(line)),
            None => (None, None),
        };
        c.column("declared_file", "source file of its declaration", &mut file);
        c.column("declared_line", "line of its declaration, from 1", &mut line);
        self.declared = file.zip(line).map(|(file, line)| SourceLine { file, line });
        c.column("module", "the file it belongs to: row of `modules`", &mut self.module);
        c.column("blocks", "allocations, mappings or frames merged into it", &mut self.blocks);
        c.column("bytes", "bytes of all blocks as requested, summed over the run; of one that `realloc` enlarged, what it grew by", &mut self.bytes);
        c.column("max_live_bytes", "most bytes live at one time", &mut self.max_live_bytes);
        c.column(
            "live_at_peak_bytes",
            "bytes live when most of the whole heap was; null: not known, or not of the heap",
            &mut self.live_at_peak_bytes,
        );
        c.column("live_at_end_bytes", "the same at the end", &mut self.live_at_end_bytes);
        c.column("bursts", "bursts that saw it, 2 for two and more; null: not known", &mut self.bursts);
        c.column(
            "wait_error_cycles",
            "standard error of its wait in cycles, from how bursts differ; null: not known",
            &mut self.wait_error_cycles,
        );
        c.column("stall_error_cycles", "the same of its stalls", &mut self.stall_error_cycles);
        let known = self.backing.take();
        let of = |bytes: fn(&ObjectBacking) -> u64| known.as_ref().map(bytes);
        let (mut small, mut transparent) = (of(|it| it.small_bytes), of(|it| it.transparent_bytes));
        let (mut hugetlb, mut untold) = (of(|it| it.hugetlb_bytes), of(|it| it.untold_huge_bytes));
        let mut gigantic = known.as_ref().and_then(|it| it.gigantic_bytes);
        let (mut zero, mut swapped) = (of(|it| it.zero_bytes), of(|it| it.swapped_bytes));
        let pages = |&bytes: &u64| u32::try_from(bytes / NODE_PAGE_BYTES).unwrap_or(u32::MAX);
        let by_node = known.map(|it| it.node_bytes).filter(|bytes| !bytes.is_empty());
        let mut node_pages: Option<Vec<u32>> = by_node.map(|bytes| bytes.iter().map(pages).collect());
        c.column("small_page_bytes", "bytes that the kernel had in 4-KiB pages; null: not seen", &mut small);
        c.column("transparent_huge_bytes", "the same in transparent huge pages", &mut transparent);
        c.column("hugetlb_bytes", "the same in reserved huge pages", &mut hugetlb);
        c.column(
            "untold_huge_bytes",
            "the same in huge pages of which is not told whether they are reserved",
            &mut untold,
        );
        c.column("gigantic_bytes", "of all these, in pages of 1 GiB; null: not told", &mut gigantic);
        c.column(
            "zero_page_bytes",
            "of all these, in the kernel's page of zeros: read, and never written",
            &mut zero,
        );
        c.column("swapped_bytes", "bytes that it had swapped out", &mut swapped);
        c.column(
            "node_pages",
            "pages of 4 KiB by memory node, from node 0; null: not known, or there is one node",
            &mut node_pages,
        );
        self.backing = small.map(|small_bytes| ObjectBacking {
            small_bytes,
            transparent_bytes: transparent.unwrap_or(0),
            hugetlb_bytes: hugetlb.unwrap_or(0),
            untold_huge_bytes: untold.unwrap_or(0),
            gigantic_bytes: gigantic,
            zero_bytes: zero.unwrap_or(0),
            swapped_bytes: swapped.unwrap_or(0),
            node_bytes: {
                let bytes = |pages: u32| u64::from(pages) * NODE_PAGE_BYTES;
                node_pages.unwrap_or_default().into_iter().map(bytes).collect()
            },
        });
        c.column(
            "access_path",
            "the pointer that samples reached it through, where no allocation is known",
            &mut self.access_path,
        );
        c.column("unknown_reason", "why nothing better is known", &mut self.unknown_reason);
        counts(&mut self.counts, c);
    }
}

impl Row for CodeLocation {
    const TABLE: &'static str = "code";
    const DOC: &'static str = "One memory operand of one instruction.";

    fn columns(&mut self, c: &mut impl Columns) {
        c.column("id", "number for people, from 1", &mut self.id);
        c.column("stack", "inlined functions at it, innermost first: row of `stacks`", &mut self.stack);
        c.column("module", "row of `modules`; null: generated code", &mut self.module);
        c.column("offset", "module offset (svma) in bytes; an address if `module` is null", &mut self.offset);
        c.column("operand", "which memory operand of the instruction, from 0", &mut self.operand);
        c.column("kind", "`load`, `store`, `modify`, `prefetch` or `fetch`", &mut self.kind);
        c.column("size_bytes", "bytes an access touches; 0 if that varies", &mut self.size_bytes);
        self.counts.change(|all| counts(all, c));
    }
}

impl Row for Cell {
    const TABLE: &'static str = "cells";
    const DOC: &'static str = "What one operand did to one object in one thread; other counts are its sums.";

    fn columns(&mut self, c: &mut impl Columns) {
        c.column("code", "row of `code`", &mut self.code);
        c.column("object", "row of `objects`", &mut self.object);
        c.column("thread", "row of `threads`", &mut self.thread);
        self.counts.change(|all| counts(all, c));
    }
}

impl Row for AccessPattern {
    const TABLE: &'static str = "patterns";
    const DOC: &'static str =
        "How one operand's addresses follow one another, seen in short windows of the run.";
    const IS_OPTIONAL: bool = true;

    fn columns(&mut self, c: &mut impl Columns) {
        c.column("code", "row of `code`", &mut self.code);
        c.column(
            "kind",
            "`stream`, `stride`, `multi-stride`, `pointer-chase`, `indirect`, `irregular`, `constant` or `unknown`",
            &mut self.kind,
        );
        c.column(
            "stride_bytes",
            "most frequent difference of two addresses in a row",
            &mut self.stride_bytes,
        );
        c.column(
            "stride_permille",
            "share of the differences that are so, in 1/1000",
            &mut self.stride_permille,
        );
        c.column("loaded_by", "row of `code` that loads the address or index", &mut self.loaded_by);
        c.column(
            "entropy_millibits",
            "entropy of the differences, in 1/1000 bit",
            &mut self.entropy_millibits,
        );
        c.column(
            "span_bytes",
            "from the lowest to the highest address of a window, on average",
            &mut self.span_bytes,
        );
        c.column(
            "walk_steps",
            "most steps in a row by the stride, of walks seen to their end; null: windows cut off longer ones",
            &mut self.walk_steps,
        );
        c.column(
            "links",
            "of `pointer-chase`: links of a node that lead on, 2 and more in a tree; null: not known",
            &mut self.links,
        );
        c.column(
            "exits",
            "of `pointer-chase`: ways out of the loop, 2 and more of a search, 1 where all nodes are visited; null: not known",
            &mut self.exits,
        );
        c.column(
            "trips_permille",
            "iterations of the loop around it each time it is come to, the mean in 1/1000; null: not known",
            &mut self.trips_permille,
        );
        c.column(
            "accesses_apart",
            "accesses of the thread from one execution to the next",
            &mut self.accesses_apart,
        );
        c.column("executions", "executions looked at", &mut self.executions);
        c.column(
            "confidence_permille",
            "lower end of the 95 % interval of the verdict's strides' share, in 1/1000; 0: it rests on none",
            &mut self.confidence_permille,
        );
    }
}

impl Row for ObjectPattern {
    const TABLE: &'static str = "object_patterns";
    const DOC: &'static str =
        "The same of one operand's addresses in one object, of operands that differ from object to object.";
    const IS_OPTIONAL: bool = true;

    fn columns(&mut self, c: &mut impl Columns) {
        c.column("object", "row of `objects`", &mut self.object);
        self.pattern.columns(c);
    }
}

impl Row for Field {
    const TABLE: &'static str = "fields";
    const DOC: &'static str =
        "A field of the structures that an object consists of, or bytes without a name.";
    const IS_OPTIONAL: bool = true;

    fn columns(&mut self, c: &mut impl Columns) {
        c.column("object", "row of `objects`", &mut self.object);
        c.column(
            "offset_bytes",
            "from the structure's, else the block's beginning; null: all that is in no field",
            &mut self.offset_bytes,
        );
        c.column("size_bytes", "its size; of bytes without a name the largest access", &mut self.size_bytes);
        c.column("name", "its path in the structure; null: bytes without a name", &mut self.name);
        c.column("type", "its type as the source spells it", &mut self.type_name);
    }
}

impl Row for FieldUse {
    const TABLE: &'static str = "field_uses";
    const DOC: &'static str =
        "How often an operand was seen at a field; its cells' counts are divided in these proportions.";
    const IS_OPTIONAL: bool = true;

    fn columns(&mut self, c: &mut impl Columns) {
        c.column("code", "row of `code`", &mut self.code);
        c.column("field", "row of `fields`", &mut self.field);
        c.column("seen", "accesses seen there", &mut self.seen);
    }
}

impl Row for CallPath {
    const TABLE: &'static str = "paths";
    const DOC: &'static str = "A node of the tree of call paths; parents come before their children.";
    const IS_OPTIONAL: bool = true;

    fn columns(&mut self, c: &mut impl Columns) {
        c.column("parent", "the caller: row of `paths`; null: the outermost frame found", &mut self.parent);
        c.column(
            "frame",
            "row of `frames`: a call, or, at a path's end, a function without a line",
            &mut self.frame,
        );
    }
}

impl Row for PathCell {
    /// There were paths of samples only.
    const TABLE: &'static str = "path_samples";
    const DOC: &'static str = "What was done to an object at the end of a call path, by samples or by accesses; together all that `cells` have, or no row.";
    const IS_OPTIONAL: bool = true;

    fn columns(&mut self, c: &mut impl Columns) {
        c.column("path", "the innermost frame: row of `paths`; null: not known", &mut self.path);
        c.column("object", "row of `objects`", &mut self.object);
        self.counts.change(|all| counts_beside_samples(all, c));
    }
}

impl Row for Slice {
    const TABLE: &'static str = "slices";
    const DOC: &'static str = "A part of the run's time; slices follow one another.";
    const IS_OPTIONAL: bool = true;

    fn columns(&mut self, c: &mut impl Columns) {
        c.column("begin", "where it begins, in `run.clock`", &mut self.begin);
        c.column("end", "where it ends", &mut self.end);
    }
}

impl Row for SliceUse {
    const TABLE: &'static str = "slice_uses";
    const DOC: &'static str = "What an object did in a slice.";
    const IS_OPTIONAL: bool = true;

    fn columns(&mut self, c: &mut impl Columns) {
        c.column("slice", "row of `slices`", &mut self.slice);
        c.column(
            "object",
            "row of `objects`; null: all together that have less than 1/1000 of the slice",
            &mut self.object,
        );
        c.column(
            "cost",
            "cycles of wait beyond hits of the first level, or of samples what they stand for",
            &mut self.cost,
        );
        c.column("dram_reads", "lines read from memory; null: nobody counts them", &mut self.dram_reads);
        c.column(
            "live_bytes",
            "bytes of its heap blocks live at the slice's end; null: not known, or not of the heap",
            &mut self.live_bytes,
        );
    }
}

impl Row for Thread {
    const TABLE: &'static str = "threads";
    const DOC: &'static str = "A thread of the program.";

    fn columns(&mut self, c: &mut impl Columns) {
        c.column("tid", "the kernel's thread id", &mut self.tid);
        c.column("pid", "its process", &mut self.pid);
        c.column("name", "its name", &mut self.name);
        c.column("instructions", "instructions it executed while collection was on", &mut self.instructions);
        counts(&mut self.counts, c);
    }
}

impl Row for Mark {
    const TABLE: &'static str = "marks";
    const DOC: &'static str = "A moment the program named by a client request.";

    fn columns(&mut self, c: &mut impl Columns) {
        c.column("instructions", "instructions executed by the process until then", &mut self.instructions);
        c.column("thread", "who named it: row of `threads`", &mut self.thread);
        c.column("name", "its name", &mut self.name);
    }
}

/// What every profile has of these rows, and what most do not.
fn counts(counts: &mut Counts, c: &mut impl Columns) {
    counts_by(counts, c, required, none_or);
}

/// The same of rows which there were before accesses were counted there: all but samples and their cost is null where it is 0.
fn counts_beside_samples(counts: &mut Counts, c: &mut impl Columns) {
    counts_by(counts, c, none_or, required);
}

/// A count that is always there.
fn required(c: &mut impl Columns, name: &'static str, doc: &'static str, count: &mut u64) {
    c.column(name, doc, count);
}

/// `plain`: how a count is shown that every profile has; `samples`: how samples and their cost are.
fn counts_by<C: Columns>(
    counts: &mut Counts,
    c: &mut C,
    plain: impl Fn(&mut C, &'static str, &'static str, &mut u64),
    samples: impl Fn(&mut C, &'static str, &'static str, &mut u64),
) {
    plain(c, "loads", "loads, modifies included", &mut counts.loads);
    plain(c, "stores", "stores, modifies included", &mut counts.stores);
    plain(c, "modifies", "operands that read, then write the same bytes", &mut counts.modifies);
    none_or(
        c,
        "followers",
        "elements of string instructions behind the first one in a line, which wait for nothing; null: none",
        &mut counts.followers,
    );
    plain(c, "load_bytes", "bytes read", &mut counts.load_bytes);
    plain(c, "store_bytes", "bytes written", &mut counts.store_bytes);
    plain(c, "l1_load_misses", "first-level data misses of loads", &mut counts.l1_load_misses);
    plain(c, "l1_store_misses", "first-level data misses of stores, modifies", &mut counts.l1_store_misses);
    plain(c, "l2_load_misses", "second-level misses of loads", &mut counts.l2_load_misses);
    plain(c, "l2_store_misses", "second-level misses of stores, modifies", &mut counts.l2_store_misses);
    plain(c, "llc_load_misses", "last-level misses of loads", &mut counts.llc_load_misses);
    plain(c, "llc_store_misses", "last-level misses of stores, modifies", &mut counts.llc_store_misses);
    none_or(
        c,
        "l2_prefetched",
        "second-level misses that a hardware prefetcher covers; null: none",
        &mut counts.l2_prefetched,
    );
    none_or(
        c,
        "llc_prefetched",
        "last-level misses that a hardware prefetcher covers; null: none",
        &mut counts.llc_prefetched,
    );
    none_or(
        c,
        "stall_cycles",
        "cycles in which the core could retire nothing because of them; null: none, or the core is not described",
        &mut counts.stall_cycles,
    );
    none_or(
        c,
        "translation_stall_cycles",
        "those of them that the core would not wait if no address took time to be translated; null: none, or not modelled",
        &mut counts.translation_stall_cycles,
    );
    plain(c, "dram_reads", "lines read from memory", &mut counts.dram_reads);
    plain(c, "dram_writes", "lines written back to memory; only in `objects`", &mut counts.dram_writes);
    plain(c, "dtlb_misses", "first-level data TLB misses", &mut counts.dtlb_misses);
    plain(c, "stlb_misses", "second-level TLB misses: page walks", &mut counts.stlb_misses);
    plain(c, "page_walk_accesses", "page-table entries read by walks", &mut counts.page_walk_accesses);
    none_or(
        c,
        "walk_cycles",
        "cycles that these walks take; null: none, or each entry read takes the same",
        &mut counts.walk_cycles,
    );
    plain(c, "invalidations", "lines lost to another core's write", &mut counts.invalidations);
    let shared = &mut counts.shared;
    none_or(
        c,
        "coherence_misses",
        "misses that another core's modified copy serves; null: none",
        &mut shared.coherence_misses,
    );
    none_or(
        c,
        "false_sharing",
        "those whose bytes the other cores had not written",
        &mut shared.false_sharing,
    );
    let numa = &mut counts.numa;
    none_or(
        c,
        "remote_misses",
        "last-level misses whose line lies in another node's memory; null: none, or there is one node",
        &mut numa.remote_misses,
    );
    none_or(
        c,
        "remote_prefetched",
        "those of them that a hardware prefetcher covers",
        &mut numa.remote_prefetched,
    );
    none_or(
        c,
        "misplaced",
        "those of the remote misses whose node misses the page most",
        &mut numa.misplaced,
    );
    none_or(
        c,
        "first_touches",
        "pages that nobody had touched before; null: none, or there is one node",
        &mut numa.first_touches,
    );
    let fetched = &mut counts.fetched;
    none_or(
        c,
        "fetches",
        "instructions fetched; null: none, or fetches were not modelled",
        &mut fetched.fetches,
    );
    none_or(c, "l1i_misses", "first-level misses of fetches", &mut fetched.l1i_misses);
    none_or(c, "l2i_misses", "second-level misses of fetches", &mut fetched.l2i_misses);
    none_or(c, "llci_misses", "last-level misses of fetches", &mut fetched.llci_misses);
    let sampled = &mut counts.sampled;
    samples(c, "samples", "samples taken here; null: none", &mut sampled.samples);
    samples(c, "sample_cost", "what they stand for, in `run.sampling.unit`", &mut sampled.cost);
    none_or(
        c,
        "samples_by_hardware",
        "those whose data address the processor told",
        &mut sampled.by_hardware,
    );
    none_or(
        c,
        "samples_by_registers",
        "those whose data address was computed from registers",
        &mut sampled.by_registers,
    );
    none_or(c, "samples_by_code", "those whose object was found by reading the code", &mut sampled.by_code);
}

/// A count that most profiles do not have: null where it is 0, and where the column is missing.
fn none_or(c: &mut impl Columns, name: &'static str, doc: &'static str, count: &mut u64) {
    let mut value = (*count > 0).then_some(*count);
    c.column(name, doc, &mut value);
    *count = value.unwrap_or(0);
}
