//! The tables, and how each comes out of a profile.

use memlens_profile::{
    AccessPattern, Clock, CodeIx, FieldShares, Frame, ModuleIx, Object, ObjectBacking, ObjectIx, PathIx,
    Profile, StackIx, place,
};

use memlens_report::thread_name;

use crate::fill::Rows;
use crate::schema::CountColumns::{None as NoCounts, OfCode, WithWriteBacks};
use crate::schema::{Table, int, key, real, text};
use crate::value::row;

type Filled = rusqlite::Result<()>;

/// All tables.
pub const TABLES: &[Table] = &[
    Table {
        name: "run",
        meaning: "the run; one row",
        columns: &[
            text("command", "program and arguments, as one text"),
            text("mode", "`exact`, `burst`, `sample`, `bus` or `import`"),
            int("exit_code", "what the program returned"),
            int("signal", "the signal that ended it"),
            real("wall_seconds", "from start to end; of merged profiles the longest"),
            int("instructions", "executed by all threads while collection was on"),
            int("threads", "how many ever ran"),
            int("estimated", "1: counts are estimates"),
            int("heap_peak_bytes", "most bytes of heap blocks live at one time"),
            text(
                "clock",
                "what `slices` are counted in: `instructions` or `nanoseconds`; NULL: there are none",
            ),
            text("primary_cost", "what reports rank by, in sample mode the event"),
            int("core_cycles", "what a modelled core takes for the code, its stalls among it"),
            int("measured_cycles", "what the code took by the time that bursts measured"),
            int("modelled_stall_cycles", "stalls by the model alone, where they were held against that time"),
            int("bursts", "how many were recorded"),
            real(
                "overhead",
                "what recording cost, as a part of the program's processor time, in burst and sample mode",
            ),
            real("effective_bursts", "as many bursts of equal weight tell as much"),
            int("started_unix_seconds", "when the program was started, the first of merged ones"),
            text("hostname", "where it ran"),
            int("pid", "of the program"),
            text("memlens_version", "that recorded it"),
            int("attributed_accesses", "that found their object"),
            int("unknown_accesses", "that did not"),
            int("lost_events", "records that could not be used"),
            int("truncated", "1: the profile ends before the program did"),
            text("machine", "name of the machine that was modelled"),
            int("line_bytes", "of a cache line"),
            int("page_bytes", "of a page"),
        ],
        counts: NoCounts,
        fill: run,
    },
    Table {
        name: "totals",
        meaning: "the whole program; one row",
        columns: &[],
        counts: WithWriteBacks,
        fill: totals,
    },
    Table {
        name: "objects",
        meaning: "a data object: all blocks of an allocation site, or a variable",
        columns: &[
            key("object", "its number, as `id` in reports"),
            text("name", "variable, or what reports call it"),
            text(
                "kind",
                "`heap`, `global`, `local`, `tls`, `stack`, `code`, `mmap`, `kernel`, `unknown`, `computation`",
            ),
            text("type", "as the source spells it"),
            text("element", "type of the structure that it consists of"),
            int("element_bytes", "size of that"),
            text("place", "where it was allocated or declared, as in tables"),
            int(
                "row",
                "number of the first object of the row in which reports show it: objects of equal kind, name, type, module and line",
            ),
            int("stack", "calls that led to the allocation: of `stacks`"),
            text("declared_file", "source file of its declaration"),
            int("declared_line", "line there"),
            text("module", "executable or library it belongs to"),
            int("blocks", "allocations that it consists of"),
            int("bytes", "requested over the whole run"),
            int("max_live_bytes", "most bytes live at one time; of the heap and mappings in exact mode"),
            int("live_at_peak_bytes", "bytes live when most of the whole heap was"),
            int("live_at_end_bytes", "bytes live at the end"),
            text("access_path", "the pointer that samples reached it through"),
            text("unknown_reason", "why nothing better is known"),
            int("bursts", "in burst mode whether one burst saw it (1), or several (2)"),
            int("wait_error_cycles", "in burst mode the standard error of `wait_cycles`"),
            int("stall_error_cycles", "the same of `stall_cycles`"),
            int("resident_bytes", "of its memory, when most of it was there"),
            int("small_bytes", "of these in pages of the smallest size"),
            int("swapped_bytes", "swapped out then"),
        ],
        counts: WithWriteBacks,
        fill: objects,
    },
    Table {
        name: "code",
        meaning: "an operand of an instruction that accesses memory",
        columns: &[
            key("code", "its number"),
            text("module", "executable or library; NULL: generated code"),
            int("offset", "of the instruction as the file states addresses; without a module its address"),
            int("operand", "which operand of the instruction"),
            text("access", "`load`, `store`, `modify`, `prefetch`, `fetch`"),
            int("size_bytes", "of an access; 0: it varies"),
            text("function", "innermost function, inlined ones included"),
            text("file", "source file"),
            int("line", "source line"),
            text("source", "both for people, without folders: `search.c:12`"),
            int("stack", "the inlined functions at the instruction: of `stacks`"),
        ],
        counts: OfCode,
        fill: code,
    },
    Table {
        name: "threads",
        meaning: "a thread",
        columns: &[
            key("thread", "its number"),
            int("tid", "the kernel's id, which several programs of a process, one after the other, may have"),
            int("pid", "its process"),
            text("name", "its name, as reports show it"),
            int("instructions", "that it executed"),
        ],
        counts: OfCode,
        fill: threads,
    },
    Table {
        name: "cells",
        meaning: "what an operand did to an object in a thread: all other counts are sums of these, but for lines written back",
        columns: &[int("code", "the operand"), int("object", "the object"), int("thread", "the thread")],
        counts: OfCode,
        fill: cells,
    },
    Table {
        name: "fields",
        meaning: "a part of the structures that an object consists of",
        columns: &[
            key("field", "its number"),
            int("object", "the object"),
            int("offset", "from the structure's beginning; NULL: everything that is in no field"),
            int("bytes", "its size"),
            text("name", "`left`, `pos.x`, `items[].key`; NULL: bytes without a name"),
            text("type", "as the source spells it"),
        ],
        counts: NoCounts,
        fill: fields,
    },
    Table {
        name: "field_cells",
        meaning: "what an operand did to a field in a thread, where that was looked at",
        columns: &[int("code", "the operand"), int("field", "the field"), int("thread", "the thread")],
        counts: OfCode,
        fill: field_cells,
    },
    Table {
        name: "patterns",
        meaning: "how the addresses of an operand follow one another",
        columns: &[
            int("code", "the operand"),
            int("object", "in this object only; NULL: in all"),
            text(
                "kind",
                "`stream`, `stride`, `multi-stride`, `pointer-chase`, `indirect`, `constant`, `irregular`",
            ),
            int("stride_bytes", "the most frequent difference"),
            real("stride_share", "how many of the differences are so, 0 to 1"),
            int("loaded_by", "the operand that brings the address or index"),
            real("entropy_bits", "of the differences"),
            int("span_bytes", "from the lowest to the highest address of a window, on average"),
            int("walk_steps", "most steps in a row by the stride"),
            int("links", "of a chain's node"),
            int("exits", "of the loop along the chain"),
            real("trips", "iterations of the loop around it"),
            int("accesses_apart", "from one execution to the next"),
            int("executions", "looked at"),
            real("confidence", "lower end of the 95 % interval of the share that the verdict's strides have"),
        ],
        counts: NoCounts,
        fill: patterns,
    },
    Table {
        name: "modules",
        meaning: "an executable or library",
        columns: &[
            text("module", "file name, as in the other tables"),
            text("path", "where it was when it ran"),
            text("build_id", "GNU build-id"),
            int("has_debug", "1: debug information was found"),
        ],
        counts: NoCounts,
        fill: modules,
    },
    Table {
        name: "frames",
        meaning: "a position in the code, as a level of a call stack",
        columns: &[
            key("frame", "its number"),
            text("module", "executable or library"),
            int("offset", "as the file states addresses"),
            text("function", "the function"),
            text("file", "source file"),
            int("line", "source line"),
            text("source", "both for people, without folders"),
            int("column", "source column"),
            int("inlined", "1: this level is inlined into the next"),
            text("source_text", "the line itself"),
        ],
        counts: NoCounts,
        fill: frames,
    },
    Table {
        name: "stacks",
        meaning: "a level of a call stack",
        columns: &[
            int("stack", "number of the stack"),
            int("depth", "from 0, the innermost"),
            int("frame", "the position"),
        ],
        counts: NoCounts,
        fill: stacks,
    },
    Table {
        name: "paths",
        meaning: "a node of the tree of calls through which data was reached",
        columns: &[
            key("path", "its number; a caller's is smaller"),
            int("parent", "the caller"),
            int("depth", "callers above it"),
            int("frame", "the position: of a caller its call, of the last function the whole of it"),
            text("function", "the function there"),
            text("file", "source file"),
            int("line", "line of the call"),
            text("source", "both for people, without folders"),
        ],
        counts: NoCounts,
        fill: paths,
    },
    Table {
        name: "path_cells",
        meaning: "what was done to an object at the end of a path",
        columns: &[int("path", "NULL: the path is not known"), int("object", "the object")],
        counts: OfCode,
        fill: path_cells,
    },
    Table {
        name: "slices",
        meaning: "a part of the run's time; each begins where the one before ends",
        columns: &[
            key("slice", "its number"),
            int("begin", "where it begins, in the run's `clock`"),
            int("end", "where it ends"),
        ],
        counts: NoCounts,
        fill: slices,
    },
    Table {
        name: "slice_uses",
        meaning: "what an object did in a slice; what has no row is 0",
        columns: &[
            int("slice", "the slice"),
            int("object", "the object; NULL: all together that have less than 1/1000 of the slice"),
            int("cost", "cycles of wait beyond hits of the first level, in sample mode as `sample_cost`"),
            int("dram_reads", "lines read from memory"),
            int("live_bytes", "of its heap blocks, at the slice's end; NULL: none, or not known"),
        ],
        counts: NoCounts,
        fill: slice_uses,
    },
    Table {
        name: "levels",
        meaning: "a cache or TLB of the machine that was modelled",
        columns: &[
            text("level", "`l1i`, `l1d`, `l2`, `llc`, `dtlb`, `stlb`"),
            int("bytes", "capacity of a cache"),
            int("entries", "of a TLB"),
            int("ways", "of a set"),
            text("policy", "replacement"),
            int("latency_cycles", "of an access that it serves; of a second-level TLB what it adds"),
        ],
        counts: NoCounts,
        fill: levels,
    },
    Table {
        name: "marks",
        meaning: "a moment that the program named",
        columns: &[
            text("name", "its name"),
            int("instructions", "that the process had executed by then"),
            int("thread", "that named it"),
        ],
        counts: NoCounts,
        fill: marks,
    },
    Table {
        name: "notes",
        meaning: "what a reader has to know",
        columns: &[text("note", "a sentence")],
        counts: NoCounts,
        fill: notes,
    },
    Table {
        name: "unknown",
        meaning: "why accesses have no object",
        columns: &[text("reason", "why"), int("accesses", "how many")],
        counts: NoCounts,
        fill: unknown,
    },
];

