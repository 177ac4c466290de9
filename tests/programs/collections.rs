// Rust: blocks that the standard library allocates for its containers are called after who keeps them.
//
// "collections::Groups::all": 16 Groups of 32 bytes are pushed; a vector of such grows to 4, 8 and 16 elements.
// "collections::Groups::index": a hash map that grows.
// "table": 1000 u64, collected by a function that returns the vector; each is stored once and loaded once.
// "counts": a hash map whose entry goes to a number.
//
// expect heap collections::Groups::all: blocks=1..3 max_live_bytes=512
// expect heap collections::Groups::index: blocks=1..9
// expect heap table: blocks=1 bytes=8000 loads=1000
// expect heap counts: blocks=1..9
// expect-absent heap ptr
// expect-absent heap add
// prints: 499512 16
use std::collections::HashMap;

struct Group {
    sum: u64,
    members: [u64; 3],
}

struct Groups {
    all: Vec<Group>,
    index: HashMap<u64, usize>,
}

impl Groups {
    #[inline(never)]
    fn add(&mut self, sum: u64) {
        let group = Group { sum, members: [sum; 3] };
        self.all.push(group);
    }

    #[inline(never)]
    fn find(&mut self, key: u64) -> usize {
        let next = self.index.len();
        *self.index.entry(key).or_insert_with(|| next)
    }
}

#[inline(never)]
fn numbers(count: u64) -> Vec<u64> {
    (0..count).map(std::hint::black_box).collect()
}

#[inline(never)]
fn count(counts: &mut HashMap<usize, u64>, key: usize) -> u64 {
    let count = counts.entry(key).or_default();
    *count += 1;
    *count
}

fn main() {
    let mut groups = Groups { all: Vec::new(), index: HashMap::new() };
    let mut counts = HashMap::new();
    let mut most = 0;
    for key in 0..16 {
        groups.add(key % 3);
        most = most.max(count(&mut counts, groups.find(key) % 4));
    }
    let table = numbers(1000);
    let mut sum = most;
    for index in 0..1000 {
        // SAFETY: the index is below the length.
        sum += unsafe { table.as_ptr().add(index).read_volatile() };
    }
    let members = groups.all.iter().filter(|group| group.members[2] == group.sum).count();
    println!("{} {members}", sum + groups.all[2].sum * 4);
}
