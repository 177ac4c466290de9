//! How long an access takes natively around a burst: so many accesses nobody counted in the processor time between bursts.
//!
//! It is measured behind each burst, where the
//! thread goes on in copies of its code that only count the words they would have stored (`memlens-burst`): the same
//! code, the same misses, the same page faults, and none of recording's own work. A burst that ended early has no such
//! stretch, or one that tells nothing; then its own time is taken, less the part that recording took in the bursts that have
//! one, or if it is too short for that, the usual time of an access. Another burst of the same code knows it better than either (`waiting.rs`).

use memlens_events::agent::BurstHead;

use super::counting_cost::CountingCost;

/// Shorter stretches say nothing, in words.
const FEWEST_WORDS: u64 = 2000;
/// Shorter ones do not tell what the code does once processor and caches know it, in words: of a program's next task, translated for the
/// first time, the first piece of a stretch takes four times as long as natively.
const SETTLED_WORDS: u64 = 7500;
/// Counting does not more than multiply the time of an access by this.
const MOST_SLOWER: f64 = 3.5;
/// Accesses that take longer wait for one another, and the processor's window has room for what counting adds. (Between a list whose nodes a
/// function is called for, 72 ns an access while words are counted and about as long natively, and a hash table's buckets, 30 and 12.)
const MOST_IN_WINDOW_NS: f64 = 20.0;
/// What an access takes beyond this while words are counted is waiting for memory.
const LEAST_WAITING_NS: f64 = 3.0;
/// Two threads of one core are not more than this much slower than one alone.
const MOST_SHARED: f64 = 2.0;
/// Bursts are weighed otherwise where repeated string instructions have more than this part of the accesses.
const REPEATED_PART: f64 = 0.05;
/// Bursts with fewer accesses say nothing of an access's time.
const FEWEST_ACCESSES: f64 = 2000.0;
/// Recording takes so many ns an access at most on a core of the thread's own, on top of a multiple of the native time: what took longer was another
/// phase of the program than the stretch behind it. Of 1,196 bursts of the 24 programs of `bench/bursts.py` 13 did; half took 1 to 5 ns
/// more than counting. Where a slow phase's burst has a fast phase's stretch behind it, the time around it would stand for twenty times
/// the accesses, so that the limit is near.
const RECORDING_NS: f64 = 8.0;
/// That multiple.
const RECORDING_SLOWER: f64 = 3.0;
/// The usual time of an access ([`CountingCost::usual_ns`]) counts like so many measured ones.
const USUAL_WEIGHT: f64 = 4.0;
/// The part of its time in a burst that an access takes natively, before any was measured …
const NATIVE_PART: f64 = 0.5;
/// … which counts like so many measured ones.
const NATIVE_PART_WEIGHT: f64 = 1.0;
/// A burst of which less than this part was the thread's own code tells nothing: the rest is not known well enough.
const LEAST_OWN_PART: f64 = 0.5;
/// Stretches of at least this processor time tell the speed of the time-stamp counter, in ns.
const LONG_NS: u64 = 50_000;
/// The time-stamp counter's speed before any was measured, in cycles a ns.
const USUAL_CYCLES_A_NS: f64 = 3.0;
/// Of so many bursts in a row at least half have slow page faults where these belong to what the program does. One of fifty has
/// them otherwise, and would make its time that of a few accesses.
const FAULTING: u32 = 4;
/// Shorter times of an access are faults of the measurement, in ns: cores do five a cycle at most. (CPython 3.11 takes 0.10 at 4 GHz.)
const LEAST_NS: f64 = 0.05;
/// What the begin of a burst takes, in ns: code and copies are not in the first caches, and jumps are guessed wrongly. Bursts of 6 to 2300
/// accesses of a loop took 2.3 µs and 1.4 ns an access (Golden Cove).
const BEGIN_NS: f64 = 2000.0;

/// What a burst holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Content {
    /// Words.
    pub words: f64,
    /// Executions of blocks …
    pub blocks: f64,
    /// … and of such as end with a return or an indirect jump or call.
    pub indirect: f64,
    /// Accesses.
    pub accesses: f64,
    /// Those of them that are locked instructions'.
    pub locked: f64,
    /// Those of them that are repeated string instructions' behind their first.
    pub repeated: f64,
}

