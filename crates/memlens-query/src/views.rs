//! Joins that nearly every question needs.

use crate::schema::View;

/// All views.
pub const VIEWS: &[View] = &[
    View {
        name: "accesses",
        meaning: "which operand of the code did what to which object, with names",
        query: "SELECT c.object, o.name, o.kind, o.type, o.element, o.place, o.row, c.code, i.function, i.file, i.line, i.source, i.module, i.offset, \
                i.operand, i.access, i.size_bytes, c.thread, t.tid, t.pid, {counts} FROM cells c JOIN objects o USING (object) \
                JOIN code i USING (code) JOIN threads t USING (thread)",
    },
    View {
        name: "field_accesses",
        meaning: "which operand did what to which field of an object's structure, with names",
        query: "SELECT f.object, o.name, o.kind, o.type, o.element, o.place, o.row, f.field, f.name AS field_name, f.offset AS field_offset, c.code, i.function, i.file, \
                i.line, i.source, i.access, c.thread, {counts} FROM field_cells c JOIN fields f USING (field) \
                JOIN objects o USING (object) JOIN code i USING (code)",
    },
    View {
        name: "path_accesses",
        meaning: "through which calls which object was reached, with the name of the function that accesses it",
        query: "SELECT c.path, p.function, p.source, p.depth, c.object, o.name, o.kind, o.place, o.row, {counts} FROM path_cells c \
                LEFT JOIN paths p USING (path) JOIN objects o USING (object)",
    },
    View {
        name: "timeline",
        meaning: "when an object cost how much, with its name",
        query: "SELECT u.slice, s.begin, s.end, u.object, o.name, o.kind, o.type, o.place, o.row, u.cost, u.dram_reads, u.live_bytes \
                FROM slice_uses u JOIN slices s USING (slice) LEFT JOIN objects o USING (object)",
    },
    View {
        name: "allocation_stacks",
        meaning: "the calls that led to the allocation of an object, the innermost with depth 0",
        query: "SELECT o.object, o.name, s.depth, f.function, f.file, f.line, f.source, f.module, f.offset FROM objects o \
                JOIN stacks s USING (stack) JOIN frames f USING (frame)",
    },
];
