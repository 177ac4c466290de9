//! In which memory node (NUMA) the lines lie that bursts use, and which of them another node's memory has to bring.
//!
//! A burst says on which processor it ended, and the kernel in which node a page lies ([`memlens_backing::page_nodes`]), some time after
//! the burst. Only uses of lines count that were not used lately, as in `prefetching.rs`: they stand in for last-level misses, and the part
//! of them that is remote for the part of the misses.
//!
//! Cost: some 20 ns for each such use, of which [`MOST_USES`] a burst stand for all, and some 0.2 µs for each of the pages that are asked for,
//! [`MOST_ASKED`] a burst. Of more that are new, as many at equal distances stand for all. On a machine with one node nothing is done.

use std::mem;

use memlens_backing::{MemoryNodes, NodeError, PAGE_BYTES, PageNode, page_nodes};
use rustc_hash::FxHashMap;

/// Uses that are looked at after a burst.
const MOST_USES: usize = 2048;
/// Pages that are asked for after a burst.
const MOST_ASKED: usize = 128;
/// Pages that are remembered: some 100 bytes each.
const MOST_PAGES: usize = 1 << 16;
/// After this the kernel may have moved a page, or given its number to other memory.
const HOLDS_NS: u64 = 1_000_000_000;
/// Pages side by side that tell of each other, where single ones were seldom met: 2 MiB.
const REGION: u64 = 512;
/// So many bursts have to have met a page, or a region, to say who uses it.
const TELLING_BURSTS: u32 = 4;
/// A node uses a page most if it has so many of this many of its uses, as in exact mode.
const MOST: (f32, f32) = (2.0, 3.0);

/// Of a process: a page, or a region.
type Key = (u32, u64);

/// What the kernel is asked with: [`page_nodes`].
type Ask = fn(u32, &[u64], &mut Vec<PageNode>) -> Result<(), NodeError>;

/// A use of a line that was not used lately.
#[derive(Clone, Copy, Debug)]
struct Use {
    page: u64,
    cell: u32,
    /// The line was asked for before.
    is_covered: bool,
}

/// Who uses some memory.
#[derive(Debug, Default)]
struct Users {
    /// Bursts, and the number of the last.
    bursts: u32,
    last: u64,
    /// Uses by nodes' places in [`Nodes::users`]; those of a page are halved each time that it is asked for again.
    uses: Box<[f32]>,
}

impl Users {
    fn add(&mut self, nodes: usize, own: usize, burst: u64, weight: f32) {
        if self.uses.is_empty() {
            self.uses = vec![0.0; nodes].into();
        }
        self.uses[own] += weight;
        if self.bursts == 0 || self.last != burst {
            (self.bursts, self.last) = (self.bursts + 1, burst);
        }
    }

    /// Whether it is this node that uses it most. None: too few bursts tell.
    fn are_mostly(&self, own: usize) -> Option<bool> {
        let all: f32 = self.uses.iter().sum();
        (self.bursts >= TELLING_BURSTS).then(|| self.uses[own] * MOST.1 >= all * MOST.0)
    }
}

/// What is known of a page.
#[derive(Debug, Default)]
struct Page {
    asked_ns: u64,
    /// None: it is in no node, or not the process's.
    node: Option<u32>,
    users: Users,
}

/// What a cell's uses were.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Uses {
    known: f64,
    remote: f64,
    remote_covered: f64,
    /// Of the remote ones, those of which it is known who uses their pages, and those to pages that are used by the same node most.
    judged: f64,
    misplaced: f64,
}

/// Parts of a cell's last-level misses, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RemoteParts {
    /// That another node's memory serves …
    pub remote: f64,
    /// … those of them that a hardware prefetcher covers, …
    pub prefetched: f64,
    /// … and those to pages that the same node uses most.
    pub misplaced: f64,
}

/// A burst that uses lines.
#[derive(Clone, Copy, Debug)]
struct Present {
    pid: u32,
    at_ns: u64,
    /// The place of its node in [`Nodes::users`], and its number; None: it is not known where it ran.
    own: Option<(usize, u32)>,
}

/// Where the pages lie that bursts use.
#[derive(Debug)]
pub struct Nodes {
    machine: MemoryNodes,
    /// Nodes with processors.
    users: Vec<u32>,
    ask: Ask,
    pages: FxHashMap<Key, Page>,
    regions: FxHashMap<Key, Users>,
    burst: u64,
    present: Present,
    uses: Vec<Use>,
    /// State of Marsaglia's xorshift generator.
    random: u64,
    /// By cells' numbers.
    cells: Vec<Uses>,
    all: f64,
    known: f64,
    refused: Option<NodeError>,
    // Room that serves again.
    new: FxHashMap<u64, bool>,
    addresses: Vec<u64>,
    answers: Vec<PageNode>,
}