impl Content {
    /// The native time of an access, of its time while words were counted, in ns. `shared`: how many times as long others on the core
    /// make counting take.
    fn native_ns(&self, counted_ns: f64, cost: CountingCost, shared: f64) -> f64 {
        let added = (cost.block_ns * self.blocks + cost.indirect_ns * self.indirect) / self.accesses;
        let factor = 1.0 + cost.block_part * self.blocks / self.accesses;
        let waiting_factor = factor + cost.indirect_part * self.indirect / self.accesses;
        let locked_ns = (cost.locked_ns * self.locked / self.accesses).min(counted_ns);
        let counted_ns = counted_ns - locked_ns;
        let working = counted_ns.min(LEAST_WAITING_NS);
        let in_window = counted_ns.min(MOST_IN_WINDOW_NS) - working;
        let behind_each_other = counted_ns - working - in_window;
        let without_part = working / factor + in_window / waiting_factor + behind_each_other;
        let rest_ns = (without_part - shared * added / factor).max(counted_ns / MOST_SLOWER);
        (locked_ns + rest_ns).max(LEAST_NS)
    }
}

/// A mean of factors: of their logarithms.
#[derive(Clone, Copy, Debug, Default)]
struct Factors {
    sum: f64,
    count: f64,
}

impl Factors {
    fn add(&mut self, factor: f64) {
        self.sum += factor.ln();
        self.count += 1.0;
    }

    /// With `usual` among them as if it were so many.
    fn mean(&self, usual: f64, weight: f64) -> f64 {
        ((self.sum + usual.ln() * weight) / (self.count + weight)).exp()
    }
}

/// What the bursts so far told of recording's cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weights {
    counting: CountingCost,
    /// Of bursts with a stretch: times of an access in ns …
    access_ns: Factors,
    /// … and the parts that these are of the times in the bursts.
    native_parts: Factors,
    /// The time-stamp counter's cycles a ns: the fewest that were seen, since a thread's processor time stands still while
    /// others run.
    cycles_a_ns: Option<f64>,
    /// The fewest cycles of the additions beside a stretch: those of a thread that has its core for itself.
    loop_cycles: Option<u64>,
    /// Of the last [`FAULTING`] stretches, the latest in the lowest bit: which had slow page faults; and how many there were.
    faulting: u32,
    stretches: u32,
}

/// What a burst says of the accesses around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weight {
    /// Accesses in the stretches behind it.
    pub counted: f64,
    /// Native time of an access in ns.
    pub access_ns: f64,
    /// How sure it is.
    pub speed: Speed,
}

impl Weight {
    /// Whether the time was measured, and not taken from other bursts.
    pub fn is_measured(&self) -> bool {
        matches!(self.speed, Speed::New | Speed::Settled | Speed::Repeated { is_measured: true })
    }

    /// Whether a stretch of the same code tells it alone.
    pub fn is_of_stretch(&self) -> bool {
        matches!(self.speed, Speed::New | Speed::Settled)
    }
}

/// What an access's time was measured on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Speed {
    /// Nothing: it is what is usual, for all code or as a part of the time in bursts.
    Guessed {
        /// What an access took in the burst, as far as that is known.
        recorded: Option<Recorded>,
    },
    /// Little, of code that may be new: a burst of the same code whose speed has settled knows it better.
    #[default]
    New,
    /// A stretch that was long enough.
    Settled,
    /// Another burst, of the same code.
    Learned,
    /// Repeated string instructions, which no stretch tells.
    Repeated {
        /// Whether the rest was measured, and not guessed.
        is_measured: bool,
    },
}

/// What a recorded access took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recorded {
    /// The thread's own time, in ns.
    pub ns: f64,
    /// How many times as long others on the core let its instructions take.
    pub shared: f64,
}

impl Recorded {
    /// Whether it may take `native_ns` natively. If not, it belongs to another phase of the program. Recording
    /// does all that counting does, too: it is not faster, but while the core is not shared. (Where SQLite fills a table while memlens reads
    /// symbols beside it, on the other thread of the core, recording takes 8 to 13 ns more an access instead of 1 to 5: most bursts there were
    /// taken for another phase, and their time for half of its accesses or fewer.)
    pub fn is_alike(self, native_ns: f64) -> bool {
        (native_ns / MOST_SHARED..=RECORDING_SLOWER * native_ns + RECORDING_NS * self.shared)
            .contains(&self.ns)
    }
}

