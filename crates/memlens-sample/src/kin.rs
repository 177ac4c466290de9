//! Samples of heap blocks of which no sample says whose they are: what names and types say.
//!
//! `unseen.rs` gives the samples of a pointer to the sites of those watched blocks that were sampled through the same
//! pointer. Where none was, because few blocks are drawn or because all addresses are overwritten by the loads
//! themselves (`at = at->next`), the pointer's declaration still says something:
//!
//! 1. A block that was assigned to the pointer's own variable is what the pointer points to.
//! 2. Else blocks of the type that the pointer points to are, if it is no basic type that anything could have: nodes, and not a
//!    table of pointers to nodes.
//! 3. Else those of the type behind all pointers: the pointer may be to one that lies in a node.
//!
//! And where blocks of an unwatched origin are moved (`realloc`), they seem to be allocated there. All their blocks are
//! then those of the site whose blocks go to the same variable; of several such sites, of the one that was called
//! from the same place: a block keeps the site of its first allocation, as in exact mode.
//!
//! Sites on whose watched blocks a sample fell come first; those of which only the allocations are known, where none of the others fits.
//! Several sites that fit share by their bytes: where the address is known and in no watched block, by those bytes that
//! were not watched, in the break or in mappings, whichever the address is in. A site whose blocks were all watched gets nothing
//! then. And if the addresses are in so many blocks that many of the watched ones would be among them, none of these sites gets
//! anything, and the search ends: the objects of an interpreter lie in its own allocator's memory, and only a few large ones were
//! allocated. Blocks are counted by their pages: a loop over one block that was not drawn meets few of them, however long it goes on.

use memlens_types::ObjectKind;

use crate::heap::{Heap, HeapSite};
use crate::naming::NamedObject;
use crate::unseen::Missing;

/// Where so many watched blocks would have been met, and too few for `unseen.rs` were, it is other memory. Were blocks alike, none of
/// ten would be met once in 20,000 times; but some are used more than others.
const MOST_EXPECTED: f64 = 10.0;
/// Pages are counted; a larger block has several.
const PAGE_BYTES: f64 = 4096.0;

/// Spellings of types that say nothing about a block: C's, C++'s, Rust's and Fortran's basic ones.
const BASIC_TYPES: [&str; 46] = [
    "void",
    "bool",
    "_Bool",
    "char",
    "signed char",
    "unsigned char",
    "short",
    "short int",
    "unsigned short",
    "short unsigned int",
    "int",
    "unsigned int",
    "long",
    "long int",
    "unsigned long",
    "long unsigned int",
    "long long",
    "long long int",
    "unsigned long long",
    "long long unsigned int",
    "float",
    "double",
    "long double",
    "size_t",
    "ssize_t",
    "int8_t",
    "uint8_t",
    "int16_t",
    "uint16_t",
    "int32_t",
    "uint32_t",
    "int64_t",
    "uint64_t",
    "u8",
    "i8",
    "u16",
    "i16",
    "u32",
    "i32",
    "u64",
    "i64",
    "usize",
    "isize",
    "f32",
    "f64",
    "char8_t",
];

/// Which sites could be meant.
#[derive(Debug)]
pub struct Kin<'a> {
    sites: Vec<KinSite<'a>>,
}

#[derive(Debug)]
struct KinSite<'a> {
    number: u32,
    object: &'a NamedObject,
    /// Return addresses, innermost first.
    stack: &'a [u64],
    detail: HeapSite,
}

impl KinSite<'_> {
    /// Whether all its blocks were allocated elsewhere.
    fn only_moves(&self) -> bool {
        self.detail.moved_blocks > 0.0 && self.detail.moved_blocks >= self.detail.blocks
    }

    /// How many of the outermost callers are the same.
    fn callers_shared_with(&self, other: &Self) -> usize {
        let pairs = self.stack.iter().rev().zip(other.stack.iter().rev());
        pairs.take_while(|(mine, others)| mine == others).count()
    }
}

