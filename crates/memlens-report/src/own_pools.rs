//! Memory that a language's own allocator maps and deals out by itself: one object for memlens, many for the program.

use memlens_profile::{Object, Profile};

use crate::number::percent_of_share;

/// Part of what is waited for that must be in such memory to be worth a word.
const LEAST_PART: f64 = 0.1;

/// An allocator that can be told to leave blocks to `malloc`.
struct Pools {
    /// Its functions that map memory.
    functions: &'static [&'static str],
    whose: &'static str,
    /// How it is told.
    told_by: &'static str,
}

/// CPython's: Objects/obmalloc.c, of 3.6 to 3.14; the variable since 3.6.
const ALL: &[Pools] = &[Pools {
    functions: &["_PyObject_ArenaMmap", "_PyMem_ArenaAlloc", "new_arena"],
    whose: "CPython's allocator",
    told_by: "PYTHONMALLOC=malloc",
}];

/// What to do where much of the wait is in such memory; `None`: nothing. Linear in the objects.
pub(crate) fn hidden_in_pools(profile: &Profile) -> Option<String> {
    let whole = profile.cost(&profile.totals());
    ALL.iter().find_map(|pools| {
        let own = profile.objects.iter().filter(|object| pools.have(profile, object));
        let (mut cost, mut largest) = (0, (0, ""));
        for object in own {
            let of_object = profile.cost(&object.counts);
            cost += of_object;
            largest = largest.max((of_object, object.name.as_str()));
        }
        let part = cost as f64 / whole.max(1) as f64;
        (part >= LEAST_PART).then(|| {
            format!(
                "{} % of all that is waited for is in memory that {} maps and deals out by itself ({}): one object here, many of the program's. \
                 With {} in the environment each is told by who allocates it; the program is slower so.",
                percent_of_share(part),
                pools.whose,
                largest.1,
                pools.told_by,
            )
        })
    })
}

impl Pools {
    fn have(&self, profile: &Profile, object: &Object) -> bool {
        let site = object.site.and_then(|site| profile.stacks.get(site.index()));
        let mut functions = site
            .into_iter()
            .flat_map(|stack| &stack.0)
            .filter_map(|frame| profile.frames.get(frame.index())?.function.as_deref());
        functions.any(|function| self.functions.contains(&function))
    }
}

#[cfg(test)]
mod tests {
    use memlens_profile::{Frame, FrameIx, Stack, StackIx};
    use memlens_types::Counts;

    use super::*;

    #[test]
    fn who_waits_for_pools_is_told_how_to_look_into_them() {
        let frame = |function: &str| Frame { function: Some(function.into()), ..Frame::default() };
        let object = |name: &str, site: u32, loads: u64| Object {
            name: name.into(),
            site: Some(StackIx(site)),
            counts: Counts { loads, l1_load_misses: loads, ..Counts::default() },
            ..Object::default()
        };
        let told = |of_pool: u64, of_block: u64| {
            hidden_in_pools(&Profile {
                frames: vec![frame("_PyObject_ArenaMmap"), frame("new_arena"), frame("main")],
                stacks: vec![Stack(vec![FrameIx(0), FrameIx(1), FrameIx(2)]), Stack(vec![FrameIx(2)])],
                objects: vec![object("ptr", 0, of_pool), object("block", 1, of_block)],
                ..Profile::default()
            })
        };
        let note = told(300, 700).expect("much is in the pool");
        assert!(
            note.starts_with("30.0 % of all that is waited for is in memory that CPython's allocator maps"),
            "{note}"
        );
        assert!(note.contains("itself (ptr)") && note.contains("PYTHONMALLOC=malloc"), "{note}");
        assert_eq!(told(50, 950), None);
        assert_eq!(told(0, 0), None);
    }
}