/// The number of a row that has none of its own, from 1.
fn number(index: usize) -> i64 {
    index as i64 + 1
}

fn module(profile: &Profile, module: Option<ModuleIx>) -> Option<&str> {
    profile.module(module).map(|module| module.name())
}

fn object_id(profile: &Profile, object: ObjectIx) -> Option<u32> {
    profile.objects.get(object.index()).map(|object| object.id)
}

fn code_id(profile: &Profile, code: CodeIx) -> Option<u32> {
    profile.code.get(code.index()).map(|code| code.id)
}

fn stack_number(stack: Option<StackIx>) -> Option<i64> {
    stack.map(|stack| number(stack.index()))
}

fn path_number(path: Option<PathIx>) -> Option<i64> {
    path.map(|path| number(path.index()))
}

fn permille(value: u32) -> f64 {
    f64::from(value) / 1000.0
}

fn run(profile: &Profile, rows: &mut Rows<'_>) -> Filled {
    let (run, found, machine) = (&profile.run, &profile.attribution, &profile.machine);
    rows.put(row![
        run.command.join(" "),
        run.mode.as_str(),
        run.exit_code,
        run.signal,
        run.wall_seconds,
        run.instructions,
        run.threads,
        run.estimated,
        run.heap_peak_bytes,
        run.clock.map(Clock::as_str),
        run.primary_cost.as_str(),
        run.core_cycles,
        run.measured_cycles,
        run.modelled_stall_cycles,
        run.bursts.map(|bursts| bursts.bursts),
        run.overhead(),
        run.effective_bursts,
        run.started_unix_seconds,
        run.hostname.as_deref(),
        run.pid,
        run.memlens_version.as_str(),
        found.attributed_accesses,
        found.unknown_accesses,
        found.lost_events,
        found.truncated,
        machine.name.as_str(),
        machine.line_bytes,
        machine.page_bytes,
    ])
}