impl<'a> Kin<'a> {
    /// Of these objects, by number, those that may be meant.
    pub fn new(objects: &'a [NamedObject], heap: &'a Heap, is_meant: impl Fn(u32) -> bool) -> Self {
        let of_site = |(number, object): (usize, &'a NamedObject)| {
            let site = object.site.filter(|_| is_meant(number as u32))?.site;
            let (stack, detail) = (heap.stack(site), heap.detail(site));
            // What is reached in a mapping is known to be there.
            if detail.is_mapping {
                return None;
            }
            Some(KinSite { number: number as u32, object, stack, detail })
        };
        Self { sites: objects.iter().enumerate().filter_map(of_site).collect() }
    }

    /// Sites that only move blocks, by number, each with the site that these blocks are of.
    pub fn moved(&self) -> impl Iterator<Item = (u32, u32)> {
        self.sites.iter().filter(|site| site.only_moves()).filter_map(|moving| {
            moving.object.variable.as_ref()?;
            let first = self
                .sites
                .iter()
                .filter(|site| !site.only_moves())
                .filter(|site| {
                    site.object.variable == moving.object.variable && site.object.name == moving.object.name
                })
                .max_by(|a, b| {
                    let shared = |site: &KinSite<'_>| site.callers_shared_with(moving);
                    shared(a).cmp(&shared(b)).then(a.detail.bytes.total_cmp(&b.detail.bytes))
                })?;
            Some((moving.number, first.number))
        })
    }

    /// To which sites the samples of a pointer go that are on so many pages, as parts of 1. None: no site fits, others may; nothing:
    /// they stay with the pointer, whatever else fits.
    pub fn sites(&self, pointer: &NamedObject, missing: Missing, pages: f64) -> Option<Vec<(u32, f64)>> {
        let path = pointer.access_path.as_deref().filter(|_| pointer.kind == ObjectKind::Heap)?;
        let by_variable = pointer.declared.as_ref().and_then(|declared| {
            self.parts(missing, pages, |site| {
                last_word(&site.name) == last_word(path) && site.variable.as_ref() == Some(declared)
            })
        });
        by_variable.or_else(|| {
            let wanted = pointer.type_name.as_deref().and_then(aggregate)?;
            self.of_type(wanted, missing, pages, |wanted, blocks| wanted == blocks)
        })
    }

    /// As [`Self::sites`], by the type behind all pointers: a pointer may be to a member of a block, `&node->next`.
    pub fn sites_around(
        &self,
        pointer: &NamedObject,
        missing: Missing,
        pages: f64,
    ) -> Option<Vec<(u32, f64)>> {
        let is_meant = pointer.kind == ObjectKind::Heap && pointer.access_path.is_some();
        let wanted = pointer.type_name.as_deref().and_then(aggregate).filter(|_| is_meant)?;
        self.of_type(wanted, missing, pages, |wanted, blocks| wanted.name == blocks.name)
    }

    /// The sites with blocks of a type that fits.
    fn of_type(
        &self,
        wanted: Aggregate<'_>,
        missing: Missing,
        pages: f64,
        fits: impl Fn(Aggregate<'_>, Aggregate<'_>) -> bool,
    ) -> Option<Vec<(u32, f64)>> {
        self.parts(missing, pages, |site| {
            let variable = site.type_name.as_deref().and_then(aggregate);
            variable.is_some_and(|variable| fits(wanted, variable.behind()))
        })
    }

    fn parts(
        &self,
        missing: Missing,
        pages: f64,
        fits: impl Fn(&NamedObject) -> bool,
    ) -> Option<Vec<(u32, f64)>> {
        let (mut watched, mut blocks, mut bytes_of_blocks) = (0.0, 0.0, 0.0);
        let fitting: Vec<(u32, f64)> = self
            .sites
            .iter()
            .filter(|site| !site.only_moves() && fits(site.object))
            .map(|site| match missing {
                Missing::Watch(area) => {
                    let bytes = site.detail.by_area[area as usize];
                    watched += bytes.watched;
                    blocks += site.detail.blocks;
                    bytes_of_blocks += site.detail.bytes;
                    (site.number, bytes.others)
                }
                _ => (site.number, site.detail.bytes),
            })
            .filter(|(_, weight)| *weight > 0.0)
            .collect();
        let sum: f64 = fitting.iter().map(|(_, weight)| weight).sum();
        if fitting.is_empty() {
            return None;
        }
        let pages_of_block = (bytes_of_blocks / f64::max(blocks, 1.0) / PAGE_BYTES).max(1.0);
        if pages / pages_of_block * watched > MOST_EXPECTED * sum {
            return Some(Vec::new());
        }
        Some(fitting.into_iter().map(|(number, weight)| (number, weight / sum)).collect())
    }
}

