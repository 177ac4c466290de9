//! Code without debug information: a stripped library is one function and one line in all tables.

use memlens_profile::Profile;

use crate::number::percent_of_share;

/// Part of all that is waited for that code of one file must have to be worth a word.
const LEAST_PART: f64 = 0.2;

/// What is not told of the file whose code waits most, for want of debug information; `None`: nothing to speak of. Linear in the code.
pub(crate) fn without_debug_information(profile: &Profile) -> Option<String> {
    let mut costs = vec![0u64; profile.modules.len()];
    let mut whole = 0;
    for code in &profile.code {
        let cost = profile.cost(&code.counts.get());
        whole += cost;
        if let Some(of_module) = code.module.and_then(|module| costs.get_mut(module.index())) {
            *of_module += cost;
        }
    }
    let bare = profile.modules.iter().zip(costs).filter(|(module, _)| !module.has_debug);
    let (module, cost) = bare.max_by_key(|&(_, cost)| cost)?;
    let part = cost as f64 / whole.max(1) as f64;
    (part >= LEAST_PART).then(|| {
        let fetched = match &module.build_id {
            Some(id) => format!(" or `debuginfod-find debuginfo {id}` brings it"),
            None => ", or a build with -g, brings it".to_owned(),
        };
        format!(
            "{} % of all that is waited for is in code of {}, of which there was no debug information: its lines, its variables, the \
             fields of its structures and often its functions have no names. Its package of debug symbols{fetched}, for the next recording.",
            percent_of_share(part),
            module.name(),
        )
    })
}

#[cfg(test)]
mod tests {
    use memlens_profile::{CodeLocation, Module, ModuleIx};
    use memlens_types::Counts;

    use super::*;

    #[test]
    fn the_costliest_file_without_debug_information_is_told() {
        let module = |path: &str, has_debug: bool| Module {
            path: path.into(),
            build_id: path.ends_with("b.so").then(|| "00ff".into()),
            has_debug,
        };
        let code = |module: u32, loads: u64| CodeLocation {
            module: Some(ModuleIx(module)),
            counts: Counts { loads, ..Counts::default() }.into(),
            ..CodeLocation::default()
        };
        let told = |loads: [u64; 3]| {
            without_debug_information(&Profile {
                modules: vec![
                    module("/bin/app", true),
                    module("/lib/b.so", false),
                    module("/lib/c.so", false),
                ],
                code: (0..).zip(loads).map(|(at, loads)| code(at, loads)).collect(),
                ..Profile::default()
            })
        };
        let note = told([500, 300, 200]).expect("a third is in a file without");
        assert!(note.starts_with("30.0 % of all that is waited for is in code of b.so"), "{note}");
        assert!(note.contains("debuginfod-find debuginfo 00ff"), "{note}");
        assert!(
            told([100, 200, 700])
                .is_some_and(|note| note.contains("of c.so") && note.contains("a build with -g"))
        );
        assert_eq!(told([900, 60, 40]), None);
        assert_eq!(told([0, 0, 0]), None);
    }
}
