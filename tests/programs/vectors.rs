// Rust: a vector and boxes, by volatile accesses so that the optimiser leaves them.
//
// "numbers": 1000 u64; each is stored once by the loop (8000 bytes) and loaded once.
// "boxed": 50 boxes from one line, one store of 4 bytes each behind the one that initialises it, which
// makes 50 or 100 stores, since a compiler may put the first value and the second in one.
//
// expect heap numbers: blocks=1 bytes=8000 loads=1000 stores=1000 load_bytes=8000 store_bytes=8000
// expect heap boxed: blocks=50 bytes=200 stores=50..100
// prints: 499500
fn main() {
    let mut numbers: Vec<u64> = Vec::with_capacity(1000);
    for index in 0..1000 {
        // SAFETY: the capacity is 1000.
        unsafe { numbers.as_mut_ptr().add(index).write_volatile(index as u64) };
    }
    // SAFETY: 1000 elements have been written.
    unsafe { numbers.set_len(1000) };
    let mut sum = 0;
    for index in 0..1000 {
        // SAFETY: the index is below the length.
        sum += unsafe { numbers.as_ptr().add(index).read_volatile() };
    }
    for value in 0..50_u32 {
        let mut boxed = Box::new(value);
        // SAFETY: the box is alive.
        unsafe { (&raw mut *boxed).write_volatile(value + 1) };
    }
    println!("{sum}");
}
