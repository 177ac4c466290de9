//! `l1d=32768,8,64`: changes of a description by a line of text.

use super::description::{
    CacheDescription, Inclusion, MachineDescription, Policy, Rules, TlbDescription, TlbEntries,
};
use super::nearest_word::nearest_word;
use alloc::string::{String, ToString};
use core::fmt;

/// The words that may stand on the left of `=`.
const KEYS: [&str; 24] = [
    "l1i",
    "l1d",
    "l2",
    "llc",
    "i1",
    "d1",
    "ll",
    "l1i.policy",
    "l1d.policy",
    "l2.policy",
    "llc.policy",
    "dtlb",
    "dtlb.4k",
    "dtlb.2m",
    "dtlb.1g",
    "stlb",
    "stlb.4k",
    "stlb.2m",
    "stlb.1g",
    "walker",
    "prefetcher",
    "inclusion",
    "cores",
    "nodes",
];

/// What is wrong with an override, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverrideError {
    /// The whole override.
    pub text: String,
    /// Byte offset of what is wrong.
    pub offset: usize,
    /// The word that is wrong; empty if something is missing.
    pub word: String,
    /// What was expected there.
    pub expected: &'static str,
    /// The nearest valid word, if one is near.
    pub nearest: Option<&'static str>,
}

impl fmt::Display for OverrideError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, offset, word, expected, nearest } = self;
        write!(f, "in \"{text}\", column {}: ", offset + 1)?;
        match word.as_str() {
            "" => write!(f, "{expected} is missing")?,
            word => write!(f, "\"{word}\" is not {expected}")?,
        }
        match nearest {
            Some(nearest) => write!(f, "; did you mean \"{nearest}\"?"),
            None => Ok(()),
        }
    }
}

impl core::error::Error for OverrideError {}

/// A piece of an override that knows where it stands.
#[derive(Clone, Copy)]
struct Piece<'a> {
    whole: &'a str,
    offset: usize,
    word: &'a str,
}

impl<'a> Piece<'a> {
    fn error(self, expected: &'static str) -> OverrideError {
        OverrideError {
            text: self.whole.to_string(),
            offset: self.offset,
            word: self.word.to_string(),
            expected,
            nearest: None,
        }
    }

    fn one_of<T: Copy>(
        self,
        expected: &'static str,
        words: &[(&'static str, T)],
    ) -> Result<T, OverrideError> {
        words
            .iter()
            .find(|(word, _)| self.word.eq_ignore_ascii_case(word))
            .map(|&(_, value)| value)
            .ok_or_else(|| {
                let nearest = nearest_word(self.word, words.iter().map(|&(word, _)| word));
                OverrideError { nearest, ..self.error(expected) }
            })
    }

    /// A number, with `K`, `M` or `G` for powers of 1,024.
    fn number(self, expected: &'static str) -> Result<u64, OverrideError> {
        let digits = self.word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let shift = match self.word[digits.len()..].to_ascii_lowercase().as_str() {
            "" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            _ => return Err(self.error(expected)),
        };
        let number: u64 = digits.parse().map_err(|_| self.error(expected))?;
        number.checked_mul(1 << shift).filter(|&number| number > 0).ok_or_else(|| self.error(expected))
    }

    fn small_number(self, expected: &'static str) -> Result<u32, OverrideError> {
        u32::try_from(self.number(expected)?).map_err(|_| self.error(expected))
    }

    fn count(self, expected: &'static str) -> Result<u16, OverrideError> {
        u16::try_from(self.small_number(expected)?).map_err(|_| self.error(expected))
    }

    /// The pieces between commas.
    fn split(self) -> impl Iterator<Item = Piece<'a>> {
        let mut offset = self.offset;
        self.word.split(',').map(move |word| {
            let piece =
                Piece { offset: offset + (word.len() - word.trim_start().len()), word: word.trim(), ..self };
            offset += word.len() + 1;
            piece
        })
    }

    fn end(self) -> Piece<'a> {
        Piece { offset: self.whole.len(), word: "", ..self }
    }
}

