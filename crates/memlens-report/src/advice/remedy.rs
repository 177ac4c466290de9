//! What a finding says to do.

use std::path::Path;

use memlens_analysis::{Finding, Level, Nodes, Remedy, Searched};
use memlens_profile::place::code_place;
use memlens_profile::{AccessPattern, CodeIx, Profile};
use memlens_types::PatternKind;

use super::words::{name, name_of, object, object_names, percent};

/// Longer ways along one kind of link need not be a hash table's buckets: compilers choose between a tree's children without a branch, too.
const MOST_IN_A_BUCKET: f64 = 8.0;

/// What to do.
pub(super) fn to_do(profile: &Profile, finding: &Finding) -> String {
    let text = match &finding.remedy {
        Remedy::Pad { stride_bytes, padding_bytes, conflicts, .. } => {
            let physical = match conflicts.iter().any(|one| one.level == Level::Second) {
                true => {
                    "; the second level takes physical addresses, which the kernel may have spread already where pages are small"
                }
                false => "",
            };
            // Its arrays lie column by column.
            let (what, further) = match finding.code.iter().any(|&code| is_fortran(profile, code)) {
                true => (
                    format!(
                        "allocate {padding_bytes} bytes more in the first dimension, so that the walks of the second"
                    ),
                    "for those of the third make the second one's size odd, too",
                ),
                false => (
                    format!("make each row {padding_bytes} bytes longer, so that its columns"),
                    "where rows make up planes, make their number odd, too",
                ),
            };
            let further = format!(
                "; {further}: the step of {} bytes must become an odd number of lines",
                stride_bytes.unsigned_abs()
            );
            return format!("{what} fall onto all sets{further}{physical}");
        }
        Remedy::HugePages { .. } => "one page-table entry then serves 512 times as much memory",
        Remedy::Prefetch { .. } if !comes_by_steps(profile, finding) => {
            "hardware cannot know what is loaded next, the program can: take several items at a time and prefetch for all of them; what \
             leads there comes by no constant steps, so that memlens apply cannot do it"
        }
        Remedy::Prefetch { beside, .. } => {
            let with_it = match object_names(profile, beside)[..] {
                [] => String::new(),
                ref others => format!(", and {} with it, which the same index leads to", others.join(", ")),
            };
            return format!(
                "hardware cannot know what is loaded next, the program can: prefetch some iterations ahead{with_it}"
            );
        }
        Remedy::Sort { index, beside, .. } => {
            let index = name(profile, *index);
            let mut numbered = vec![name_of(profile, finding)];
            numbered.extend(object_names(profile, beside));
            return format!(
                "sort {index} by what it leads to where its order is free, now and then if what it leads to changes; where it is not free, number \
                 {} in the order in which {index} comes to it: a line is used up while it is there, and the next one prefetched in time",
                numbered.join(", ")
            );
        }
        Remedy::Layout { against: Some(other), .. } => {
            let other = name(profile, *other);
            return format!(
                "the loops go through {other} in order at the same time: exchange those that leave {other} in order or at one place (of a \
                 product of matrices the inner two); where none do, as in a transpose, go through both in blocks of some lines each way, \
                 which the first level holds"
            );
        }
        Remedy::Layout { stride_bytes, .. }
            if object(profile, finding)
                .and_then(|object| object.element.as_ref())
                .is_some_and(|element| element.bytes == stride_bytes.unsigned_abs()) =>
        {
            "each step is a structure: put the fields that this code uses side by side, or in arrays of their own, so that lines and pages are \
             used up"
        }
        Remedy::Layout { .. } => {
            "exchange the loops, or put the fields that are used together side by side, so that lines and pages are used up"
        }
        Remedy::Split { .. } => {
            "in an array of their own, or with the rest behind a pointer, more of them share a line, and more lines stay in a cache"
        }
        Remedy::Pack { nodes: Nodes::Blocks } => {
            "each access waits for the one before: allocate the blocks from a pool in the order of use, put several items \
             into a block, or follow several chains at a time"
        }
        Remedy::Pack { nodes: Nodes::Parts } => {
            "each access waits for the one before: where walks repeat, lay the nodes into this memory in the order in which they are \
             walked; else put several items into a node, or follow several chains at a time"
        }
        Remedy::Shorten { searched: Searched::Lists, nodes } if *nodes >= MOST_IN_A_BUCKET => {
            "each node waits for the one before: of a tree whose way is computed rather than branched on a B-tree or a sorted array, which have several \
             keys in a line; in a hash table a hash that spreads better, more buckets, or open addressing; else the nodes of a list side by \
             side, best in an array"
        }
        Remedy::Shorten { searched: Searched::Lists, .. } => {
            "each node waits for the one before: in a hash table a hash that spreads better, more buckets, or open addressing; else the nodes of a list \
             side by side, best in an array"
        }
        Remedy::Shorten { searched: Searched::Tree, .. } => {
            "each node waits for the one before, wherever it lies: a B-tree or a sorted array has several keys in a line; where no order is needed, a hash table has one or two lines to look at"
        }
        Remedy::Separate { .. } => {
            "align what each thread uses to lines of its own (alignas(64), padding), or let it work on a local variable and store that at \
             the end"
        }
        Remedy::PerThread { one_writer_each: true, .. } => {
            "put what each thread writes into lines of its own, away from what others write; look at the others' less often: keep a copy of \
             what was read last, and hand over several items at a time"
        }
        Remedy::PerThread { .. } => {
            "each update waits until the others have given the line away: of a sum or count give each thread a copy in lines of its own, \
             and join them at the end; of a lock, or a count of readers, take it less often, have several, or let readers go without \
             writing (versions that they check, RCU)"
        }
        Remedy::Allocate { .. } => {
            "keep blocks and use them again, make several at a time (a pool, an arena, reserve), or put small ones into what points to them; \
             what they compute besides is spared, too; another allocator is tried without building: LD_PRELOAD=libjemalloc.so.2 or \
             libmimalloc.so.2, and memlens diff tells what that changes"
        }
        Remedy::Place { first: Some(_), .. } => {
            "the kernel takes a page from the node of the thread that first touches it: let each thread fill the part that it works on (of OpenMP the \
             same schedule(static) for both loops), with threads bound to processors (OMP_PROC_BIND, taskset); of what is freed and allocated again, \
             the page stays where it was"
        }
        Remedy::Place { first: None, .. } => {
            "let the threads that touch a page first be those that work on it later, and bind them to processors (OMP_PROC_BIND, taskset), or move \
             the pages (mbind, move_pages, numa_tonode_memory)"
        }
    };
    text.to_owned()
}

