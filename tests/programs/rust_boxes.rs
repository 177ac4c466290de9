// Rust: of what the standard library's containers allocate the fields are those of what lies in the blocks, not of the
// elements that point there.
//
// "rows": 8 vectors of 1000 f64, each loaded once. `collect` makes the first one elsewhere.
// "shared": 100 records behind two counters. The price is read 10 times each.
//
// expect heap rows: blocks=7..8 bytes=56000..64000 loads=7000..8000
// field heap shared value.price: offset=16 bytes=8 loads=1000
// field heap shared value.cold[]: offset=24 bytes=104 loads=0
// prints: 49500 28000
use std::rc::Rc;

#[repr(C)]
struct Record {
    price: f64,
    cold: [u64; 13],
}

#[inline(never)]
fn prices(shared: &[Rc<Record>]) -> f64 {
    shared.iter().map(|one| one.price).sum()
}

#[inline(never)]
fn sum(rows: &[Vec<f64>], column: usize) -> f64 {
    rows.iter().map(|row| row[column]).sum()
}

fn main() {
    let shared: Vec<Rc<Record>> =
        (0..100).map(|i| Rc::new(Record { price: f64::from(i), cold: [7; 13] })).collect();
    let rows: Vec<Vec<f64>> = (0..8).map(|i| vec![f64::from(i); 1000]).collect();
    let price: f64 = (0..10).map(|_| prices(std::hint::black_box(&shared))).sum();
    let total: f64 = (0..1000).map(|column| sum(std::hint::black_box(&rows), column)).sum();
    println!("{price} {total}");
}
