//! What a column takes.

use rusqlite::types::Value;

/// Something that a column can hold; `None` is NULL.
pub trait IntoValue {
    /// As SQLite has it.
    fn value(self) -> Value;
}

impl IntoValue for i64 {
    fn value(self) -> Value {
        Value::Integer(self)
    }
}

/// SQLite's integers have a sign: addresses in the upper half of all become negative, and `printf('%x', …)` shows them right.
impl IntoValue for u64 {
    fn value(self) -> Value {
        Value::Integer(self.cast_signed())
    }
}

impl IntoValue for u32 {
    fn value(self) -> Value {
        i64::from(self).value()
    }
}

impl IntoValue for i32 {
    fn value(self) -> Value {
        i64::from(self).value()
    }
}

impl IntoValue for u8 {
    fn value(self) -> Value {
        i64::from(self).value()
    }
}

impl IntoValue for bool {
    fn value(self) -> Value {
        i64::from(self).value()
    }
}

impl IntoValue for f64 {
    fn value(self) -> Value {
        Value::Real(self)
    }
}

impl IntoValue for &str {
    fn value(self) -> Value {
        Value::Text(self.to_owned())
    }
}

impl IntoValue for String {
    fn value(self) -> Value {
        Value::Text(self)
    }
}

impl<T: IntoValue> IntoValue for Option<T> {
    fn value(self) -> Value {
        self.map_or(Value::Null, IntoValue::value)
    }
}

/// A row of such.
macro_rules! row {
    ($($value:expr),* $(,)?) => { vec![$(crate::value::IntoValue::value($value)),*] };
}
pub(crate) use row;