impl Weights {
    /// Of bursts on this machine.
    pub fn of_this_machine() -> Self {
        Self { counting: CountingCost::of_this_machine(), ..Self::default() }
    }

    /// Of a burst.
    pub fn weight(&mut self, head: &BurstHead, content: &Content) -> Weight {
        let accesses_a_word = content.accesses / content.words.max(1.0);
        let counted_words = (head.counted_words + head.words_besides) as f64;
        let is_repeated = content.repeated > REPEATED_PART * content.accesses;
        // Of copies any idea of the time is better than the usual one.
        let recorded_ns = self.recorded_ns(head, if is_repeated { 0.0 } else { LEAST_OWN_PART });
        let shared = self.shared(head);
        let an_access = |ns: f64| Recorded { ns: ns / content.accesses, shared };
        let stretch_ns = self.stretch_ns(head, content, shared);
        let is_faulting = self.is_faulting(head);
        let measured = match stretch_ns {
            // The stretch may have no repeated instructions.
            Some(stretch_ns) if is_repeated => recorded_ns.map(|recorded_ns| {
                self.with_repeated(stretch_ns * content.accesses, recorded_ns) / content.accesses
            }),
            Some(stretch_ns) => {
                let recorded = recorded_ns.map(an_access);
                let is_alike = recorded.is_none_or(|recorded| recorded.is_alike(stretch_ns));
                // Of what seldom happens, and takes long, the burst may have had nothing.
                let has_more = is_faulting && recorded.is_none_or(|recorded| recorded.ns < stretch_ns);
                if is_alike && !has_more {
                    self.access_ns.add(stretch_ns);
                    let begun = recorded.map(|recorded| recorded.ns - BEGIN_NS / content.accesses);
                    if let Some(ns) = begun.filter(|&ns| ns > 0.0) {
                        self.native_parts.add((stretch_ns / ns).min(1.0));
                    }
                }
                (is_alike || has_more).then_some(stretch_ns)
            }
            None => None,
        };
        // An access's without the begin of the burst, which tells little where it is most of it.
        let own = recorded_ns
            .map(|ns| (ns, ns - BEGIN_NS))
            .filter(|(whole_ns, own_ns)| 2.0 * own_ns >= *whole_ns)
            .map(|(_, own_ns)| an_access(own_ns));
        let usual_ns = self.access_ns.mean(self.counting.usual_ns, USUAL_WEIGHT);
        let access_ns = measured.unwrap_or_else(|| match recorded_ns {
            // However short the burst is: copying to new pages takes a hundred times as long as other accesses.
            Some(ns) if is_repeated => {
                self.with_repeated(usual_ns * (content.accesses - content.repeated), ns) / content.accesses
            }
            _ => match own {
                Some(own) if content.accesses >= FEWEST_ACCESSES => own.ns * self.native_part(),
                _ => usual_ns,
            },
        });
        let access_ns = access_ns.max(LEAST_NS);
        Weight {
            counted: if is_repeated { counted_words } else { counted_words * accesses_a_word },
            access_ns,
            speed: match measured {
                _ if is_repeated => Speed::Repeated { is_measured: measured.is_some() },
                None => Speed::Guessed { recorded: own },
                Some(_) if head.counted_words >= SETTLED_WORDS => Speed::Settled,
                Some(_) => Speed::New,
            },
        }
    }

    /// Whether a stretch has slow page faults, as others around it.
    fn is_faulting(&mut self, head: &BurstHead) -> bool {
        if head.counted_words == 0 {
            return false;
        }
        self.stretches = (self.stretches + 1).min(FAULTING);
        self.faulting = (self.faulting << 1 | u32::from(head.slow_faults > 0)) & ((1 << FAULTING) - 1);
        head.slow_faults > 0 && 2 * self.faulting.count_ones() >= self.stretches
    }

    /// Native time of a burst with repeated instructions, in ns; `rest_ns`: that of all its other accesses. Repeated instructions run
    /// as fast as natively: what the rest does not explain of the time in the burst is theirs.
    fn with_repeated(&self, rest_ns: f64, recorded_ns: f64) -> f64 {
        let theirs = (recorded_ns - rest_ns / self.native_part()).max(0.0);
        (rest_ns + theirs).min(recorded_ns.max(rest_ns))
    }

