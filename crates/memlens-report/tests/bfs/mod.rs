//! A profile as a breadth-first search would leave it: numbers by hand, sums by `sum_cells`.

use memlens_profile::{
    CacheInfo, Cell, CodeIx, CodeLocation, Frame, FrameIx, Latencies, MachineInfo, Module, ModuleIx, Object,
    ObjectIx, Profile, RunInfo, SourceLine, Stack, StackIx, Thread, ThreadIx, TlbInfo,
};
use memlens_types::{AccessKind, Counts, ObjectKind};

pub fn machine() -> MachineInfo {
    let cache = |bytes, ways| Some(CacheInfo { bytes, ways, policy: "lru".into() });
    MachineInfo {
        name: "host".into(),
        description: Some("AMD EPYC 9R14".into()),
        line_bytes: 64,
        page_bytes: 4096,
        l1i: cache(32 << 10, 8),
        l1d: cache(32 << 10, 8),
        l2: cache(1 << 20, 8),
        llc: cache(32 << 20, 16),
        dtlb: Some(TlbInfo { entries: 72, ways: 72 }),
        stlb: Some(TlbInfo { entries: 3072, ways: 12 }),
        walk_tiers: Vec::new(),
        latencies: Latencies::default(),
        llc_told_bytes: None,
        has_assumed_latencies: false,
        has_brief_latencies: false,
        prefetcher_streams: 0,
        core: None,
        nodes: 0,
        rules: "memlens".into(),
        inclusion: Some("non-inclusive".into()),
    }
}

struct Builder(Profile);

impl Builder {
    fn frame(&mut self, offset: u64, function: &str, line: u32, text: &str) -> FrameIx {
        self.0.frames.push(Frame {
            module: Some(ModuleIx(0)),
            offset,
            function: Some(function.into()),
            file: Some("/home/ada/src/bfs.c".into()),
            line: Some(line),
            column: Some(5),
            inlined: false,
            source_text: Some(text.into()),
        });
        FrameIx::from_index(self.0.frames.len() - 1)
    }

    fn stack(&mut self, frames: &[FrameIx]) -> StackIx {
        self.0.stacks.push(Stack(frames.to_vec()));
        StackIx::from_index(self.0.stacks.len() - 1)
    }

    fn object(&mut self, object: Object) -> ObjectIx {
        let id = self.0.objects.len() as u32 + 1;
        self.0.objects.push(Object { id, ..object });
        ObjectIx(id - 1)
    }

    fn heap(&mut self, name: &str, type_name: &str, site: StackIx, bytes: u64) -> ObjectIx {
        self.object(Object {
            kind: ObjectKind::Heap,
            name: name.into(),
            type_name: Some(type_name.into()),
            site: Some(site),
            blocks: 1,
            bytes: Some(bytes),
            max_live_bytes: Some(bytes),
            ..Object::default()
        })
    }

    fn code(&mut self, frame: FrameIx, kind: AccessKind, size_bytes: u32) -> CodeIx {
        let stack = self.stack(&[frame]);
        let id = self.0.code.len() as u32 + 1;
        let offset = self.0.frames[frame.index()].offset;
        let module = Some(ModuleIx(0));
        self.0.code.push(CodeLocation {
            id,
            stack: Some(stack),
            module,
            offset,
            kind,
            size_bytes,
            ..CodeLocation::default()
        });
        CodeIx(id - 1)
    }

    fn cell(&mut self, code: CodeIx, object: ObjectIx, counts: Counts) {
        self.0.cells.push(Cell { code, object, thread: ThreadIx(0), counts: counts.into() });
    }
}

fn loads(n: u64, size: u64, misses: [u64; 5]) -> Counts {
    let [l1, l2, llc, tlb, walks] = misses;
    Counts {
        loads: n,
        load_bytes: n * size,
        l1_load_misses: l1,
        l2_load_misses: l2,
        llc_load_misses: llc,
        dram_reads: llc,
        dtlb_misses: tlb,
        stlb_misses: walks,
        page_walk_accesses: walks + walks / 8,
        ..Counts::default()
    }
}

fn stores(n: u64, size: u64, misses: [u64; 5]) -> Counts {
    let Counts { dram_reads, dtlb_misses, stlb_misses, page_walk_accesses, .. } = loads(n, size, misses);
    Counts {
        stores: n,
        store_bytes: n * size,
        l1_store_misses: misses[0],
        l2_store_misses: misses[1],
        llc_store_misses: misses[2],
        dram_reads,
        dtlb_misses,
        stlb_misses,
        page_walk_accesses,
        ..Counts::default()
    }
}

