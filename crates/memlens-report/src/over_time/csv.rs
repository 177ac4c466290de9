//! For spreadsheets: a row for each slice and object.

use std::io::{self, Write};

use memlens_profile::Profile;

use crate::csv::quoted;

/// What objects did in each slice of the run's time, those together that have less than a thousandth of it without a number and a name. A
/// profile without slices has no rows.
///
/// # Errors
/// When writing fails.
pub fn over_time_csv(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    write!(out, "slice,begin,end,id,name,kind,cost,dram_reads,live_bytes\r\n")?;
    let shown = |value: Option<u64>| value.map_or(String::new(), |value| value.to_string());
    for part in &profile.slice_uses {
        let Some(slice) = profile.slices.get(part.slice.index()) else { continue };
        let object = part.object.and_then(|object| profile.objects.get(object.index()));
        let (id, name, kind) = match object {
            Some(object) => (object.id.to_string(), quoted(&object.name), object.kind.as_str()),
            None => (String::new(), String::new(), ""),
        };
        write!(
            out,
            "{},{},{},{id},{name},{kind},{},{},{}\r\n",
            part.slice.index() + 1,
            slice.begin,
            slice.end,
            part.cost,
            shown(part.dram_reads),
            shown(part.live_bytes)
        )?;
    }
    Ok(())
}