    /// How many times as long others on the core let a thread's instructions take; 1 where that was not measured.
    fn shared(&mut self, head: &BurstHead) -> f64 {
        let fewest = (head.loop_cycles > 0).then(|| {
            let fewest = self.loop_cycles.map_or(head.loop_cycles, |fewest| fewest.min(head.loop_cycles));
            *self.loop_cycles.insert(fewest)
        });
        fewest.map_or(1.0, |fewest| head.loop_cycles as f64 / fewest as f64).clamp(1.0, MOST_SHARED)
    }

    /// Native time of an access in the stretch behind the burst. None: it does not tell.
    fn stretch_ns(&self, head: &BurstHead, content: &Content, shared: f64) -> Option<f64> {
        let accesses = head.counted_words as f64 * content.accesses / content.words.max(1.0);
        (head.counted_words >= FEWEST_WORDS)
            .then(|| content.native_ns(head.counted_ns as f64 / accesses, self.counting, shared))
    }

    /// The time-stamp counter's cycles a ns.
    pub fn cycles_a_ns(&self) -> f64 {
        self.cycles_a_ns.unwrap_or(USUAL_CYCLES_A_NS)
    }

    fn native_part(&self) -> f64 {
        self.native_parts.mean(NATIVE_PART, NATIVE_PART_WEIGHT)
    }