fn totals(profile: &Profile, rows: &mut Rows<'_>) -> Filled {
    rows.put_counts(row![], profile, &profile.totals())
}

fn objects(profile: &Profile, rows: &mut Rows<'_>) -> Filled {
    let mut row_of: Vec<u32> = vec![0; profile.objects.len()];
    for members in profile.object_rows() {
        let first = members.first().and_then(|&first| object_id(profile, first)).unwrap_or(0);
        members.iter().for_each(|member| row_of[member.index()] = first);
    }
    for (object, row) in profile.objects.iter().zip(row_of) {
        let Object { element, declared, backing, .. } = object;
        let row = row![
            object.id,
            object.name.as_str(),
            object.kind.as_str(),
            object.type_name.as_deref(),
            element.as_ref().map(|element| element.type_name.as_str()),
            element.as_ref().map(|element| element.bytes),
            place::object_place(profile, object),
            row,
            stack_number(object.site),
            declared.as_ref().map(|declared| declared.file.as_str()),
            declared.as_ref().map(|declared| declared.line),
            module(profile, object.module),
            object.blocks,
            object.bytes,
            object.max_live_bytes,
            object.live_at_peak_bytes,
            object.live_at_end_bytes,
            object.access_path.as_deref(),
            object.unknown_reason.as_deref(),
            object.bursts,
            object.wait_error_cycles,
            object.stall_error_cycles,
            backing.as_ref().map(ObjectBacking::resident_bytes),
            backing.as_ref().map(|backing| backing.small_bytes),
            backing.as_ref().map(|backing| backing.swapped_bytes),
        ];
        rows.put_counts(row, profile, &object.counts)?;
    }
    Ok(())
}

