//! Functions that SQLite knows only where it was built with them.

use rusqlite::Connection;
use rusqlite::functions::FunctionFlags;

/// A function's name and what it does.
type OfOne = (&'static str, fn(f64) -> f64);

const OF_ONE: [OfOne; 5] =
    [("sqrt", f64::sqrt), ("ln", f64::ln), ("log2", f64::log2), ("log10", f64::log10), ("exp", f64::exp)];

/// Adds them; of what has no value (`sqrt(-1)`) there is NULL.
pub fn add(connection: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    let known = |value: f64| Some(value).filter(|value| value.is_finite());
    for (name, function) in OF_ONE {
        connection.create_scalar_function(name, 1, flags, move |context| {
            Ok(context.get::<Option<f64>>(0)?.and_then(|value| known(function(value))))
        })?;
    }
    connection.create_scalar_function("pow", 2, flags, move |context| {
        let values = context.get::<Option<f64>>(0)?.zip(context.get::<Option<f64>>(1)?);
        Ok(values.and_then(|(base, exponent)| known(base.powf(exponent))))
    })
}
