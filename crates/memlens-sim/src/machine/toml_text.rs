//! Descriptions as TOML text, and those that ship.

use super::description::{MachineDescription, ModelError};
use super::host;
use super::nearest_word::nearest_word;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// The shipped descriptions by name; `host` is read from the CPU instead.
const SHIPPED: [(&str, &str); 6] = [
    ("cachegrind", include_str!("../../machines/cachegrind.toml")),
    ("e5504", include_str!("../../machines/e5504.toml")),
    ("e5-2620v2", include_str!("../../machines/e5-2620v2.toml")),
    ("intel-sapphire-rapids", include_str!("../../machines/intel-sapphire-rapids.toml")),
    ("amd-zen4", include_str!("../../machines/amd-zen4.toml")),
    ("arm-neoverse-v2", include_str!("../../machines/arm-neoverse-v2.toml")),
];

/// Why there is no such machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MachineError {
    /// No machine of this name ships.
    #[error("no machine is called \"{name}\"{}", did_you_mean(nearest.as_deref()))]
    UnknownName {
        /// The name asked for.
        name: String,
        /// The nearest one that ships.
        nearest: Option<String>,
    },
    /// The text is not a description.
    #[error("line {line}, column {column}: {message}{}", did_you_mean(nearest.as_deref()))]
    Toml {
        /// Line of the problem, from 1.
        line: usize,
        /// Column of the problem in characters, from 1.
        column: usize,
        /// The problem.
        message: String,
        /// The nearest valid word if one was misspelt.
        nearest: Option<String>,
    },
    /// The numbers make no machine.
    #[error(transparent)]
    Model(#[from] ModelError),
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map(|nearest| alloc::format!("; did you mean \"{nearest}\"?")).unwrap_or_default()
}

impl MachineDescription {
    /// Names that [`MachineDescription::named`] knows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ["host"].into_iter().chain(SHIPPED.iter().map(|&(name, _)| name))
    }

    /// A shipped machine, or `host`. `cachegrind` takes the geometry of this CPU as cachegrind
    /// does. Reads CPUID and `/sys` for these two.
    pub fn named(name: &str) -> Result<Self, MachineError> {
        if name == "host" {
            return Ok(Self::host(&host::read_file));
        }
        let Some((_, text)) = SHIPPED.iter().find(|(shipped, _)| *shipped == name) else {
            let nearest = nearest_word(name, Self::names()).map(ToString::to_string);
            return Err(MachineError::UnknownName { name: name.to_string(), nearest });
        };
        let mut machine = Self::from_toml(text)?;
        if name == "cachegrind" {
            host::take_cachegrind_geometry(&mut machine);
        }
        Ok(machine)
    }

    /// The computer whose files `read` gives as texts, by their paths in `/sys` and `/proc`, and whose CPUID is this
    /// one's. What they do not tell, and what no model can have, is assumed and noted.
    pub fn host(read: &dyn Fn(&str) -> Option<String>) -> Self {
        host::host(read)
    }

    /// Of a virtual machine, models that part of the last level that its processors are likely to be served: what the hypervisor tells of
    /// is the whole one of a processor that others use, too. Elsewhere nothing is changed.
    pub fn assume_llc_share(&mut self) {
        host::assume_share(self);
    }

    /// Of a virtual machine, takes its page walks for what they usually cost there: page tables are translated once more.
    pub fn assume_walks(&mut self) {
        host::assume_walks(self);
    }

    /// Parses and validates a description.
    pub fn from_toml(text: &str) -> Result<Self, MachineError> {
        let machine: Self = toml::from_str(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start).min(text.len());
            let before = text.get(..start).unwrap_or_default();
            let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
            MachineError::Toml {
                line: before.matches('\n').count() + 1,
                column: before[line_start..].chars().count() + 1,
                nearest: nearest_expected(error.message()),
                message: error.message().to_string(),
            }
        })?;
        machine.validate()?;
        Ok(machine)
    }
}

/// serde's messages quote the wrong word first and then all valid ones: "unknown field `wais`,
/// expected one of `bytes`, `ways`".
fn nearest_expected(message: &str) -> Option<String> {
    if !message.starts_with("unknown ") {
        return None;
    }
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let (word, expected) = quoted.split_first()?;
    nearest_word(word, expected.iter().copied()).map(ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_machine_parses_and_is_called_as_its_file() {
        for (name, text) in SHIPPED {
            let machine =
                MachineDescription::from_toml(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(machine.name, name);
            let caches = [Some(&machine.l1i), Some(&machine.l1d), machine.l2.as_ref(), Some(&machine.llc)];
            for cache in caches.into_iter().flatten() {
                assert!(!cache.source.is_empty(), "{name}: a number without a source");
            }
        }
    }

    #[test]
    fn pages_of_another_size_are_refused() {
        let text = SHIPPED.iter().find(|(name, _)| *name == "e5504").expect("ships").1;
        let text = text.replace("page_bytes = 4096", "page_bytes = 65536");
        let error = MachineDescription::from_toml(&text).expect_err("not modelled").to_string();
        assert!(error.contains("page_bytes: 65536 is not 4096"), "{error}");
    }

    #[test]
    fn misspelt_words_are_placed_and_corrected() {
        let text =
            "name = \"x\"\nline_bytes = 64\npage_bytes = 4096\ncores = 1\n[l1i]\nbytes = 32768\nwais = 8\n";
        let error = MachineDescription::from_toml(text).expect_err("misspelt");
        let MachineError::Toml { line, column, nearest, .. } = &error else { panic!("{error}") };
        assert_eq!((*line, *column, nearest.as_deref()), (7, 1, Some("ways")));
        let error = MachineDescription::named("e5540").expect_err("misspelt");
        assert_eq!(error.to_string(), "no machine is called \"e5540\"; did you mean \"e5504\"?");
    }

    #[test]
    fn host_and_cachegrind_are_valid_here() {
        for name in ["host", "cachegrind"] {
            let machine = MachineDescription::named(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(machine.validate(), Ok(()), "{name}: {machine:?}");
        }
    }
}
