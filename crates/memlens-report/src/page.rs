//! What reports say as lines, for something that shows them itself.

use memlens_profile::Profile;

use crate::View;
use crate::column::Column;
use crate::header::{header, summary};
use crate::row::By;
use crate::styled::{Layout, Line};
use crate::table::rows_page;

/// Lines without a terminal's codes, whatever [`View::colour`] says.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Page {
    /// All lines. Their text is what the function of the same name without `_page` returns, without the header.
    pub lines: Vec<Line>,
    /// The columns of a table, from left to right, as far as there is room for them.
    pub columns: Vec<PlacedColumn>,
    /// Columns in which a row of the table has something.
    pub sortable: Vec<Column>,
    /// What the table is sorted by.
    pub sort: Option<Column>,
}

/// A column, and where it stands on the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedColumn {
    /// What it holds.
    pub column: Column,
    /// Its first place, from 0.
    pub from: usize,
    /// How many places it has.
    pub width: usize,
}

impl From<Layout> for Page {
    fn from(layout: Layout) -> Self {
        Self { lines: layout.lines(), ..Self::default() }
    }
}

/// The table of [`table`](crate::table()) without its header. Linear in the cells.
pub fn table_page(profile: &Profile, view: &View) -> Page {
    let (layout, page) = rows_page(profile, view);
    Page { lines: layout.lines(), ..page }
}

/// The header of [`table`](crate::table()).
pub fn header_page(profile: &Profile, view: &View) -> Page {
    header(profile, view).into()
}

/// What ran, how it was recorded and how it ended, in two lines.
pub fn summary_page(profile: &Profile, view: &View) -> Page {
    summary(profile, view.width).into()
}

/// The groupings that a profile has something for.
pub fn groupings(profile: &Profile) -> Vec<By> {
    let has_code = !profile.cells.is_empty() && !profile.is_of_bus();
    let has = |by: &By| match by {
        By::Object | By::Site | By::Kind => true,
        By::Instruction | By::Function | By::Line => has_code,
        By::Field => !profile.fields.is_empty(),
        By::Caller => !profile.path_cells.is_empty(),
        By::Thread => !profile.threads.is_empty(),
        By::Process => {
            let mut ids = profile.threads.iter().map(|thread| thread.pid.or(profile.run.pid));
            let first = ids.next();
            ids.any(|id| Some(id) != first)
        }
    };
    const ORDER: [By; 10] = [
        By::Object,
        By::Site,
        By::Function,
        By::Line,
        By::Instruction,
        By::Field,
        By::Caller,
        By::Thread,
        By::Process,
        By::Kind,
    ];
    ORDER.into_iter().filter(has).collect()
}
