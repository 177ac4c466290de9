//! What is counted of each instruction or owner.

use memlens_types::AccessKind;

use crate::cost::{Cost, CostSpread};
use crate::phases::Phases;
use crate::reuse::Reuse;
use crate::runs::{Moment, Run};

/// The part of a row's references in its phase that it has in another one in which it is hardly at work.
const SELDOM: f64 = 1.0 / 64.0;

/// The row of all instructions or owners beyond [`crate::LocalityConfig::scopes`].
pub const OTHER: u32 = u32::MAX;

/// One instruction's or owner's counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    /// References, each with its weight.
    pub(crate) references: f64,
    /// Of these, those that read.
    pub(crate) reads: f64,
    pub(crate) observed: u64,
    /// Whether it is a prefetch.
    pub(crate) is_prefetch: bool,
    /// In how many bursts it appeared.
    pub(crate) bursts: u64,
    /// References in these, others' too.
    lengths: u64,
    /// Over references: the square of the weight.
    weights_squared: f64,
    /// Over bursts: the square of the references.
    pub(crate) references_squared: f64,
    /// References by phase of the program, weighted; see [`Phases`].
    pub(crate) phases: [f64; Phases::MOST],
    /// The phase that has most of them.
    phase: Option<usize>,
    /// By size of block; none until there is something to count.
    pub(crate) reuse: Vec<Option<Reuse>>,
    /// Since when it has been at work.
    run: Run,
}

impl Scope {
    /// References of a burst that it appears in.
    pub(crate) fn mean_length(&self) -> f64 {
        self.lengths.max(1) as f64 / self.bursts.max(1) as f64
    }

    /// Uses of blocks of a size: more than references where these are larger than blocks.
    pub(crate) fn uses(&self, size: usize) -> f64 {
        let counted = self.reuse.get(size).and_then(Option::as_ref).map_or(0.0, Reuse::counted);
        self.references.max(counted)
    }

    /// The weight of a reference, if so many of equal weight told as much as these of different ones (L. Kish, Survey
    /// Sampling, 1965, section 11.7): one that stands for a thousand others tells no more than one.
    pub(crate) fn unit(&self) -> f64 {
        if self.references > 0.0 { self.weights_squared / self.references } else { 1.0 }
    }
}

/// Misses of a scope at one level: sums over bursts that its standard error comes from.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    /// Of the present burst, without its weight.
    now: f64,
    /// Σ misses².
    pub(crate) squared: f64,
    /// Σ misses × references of the scope.
    pub(crate) by_own: f64,
    /// Σ misses × references of the burst.
    pub(crate) by_all: f64,
    /// Σ misses.
    pub(crate) total: f64,
}

/// What is added up of a scope's bursts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScopeSums<'a> {
    /// Its misses.
    pub(crate) by_level: &'a [Sums],
    /// What it costs.
    pub(crate) spread: CostSpread,
}

/// A table of scopes by number; the last row is [`OTHER`].
#[derive(Debug)]
pub(crate) struct Scopes {
    rows: Vec<Scope>,
    /// For each row: references of the present burst, and those that read.
    now: Vec<(u32, u32)>,
    /// `levels` for each row.
    sums: Vec<Sums>,
    /// One for each row, or none at all.
    spreads: Option<Vec<CostSpread>>,
    most: usize,
    sizes: usize,
    levels: usize,
    /// Rows of the present burst.
    touched: Vec<usize>,
    /// When that is.
    moment: Moment,
    other: Option<usize>,
}

impl Scopes {
    /// `has_spreads`: whether what rows cost is kept.
    pub(crate) fn new(most: usize, sizes: usize, levels: usize, has_spreads: bool) -> Self {
        Self {
            rows: Vec::new(),
            now: Vec::new(),
            sums: Vec::new(),
            spreads: has_spreads.then(Vec::new),
            most,
            sizes,
            levels,
            touched: Vec::new(),
            moment: Moment::default(),
            other: None,
        }
    }

    /// The next burst begins.
    pub(crate) fn begin_burst(&mut self, moment: Moment) {
        self.moment = moment;
    }

    /// The row of an id.
    #[inline]
    fn row(&mut self, id: u32) -> usize {
        let at = (id as usize).min(self.most);
        if at >= self.rows.len() {
            self.grow(at);
        }
        at
    }

    #[cold]
    fn grow(&mut self, at: usize) {
        self.rows.resize_with(at + 1, Scope::default);
        self.now.resize(at + 1, (0, 0));
        self.sums.resize((at + 1) * self.levels, Sums::default());
        if let Some(spreads) = &mut self.spreads {
            spreads.resize(at + 1, CostSpread::default());
        }
        if at == self.most {
            self.other = Some(at);
        }
    }