impl Nodes {
    /// Those of this machine. None: it has one.
    pub fn of_this_machine() -> Option<Self> {
        Self::new(MemoryNodes::of_this_machine(), page_nodes)
    }

    fn new(machine: MemoryNodes, ask: Ask) -> Option<Self> {
        machine.are_several().then(|| Self {
            users: machine.with_processors(),
            machine,
            ask,
            pages: FxHashMap::default(),
            regions: FxHashMap::default(),
            burst: 0,
            present: Present { pid: 0, at_ns: 0, own: None },
            uses: Vec::new(),
            random: 0x9e37_79b9_7f4a_7c15,
            cells: Vec::new(),
            all: 0.0,
            known: 0.0,
            refused: None,
            new: FxHashMap::default(),
            addresses: Vec::new(),
            answers: Vec::new(),
        })
    }

    /// How many nodes are told apart: 0 as long as nothing is known of any page.
    pub fn count(&self) -> u32 {
        if self.known > 0.0 { self.machine.with_memory().len() as u32 } else { 0 }
    }

    /// A burst of a process begins, which ended at a time on a processor: its number and 1, or 0.
    pub fn begin(&mut self, pid: u32, at_ns: u64, processor: u64) {
        let number = processor.checked_sub(1).and_then(|number| u32::try_from(number).ok());
        let node = number.and_then(|number| self.machine.of_processor(number));
        let own = node.and_then(|node| Some((self.users.binary_search(&node).ok()?, node)));
        self.burst += 1;
        self.present = Present { pid, at_ns, own };
        self.uses.clear();
    }

    /// A cell uses a line that was not used lately.
    #[inline]
    pub fn uses(&mut self, cell: u32, address: u64, is_covered: bool) {
        self.uses.push(Use { page: address / PAGE_BYTES, cell, is_covered });
    }

    /// The burst is over.
    pub fn end(&mut self) {
        let mut uses = mem::take(&mut self.uses);
        let all = uses.len() as f64;
        self.all += all;
        self.draw(&mut uses);
        let weight = all / uses.len().max(1) as f64;
        if let Present { own: Some(own), .. } = self.present
            && !self.refused.is_some_and(NodeError::is_for_good)
        {
            let unknown = self.count_known(&uses, own, weight);
            if !unknown.is_empty() {
                self.count_new(&unknown, own, weight);
            }
        }
        self.uses = uses;
    }

    /// Leaves some of very many uses: of as many equal parts one each, anywhere in it, since what loops do comes in equal steps, too.
    fn draw(&mut self, uses: &mut Vec<Use>) {
        let all = uses.len();
        if all <= MOST_USES {
            return;
        }
        for part in 0..MOST_USES {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            let [start, end] = [part, part + 1].map(|part| part * all / MOST_USES);
            // Never before the part that it is of: what is drawn from comes behind.
            uses[part] = uses[start + self.random as usize % (end - start)];
        }
        uses.truncate(MOST_USES);
    }

    /// Counts uses of pages of which it is known where they are, each as so many. The others.
    fn count_known(&mut self, uses: &[Use], own: (usize, u32), weight: f64) -> Vec<Use> {
        let Present { pid, at_ns, .. } = self.present;
        let mut unknown = Vec::new();
        for &of in uses {
            match self.pages.get(&(pid, of.page)) {
                Some(page) if at_ns.saturating_sub(page.asked_ns) < HOLDS_NS => {
                    self.count_one(of, own, weight)
                }
                _ => unknown.push(of),
            }
        }
        unknown
    }