fn code(profile: &Profile, rows: &mut Rows<'_>) -> Filled {
    for code in &profile.code {
        let frame = profile.stack_frames(code.stack).next();
        let row = row![
            code.id,
            module(profile, code.module),
            code.offset,
            code.operand,
            code.kind.as_str(),
            code.size_bytes,
            frame.and_then(|frame| frame.function.as_deref()),
            frame.and_then(|frame| frame.file.as_deref()),
            frame.and_then(|frame| frame.line),
            frame.and_then(place::source_place),
            stack_number(code.stack),
        ];
        rows.put_counts(row, profile, &code.counts.get())?;
    }
    Ok(())
}

fn threads(profile: &Profile, rows: &mut Rows<'_>) -> Filled {
    for (at, thread) in profile.threads.iter().enumerate() {
        let pid = thread.pid.or(profile.run.pid);
        let row = row![number(at), thread.tid, pid, thread_name(profile, thread), thread.instructions];
        rows.put_counts(row, profile, &thread.counts)?;
    }
    Ok(())
}

fn cells(profile: &Profile, rows: &mut Rows<'_>) -> Filled {
    for cell in &profile.cells {
        let row =
            row![code_id(profile, cell.code), object_id(profile, cell.object), number(cell.thread.index())];
        rows.put_counts(row, profile, &cell.counts.get())?;
    }
    Ok(())
}

fn fields(profile: &Profile, rows: &mut Rows<'_>) -> Filled {
    for (at, field) in profile.fields.iter().enumerate() {
        rows.put(row![
            number(at),
            object_id(profile, field.object),
            field.offset_bytes,
            field.size_bytes,
            field.name.as_deref(),
            field.type_name.as_deref(),
        ])?;
    }
    Ok(())
}

fn field_cells(profile: &Profile, rows: &mut Rows<'_>) -> Filled {
    let shares = FieldShares::of(profile);
    for cell in &profile.cells {
        for (field, counts) in shares.pieces(cell) {
            let row = row![code_id(profile, cell.code), number(field.index()), number(cell.thread.index())];
            rows.put_counts(row, profile, &counts)?;
        }
    }
    Ok(())
}

fn patterns(profile: &Profile, rows: &mut Rows<'_>) -> Filled {
    let everywhere = profile.patterns.iter().map(|pattern| (None, pattern));
    let somewhere = profile.object_patterns.iter().map(|of| (object_id(profile, of.object), &of.pattern));
    for (object, pattern) in everywhere.chain(somewhere) {
        let AccessPattern { stride_permille, entropy_millibits, confidence_permille, .. } = *pattern;
        rows.put(row![
            code_id(profile, pattern.code),
            object,
            pattern.kind.as_str(),
            pattern.stride_bytes,
            permille(stride_permille),
            pattern.loaded_by.and_then(|code| code_id(profile, code)),
            permille(entropy_millibits),
            pattern.span_bytes,
            pattern.walk_steps,
            pattern.links,
            pattern.exits,
            pattern.trips_permille.map(|trips| trips as f64 / 1000.0),
            pattern.accesses_apart,
            pattern.executions,
            permille(confidence_permille),
        ])?;
    }
    Ok(())
}