    /// A reference of the present burst.
    #[inline]
    pub(crate) fn count(&mut self, id: u32, kind: AccessKind) {
        self.count_all(id, 1, u32::from(kind.reads()));
        if kind == AccessKind::Prefetch && (id as usize) < self.most {
            let at = self.row(id);
            self.rows[at].is_prefetch = true;
        }
    }

    /// References of the present burst, and how many of them read.
    #[inline]
    pub(crate) fn count_all(&mut self, id: u32, references: u32, reads: u32) {
        if references == 0 {
            return;
        }
        let at = self.row(id);
        let (now, reads_now) = &mut self.now[at];
        if *now == 0 {
            self.touched.push(at);
        }
        *now += references;
        *reads_now += reads;
    }

    /// Where to count a reference whose reuse time is not trivial.
    pub(crate) fn reuse(&mut self, id: u32, size: usize) -> (&mut Reuse, &mut [Sums]) {
        let at = self.row(id);
        let row = &mut self.rows[at];
        if row.reuse.is_empty() {
            row.reuse.resize_with(self.sizes, || None);
        }
        let reuse = row.reuse[size].get_or_insert_with(Reuse::default);
        if !reuse.is_touched() {
            reuse.since = row.run.seen(&self.moment);
        }
        (reuse, &mut self.sums[at * self.levels..(at + 1) * self.levels])
    }

    /// Whose time tells how long ago a row used what it uses again: that of the phase that it is in; or, if it was hardly at work `then`,
    /// that of the phase in which the block was used: a burst that saw all of an array filled may have met the begin of what goes
    /// through it. None: it is not known.
    pub(crate) fn phase(&self, id: u32, then: Option<usize>) -> Option<usize> {
        let row = self.rows.get((id as usize).min(self.most))?;
        let usual = row.phase.map_or(0.0, |phase| row.phases[phase]);
        then.filter(|&then| row.phases[then] <= SELDOM * usual).or(row.phase)
    }

    /// Adds the present burst up: `weight` a reference, `burst` references in all, weighted, and so many `references` without; `signs` as in [`CostSpread::add`].
    pub(crate) fn end_burst(
        &mut self,
        (weight, burst): (f64, f64),
        references: usize,
        phase: usize,
        cost: &Cost,
        signs: u32,
    ) {
        for &at in &self.touched {
            let row = &mut self.rows[at];
            row.run.seen(&self.moment);
            let (now, reads_now) = std::mem::take(&mut self.now[at]);
            let own = f64::from(now) * weight;
            row.observed += u64::from(now);
            row.references += own;
            row.reads += f64::from(reads_now) * weight;
            row.weights_squared += own * weight;
            row.references_squared += own * own;
            row.phases[phase] += own;
            if row.phase.is_none_or(|main| row.phases[main] < row.phases[phase]) {
                row.phase = Some(phase);
            }
            row.bursts += 1;
            row.lengths += references as u64;
            for reuse in row.reuse.iter_mut().flatten() {
                reuse.end_burst(phase, weight);
            }
            let of_row = &mut self.sums[at * self.levels..(at + 1) * self.levels];
            if let Some(spreads) = &mut self.spreads
                && !row.is_prefetch
            {
                spreads[at].add(cost.of(own, of_row.iter().map(|sums| sums.now * weight)), signs);
            }
            for sums in of_row {
                let misses = std::mem::take(&mut sums.now) * weight;
                sums.squared += misses * misses;
                sums.by_own += misses * own;
                sums.by_all += misses * burst;
                sums.total += misses;
            }
        }
        self.touched.clear();
    }

    /// Misses of the present burst, by level, without its weight.
    pub(crate) fn present(&self, id: u32) -> impl Iterator<Item = f64> {
        let at = (id as usize).min(self.most) * self.levels;
        self.sums.get(at..at + self.levels).unwrap_or_default().iter().map(|sums| sums.now)
    }

    /// All that made references, by rising number.
    pub(crate) fn seen(&self) -> impl Iterator<Item = (u32, &Scope, ScopeSums<'_>)> {
        let sums = |at: usize| ScopeSums {
            by_level: &self.sums[at * self.levels..(at + 1) * self.levels],
            spread: self.spreads.as_ref().map(|spreads| spreads[at]).unwrap_or_default(),
        };
        let id = |at| if Some(at) == self.other { OTHER } else { at as u32 };
        let rows = self.rows.iter().enumerate().filter(|(_, row)| row.observed > 0);
        rows.map(move |(at, row)| (id(at), row, sums(at)))
    }

    /// The row of an id, if it made references.
    pub(crate) fn get(&self, id: u32) -> Option<&Scope> {
        let at = (id as usize).min(self.most);
        self.rows.get(at).filter(|row| row.observed > 0)
    }
}

impl Sums {
    /// A reference of the present burst misses with this probability.
    #[inline]
    pub(crate) fn add(&mut self, probability: f64) {
        self.now += probability;
    }
}
