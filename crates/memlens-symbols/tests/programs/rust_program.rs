static mut COUNTER: u64 = 3;
static TABLE: [u32; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
thread_local! { static LOCAL: std::cell::Cell<u32> = const { std::cell::Cell::new(1) }; }

mod shapes {
    pub struct Point<T> {
        pub x: T,
        pub y: T,
    }
    #[inline(never)]
    pub fn area(p: &Point<f64>) -> f64 {
        let corners = [p.x, p.y, p.x * p.y, 1.0];
        std::hint::black_box(&corners);
        corners[2]
    }
}

fn main() {
    let point = shapes::Point { x: 2.0, y: 3.0 };
    let numbers: Vec<u64> = Vec::with_capacity(std::env::args().count() + 10);
    std::hint::black_box(&numbers);
    // SAFETY: no other thread exists, and no reference to the variable.
    unsafe { COUNTER += TABLE[std::env::args().count() & 7] as u64 };
    LOCAL.with(|l| l.set(l.get() + 1));
    // SAFETY: as above.
    let counter = unsafe { COUNTER };
    if shapes::area(&point) == counter as f64 {
        println!("never");
    }
}
