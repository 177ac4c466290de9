//! Which level serves an access of a window.

/// Where a line comes from that the first level does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// A level that the core does not share.
    #[default]
    OwnLevel,
    /// The last level.
    LastLevel,
    /// Memory.
    Memory,
}

/// A level behind the first.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Service {
    /// The part of the operand's accesses whose lines it has.
    pub share: f64,
    /// The part of these whose lines a prefetcher has asked for, as far as that does not depend on the instruction.
    pub prefetched: f64,
    /// Cycles from address to data.
    pub cycles: f64,
    /// Those of them in which the address is translated: the line is asked for behind them.
    pub translation_cycles: f64,
    /// Which one it is.
    pub source: Source,
}

/// How an operand's accesses are served.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Served {
    /// Cycles of those that the first level serves: all that no other has.
    pub hit_cycles: f64,
    /// Cycles of a line that a prefetcher has asked for before; None: there is no prefetcher.
    pub prefetched_cycles: Option<f64>,
    /// The other levels.
    pub misses: Vec<Service>,
}

impl Served {
    fn miss_share(&self) -> f64 {
        self.misses.iter().map(|service| service.share).sum()
    }
}

/// Draws services of one operand's accesses.
#[derive(Clone, Debug)]
pub(crate) struct Draw<'a> {
    served: &'a Served,
    /// The chance that an access misses which is the first to its line, and that another does.
    chances: [f64; 2],
    drawn: [u32; 2],
}

/// How an access is served.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Drawn {
    /// Cycles from address to data.
    pub(crate) cycles: f64,
    /// The same as far as that does not depend on the instruction.
    pub(crate) counted_cycles: f64,
    /// If the first level does not have its line.
    pub(crate) miss: Option<Miss>,
}

/// Where a line is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Miss {
    pub(crate) source: Source,
    /// Cycles until it is asked for.
    pub(crate) translation: f64,
    /// How long before the access a prefetcher has asked for it, in cycles.
    pub(crate) asked_before: f64,
}

impl Drawn {
    /// Those of its cycles in which the address is translated.
    pub(crate) fn translation_cycles(&self) -> f64 {
        self.miss.map_or(0.0, |miss| miss.translation)
    }
}

impl<'a> Draw<'a> {
    /// `firsts` of the `accesses` are the first ones to their lines.
    pub(crate) fn new(served: &'a Served, accesses: u64, firsts: u64) -> Self {
        let (accesses, firsts) = (accesses as f64, firsts as f64);
        let misses = served.miss_share().min(1.0) * accesses;
        let of_firsts = misses.min(firsts);
        let chance = |misses: f64, of: f64| if of > 0.0 { misses / of } else { 0.0 };
        let chances = [chance(of_firsts, firsts), chance(misses - of_firsts, accesses - firsts)];
        Self { served, chances, drawn: [0; 2] }
    }

    /// The next one: whether it is the first to its line, and whether a prefetcher by instruction has asked for it. As even as can
    /// be: multiples of the golden ratio, not chance.
    pub(crate) fn next(&mut self, is_first: bool, is_prefetched: Option<bool>) -> Drawn {
        const GOLDEN: f64 = 0.618_033_988_749_894_9;
        let kind = usize::from(!is_first);
        self.drawn[kind] = self.drawn[kind].wrapping_add(1);
        let draw = (f64::from(self.drawn[kind]) * GOLDEN).fract();
        let mut left = draw / self.chances[kind] * self.served.miss_share();
        for service in &self.served.misses {
            if left >= service.share {
                left -= service.share;
                continue;
            }
            let cycles = |is_prefetched| match self.served.prefetched_cycles {
                Some(cycles) if is_prefetched => service.cycles.min(cycles),
                _ => service.cycles,
            };
            let is_counted = left < service.prefetched * service.share;
            let cycles_of_it = cycles(is_prefetched.unwrap_or(is_counted));
            let miss = Miss {
                source: service.source,
                translation: service.translation_cycles.min(cycles_of_it),
                asked_before: service.cycles - cycles_of_it,
            };
            return Drawn { cycles: cycles_of_it, counted_cycles: cycles(is_counted), miss: Some(miss) };
        }
        let cycles = self.served.hit_cycles;
        Drawn { cycles, counted_cycles: cycles, miss: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_service_has_its_share_and_first_touches_come_first() {
        let service = |share, cycles| Service { share, cycles, ..Service::default() };
        let misses = vec![service(0.15, 14.0), service(0.05, 300.0)];
        let served = Served { hit_cycles: 4.0, prefetched_cycles: None, misses };
        for (firsts, misses_of_others) in [(500, 0), (100, 100)] {
            let mut draw = Draw::new(&served, 1000, firsts);
            let of_firsts: Vec<Drawn> = (0..firsts).map(|_| draw.next(true, None)).collect();
            let of_others: Vec<Drawn> = (firsts..1000).map(|_| draw.next(false, None)).collect();
            let count = |of: &[Drawn], cycles| of.iter().filter(|it| it.cycles == cycles).count() as i32;
            let all = |cycles| count(&of_firsts, cycles) + count(&of_others, cycles);
            assert!(
                (all(14.0) - 150).abs() < 8 && (all(300.0) - 50).abs() < 8,
                "{} {}",
                all(14.0),
                all(300.0)
            );
            assert!((count(&of_others, 4.0) - (1000 - firsts as i32 - misses_of_others)).abs() < 8);
        }
    }

    #[test]
    fn what_never_misses_hits() {
        let served = Served { hit_cycles: 4.0, ..Served::default() };
        let mut draw = Draw::new(&served, 10, 10);
        assert!((0..10).all(|_| draw.next(true, None).miss.is_none()));
    }

    #[test]
    fn a_prefetcher_by_instruction_knows_better() {
        let service = Service {
            share: 1.0,
            prefetched: 0.25,
            cycles: 300.0,
            translation_cycles: 0.0,
            source: Source::Memory,
        };
        let served = Served { hit_cycles: 4.0, prefetched_cycles: Some(14.0), misses: vec![service] };
        let mut draw = Draw::new(&served, 1000, 1000);
        let sum = |draw: &mut Draw<'_>, is_prefetched| {
            let drawn: Vec<Drawn> = (0..1000).map(|_| draw.next(true, is_prefetched)).collect();
            let sum = |of: fn(&Drawn) -> f64| drawn.iter().map(of).sum::<f64>() / 1000.0;
            (sum(|it| it.cycles).round(), sum(|it| it.counted_cycles).round())
        };
        let counted = (0.25_f64 * 14.0 + 0.75 * 300.0).round();
        assert_eq!(sum(&mut draw, Some(true)).0, 14.0);
        assert_eq!(sum(&mut draw, Some(false)).0, 300.0);
        let (by_counts, same) = sum(&mut draw, None);
        assert!((by_counts - counted).abs() < 3.0 && by_counts == same, "{by_counts} {counted}");
    }
}
