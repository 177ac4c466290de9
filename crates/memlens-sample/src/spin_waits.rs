//! Which data threads wait for in loops, where, and for how long.
//!
//! A loop that looks at a variable until another thread changes it takes processor time and tells nothing of the memory: no
//! accesses stand for it (`bursts/between.rs`). But it says who waits for whom. Its time is that of ticks, looks and glances in it; only
//! ticks have the registers that tell which object it reads, so a function's time is divided among objects as its ticks were.

use std::collections::BTreeMap;

use memlens_profile::SpinWait;
use memlens_types::ObjectKind;
use rustc_hash::FxHashMap;

use crate::address_space::Code;
use crate::modules::Files;
use crate::naming::NamedObject;

/// What ticks in such loops found.
#[derive(Clone, Debug, Default)]
pub struct SpinTicks {
    /// By code and the object that is read there: processor time in ns. Those between two reads, which tell of none, are passed over.
    ticks: FxHashMap<(Code, String), f64>,
}

/// A loop's function.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Function {
    name: Option<String>,
    file: Option<String>,
}

impl SpinTicks {
    /// A tick that stands for so much processor time, in ns.
    pub fn add(&mut self, code: Code, object: NamedObject, time_ns: u64) {
        if !matches!(object.kind, ObjectKind::Unknown | ObjectKind::Computation) {
            *self.ticks.entry((code, object.name)).or_default() += time_ns as f64;
        }
    }

    /// What follows for the run, longest first. `loops`: processor time in ns, and where.
    pub fn waits(&self, loops: impl Iterator<Item = (Code, f64)>, files: &Files) -> Vec<SpinWait> {
        self.waits_in(loops, |code| function_of(code, files))
    }

    fn waits_in(
        &self,
        loops: impl Iterator<Item = (Code, f64)>,
        function_of: impl Fn(Code) -> (Function, Option<u32>),
    ) -> Vec<SpinWait> {
        let mut times: BTreeMap<Function, (f64, BTreeMap<u32, f64>)> = BTreeMap::new();
        for (code, time_ns) in loops {
            let (function, line) = function_of(code);
            let (sum, lines) = times.entry(function).or_default();
            *sum += time_ns;
            line.into_iter().for_each(|line| *lines.entry(line).or_default() += time_ns);
        }
        let mut objects: BTreeMap<Function, BTreeMap<&str, f64>> = BTreeMap::new();
        for ((code, object), time_ns) in &self.ticks {
            *objects.entry(function_of(*code).0).or_default().entry(object).or_default() += time_ns;
        }
        let waits = times.into_iter().flat_map(|(function, (time_ns, lines))| {
            // The line with most of the time.
            let line = lines.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(line, _)| line);
            let found = objects.remove(&function).unwrap_or_default();
            let sum: f64 = found.values().sum();
            let parts: Vec<(Option<String>, f64)> = match sum > 0.0 {
                true => found.into_iter().map(|(object, ns)| (Some(object.to_owned()), ns / sum)).collect(),
                false => vec![(None, 1.0)],
            };
            parts.into_iter().map(move |(object, part)| SpinWait {
                object,
                function: function.name.clone(),
                file: function.file.clone(),
                line,
                seconds: part * time_ns / 1e9,
            })
        });
        SpinWait::together(waits.collect::<Vec<_>>())
    }
}

/// The function that some code is of, inlined ones left out, and the line in it.
fn function_of(code: Code, files: &Files) -> (Function, Option<u32>) {
    let symbols = code.0.and_then(|file| files.get(file)).and_then(|mapped| mapped.symbols());
    match symbols.and_then(|symbols| symbols.locate(code.1).pop()) {
        Some(frame) => (Function { name: frame.function, file: frame.file }, frame.line),
        None => (Function::default(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: f64 = 1e6;

    #[test]
    fn a_functions_time_is_divided_as_its_ticks_were() {
        let mut ticks = SpinTicks::default();
        let object = |kind, name: &str| NamedObject::new(kind, name);
        ticks.add((Some(0), 0x10), object(ObjectKind::Global, "head"), 3_000_000);
        ticks.add((Some(0), 0x14), object(ObjectKind::Heap, "tail"), 1_000_000);
        // Behind the read, and in a pause.
        ticks.add((Some(0), 0x18), object(ObjectKind::Computation, "computation"), 50_000_000);
        // Lines are of four bytes, functions of 256.
        let place = |(_, svma): Code| {
            let name = format!("f{:x}", svma >> 8);
            (Function { name: Some(name), file: Some("a.c".to_owned()) }, Some(svma as u32 / 4))
        };
        let loops = [((Some(0), 0x10), 8.0 * MS), ((Some(0), 0x18), 12.0 * MS), ((Some(0), 0x100), 7.0 * MS)];
        let waits = ticks.waits_in(loops.into_iter(), place);
        let told: Vec<_> =
            waits.iter().map(|wait| (wait.object.as_deref(), wait.line, wait.seconds)).collect();
        assert_eq!(
            told,
            [(Some("head"), Some(6), 0.015), (None, Some(64), 0.007), (Some("tail"), Some(6), 0.005)]
        );
        assert!(ticks.waits_in(std::iter::empty(), place).is_empty());
    }
}