impl MachineDescription {
    /// Changes one part of the machine.
    ///
    /// | text | effect |
    /// |---|---|
    /// | `l1d=49152,12,64` | size in bytes (`48K` works too), ways, line; also `l1i`, `l2`, `llc`, and cachegrind's `i1`, `d1`, `ll` |
    /// | `llc=32M,16,64,srrip` | the same with a policy: `lru`, `tree-plru`, `srrip`, `brrip`, `random`, `clock` |
    /// | `llc.policy=srrip` | the policy alone |
    /// | `l2=none` | no second level; also `dtlb=none`, `stlb=none` |
    /// | `dtlb=64,4` | entries, ways for 4 KiB pages; `dtlb.2m=…`, `stlb.1g=…` for others |
    /// | `dtlb=96,96,lru` | the same with a policy; without one as [`TlbEntries::policy`] says |
    /// | `walker=off` | no page walks |
    /// | `prefetcher=0` | so many streams of the hardware prefetcher; 0 = none |
    /// | `inclusion=exclusive` | or `inclusive`, `non-inclusive` |
    /// | `cores=8` | number of cores |
    /// | `nodes=2` | number of memory nodes (NUMA) |
    ///
    /// The numbers' consistency is checked by [`MachineDescription::validate`], because several
    /// overrides may be needed to get from one consistent machine to another.
    ///
    /// # Errors
    ///
    /// When it is none of these; the machine is as before then.
    pub fn apply_override(&mut self, text: &str) -> Result<(), OverrideError> {
        let mut changed = self.clone();
        changed.change(text)?;
        *self = changed;
        Ok(())
    }

    /// As [`Self::apply_override`], but an error may leave a part half-made.
    fn change(&mut self, text: &str) -> Result<(), OverrideError> {
        let whole = Piece { whole: text, offset: 0, word: text };
        let Some(equals) = text.find('=') else {
            return Err(OverrideError {
                nearest: nearest_word(text.trim(), KEYS).filter(|&word| !["", word].contains(&text.trim())),
                ..whole.end().error("\"=\" and a value")
            });
        };
        let key = Piece { word: &text[..equals], ..whole }.trimmed();
        let value = Piece { offset: equals + 1, word: text[equals + 1..].trim_end(), ..whole };
        let lower = key.word.to_ascii_lowercase();
        match lower.as_str() {
            "l2" if value.word.trim() == "none" => self.l2 = None,
            "dtlb" if value.word.trim() == "none" => (self.dtlb, self.stlb) = (None, None),
            "stlb" if value.word.trim() == "none" => self.stlb = None,
            "l1i" | "i1" => replace_cache(&mut self.l1i, value)?,
            "l1d" | "d1" => {
                replace_cache(&mut self.l1d, value)?;
                self.line_bytes = self.l1d.line;
            }
            "l2" => replace_cache(self.l2.get_or_insert_default(), value)?,
            "llc" | "ll" => {
                replace_cache(&mut self.llc, value)?;
                self.llc_told_bytes = 0;
            }
            "l1i.policy" => self.l1i.policy = value.policy()?,
            "l1d.policy" => self.l1d.policy = value.policy()?,
            "l2.policy" => match &mut self.l2 {
                Some(l2) => l2.policy = value.policy()?,
                None => return Err(key.error("a level of this machine")),
            },
            "llc.policy" => self.llc.policy = value.policy()?,
            "dtlb" | "dtlb.4k" => self.dtlb.get_or_insert_default().size_4k = Some(value.tlb_entries()?),
            "dtlb.2m" => self.dtlb.get_or_insert_default().size_2m = Some(value.tlb_entries()?),
            "dtlb.1g" => self.dtlb.get_or_insert_default().size_1g = Some(value.tlb_entries()?),
            "stlb" | "stlb.4k" => self.stlb.get_or_insert_default().size_4k = Some(value.tlb_entries()?),
            "stlb.2m" => self.stlb.get_or_insert_default().size_2m = Some(value.tlb_entries()?),
            "stlb.1g" => self.stlb.get_or_insert_default().size_1g = Some(value.tlb_entries()?),
            "walker" => {
                self.walker.enabled =
                    value.trimmed().one_of("\"on\" or \"off\"", &[("on", true), ("off", false)])?
            }
            "prefetcher" => {
                const EXPECTED: &str = "a number of streams, 0 for none";
                let value = value.trimmed();
                // No other number may be 0.
                let none = [("0", true), ("off", true)];
                let is_none = value.one_of(EXPECTED, &none).unwrap_or(false);
                self.prefetcher.streams = if is_none { 0 } else { value.small_number(EXPECTED)? };
            }
            "inclusion" => self.inclusion = value.trimmed().one_of("an inclusion mode", &Inclusion::WORDS)?,
            "cores" => self.cores = value.trimmed().count("a number of cores")?,
            "nodes" => self.nodes = value.trimmed().count("a number of memory nodes")?,
            _ => {
                let nearest = nearest_word(&lower, KEYS);
                return Err(OverrideError { nearest, ..key.error("a part of a machine") });
            }
        }
        Ok(())
    }
}

