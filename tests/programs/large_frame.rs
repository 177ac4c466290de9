// Rust: a frame of more than a page, which the prologue makes in steps.
//
// 600 numbers of 8 bytes: memset sets them to 0, by as many stores as it likes; the first loop stores each once, the
// second loads each once.
//
// levels: -O0
// expect local numbers: bytes=4800 loads=600 stores=600..1200
// prints: 539100
fn main() {
    let mut numbers = [0u64; 600];
    for i in 0..600 {
        numbers[i] = i as u64 * 3;
    }
    let mut sum = 0;
    for i in 0..600 {
        sum += numbers[i];
    }
    println!("{sum}");
}
