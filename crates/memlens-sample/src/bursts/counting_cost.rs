//! What it costs a thread that its words are counted, by processor: how many jumps it takes a cycle decides. And how long an access usually
//! takes there.

use std::fs;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// What counting costs for a thread that has its core for itself, and what it does without.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CountingCost {
    /// At a block, in ns: a comparison, an addition and jumps that the native code does not have.
    pub block_ns: f64,
    /// Where a block ends with a return or an indirect jump or call, whose target is looked for in a table, and which the
    /// processor cannot predict as it predicts returns.
    pub indirect_ns: f64,
    /// What part of an access's time is added, times blocks an access. Where the processor works ahead of what waits for memory
    /// or for earlier results, its window holds the instructions of counting as well, and so fewer of the program's.
    pub block_part: f64,
    /// The same of time in which an access waits for memory, times such jumps an access: looking a target up takes more instructions than the
    /// rest of a block, so that a function that is called for each of many lines has a few of them under way in place of many.
    pub indirect_part: f64,
    /// How long a locked instruction takes at least, in ns; 0 until it is measured on the machine ([`Self::of_this_machine`]). Other instructions wait
    /// for it, those that count as well as the program's, so that counting does not lengthen this much of an access's time. A loop with a locked
    /// addition every other round had 1.9 times its accesses without it, and has 1.0 to 1.2 with it (Zen 4); where branches between
    /// them are guessed wrongly it has half in both cases, as the locked instruction waits for counting's own stores to be written.
    pub locked_ns: f64,
    /// How long an access takes natively, in ns, in programs that hit the first level nearly always: where none was measured.
    pub usual_ns: f64,
}

impl Default for CountingCost {
    fn default() -> Self {
        Self::BEFORE_ZEN_5
    }
}

impl CountingCost {
    /// For processors other than Intel's, and before Zen 5. Chosen by the totals of 21 programs of `bench/bursts.py`, six runs each on a quiet Zen 4 with one or two glances a ms: the root of the
    /// mean square of the logarithms of estimated over exact accesses was 0.12 with these, their geometric mean 0.98. Without a part it was
    /// 0.24 with what had been chosen on a busy Zen 3 (1.2 and 10 ns), and 0.14 of the 19 that hold no interpreter at the least (0.9 and
    /// 3 ns), where what waits for memory had a fifth too few.
    ///
    /// Functions that are called for each of many lines all over the memory (a table's update, a look-up in it, in buckets of a hash table, a virtual
    /// method of 2,000,000 shuffled objects) take 2.4 to 3.2 times as long counted as natively on a Zen 3: totals of these four were 0.47 to
    /// 0.79 times the true ones without the part of indirect jumps, and are 0.83 to 1.07. A list for whose nodes a function is called, which has nothing
    /// that overlaps, had 1.02 to 1.09 and has 1.29.
    ///
    /// An access takes 0.45 to 1.3 ns in eleven programs of `bench/bursts.py`, on a Zen 3.
    const BEFORE_ZEN_5: Self = Self {
        block_ns: 0.3,
        indirect_ns: 5.0,
        block_part: 0.8,
        indirect_part: 6.0,
        locked_ns: 0.0,
        usual_ns: 0.75,
    };
    /// Where what counting costs was chosen. An access takes 0.18 (CPython, sort) to 0.8 ns (perl) in nine programs that hit the first level
    /// nearly always, 0.37 in the geometric mean.
    const ZEN_4: Self = Self { usual_ns: 0.37, ..Self::BEFORE_ZEN_5 };
    /// From Zen 5 on cores take two jumps a cycle. By the totals of 20 programs, one run each on a busy Zen 5, their geometric
    /// mean and the root of the mean square of their logarithms: 1.01 and 0.24 with these, 1.18 and 0.36 with 1.2 and 10, 0.98 and 0.24
    /// with 0.45 and 7, 0.89 and 0.24 with 0.45 and 4.
    const ZEN_5: Self =
        Self { block_ns: 0.6, indirect_ns: 6.0, block_part: 0.0, indirect_part: 0.0, ..Self::BEFORE_ZEN_5 };
    /// Intel's: a window of 512 instructions hides more of counting, and returns are guessed well without their calls. Of 23 programs of
    /// `bench/bursts.py`, three runs each on a quiet core of the Golden Cove line, the geometric mean of estimated over exact accesses was
    /// 1.18 with the default and typically off by a factor of 1.24; in the same bursts it is 1.01 and 1.12 with these. With 0.5 ns and a
    /// part of 0.2 it would be as near, but a loop of two blocks for each line that streams in had 1.35 times its loads, and has 1.0 to
    /// 1.25 with these. No older core was at hand. An access takes 0.10 (CPython, perl) to 1.2 ns (xz) at 4 GHz, 0.32 in the geometric
    /// mean of nine programs.
    const INTEL: Self = Self { indirect_ns: 2.0, usual_ns: 0.32, ..Self::ZEN_5 };
    /// Zen 5's family (AMD, Processor Programming Reference for Family 1Ah).
    const FAMILY_OF_ZEN_5: u32 = 26;
    /// That of Zen 3 and 4 (the same for Family 19h) …
    const FAMILY_OF_ZEN_4: u32 = 25;
    /// … and Zen 4's models in it, as far as they are known to have been given.
    const MODELS_OF_ZEN_4: [RangeInclusive<u32>; 3] = [0x10..=0x1f, 0x60..=0x7f, 0xa0..=0xaf];

