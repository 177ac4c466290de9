//! The tables' documentation, from the same description that writes and reads them.

use std::fmt::Write;

use super::columns::{ColumnSchema, Row, schema_of};
use crate::{
    AccessPattern, CallPath, Cell, CodeLocation, Field, FieldUse, Frame, Mark, Module, Object, ObjectPattern,
    PathCell, Slice, SliceUse, Stack, Thread,
};

/// Names of all tables, and of those of older versions, whose files are a profile's, too.
pub(crate) const KNOWN_TABLES: [&str; 17] = [
    Module::TABLE,
    Frame::TABLE,
    Stack::TABLE,
    Object::TABLE,
    CodeLocation::TABLE,
    Cell::TABLE,
    AccessPattern::TABLE,
    ObjectPattern::TABLE,
    Field::TABLE,
    FieldUse::TABLE,
    CallPath::TABLE,
    PathCell::TABLE,
    Slice::TABLE,
    SliceUse::TABLE,
    Thread::TABLE,
    Mark::TABLE,
    "series",
];

/// The tables and columns of format version [`FORMAT_VERSION`](super::FORMAT_VERSION) as Markdown.
/// `docs/profile-format.md` holds exactly this text; a test compares them.
pub fn schema_markdown() -> String {
    let mut text = String::new();
    describe::<Module>(&mut text);
    describe::<Frame>(&mut text);
    describe::<Stack>(&mut text);
    describe::<Object>(&mut text);
    describe::<CodeLocation>(&mut text);
    describe::<Cell>(&mut text);
    describe::<AccessPattern>(&mut text);
    describe::<ObjectPattern>(&mut text);
    describe::<Field>(&mut text);
    describe::<FieldUse>(&mut text);
    describe::<CallPath>(&mut text);
    describe::<PathCell>(&mut text);
    describe::<Slice>(&mut text);
    describe::<SliceUse>(&mut text);
    describe::<Thread>(&mut text);
    describe::<Mark>(&mut text);
    text
}

fn describe<R: Row>(text: &mut String) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "### `{}`\n\n{}\n", R::TABLE, R::DOC);
    let _ = writeln!(text, "| column | type | meaning |\n|---|---|---|");
    for column in schema_of::<R>() {
        let ColumnSchema { name, doc, r#type, nullable } = column;
        let null = if nullable { ", nullable" } else { "" };
        let _ = writeln!(text, "| `{name}` | {}{null} | {doc} |", r#type.as_str());
    }
    text.push('\n');
}