    /// Time of the thread's own code in a burst, in ns: its processor time without the runtime's cycles. None: it is less than
    /// this part of it, or not known.
    fn recorded_ns(&mut self, head: &BurstHead, least_part: f64) -> Option<f64> {
        if head.recorded_ns >= LONG_NS {
            let found = head.cycles as f64 / head.recorded_ns as f64;
            self.cycles_a_ns = Some(self.cycles_a_ns.map_or(found, |fewest| fewest.min(found)));
        }
        let a_ns = self.cycles_a_ns?;
        // The one has the tick's signal besides, the other the time in which the thread did not run.
        let whole_ns = (head.recorded_ns as f64).min(head.cycles as f64 / a_ns);
        let own_ns = whole_ns - head.runtime_cycles as f64 / a_ns;
        (own_ns > 0.0 && own_ns >= least_part * whole_ns).then_some(own_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What counting costs.
    const BLOCK_NS: f64 = 1.2;
    const INDIRECT_NS: f64 = 10.0;
    /// An access's time where none was measured.
    const USUAL_NS: f64 = 0.75;

    /// Where it costs nothing.
    const FREE: CountingCost = CountingCost {
        locked_ns: 0.0,
        block_ns: 0.0,
        indirect_ns: 0.0,
        block_part: 0.0,
        indirect_part: 0.0,
        usual_ns: USUAL_NS,
    };

    /// Of a machine where counting costs that and no more.
    fn weights() -> Weights {
        let counting = CountingCost { block_ns: BLOCK_NS, indirect_ns: INDIRECT_NS, ..FREE };
        Weights { counting, ..Weights::default() }
    }

    /// A burst of 20,000 words, one block each five, and as many accesses.
    const CONTENT: Content = Content {
        words: 20_000.0,
        blocks: 4_000.0,
        accesses: 20_000.0,
        indirect: 0.0,
        locked: 0.0,
        repeated: 0.0,
    };
    /// What its access takes natively where 4 ns were counted.
    const NATIVE_NS: f64 = 4.0 - 0.2 * BLOCK_NS;
    /// One that ended early.
    const SHORT: Content = Content { words: 100.0, blocks: 20.0, accesses: 100.0, ..CONTENT };

    /// 40,000 words in so many ns.
    fn head(counted_ns: u64) -> BurstHead {
        BurstHead {
            period_ns: 10_000_000,
            recorded_ns: 200_000,
            cycles: 400_000,
            runtime_cycles: 200_000,
            counted_words: 40_000,
            counted_ns,
            words_besides: 10_000,
            loop_cycles: 1000,
            ..BurstHead::default()
        }
    }

    #[test]
    fn the_stretch_behind_a_burst_tells_the_native_speed() {
        let weight = weights().weight(&head(160_000), &CONTENT);
        // 4 ns an access, less what its block costs.
        assert!(weight.is_measured() && (weight.access_ns - NATIVE_NS).abs() < 1e-9, "{weight:?}");
        assert_eq!(weight.speed, Speed::Settled);
        assert!(weight.counted == 50_000.0, "{weight:?}");
        // However much the blocks cost, something is left.
        let content = Content { indirect: 20_000.0, ..CONTENT };
        let weight = weights().weight(&head(160_000), &content);
        assert!((weight.access_ns - 4.0 / MOST_SLOWER).abs() < 1e-9, "{weight:?}");
    }

    #[test]
    fn returns_and_indirect_jumps_cost_more_than_other_ends() {
        let content = Content { indirect: 2_000.0, ..CONTENT };
        let weight = weights().weight(&head(160_000), &content);
        assert!((weight.access_ns - (NATIVE_NS - 0.1 * INDIRECT_NS)).abs() < 1e-9, "{weight:?}");
    }

    #[test]
    fn nothing_is_done_beside_locked_instructions() {
        let counting = CountingCost { block_part: 1.0, locked_ns: 8.0, ..FREE };
        let native_ns =
            |locked, counted_ns: f64| Content { locked, ..CONTENT }.native_ns(counted_ns, counting, 1.0);
        // A block each five accesses, one of which is locked: 1.6 of 2.8 ns are as natively.
        assert!((native_ns(0.0, 2.8) - 2.8 / 1.2).abs() < 1e-9);
        assert!((native_ns(4_000.0, 2.8) - (1.6 + 1.2 / 1.2)).abs() < 1e-9);
        assert!((native_ns(20_000.0, 2.8) - 2.8).abs() < 1e-9, "they are faster than was measured");
    }

    #[test]
    fn counting_takes_room_in_the_window_while_what_waits_may_overlap() {
        let counting = CountingCost { block_part: 1.0, indirect_part: 4.0, ..FREE };
        let native_ns = |counted_ns: f64| CONTENT.native_ns(counted_ns, counting, 1.0);
        // A block each five accesses.
        assert!((native_ns(6.0) - 5.0).abs() < 1e-9, "{}", native_ns(6.0));
        // Of a chain of addresses each waits for the one before.
        assert!((native_ns(100.0) - (80.0 + 20.0 / 1.2)).abs() < 1e-9, "{}", native_ns(100.0));
        // A return each ten takes more room of what waits, but of other work no more time than it takes.
        let content = Content { indirect: 2_000.0, ..CONTENT };
        let native_ns = |counted_ns: f64| content.native_ns(counted_ns, counting, 1.0);
        assert!((native_ns(3.0) - 2.5).abs() < 1e-9, "{}", native_ns(3.0));
        assert!((native_ns(19.0) - (2.5 + 16.0 / 1.6)).abs() < 1e-9, "{}", native_ns(19.0));
    }

    #[test]
    fn counting_costs_more_while_another_thread_has_half_of_the_core() {
        let mut weights = weights();
        let content = Content { indirect: 2_000.0, ..CONTENT };
        weights.weight(&head(160_000), &content);
        let shared = BurstHead { loop_cycles: 1500, ..head(240_000) };
        let weight = weights.weight(&shared, &content);
        assert!((weight.access_ns - 1.5 * (NATIVE_NS - 0.1 * INDIRECT_NS)).abs() < 1e-9, "{weight:?}");
        // An interrupt came into the additions.
        let disturbed = BurstHead { loop_cycles: 90_000, ..head(240_000) };
        let weight = weights.weight(&disturbed, &content);
        assert!(
            (weight.access_ns - (6.0 - MOST_SHARED * (0.2 * BLOCK_NS + 0.1 * INDIRECT_NS))).abs() < 1e-9,
            "{weight:?}"
        );
    }

    #[test]
    fn a_stretch_in_another_phase_tells_nothing() {
        let mut weights = weights();
        let alone = weights.weight(&head(160_000), &CONTENT);
        // Page by page the memory of a table was touched for the first time; then came a loop that is fast.
        let changed = BurstHead { recorded_ns: 9_000_000, cycles: 18_000_000, ..head(20_000) };
        let weight = weights.weight(&changed, &CONTENT);
        assert!(!weight.is_measured() && weight.access_ns > 50.0 * alone.access_ns, "{weight:?}");
        // The other way round: 40,000 words of 20 ms behind 20,000 of 100 µs.
        let weight = weights.weight(&head(20_000_000), &CONTENT);
        assert!(!weight.is_measured() && weight.access_ns < 5.0, "{weight:?}");
    }

    #[test]
    fn recording_may_take_longer_while_another_thread_has_half_of_the_core() {
        // 12 ns an access besides the runtime's, where a stretch says 0.8.
        let slow = BurstHead { recorded_ns: 340_000, cycles: 680_000, ..head(40_000) };
        for (loop_cycles, is_measured) in [(1000, false), (1500, true)] {
            let mut weights = weights();
            weights.weight(&head(160_000), &CONTENT);
            let weight = weights.weight(&BurstHead { loop_cycles, ..slow }, &CONTENT);
            assert_eq!(weight.is_measured(), is_measured, "{weight:?}");
        }
    }

    /// A huge page is cleared in each stretch, and in none of the bursts before them.
    #[test]
    fn page_faults_that_bursts_do_not_meet_are_the_programs_time() {
        let mut weights = weights();
        let cleared = BurstHead { slow_faults: 1, ..head(4_000_000) };
        let weight = weights.weight(&cleared, &CONTENT);
        assert!(weight.is_measured() && (weight.access_ns - 100.0).abs() < 1.0, "{weight:?}");
        // They say nothing of the usual access.
        let unmeasured = BurstHead { counted_words: 0, counted_ns: 0, ..head(0) };
        assert!(weights.weight(&unmeasured, &SHORT).access_ns < 2.0);
        // One among many is chance.
        for _ in 0..FAULTING {
            assert!(weights.weight(&head(160_000), &CONTENT).is_measured());
        }
        let weight = weights.weight(&cleared, &CONTENT);
        assert!(!weight.is_measured() && weight.access_ns < 10.0, "{weight:?}");
    }

    #[test]
    fn a_long_copy_takes_the_time_that_it_took() {
        // 20,000 words of 5 µs in all, and a copy of 500,000 lines in the 5 ms that are left.
        let head =
            BurstHead { recorded_ns: 5_000_000, cycles: 10_000_000, runtime_cycles: 0, ..head(10_000) };
        let content = Content { accesses: 520_000.0, repeated: 500_000.0, ..CONTENT };
        let weight = weights().weight(&head, &content);
        assert!((weight.access_ns - 5_000_000.0 / 520_000.0).abs() < 0.1, "{weight:?}");
        // 126 lines of two new pages, before a system call ends the burst.
        let short =
            BurstHead { recorded_ns: 60_000, cycles: 120_000, counted_words: 0, counted_ns: 0, ..head };
        let content = Content { words: 268.0, blocks: 77.0, accesses: 401.0, repeated: 126.0, ..CONTENT };
        let weight = weights().weight(&short, &content);
        assert!((weight.access_ns - 60_000.0 / 401.0).abs() < 1.0, "{weight:?}");
        // Nearly all of it was translation.
        let first = BurstHead { recorded_ns: 600_000, cycles: 1_200_000, runtime_cycles: 1_080_000, ..short };
        let weight = weights().weight(&first, &content);
        assert!((weight.access_ns - 60_000.0 / 401.0).abs() < 1.0, "{weight:?}");
    }

    #[test]
    fn bursts_without_a_stretch_take_what_others_told() {
        let mut weights = weights();
        let unmeasured = BurstHead { counted_words: 0, counted_ns: 0, ..head(0) };
        // Nobody told anything: half of 100 µs, but for the begin.
        assert!((weights.weight(&unmeasured, &CONTENT).access_ns - 2.45).abs() < 1e-9);
        assert!((weights.weight(&unmeasured, &SHORT).access_ns - USUAL_NS).abs() < 1e-9);
        for _ in 0..200 {
            weights.weight(&head(160_000), &CONTENT);
        }
        // 100 µs in the burst for less natively.
        let weight = weights.weight(&unmeasured, &CONTENT);
        assert!(!weight.is_measured() && (weight.access_ns - NATIVE_NS).abs() < 0.05, "{weight:?}");
        assert!((weights.weight(&unmeasured, &SHORT).access_ns - NATIVE_NS).abs() < 0.2);
        // All of it was translation, as far as that can be told.
        let unclear = BurstHead { runtime_cycles: 2 * 190_000, ..unmeasured };
        assert!((weights.weight(&unclear, &CONTENT).access_ns - NATIVE_NS).abs() < 0.2);
    }
}
