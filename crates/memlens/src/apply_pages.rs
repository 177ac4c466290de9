//! Which huge pages `memlens apply` takes: transparent ones, or those that the system has reserved.

use memlens_apply::{Chosen, Method, Placed, ReservedPages};

/// Which huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Pages {
    /// Transparent ones.
    Thp,
    /// Reserved ones as far as there are some, for the rest transparent ones.
    Hugetlb,
    /// Reserved ones if there are enough for all, else transparent ones.
    Auto,
}

/// Whether reserved pages are taken, and why not.
#[derive(Clone, Debug, Default)]
pub struct Reserved {
    /// Whether they are.
    pub are_taken: bool,
    /// If they were asked for.
    pub why_not: Option<String>,
}

impl Reserved {
    /// What the system has for these objects.
    pub fn of(pages: Pages, chosen: &[Chosen]) -> Self {
        if pages == Pages::Thp {
            return Self::default();
        }
        let free = ReservedPages::of_this_system();
        let is_block = |object: &&Chosen| object.method == Method::Blocks;
        let needed: u64 = chosen.iter().filter(is_block).map(|object| object.bytes).sum();
        let least = if pages == Pages::Auto { needed } else { 1 };
        let are_taken = needed > 0 && free.free_bytes() >= least;
        let why_not = (!are_taken).then(|| match needed {
            0 => "Transparent huge pages: only blocks of 2 MiB and more can lie in reserved ones.".to_owned(),
            _ => format!(
                "Transparent huge pages: of the system's reserved ones {} are free, the objects take {}: \
                 echo N | sudo tee /proc/sys/vm/nr_hugepages",
                bytes(free.free_bytes()),
                bytes(needed)
            ),
        });
        Self { are_taken, why_not }
    }
}

/// How much of an object lies in reserved pages.
pub fn in_reserved(name: &str, placed: &Placed) -> String {
    let taken = bytes(placed.reserved_bytes);
    match placed.unreserved {
        0 => format!("{name}: {taken} in reserved (hugetlb) pages."),
        blocks => format!(
            "{name}: {taken} in reserved (hugetlb) pages; {blocks} blocks found too few of them, or are no mapping of their \
             own, and got transparent ones."
        ),
    }
}

/// Memory for people.
pub fn bytes(count: u64) -> String {
    let mib = count as f64 / f64::from(1 << 20);
    if mib >= 10.0 { format!("{mib:.0} MiB") } else { format!("{mib:.1} MiB") }
}
