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
    /// A function whose name ends so.
    longer: Option<String>,
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
        all.map(|(option, name)| Self { option, name, has_clones: false, longer: None }).collect()
    }

    /// Whether a module has it.
    pub fn is_met_in(&mut self, symbols: &Module) -> bool {
        let name = [self.name.as_str()];
        let has_clones = !symbols.clone_entry_points(&name).is_empty();
        self.has_clones |= has_clones;
        let (by_source, longer) = symbols.source_entry_points(&name);
        self.longer = self.longer.take().or_else(|| longer.into_iter().next()?);
        // Of an allocation function the arguments must be known.
        let is_known = !symbols.entry_points(&name).is_empty() || !by_source.is_empty();
        is_known || (has_clones && self.option != ALLOC_FN)
    }

    /// What a reader of the profile has to know.
    pub fn note(&self) -> String {
        let Self { option, name, has_clones, longer } = self;
        match (has_clones, longer) {
            (false, None) => {
                format!(
                    "{option} {name}: no module that was loaded has a function of that name, or its code is only in its callers (inlined)."
                )
            }
            (false, Some(longer)) => format!(
                "{option} {name}: no module that was loaded has a function of that name; did you mean {longer}?"
            ),
            (true, _) => format!(
                "{option} {name}: there are only copies of it that the compiler made with other arguments; it is not watched."
            ),
        }
    }
}