pub fn profile() -> Profile {
    let mut b = Builder(Profile {
        run: RunInfo {
            command: vec!["./bfs".into(), "rmat-22.el".into(), "--source".into(), "17".into()],
            mode: "exact".into(),
            exit_code: Some(0),
            wall_seconds: Some(4.183),
            instructions: Some(2_312_345_678),
            threads: 1,
            memlens_version: "0.1.0".into(),
            primary_cost: "wait_cycles".into(),
            ..RunInfo::default()
        },
        machine: machine(),
        modules: vec![
            Module { path: "/home/ada/bin/bfs".into(), build_id: Some("9f3c".into()), has_debug: true },
            Module { path: "/usr/lib/libc.so.6".into(), build_id: Some("77aa".into()), has_debug: false },
        ],
        threads: vec![Thread { tid: 4711, name: Some("bfs".into()), ..Thread::default() }],
        ..Profile::default()
    });
    let main = b.frame(0x1180, "main", 81, "graph g = read_graph(argv[1]);");
    let site = |b: &mut Builder, line, text: &str| {
        let frame = b.frame(0x1300 + u64::from(line), "read_graph", line, text);
        b.stack(&[frame, main])
    };
    let column_site = site(&mut b, 31, "g.column = malloc(m * sizeof *g.column);");
    let rows_site = site(&mut b, 32, "g.rowstarts = malloc((n + 1) * sizeof *g.rowstarts);");
    let visited_site = b.frame(0x1500, "bfs_from", 52, "bool *visited = calloc(n, 1);");
    let visited_site = b.stack(&[visited_site, main]);
    let pred_site = b.frame(0x1520, "bfs_from", 53, "int64_t *pred = malloc(n * sizeof *pred);");
    let pred_site = b.stack(&[pred_site, main]);
    let queue_site = b.frame(0x1540, "new_queue", 44, "return malloc(n * sizeof(vertex));");
    let queue_site = b.stack(&[queue_site, main]);
    let column = b.heap("column", "int*", column_site, 512 << 20);
    let rowstarts = b.heap("rowstarts", "int64_t*", rows_site, 33_554_440);
    let visited = b.heap("visited", "bool*", visited_site, 4 << 20);
    let pred = b.heap("pred", "int64_t*", pred_site, 32 << 20);
    let queue = b.object(Object {
        kind: ObjectKind::Heap,
        name: "newq".into(),
        type_name: Some("vertex*".into()),
        site: Some(queue_site),
        blocks: 9,
        bytes: Some(9 << 24),
        max_live_bytes: Some(2 << 24),
        ..Object::default()
    });
    let level = b.object(Object {
        kind: ObjectKind::Global,
        name: "level_count".into(),
        type_name: Some("unsigned[64]".into()),
        declared: Some(SourceLine { file: "/home/ada/src/bfs.c".into(), line: 12 }),
        module: Some(ModuleIx(0)),
        blocks: 1,
        bytes: Some(256),
        ..Object::default()
    });
    let frames = b.object(Object {
        kind: ObjectKind::Stack,
        name: "frames of bfs_from".into(),
        module: Some(ModuleIx(0)),
        blocks: 1,
        ..Object::default()
    });
    let iobuf = b.object(Object {
        kind: ObjectKind::Unknown,
        name: "unknown".into(),
        unknown_reason: Some("memory of the loader".into()),
        ..Object::default()
    });
    b.object(Object {
        kind: ObjectKind::Global,
        name: "never_used".into(),
        module: Some(ModuleIx(0)),
        blocks: 1,
        bytes: Some(8),
        ..Object::default()
    });

    let text = "for (int64_t e = rowstarts[v]; e < rowstarts[v + 1]; e++) {";
    let loop_line = b.frame(0x1600, "bfs_from", 60, text);
    let loop_line = b.code(loop_line, AccessKind::Load, 8);
    let edge = b.frame(0x1608, "bfs_from", 61, "int w = column[e];");
    let edge = b.code(edge, AccessKind::Load, 4);
    let test = b.frame(0x1610, "bfs_from", 62, "if (visited[w]) continue;");
    let test = b.code(test, AccessKind::Load, 1);
    let mark = b.frame(0x1618, "bfs_from", 63, "visited[w] = true;");
    let mark = b.code(mark, AccessKind::Store, 1);
    let set_pred = b.frame(0x1620, "bfs_from", 64, "pred[w] = v;");
    let set_pred = b.code(set_pred, AccessKind::Store, 8);
    let push = b.frame(0x1628, "bfs_from", 65, "newq[tail++] = w;");
    let push = b.code(push, AccessKind::Store, 4);
    let count = b.frame(0x1630, "bfs_from", 70, "level_count[level]++;");
    let count = b.code(count, AccessKind::Modify, 4);
    let fill = b.frame(0x1380, "read_graph", 37, "g.column[m++] = to;");
    let fill = b.code(fill, AccessKind::Store, 4);

    b.cell(loop_line, rowstarts, loads(8_388_608, 8, [3_100_000, 2_900_000, 1_412_000, 2_700_000, 610_000]));
    b.cell(edge, column, loads(134_217_728, 4, [10_400_000, 9_800_000, 9_212_000, 2_212_000, 1_130_000]));
    b.cell(test, visited, loads(134_217_728, 1, [101_300_000, 22_400_000, 312, 71_000_000, 40]));
    b.cell(mark, visited, stores(4_190_000, 1, [12_000, 900, 0, 3_000, 0]));
    b.cell(set_pred, pred, stores(4_190_000, 8, [4_100_000, 3_900_000, 2_950_000, 4_020_000, 1_870_000]));
    b.cell(push, queue, stores(4_190_000, 4, [262_144, 262_100, 240_000, 4_096, 900]));
    b.cell(
        count,
        level,
        Counts {
            modifies: 9,
            loads: 9,
            stores: 9,
            load_bytes: 36,
            store_bytes: 36,
            l1_store_misses: 1,
            ..Counts::default()
        },
    );
    b.cell(push, frames, loads(1_200_345, 8, [12, 2, 0, 0, 0]));
    b.cell(loop_line, iobuf, loads(40_211, 8, [1_200, 300, 12, 44, 2]));
    b.cell(fill, column, stores(134_217_728, 4, [8_388_608, 8_388_608, 8_388_608, 131_072, 131_072]));

    let mut profile = b.0;
    profile.objects[0].counts.dram_writes = 8_300_000;
    profile.objects[3].counts.dram_writes = 2_930_000;
    profile.objects[4].counts.dram_writes = 212_000;
    profile.sum_cells();
    let totals = profile.totals();
    profile.attribution.unknown_accesses = 40_211;
    profile.attribution.attributed_accesses = totals.accesses() - 40_211;
    profile.attribution.unknown_reasons.insert("memory of the loader".into(), 40_211);
    profile.validate().expect("the example is consistent");
    profile
}