impl Piece<'_> {
    fn trimmed(self) -> Self {
        let word = self.word.trim_start();
        Piece { offset: self.offset + (self.word.len() - word.len()), word: word.trim_end(), ..self }
    }

    fn policy(self) -> Result<Policy, OverrideError> {
        self.trimmed().one_of("a replacement policy", &Policy::WORDS)
    }

    fn tlb_entries(self) -> Result<TlbEntries, OverrideError> {
        let mut pieces = self.split();
        let entries = pieces.next().unwrap_or(self.end()).small_number("a number of entries")?;
        let ways = pieces.next().unwrap_or(self.end()).small_number("a number of ways")?;
        let policy = pieces.next().map(Piece::policy).transpose()?;
        match pieces.next() {
            Some(extra) => Err(extra.error("the end of the override")),
            None => Ok(TlbEntries { entries, ways, policy }),
        }
    }
}

fn replace_cache(cache: &mut CacheDescription, value: Piece<'_>) -> Result<(), OverrideError> {
    let mut pieces = value.split();
    let mut next = || pieces.next().unwrap_or(value.end());
    let bytes = next().number("a size in bytes")?;
    let ways = next().small_number("a number of ways (16 in 32M,16,64)")?;
    let line = next().small_number("a line size in bytes")?;
    let policy = match pieces.next() {
        Some(word) => word.policy()?,
        None => cache.policy,
    };
    if let Some(extra) = pieces.next() {
        return Err(extra.error("the end of the override"));
    }
    *cache =
        CacheDescription { bytes, ways, line, policy, source: "command line".to_string(), ..cache.clone() };
    Ok(())
}

