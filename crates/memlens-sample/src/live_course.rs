//! How much of the heap was live over time, by allocation site.

use memlens_objects::SiteId;
use memlens_profile::SliceUse;
use rustc_hash::FxHashMap;

/// Looks that are kept; if there are more, every other one goes.
const MOST: usize = 256;
/// From one look to the next at first, in ns.
const FIRST_GAP_NS: u64 = 1_000_000;
/// Part of all live bytes from which on a site is kept by itself.
const LEAST: f64 = 0.0005;

/// Looks at what was live.
#[derive(Debug, Default)]
pub struct LiveCourse {
    looks: Vec<Look>,
    /// How many times looks were thinned out.
    thinned: u32,
    /// The one that saw most, and the last.
    most: Look,
    last: Look,
}

/// What was live at a time.
#[derive(Clone, Debug, Default)]
pub struct Look {
    at_ns: u64,
    /// The larger sites, with their bytes.
    sites: FxHashMap<SiteId, f64>,
    /// All of them.
    bytes: f64,
}

impl Look {
    /// Bytes of a site.
    pub fn of(&self, site: SiteId) -> f64 {
        self.sites.get(&site).copied().unwrap_or(0.0)
    }

    /// Sites that have a part of all bytes that is worth a row, in no order.
    pub fn large_sites(&self) -> impl Iterator<Item = SiteId> {
        let least = SliceUse::LEAST * self.bytes;
        self.sites.iter().filter(move |(_, bytes)| **bytes >= least).map(|(&site, _)| site)
    }

    /// Bytes of all sites.
    pub fn bytes(&self) -> f64 {
        self.bytes
    }
}

impl LiveCourse {
    /// Whether it is time to look.
    #[inline]
    pub fn is_due(&self, at_ns: u64) -> bool {
        self.looks
            .last()
            .is_none_or(|last| at_ns >= last.at_ns.saturating_add(FIRST_GAP_NS << self.thinned.min(40)))
    }

    /// What is live at a time. One that is not due says what is live at the end, and is none of the course: as many may come as processes end.
    pub fn look(&mut self, at_ns: u64, sites: FxHashMap<SiteId, f64>) {
        let (bytes, is_due) = (sites.values().sum::<f64>(), self.is_due(at_ns));
        let is_large = |(_, own): &(SiteId, f64)| *own >= LEAST * bytes && *own > 0.0;
        self.last = Look { at_ns, sites: sites.into_iter().filter(is_large).collect(), bytes };
        if bytes > self.most.bytes {
            self.most = self.last.clone();
        }
        if is_due {
            self.looks.push(self.last.clone());
        }
        if self.looks.len() > MOST {
            self.thinned += 1;
            let mut number = 0;
            self.looks.retain(|_| {
                number += 1;
                number % 2 == 1
            });
        }
    }

    /// What was live at a time; None: nobody had looked yet.
    pub fn at(&self, at_ns: u64) -> Option<&Look> {
        let behind = self.looks.partition_point(|look| look.at_ns <= at_ns);
        self.looks.get(behind.checked_sub(1)?)
    }

    /// What was live when most was, of all looks.
    pub fn most(&self) -> &Look {
        &self.most
    }

    /// What was live at the last look.
    pub fn last(&self) -> &Look {
        &self.last
    }

    /// Whether anything was ever live.
    pub fn is_known(&self) -> bool {
        self.most.bytes > 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_thinned_out_and_the_last_one_before_a_time_stands() {
        let site = |number| SiteId::new(number).expect("a number");
        let mut course = LiveCourse::default();
        let mut at_ns = 5;
        let mut looks = 0;
        while at_ns < 100_000_000_000 {
            if course.is_due(at_ns) {
                course.look(at_ns, [(site(1), at_ns as f64), (site(2), 1.0)].into_iter().collect());
                looks += 1;
            }
            at_ns += 700_000;
        }
        assert!(course.looks.len() <= MOST && looks < 2000, "{} {looks}", course.looks.len());
        assert!(course.at(0).is_none());
        let look = course.at(50_000_000_000).expect("a look");
        assert!(
            (49e9..=50e9).contains(&look.of(site(1))) && look.bytes() == look.of(site(1)) + 1.0,
            "{look:?}"
        );
        // Too small, and never there.
        assert_eq!((look.of(site(2)), look.of(site(3))), (0.0, 0.0));
        // The end, where most was freed, is the last look and not the largest one.
        let looks = course.looks.len();
        (0..1000).for_each(|_| course.look(100_000_000_000, [(site(2), 1.0)].into_iter().collect()));
        assert!(course.looks.len() <= looks + 1, "{}", course.looks.len());
        assert_eq!((course.last().of(site(2)), course.last().bytes()), (1.0, 1.0));
        assert!(course.most().of(site(1)) > 99e9 && course.is_known());
    }
}