    /// Asks for pages, and counts their uses, each as so many.
    fn count_new(&mut self, uses: &[Use], own: (usize, u32), weight: f64) {
        let Present { pid, at_ns, .. } = self.present;
        self.new.clear();
        self.addresses.clear();
        for of in uses {
            if self.new.insert(of.page, false).is_none() {
                self.addresses.push(of.page * PAGE_BYTES);
            }
        }
        let all = self.addresses.len();
        if all > MOST_ASKED {
            let mut at = 0;
            // Which ones the beginning is at differs from burst to burst.
            let first = self.burst as usize % (all / MOST_ASKED);
            self.addresses.retain(|_| {
                let is_kept = (at + first) * MOST_ASKED / all != (at + first + 1) * MOST_ASKED / all;
                at += 1;
                is_kept
            });
        }
        let (addresses, mut answers) = (mem::take(&mut self.addresses), mem::take(&mut self.answers));
        match (self.ask)(pid, &addresses, &mut answers) {
            Ok(()) => {
                self.make_room(at_ns);
                for (address, answer) in addresses.iter().zip(&answers) {
                    let number = address / PAGE_BYTES;
                    self.new.insert(number, true);
                    let page = self.pages.entry((pid, number)).or_default();
                    page.asked_ns = at_ns;
                    // Who uses it now counts for more than who filled it once.
                    page.users.uses.iter_mut().for_each(|uses| *uses /= 2.0);
                    page.node = match *answer {
                        PageNode::Node(node) => Some(node),
                        _ => None,
                    };
                    if page.node.is_none() {
                        // What comes there next is other memory.
                        page.users = Users::default();
                    }
                }
                let weight = weight * all as f64 / addresses.len().max(1) as f64;
                let new = mem::take(&mut self.new);
                uses.iter()
                    .filter(|of| new.get(&of.page).is_some_and(|&is_asked| is_asked))
                    .for_each(|&of| self.count_one(of, own, weight));
                self.new = new;
            }
            // It was there when the burst was: what was known last of its pages.
            Err(NodeError::Gone) => uses.iter().for_each(|&of| self.count_one(of, own, weight)),
            Err(why) => self.refused = Some(why),
        }
        (self.addresses, self.answers) = (addresses, answers);
    }

    /// A use of a page that is known, which stands for so many.
    fn count_one(&mut self, of: Use, (own, own_node): (usize, u32), weight: f64) {
        let Self { pages, regions, users, cells, present, burst, .. } = self;
        let Some(page) = pages.get_mut(&(present.pid, of.page)) else { return };
        let Some(node) = page.node else { return };
        page.users.add(users.len(), own, *burst, weight as f32);
        let region = regions.entry((present.pid, of.page / REGION)).or_default();
        region.add(users.len(), own, *burst, weight as f32);
        self.known += weight;
        let at = of.cell as usize;
        if cells.len() <= at {
            cells.resize(at + 1, Uses::default());
        }
        let cell = &mut cells[at];
        cell.known += weight;
        if node == own_node {
            return;
        }
        cell.remote += weight;
        if of.is_covered {
            cell.remote_covered += weight;
        }
        if let Some(is_own) = page.users.are_mostly(own).or_else(|| region.are_mostly(own)) {
            cell.judged += weight;
            cell.misplaced += if is_own { weight } else { 0.0 };
        }
    }

    /// Before it is remembered where further pages are.
    fn make_room(&mut self, at_ns: u64) {
        if self.pages.len() + MOST_ASKED > MOST_PAGES {
            self.pages.retain(|_, page| at_ns.saturating_sub(page.asked_ns) < HOLDS_NS);
            if self.pages.len() > MOST_PAGES / 2 {
                self.pages.clear();
            }
        }
        if self.regions.len() + MOST_ASKED > MOST_PAGES {
            self.regions.clear();
        }
    }

    /// What of the misses of the cell with this number goes to other nodes.
    pub fn of_cell(&self, number: u32) -> RemoteParts {
        let Some(uses) = self.cells.get(number as usize).filter(|uses| uses.known > 0.0) else {
            return RemoteParts::default();
        };
        let remote = uses.remote / uses.known;
        RemoteParts {
            remote,
            prefetched: uses.remote_covered / uses.known,
            misplaced: if uses.judged > 0.0 { remote * (uses.misplaced / uses.judged) } else { 0.0 },
        }
    }

