//! Functions that options name, and that the program may not have: whoever misspells one is told.

use memlens_objects::alloc_functions;
use memlens_symbols::Module;

use crate::block_table::Switch;

const ALLOC_FN: &str = "--alloc-fn";

/// A function that was named by an option and has not been found.
#[derive(Clone, Debug)]
pub struct UnmetName {
    option: &'static str,
    name: String,
    /// Whether there are copies of it whose arguments are others.
    has_clones: bool,
}

impl UnmetName {
    /// All that options name: allocation functions, and where collection is switched.
    pub fn all(alloc_functions: &[String], switches: &[(String, Switch)]) -> Vec<Self> {
        let of_allocators =
            alloc_functions::table(alloc_functions).into_iter().filter(|known| known.is_custom);
        let of_allocators = of_allocators.map(|known| (ALLOC_FN, known.name));
        let of_switches = switches.iter().filter_map(|(name, switch)| {
            let option = match switch {
                Switch::None => return None,
                Switch::Start => "--start-on",
                Switch::Stop => "--stop-on",
                Switch::Toggle => "--toggle-on",
            };
            Some((option, name.clone()))
        });
        let all = of_allocators.chain(of_switches);
        all.map(|(option, name)| Self { option, name, has_clones: false }).collect()
    }

    /// Whether a module has it.
    pub fn is_met_in(&mut self, symbols: &Module) -> bool {
        let name = [self.name.as_str()];
        let has_clones = !symbols.clone_entry_points(&name).is_empty();
        self.has_clones |= has_clones;
        // Of an allocation function the arguments must be known.
        !symbols.entry_points(&name).is_empty() || (has_clones && self.option != ALLOC_FN)
    }

    /// What a reader of the profile has to know.
    pub fn note(&self) -> String {
        let Self { option, name, has_clones } = self;
        match has_clones {
            false => format!("{option} {name}: no module that was loaded has a function of that name."),
            true => format!(
                "{option} {name}: there are only copies of it that the compiler made with other arguments; it is not watched."
            ),
        }
    }
}