fn modules(profile: &Profile, rows: &mut Rows<'_>) -> Filled {
    for module in &profile.modules {
        rows.put(row![module.name(), module.path.as_str(), module.build_id.as_deref(), module.has_debug])?;
    }
    Ok(())
}

fn frames(profile: &Profile, rows: &mut Rows<'_>) -> Filled {
    for (at, frame) in profile.frames.iter().enumerate() {
        rows.put(row![
            number(at),
            module(profile, frame.module),
            frame.offset,
            frame.function.as_deref(),
            frame.file.as_deref(),
            frame.line,
            place::source_place(frame),
            frame.column,
            frame.inlined,
            frame.source_text.as_deref(),
        ])?;
    }
    Ok(())
}

fn stacks(profile: &Profile, rows: &mut Rows<'_>) -> Filled {
    for (at, stack) in profile.stacks.iter().enumerate() {
        for (depth, frame) in stack.0.iter().enumerate() {
            rows.put(row![number(at), depth as i64, number(frame.index())])?;
        }
    }
    Ok(())
}

fn paths(profile: &Profile, rows: &mut Rows<'_>) -> Filled {
    // Callers come first.
    let mut depths: Vec<i64> = Vec::with_capacity(profile.paths.len());
    for (at, path) in profile.paths.iter().enumerate() {
        let above = path.parent.and_then(|parent| depths.get(parent.index()));
        let depth = above.map_or(0, |depth| depth + 1);
        depths.push(depth);
        let frame: Option<&Frame> = profile.frames.get(path.frame.index());
        rows.put(row![
            number(at),
            path_number(path.parent),
            depth,
            number(path.frame.index()),
            frame.and_then(|frame| frame.function.as_deref()),
            frame.and_then(|frame| frame.file.as_deref()),
            frame.and_then(|frame| frame.line),
            frame.and_then(place::source_place),
        ])?;
    }
    Ok(())
}

fn path_cells(profile: &Profile, rows: &mut Rows<'_>) -> Filled {
    for cell in &profile.path_cells {
        let row = row![path_number(cell.path), object_id(profile, cell.object)];
        rows.put_counts(row, profile, &cell.counts.get())?;
    }
    Ok(())
}

fn slices(profile: &Profile, rows: &mut Rows<'_>) -> Filled {
    let mut slices = profile.slices.iter().enumerate();
    slices.try_for_each(|(at, slice)| rows.put(row![number(at), slice.begin, slice.end]))
}

fn slice_uses(profile: &Profile, rows: &mut Rows<'_>) -> Filled {
    profile.slice_uses.iter().try_for_each(|it| {
        let object = it.object.and_then(|object| object_id(profile, object));
        rows.put(row![number(it.slice.index()), object, it.cost, it.dram_reads, it.live_bytes])
    })
}

fn levels(profile: &Profile, rows: &mut Rows<'_>) -> Filled {
    let machine = &profile.machine;
    let latencies = &machine.latencies;
    let caches = [
        ("l1i", &machine.l1i, latencies.l1_cycles),
        ("l1d", &machine.l1d, latencies.l1_cycles),
        ("l2", &machine.l2, latencies.l2_cycles),
        ("llc", &machine.llc, latencies.llc_cycles),
    ];
    for (level, cache, cycles) in caches {
        if let Some(cache) = cache {
            rows.put(row![level, cache.bytes, None::<i64>, cache.ways, cache.policy.as_str(), cycles])?;
        }
    }
    for (level, tlb, cycles) in [("dtlb", machine.dtlb, 0), ("stlb", machine.stlb, latencies.stlb_cycles)] {
        if let Some(tlb) = tlb {
            rows.put(row![level, None::<i64>, tlb.entries, tlb.ways, None::<&str>, cycles])?;
        }
    }
    Ok(())
}

fn marks(profile: &Profile, rows: &mut Rows<'_>) -> Filled {
    for mark in &profile.marks {
        let thread = mark.thread.map(|thread| number(thread.index()));
        rows.put(row![mark.name.as_str(), mark.instructions, thread])?;
    }
    Ok(())
}

fn notes(profile: &Profile, rows: &mut Rows<'_>) -> Filled {
    let all = profile.run.notes.iter().chain(&profile.attribution.notes);
    all.map(String::as_str).try_for_each(|note| rows.put(row![note]))
}

fn unknown(profile: &Profile, rows: &mut Rows<'_>) -> Filled {
    let reasons = &profile.attribution.unknown_reasons;
    reasons.iter().try_for_each(|(reason, accesses)| rows.put(row![reason.as_str(), *accesses]))
}
