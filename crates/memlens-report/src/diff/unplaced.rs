//! Memory whose allocation was not seen: of one and the same data a run knows more by the site and another more by the pointers that lead to it.

use memlens_profile::{HEAP_THROUGH, HEAP_USED_BY};
use memlens_types::ObjectKind;

use super::DiffRow;

impl DiffRow {
    fn is_unplaced(&self) -> bool {
        [HEAP_THROUGH, HEAP_USED_BY].iter().any(|beginning| self.name.starts_with(beginning))
    }
}

/// Widens the intervals of rows of the heap by what may have changed its name only: what heap objects with a site have less of, those without one may
/// have more of, and the other way round.
pub(super) fn allow_for_names(rows: &mut [DiffRow]) {
    let is_heap = |row: &DiffRow| row.kind.as_deref() == Some(ObjectKind::Heap.as_str());
    // What rows with a site, and those without, have more and less.
    let mut sums = [[0.0; 2]; 2];
    for row in rows.iter().filter(|row| is_heap(row)) {
        sums[usize::from(row.is_unplaced())][usize::from(row.change() < 0.0)] += row.change();
    }
    for row in rows.iter_mut().filter(|row| is_heap(row)) {
        let [more, less] = sums[usize::from(!row.is_unplaced())];
        let is_less = row.change() < 0.0;
        if let Some((low, high)) = &mut row.change_interval {
            match is_less {
                true => *high += more,
                false => *low += less,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_another_name_only_is_no_sure_change() {
        let row = |name: &str, kind: ObjectKind, a, b, interval| DiffRow {
            name: name.into(),
            was: None,
            is_edited: false,
            kind: Some(kind.as_str().into()),
            place: None,
            objects: None,
            ids_a: Vec::new(),
            ids_b: Vec::new(),
            a: Some(a),
            b: Some(b),
            change_interval: Some(interval),
        };
        let mut rows = [
            row("keys", ObjectKind::Heap, 100.0, 20.0, (-120.0, -40.0)),
            row("nodes", ObjectKind::Heap, 200.0, 50.0, (-180.0, -120.0)),
            row("heap through msg", ObjectKind::Heap, 10.0, 90.0, (50.0, 110.0)),
            row("heap used by grow", ObjectKind::Heap, 30.0, 20.0, (-15.0, -5.0)),
            row("table", ObjectKind::Global, 100.0, 20.0, (-120.0, -40.0)),
        ];
        allow_for_names(&mut rows);
        let intervals = rows.map(|row| row.change_interval.expect("estimated"));
        // Of the keys' 80 less as much is elsewhere; of the nodes' 150 not.
        assert_eq!(intervals[..2], [(-120.0, 40.0), (-180.0, -40.0)]);
        assert_eq!(intervals[2..], [(-180.0, 110.0), (-15.0, -5.0), (-120.0, -40.0)]);
    }
}
