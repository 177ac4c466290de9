//! A frame of more than a page.

fn main() {
    let mut numbers = [0u64; 600];
    for i in 0..600 {
        numbers[i] = i as u64 * 3;
    }
    println!("{}", numbers.iter().sum::<u64>());
}