    /// What a reader of the profile has to know, in a sentence.
    pub fn note(&self) -> Option<String> {
        /// Less than this part of the uses is known.
        const MOST_KNOWN: f64 = 0.9;
        if self.all == 0.0 {
            return None;
        }
        if self.known == 0.0 {
            let why = match self.refused {
                Some(why) => format!("memlens failed to {why}"),
                None => "it is not known on which processors its threads ran".to_owned(),
            };
            return Some(format!("Which misses go to another memory node is not known: {why}."));
        }
        let part = self.known / self.all;
        (part < MOST_KNOWN).then(|| {
            let percent = 100.0 * part;
            format!("Which misses go to another memory node is known from {percent:.0} % of the lines that bursts used.")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes 0 and 4, with processors 0 to 1 and 2 to 3.
    fn machine() -> MemoryNodes {
        MemoryNodes::read(|file| {
            let text = match file {
                "online" | "has_memory" => "0,4",
                "node0/cpulist" => "0-1",
                "node4/cpulist" => "2-3",
                _ => return None,
            };
            Some(text.to_owned())
        })
    }

    fn nodes(ask: Ask) -> Nodes {
        Nodes::new(machine(), ask).expect("several")
    }

    /// Pages from 1,000 on lie in node 4, those from 2,000 on nowhere.
    fn answer(_: u32, addresses: &[u64], found: &mut Vec<PageNode>) -> Result<(), NodeError> {
        assert!(addresses.len() <= MOST_ASKED);
        found.clear();
        found.extend(addresses.iter().map(|address| match address / PAGE_BYTES {
            ..1000 => PageNode::Node(0),
            1000..2000 => PageNode::Node(4),
            _ => PageNode::Absent,
        }));
        Ok(())
    }

    /// A burst that ended on a processor, of cells' uses of pages.
    fn burst(nodes: &mut Nodes, at_ns: u64, processor: u64, uses: impl IntoIterator<Item = (u32, u64)>) {
        nodes.begin(7, at_ns, processor + 1);
        uses.into_iter().for_each(|(cell, page)| nodes.uses(cell, page * PAGE_BYTES + 8, cell % 2 == 1));
        nodes.end();
    }

    #[test]
    fn what_lies_in_another_node_is_remote() {
        let mut nodes = nodes(answer);
        assert_eq!(nodes.count(), 0);
        burst(&mut nodes, 1, 1, [(0, 5), (0, 5), (0, 6), (0, 1000), (1, 1001), (2, 3000)]);
        assert_eq!(nodes.count(), 2);
        let parts = |remote, prefetched, misplaced| RemoteParts { remote, prefetched, misplaced };
        assert_eq!([0, 1, 2, 99].map(|cell| nodes.of_cell(cell)), {
            [parts(0.25, 0.0, 0.0), parts(1.0, 1.0, 0.0), parts(0.0, 0.0, 0.0), parts(0.0, 0.0, 0.0)]
        });
        // On the other node it is the other way round.
        burst(&mut nodes, 2, 3, [(3, 5), (3, 1000), (3, 1001), (3, 1002)]);
        assert_eq!(nodes.of_cell(3), parts(0.25, 0.25, 0.0));
        // Not known where.
        nodes.begin(7, 3, 0);
        nodes.uses(4, 0, false);
        nodes.end();
        assert_eq!(nodes.of_cell(4), RemoteParts::default());
        let note = nodes.note().expect("9 of 11 are known");
        assert!(note.contains("82 %"), "{note}");
    }

    #[test]
    fn of_many_new_pages_some_stand_for_all() {
        let mut nodes = nodes(answer);
        // Every fourth is remote, and one known page is used as often as all of them.
        burst(&mut nodes, 1, 0, [(0, 5)]);
        let many = (0..900_u64).map(|at| (2, if at % 4 == 0 { 1000 + at } else { at + 10 }));
        burst(&mut nodes, 2, 0, many.flat_map(|new| [new, (2, 5)]));
        assert_eq!(nodes.pages.len(), 1 + MOST_ASKED);
        let remote = nodes.of_cell(2).remote;
        assert!((remote - 0.125).abs() < 0.04, "{remote}");
        assert!((nodes.known - 1801.0).abs() < 1.0, "{}", nodes.known);
        assert_eq!(nodes.note(), None);
    }

    #[test]
    fn of_very_many_uses_some_stand_for_all() {
        let mut nodes = nodes(answer);
        // Four pages in turn, of which one is remote, but for a second cell's use in ten: 4 of 18.
        let uses = (0..50_000_u64).map(|at| match at % 10 {
            9 => (2, 1001),
            _ => (0, [1, 2, 3, 1000][at as usize % 4]),
        });
        burst(&mut nodes, 1, 0, uses);
        assert!((nodes.known - 50_000.0).abs() < 1.0, "{}", nodes.known);
        let remote = nodes.of_cell(0).remote;
        assert!((remote - 4.0 / 18.0).abs() < 0.04, "{remote}");
        let second = nodes.cells[2].known;
        assert!((second - 5000.0).abs() < 1000.0, "{second}");
    }

    #[test]
    fn what_one_other_node_uses_is_misplaced() {
        let mut nodes = nodes(answer);
        for at in 0..40 {
            // Page 1000 is used from node 0 alone, page 1600 from both, in another region.
            burst(&mut nodes, at, 2 * (at % 2), [(4, 1600)]);
            burst(&mut nodes, at, 0, [(2, 1000)]);
        }
        let (own, both) = (nodes.of_cell(2), nodes.of_cell(4));
        assert_eq!((own.remote, own.misplaced), (1.0, 1.0));
        assert_eq!((both.remote, both.misplaced), (0.5, 0.0));
        // Many pages that were met once each: their region tells.
        for at in 0..40 {
            burst(&mut nodes, at, 0, [(6, 1100 + at)]);
        }
        assert_eq!(nodes.of_cell(6).misplaced, 1.0);
    }

    #[test]
    fn pages_are_asked_for_again() {
        // First in the one, then in the other.
        fn ask(pid: u32, addresses: &[u64], found: &mut Vec<PageNode>) -> Result<(), NodeError> {
            static ASKED: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
            answer(pid, addresses, found)?;
            let times = ASKED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            found.fill(PageNode::Node(4 * times));
            Ok(())
        }
        let mut nodes = nodes(ask);
        for (at_ns, cell) in [(1, 0), (HOLDS_NS, 0), (HOLDS_NS + 1, 2), (2 * HOLDS_NS, 2)] {
            burst(&mut nodes, at_ns, 0, [(cell, 5)]);
        }
        assert_eq!([0, 2].map(|cell| nodes.of_cell(cell).remote), [0.0, 1.0]);
    }

    #[test]
    fn of_a_process_that_has_ended_the_last_that_was_known_counts() {
        fn ask(pid: u32, addresses: &[u64], found: &mut Vec<PageNode>) -> Result<(), NodeError> {
            if addresses.contains(&(9 * PAGE_BYTES)) {
                return Err(NodeError::Gone);
            }
            answer(pid, addresses, found)
        }
        let mut nodes = nodes(ask);
        burst(&mut nodes, 1, 0, [(0, 5), (0, 1000)]);
        burst(&mut nodes, 2 * HOLDS_NS, 0, [(2, 5), (2, 1000), (2, 1000), (2, 1000), (2, 9)]);
        assert_eq!(nodes.of_cell(2).remote, 0.75);
        assert_eq!(nodes.known, 6.0);
    }

    #[test]
    fn who_filled_a_page_long_ago_counts_for_less() {
        let mut nodes = nodes(answer);
        // Node 4 has written all 64 lines of its page, and node 0 reads four at a time, six times a second.
        burst(&mut nodes, 0, 2, (0..64).map(|_| (1, 1500)));
        let reads = |nodes: &mut Nodes, cell, seconds: std::ops::Range<u64>| {
            let times = seconds.flat_map(|second| (1..7).map(move |part| second * HOLDS_NS + part));
            times.for_each(|at_ns| burst(nodes, at_ns, 0, [(cell, 1500); 4]));
        };
        reads(&mut nodes, 2, 0..1);
        assert_eq!(nodes.of_cell(2), RemoteParts { remote: 1.0, ..RemoteParts::default() });
        reads(&mut nodes, 4, 1..4);
        reads(&mut nodes, 6, 4..5);
        assert_eq!(nodes.of_cell(6).misplaced, 1.0);
    }

    #[test]
    fn memory_is_bounded() {
        fn ask(_: u32, addresses: &[u64], found: &mut Vec<PageNode>) -> Result<(), NodeError> {
            found.clear();
            found.resize(addresses.len(), PageNode::Node(0));
            Ok(())
        }
        let mut nodes = nodes(ask);
        for at in 0..2000 {
            burst(&mut nodes, at, 0, (0..100).map(|page| (0, (at * 100 + page) * 600)));
            assert!(nodes.pages.len() <= MOST_PAGES && nodes.regions.len() <= MOST_PAGES);
        }
        assert_eq!(nodes.of_cell(0).remote, 0.0);
    }

    #[test]
    fn nothing_is_guessed_where_nobody_may_ask() {
        let mut nodes = nodes(|_, _, _| Err(NodeError::NotAllowed));
        assert_eq!(nodes.note(), None);
        burst(&mut nodes, 1, 0, [(0, 5)]);
        assert_eq!((nodes.count(), nodes.of_cell(0)), (0, RemoteParts::default()));
        let note = nodes.note().expect("nothing is known");
        assert!(note.contains("move_pages(2)"), "{note}");
        let mut lost = Nodes::new(machine(), answer).expect("several");
        lost.begin(7, 1, 0);
        lost.uses(0, 0, false);
        lost.end();
        assert!(lost.note().is_some_and(|note| note.contains("on which processors")));
        assert!(Nodes::new(MemoryNodes::default(), answer).is_none(), "one node");
    }
}