impl MachineDescription {
    /// Two levels or three with LRU, no TLBs: a start for descriptions built in code.
    pub fn of_caches(
        l1i: CacheDescription,
        l1d: CacheDescription,
        l2: Option<CacheDescription>,
        llc: CacheDescription,
    ) -> Self {
        Self {
            name: "custom".to_string(),
            description: String::new(),
            line_bytes: l1d.line,
            page_bytes: 4096,
            cores: 1,
            rules: Rules::Memlens,
            inclusion: Inclusion::NonInclusive,
            dram_latency_cycles: 0,
            transfer_latency_cycles: 0,
            nodes: 0,
            remote_latency_cycles: 0,
            stlb_latency_cycles: 0,
            walk_access_cycles: 0,
            l1i,
            l1d,
            l2,
            llc,
            dtlb: None::<TlbDescription>,
            stlb: None,
            walker: Default::default(),
            prefetcher: Default::default(),
            llc_told_bytes: 0,
            core: None,
            notes: Default::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> MachineDescription {
        let cache = CacheDescription::new(32768, 8, 64);
        MachineDescription::of_caches(cache.clone(), cache.clone(), Some(cache.clone()), cache)
    }

    #[test]
    fn changes_what_it_names() {
        let mut machine = machine();
        for text in [
            "l1d=48K,12,64",
            " llc = 32M , 16 , 64 , srrip",
            "l2=none",
            "dtlb=72,72",
            "stlb.2m=1024,8",
            "stlb.1g=64,64,lru",
            "walker=on",
            "prefetcher=16",
        ] {
            machine.apply_override(text).unwrap_or_else(|error| panic!("{error}"));
        }
        assert_eq!((machine.l1d.bytes, machine.l1d.ways), (49152, 12));
        assert_eq!((machine.llc.bytes, machine.llc.policy), (32 << 20, Policy::Srrip));
        assert_eq!(machine.l2, None);
        assert_eq!(machine.dtlb.as_ref().and_then(|tlb| tlb.size_4k), Some(TlbEntries::new(72, 72)));
        assert_eq!(machine.stlb.as_ref().and_then(|tlb| tlb.size_2m), Some(TlbEntries::new(1024, 8)));
        let policy = |tlb: Option<TlbEntries>| tlb.map(|tlb| tlb.policy());
        assert_eq!(policy(machine.dtlb.as_ref().and_then(|tlb| tlb.size_4k)), Some(Policy::Clock));
        assert_eq!(policy(machine.stlb.as_ref().and_then(|tlb| tlb.size_2m)), Some(Policy::Lru));
        assert_eq!(policy(machine.stlb.as_ref().and_then(|tlb| tlb.size_1g)), Some(Policy::Lru));
        assert!(machine.walker.enabled && machine.prefetcher.streams == 16);
        for none in ["prefetcher=0", "prefetcher=off"] {
            machine.prefetcher.streams = 16;
            machine.apply_override(none).expect(none);
            assert_eq!(machine.prefetcher.streams, 0, "{none}");
        }
        assert!(machine.apply_override("prefetcher=-1").is_err());
        assert_eq!(machine.validate(), Ok(()));
    }

    #[test]
    fn errors_name_the_place_and_the_nearest_word() {
        let cases = [
            (
                "l1x=32768,8,64",
                "in \"l1x=32768,8,64\", column 1: \"l1x\" is not a part of a machine; did you mean \"l1i\"?",
            ),
            (
                "l1d=32768,x,64",
                "in \"l1d=32768,x,64\", column 11: \"x\" is not a number of ways (16 in 32M,16,64)",
            ),
            ("l1d=32768,8", "in \"l1d=32768,8\", column 12: a line size in bytes is missing"),
            (
                "llc=1M,8,64,lruu",
                "in \"llc=1M,8,64,lruu\", column 13: \"lruu\" is not a replacement policy; did you mean \"lru\"?",
            ),
            (
                "walker=onn",
                "in \"walker=onn\", column 8: \"onn\" is not \"on\" or \"off\"; did you mean \"on\"?",
            ),
            ("dtlb=64,4,4", "in \"dtlb=64,4,4\", column 11: \"4\" is not a replacement policy"),
            ("dtlb=64,4,lru,4", "in \"dtlb=64,4,lru,4\", column 15: \"4\" is not the end of the override"),
            (
                "  l1x=32768,8,64",
                "in \"  l1x=32768,8,64\", column 3: \"l1x\" is not a part of a machine; did you mean \"l1i\"?",
            ),
            ("cores= 99999", "in \"cores= 99999\", column 8: \"99999\" is not a number of cores"),
            ("l1d", "in \"l1d\", column 4: \"=\" and a value is missing"),
            ("", "in \"\", column 1: \"=\" and a value is missing"),
            ("l1x", "in \"l1x\", column 4: \"=\" and a value is missing; did you mean \"l1i\"?"),
        ];
        for (text, message) in cases {
            let error = machine().apply_override(text).expect_err(text);
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn what_fails_changes_nothing() {
        let mut bare = machine();
        bare.l2 = None;
        for text in ["l2=32768,8", "dtlb=64", "stlb.2m=x,4", "l1d=1M,8,64,lruu"] {
            let mut machine = bare.clone();
            machine.apply_override(text).expect_err(text);
            assert_eq!(machine, bare, "{text}");
        }
    }
}