/// `next` of `list->head.next`.
fn last_word(path: &str) -> &str {
    path.rsplit(['.', '>', ']', ' ']).next().unwrap_or(path)
}

/// A type that a program made, and how many pointers lead to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Aggregate<'a> {
    name: &'a str,
    pointers: usize,
}

impl Aggregate<'_> {
    /// What the blocks consist of whose addresses a variable of this type holds: nodes behind `struct node *`, pointers to nodes
    /// behind `struct node **`. What is no pointer itself holds one inside.
    fn behind(self) -> Self {
        Self { pointers: self.pointers.saturating_sub(1), ..self }
    }
}

/// The type behind all pointers, if it is one that a program made.
fn aggregate(spelling: &str) -> Option<Aggregate<'_>> {
    let is_pointer = |letter: char| matches!(letter, '*' | '&' | ' ');
    let behind = spelling.trim_end_matches(is_pointer);
    let behind = behind.strip_prefix("const ").unwrap_or(behind);
    let name = behind.trim_start_matches(is_pointer);
    let is_array = name.ends_with(']');
    let pointers = spelling.matches(['*', '&']).count() - name.matches(['*', '&']).count();
    let is_made = !name.is_empty() && !is_array && !BASIC_TYPES.contains(&name);
    is_made.then_some(Aggregate { name, pointers })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap_blocks::BlockArea;
    use memlens_events::agent::Allocation;

    use crate::site_naming::NamedSite;

    fn heap_object(name: &str, type_name: &str) -> NamedObject {
        NamedObject { type_name: Some(type_name.to_owned()), ..NamedObject::new(ObjectKind::Heap, name) }
    }

    /// A site with one block of each of these sizes, drawn from gaps of so many bytes.
    fn site(heap: &mut Heap, key: u64, sizes: &[u64], gap_bytes: u64, object: NamedObject) -> NamedObject {
        let site = heap.site(&[key], None);
        for (at, &size_bytes) in sizes.iter().enumerate() {
            let address = (key << 20) + ((at as u64) << 12);
            let block = Allocation { address, size_bytes, gap_bytes, ..Allocation::default() };
            heap.allocated(1, 1, &block, BlockArea::Mapping, site);
        }
        NamedObject { site: Some(NamedSite { site, own_frames: 0, named_at: None }), ..object }
    }

    fn pointer(path: &str, type_name: &str, line: u32) -> NamedObject {
        NamedObject {
            access_path: Some(path.to_owned()),
            declared: Some(("a.c".to_owned(), line)),
            ..heap_object(&format!("heap through {path}"), type_name)
        }
    }

    #[test]
    fn the_variable_goes_before_the_type_and_basic_types_say_nothing() {
        let mut heap = Heap::default();
        let variable = |line| Some(("a.c".to_owned(), line));
        // Blocks of 64 bytes are nearly never drawn from gaps of 1 MiB; those from gaps of 0 always.
        let objects = [
            NamedObject {
                variable: variable(7),
                ..site(&mut heap, 1, &[64], 1 << 20, heap_object("node", "struct node *"))
            },
            NamedObject {
                variable: variable(9),
                ..site(&mut heap, 2, &[64], 1 << 20, heap_object("other", "struct node*"))
            },
            NamedObject {
                variable: variable(3),
                ..site(&mut heap, 3, &[4096], 0, heap_object("bytes", "char"))
            },
            // A table of pointers to nodes.
            NamedObject {
                variable: variable(4),
                ..site(&mut heap, 4, &[64], 1 << 20, heap_object("table", "struct node**"))
            },
        ];
        let kin = Kin::new(&objects, &heap, |_| true);
        const WATCHED: Missing = Missing::Watch(BlockArea::Mapping);
        let numbers =
            |parts: Vec<(u32, f64)>| parts.into_iter().map(|(number, _)| number).collect::<Vec<_>>();
        let of_node = |pages| kin.sites(&pointer("node", "struct node", 7), WATCHED, pages);
        assert_eq!(of_node(1.0), Some(vec![(0, 1.0)]));
        // Another variable of the same name: only the type says something, and both fit.
        let shared = kin.sites(&pointer("node", "struct node", 20), WATCHED, 1.0).unwrap();
        assert_eq!(numbers(shared.clone()), [0, 1]);
        assert!((shared[0].1 - 0.5).abs() < 1e-9);
        assert_eq!(kin.sites(&pointer("at", "struct node *", 22), WATCHED, 1.0).map(numbers), Some(vec![3]));
        // `&node->next`, and there is no table.
        let link = pointer("link", "struct node *", 23);
        let nodes = Kin::new(&objects, &heap, |number| number < 3);
        assert_eq!(nodes.sites(&link, WATCHED, 1.0), None);
        assert_eq!(nodes.sites_around(&link, WATCHED, 1.0).map(numbers), Some(vec![0, 1]));
        assert_eq!(kin.sites(&pointer("text", "char", 21), Missing::Address, 1.0), None);
        // Its blocks were all watched: an address that is in none of them is not one of theirs.
        assert_eq!(kin.sites(&pointer("bytes", "char", 3), WATCHED, 1.0), None);
        assert_eq!(kin.sites(&pointer("bytes", "char", 3), Missing::Address, 1.0), Some(vec![(2, 1.0)]));
    }

    #[test]
    fn blocks_of_which_many_would_have_been_met_are_not_these() {
        let mut heap = Heap::default();
        // A third of the bytes is watched, in blocks of four pages.
        let gap_bytes = 16384 * 5 / 2;
        let objects = [site(&mut heap, 1, &[16384], gap_bytes, heap_object("buffer", "struct line *"))];
        let kin = Kin::new(&objects, &heap, |_| true);
        let parts =
            |pages| kin.sites(&pointer("at", "struct line", 20), Missing::Watch(BlockArea::Mapping), pages);
        assert_eq!(parts(4.0), Some(vec![(0, 1.0)]), "one block, whatever is done with it");
        assert_eq!(parts(4000.0), Some(Vec::new()), "a thousand");
    }

    #[test]
    fn moved_blocks_are_those_of_the_site_that_is_called_from_the_same_place() {
        let mut heap = Heap::default();
        let mut site = |stack: &[u64], old_address: u64, line: u32| {
            let site = heap.site(stack, None);
            let address = stack[0] << 20;
            let block =
                Allocation { address, size_bytes: 64, gap_bytes: 0, old_address, ..Allocation::default() };
            heap.allocated(1, 1, &block, BlockArea::Mapping, site);
            NamedObject {
                site: Some(NamedSite { site, own_frames: 0, named_at: None }),
                variable: Some(("a.c".to_owned(), line)),
                ..heap_object("memory", "char")
            }
        };
        let objects = [
            site(&[10, 1, 2], 0, 7),
            site(&[11, 1, 3], 0, 7),
            // Grows what was allocated from 3.
            site(&[12, 5, 3], 0x77, 7),
            // Another variable's: nothing is known of its first allocation.
            site(&[13, 5, 3], 0x78, 8),
        ];
        let kin = Kin::new(&objects, &heap, |_| true);
        assert_eq!(kin.moved().collect::<Vec<_>>(), [(2, 1)]);
    }

    #[test]
    fn types_are_those_of_programs_with_their_pointers() {
        let node = |pointers| Some(Aggregate { name: "struct node", pointers });
        assert_eq!(aggregate("struct node **"), node(2));
        assert_eq!(aggregate("const struct node *"), node(1));
        assert_eq!(aggregate("struct node"), node(0));
        assert_eq!(aggregate("unsigned char *"), None);
        assert_eq!(aggregate("double"), None);
        assert_eq!(aggregate("*"), None);
        assert_eq!(last_word("pSorter->list.aMemory"), "aMemory");
    }
}