/// Whether code is of a file that is called as Fortran's are: `.f`, `.for`, `.f90`.
fn is_fortran(profile: &Profile, code: CodeIx) -> bool {
    let code = profile.code.get(code.index());
    let file = code.and_then(|code| profile.stack_frames(code.stack).next()?.file.as_deref());
    let extension = file.and_then(|file| Path::new(file).extension()?.to_str());
    extension.is_some_and(|it| it.len() <= 3 && it.to_ascii_lowercase().starts_with('f'))
}

/// What else is found of data that the loops of a finding go through in a wasteful order, the costliest first, where the same is to be done: one
/// exchange is for all of it.
pub(super) fn in_same_loops<'f>(
    profile: &Profile,
    finding: &Finding,
    found: &'f [Finding],
) -> Vec<&'f Finding> {
    let places = |finding: &Finding| -> Vec<String> {
        let code = finding.code.iter().filter_map(|code| profile.code.get(code.index()));
        code.filter_map(|code| code_place(profile, code)).collect()
    };
    let is_order = |finding: &Finding| matches!(finding.remedy, Remedy::Layout { against: None, .. });
    if !is_order(finding) {
        return Vec::new();
    }
    let (own, own_remedy) = (places(finding), to_do(profile, finding));
    let shares_loops = |other: &&Finding| {
        is_order(other)
            && other.row != finding.row
            && places(other).iter().any(|place| own.contains(place))
            && to_do(profile, other) == own_remedy
    };
    found.iter().filter(shares_loops).collect()
}

/// What a finding and the others of its loops say together; None: there are no others.
pub(super) fn together(profile: &Profile, finding: &Finding, others: &[&Finding]) -> Option<String> {
    let mut names: Vec<String> = others
        .iter()
        .map(|other| format!("{} ({} of the wait)", name_of(profile, other), percent(other.gain)))
        .collect();
    names.dedup();
    // They are about the accesses of different data, so they add up.
    let all = || std::iter::once(finding).chain(others.iter().copied());
    let of_time: Option<f64> = all().map(|one| one.time_gain).sum();
    let gain = match of_time {
        Some(gain) => format!("about {} of the modelled time together", percent(gain.min(1.0))),
        None => format!(
            "at most {} of the wait together",
            percent(all().map(|one| one.gain).sum::<f64>().min(1.0))
        ),
    };
    (!names.is_empty()).then(|| {
        format!(
            "the same loops go through {} by such steps, too: one exchange is for all of them, {gain}",
            names.join(", ")
        )
    })
}

/// Whether the indices or pointers of a prefetch come by constant steps, without which `memlens apply` knows none ahead.
pub fn comes_by_steps(profile: &Profile, finding: &Finding) -> bool {
    // On whatever objects: which index goes with which data is not known.
    let all = || profile.patterns.iter().chain(profile.object_patterns.iter().map(|it| &it.pattern));
    let by_steps = |it: &AccessPattern| matches!(it.kind, PatternKind::Stream | PatternKind::Stride);
    let is_by_steps = |loader: CodeIx| all().any(|it| it.code == loader && by_steps(it));
    let loader_of = |code: &CodeIx| all().find(|it| it.code == *code)?.loaded_by;
    // What is loaded elsewhere in order, where data is made say, has little of the gain.
    finding.code.first().and_then(loader_of).is_some_and(is_by_steps)
}
