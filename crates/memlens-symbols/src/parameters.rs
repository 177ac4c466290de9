//! The names of a function's parameters, wherever they live.

use crate::module::Module;

impl Module {
    /// The parameters of the function that holds `svma`, in order, by name; `None` for unnamed ones.
    /// Empty without debug information.
    pub fn parameter_names(&self, svma: u64) -> Vec<Option<String>> {
        self.with_debug(|debug| {
            let Some((unit, die)) = debug.function_at(svma) else { return Vec::new() };
            let mut names = Vec::new();
            debug.children(&(unit.clone(), die), |tag, _, attributes| {
                if tag == gimli::DW_TAG_formal_parameter {
                    names.push(debug.name_of(&unit, attributes).map(str::to_owned));
                }
            });
            names
        })
    }
}