    /// On this machine.
    pub fn of_this_machine() -> Self {
        let of_its_kind =
            fs::read_to_string("/proc/cpuinfo").map_or_else(|_| Self::default(), |text| Self::of(&text));
        Self { locked_ns: locked_ns(), ..of_its_kind }
    }

    /// On the machine whose `/proc/cpuinfo` this is.
    fn of(cpuinfo: &str) -> Self {
        let field = |name: &str| {
            let mut fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
            fields.find(|(word, _)| word.trim() == name).map(|(_, value)| value.trim())
        };
        let number = |name: &str| field(name)?.parse::<u32>().ok();
        let family = number("cpu family");
        let is_zen_4 = || {
            family == Some(Self::FAMILY_OF_ZEN_4)
                && number("model")
                    .is_some_and(|model| Self::MODELS_OF_ZEN_4.iter().any(|models| models.contains(&model)))
        };
        match field("vendor_id") {
            Some("GenuineIntel") => Self::INTEL,
            Some("AuthenticAMD") if family.is_some_and(|it| it >= Self::FAMILY_OF_ZEN_5) => Self::ZEN_5,
            Some("AuthenticAMD") if is_zen_4() => Self::ZEN_4,
            _ => Self::default(),
        }
    }
}

/// How long a locked addition takes here, one after the other, in ns. Cost: some 50 µs.
fn locked_ns() -> f64 {
    const ADDITIONS: u32 = 2000;
    const TIMES: u32 = 10;
    let sum = AtomicU64::new(0);
    let one = |_| {
        let began = Instant::now();
        for number in 0..ADDITIONS {
            sum.fetch_add(u64::from(number), Ordering::Relaxed);
        }
        began.elapsed().as_secs_f64() * 1e9 / f64::from(ADDITIONS)
    };
    // What others on the core take, or a clock that is still slow, only makes it longer.
    (0..TIMES).map(one).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_told_apart_by_vendor_and_family() {
        let of_model = |vendor: &str, family: u32, model: u32| {
            CountingCost::of(&format!(
                "processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: 17\n"
            ))
        };
        let of = |vendor: &str, family: u32| of_model(vendor, family, 2);
        assert_eq!(of("AuthenticAMD", 26), CountingCost::ZEN_5);
        assert_eq!(of("AuthenticAMD", 25), CountingCost::default());
        assert_eq!(of_model("AuthenticAMD", 25, 17), CountingCost::ZEN_4);
        assert_eq!(of_model("AuthenticAMD", 25, 0x50), CountingCost::default());
        assert_eq!(of("GenuineIntel", 6), CountingCost::INTEL);
        assert_eq!(of("HygonGenuine", 24), CountingCost::default());
        assert_eq!(CountingCost::of(""), CountingCost::default());
    }
}
