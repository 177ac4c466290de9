//! A hash join and a grouped sum, as databases do them. `join [ROWS [TIMES]]`
//!
//! `table` is probed at random, `keys` and `amounts` are walked in order, `groups` is small and written.

fn mixed(key: u64) -> u64 {
    let mixed = (key ^ (key >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^ (mixed >> 33)
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|word| word.parse::<usize>().expect("a number"));
    let rows = arguments.next().unwrap_or(1 << 20);
    let times = arguments.next().unwrap_or(4);
    let slots = (rows * 2).next_power_of_two();
    let mut table: Vec<[u64; 2]> = vec![[0; 2]; slots];
    for row in 1..=rows as u64 {
        let mut slot = mixed(row) as usize & (slots - 1);
        while table[slot][0] != 0 {
            slot = (slot + 1) & (slots - 1);
        }
        table[slot] = [row, row % 1021];
    }
    let keys: Vec<u64> = (0..rows as u64).map(|row| mixed(row ^ 0x5bd1) % rows as u64 + 1).collect();
    let amounts: Vec<u32> = (0..rows as u32).map(|row| row % 7).collect();
    let mut groups: Vec<u64> = vec![0; 1021];
    for _ in 0..times {
        for (key, amount) in keys.iter().zip(&amounts) {
            let mut slot = mixed(*key) as usize & (slots - 1);
            while table[slot][0] != *key {
                slot = (slot + 1) & (slots - 1);
            }
            groups[table[slot][1] as usize] += u64::from(*amount);
        }
    }
    let checksum = groups.iter().enumerate().fold(0u64, |sum, (at, group)| sum.wrapping_add(group * at as u64));
    println!("join {rows} times {times} checksum {checksum}");
}
