//! Lines that are scrolled and filtered, and of which one may be selected.
//!
//! ```text
//!  head     stays above: titles of columns
//!  body     scrolls; of it `shown` pass the filter, and of these `stops` can be selected. Where the titles of a
//!           table in it are out of sight above, they stand in the place of the first lines in sight
//!  foot     stays below: the total
//! ```

use std::ops::Range;

use memlens_report::{Line, LineKind, Style, Target};

/// A stop that is not further out of sight than this is selected; beyond, the lines move first, so that they can be read.
const NEAR: usize = 8;

/// What a row is known by when lines are laid out anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RowKey {
    /// What it is of.
    Target(Target),
    /// What it is called.
    Name(String),
}

impl RowKey {
    fn of(line: &Line) -> Self {
        let name =
            || line.spans.iter().find(|(style, _)| *style == Style::Bold).map(|(_, text)| text.clone());
        match &line.target {
            Some(target) => Self::Target(target.clone()),
            None => Self::Name(name().unwrap_or_else(|| line.text())),
        }
    }

    /// Whether a line's row is the same: fully, else (`loosely`) of the same name with other numbers.
    fn is_of(&self, line: &Line, loosely: bool) -> bool {
        match (self, &line.target) {
            (
                Self::Target(Target::Objects { ids, name }),
                Some(Target::Objects { ids: here, name: named }),
            ) => name == named && (loosely || ids.iter().any(|id| here.contains(id))),
            // Those of an object are all of it, whichever numbers it has by now.
            (Self::Target(Target::Path { frames, .. }), Some(Target::Path { frames: here, .. })) => {
                frames == here
            }
            _ => *self == Self::of(line),
        }
    }
}

/// See the head of this file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sheet {
    pub(crate) head: Vec<Line>,
    pub(crate) body: Vec<Line>,
    pub(crate) foot: Vec<Line>,
    /// Whether each row can be selected, and not only those that lead somewhere.
    is_table: bool,
    filter: String,
    shown: Vec<usize>,
    /// Places in `shown`.
    stops: Vec<usize>,
    /// A place in `stops`.
    selected: usize,
    /// The first one of `shown` that is in sight.
    top: usize,
    /// Lines of the body that are in sight.
    height: usize,
}

impl Sheet {
    /// Of a table: only its rows scroll. Where it has none, what is said in their place does.
    pub(crate) fn table(lines: Vec<Line>) -> Self {
        let mut sheet = Self { is_table: true, height: 1, ..Self::default() };
        let has_rows = lines.iter().any(|line| line.kind == LineKind::Row);
        for line in lines {
            match line.kind {
                LineKind::Titles => sheet.head.push(line),
                LineKind::Total => sheet.foot.push(line),
                LineKind::Row => sheet.body.push(line),
                _ if has_rows => {}
                _ => sheet.body.push(line),
            }
        }
        sheet.arrange();
        sheet
    }

    /// Of anything else: all of it scrolls.
    pub(crate) fn page(lines: Vec<Line>) -> Self {
        let mut sheet = Self { body: lines, height: 1, ..Self::default() };
        sheet.arrange();
        sheet
    }

    /// Selects the first row of the last table, where so many lines have it in sight: of an object that is the code that touches it.
    pub(crate) fn begin_at_last_table(&mut self, height: usize) {
        let mut is_row = false;
        let mut start = 0;
        for (at, line) in self.body.iter().enumerate() {
            let was_row = std::mem::replace(&mut is_row, line.kind == LineKind::Row);
            start = if is_row && !was_row { at } else { start };
        }
        let found = self.stops.iter().position(|&place| self.shown[place] == start);
        if let Some(found) = found.filter(|_| start < height) {
            self.selected = found;
        }
    }

    /// Finds out what passes the filter.
    fn arrange(&mut self) {
        let wanted = self.filter.to_lowercase();
        let passes = |line: &Line| {
            let is_row = line.kind == LineKind::Row;
            wanted.is_empty() || !is_row || has_text(line, &wanted)
        };
        self.shown = (0..self.body.len()).filter(|&at| passes(&self.body[at])).collect();
        let is_stop = |&place: &usize| {
            let line = &self.body[self.shown[place]];
            line.kind == LineKind::Row && (self.is_table || line.target.is_some())
        };
        self.stops = (0..self.shown.len()).filter(is_stop).collect();
        self.selected = self.selected.min(self.stops.len().saturating_sub(1));
        self.top = self.top.min(self.last_top());
    }

    /// Shows only rows that have this text, in capitals or small letters; all with an empty one.
    pub(crate) fn set_filter(&mut self, filter: &str) {
        let key = self.key();
        self.filter = filter.to_owned();
        self.arrange();
        self.select(key.as_ref());
    }

    pub(crate) fn filter(&self) -> &str {
        &self.filter
    }

    /// How many rows there are, and how many pass the filter.
    pub(crate) fn rows(&self) -> (usize, usize) {
        let is_row = |line: &&Line| line.kind == LineKind::Row;
        let passing = self.shown.iter().map(|&at| &self.body[at]);
        (self.body.iter().filter(is_row).count(), passing.filter(is_row).count())
    }

    /// Which of the rows that can be selected is, from 1.
    pub(crate) fn position(&self) -> usize {
        if self.stops.is_empty() { 0 } else { self.selected + 1 }
    }

    /// The selected row.
    pub(crate) fn selected(&self) -> Option<&Line> {
        let place = *self.stops.get(self.selected)?;
        self.body.get(*self.shown.get(place)?)
    }

    /// What the selected row is known by.
    pub(crate) fn key(&self) -> Option<RowKey> {
        self.selected().map(RowKey::of)
    }

    /// Selects the row that is known by this, if it is there.
    pub(crate) fn select(&mut self, key: Option<&RowKey>) {
        let Some(key) = key else { return };
        let find =
            |loosely| self.stops.iter().position(|&place| key.is_of(&self.body[self.shown[place]], loosely));
        if let Some(found) = find(false).or_else(|| find(true)) {
            self.selected = found;
        }
        self.show_selected();
    }

    /// No lines, with the filter and the room of this one.
    pub(crate) fn emptied(&self) -> Self {
        Self { filter: self.filter.clone(), height: self.height, ..Self::default() }
    }

    /// Takes over where another sheet of the same lines was: the filter, the selected row, and how far it was scrolled.
    pub(crate) fn continue_from(&mut self, before: &Self) {
        self.filter.clone_from(&before.filter);
        self.height = before.height.max(1);
        self.selected = before.selected;
        self.arrange();
        self.top = before.top.min(self.last_top());
        if before.selected().is_some() && before.is_in_sight(before.selected) {
            self.select(before.key().as_ref());
        }
    }

    /// The lines in sight, each with whether it is selected, where so many have room.
    pub(crate) fn in_sight(&mut self, height: usize) -> impl Iterator<Item = (&Line, bool)> {
        if height != self.height {
            let was_in_sight = self.is_in_sight(self.selected);
            self.height = height.max(1);
            self.top = self.top.min(self.last_top());
            if was_in_sight {
                self.show_selected();
            }
        }
        let selected = self.stops.get(self.selected).copied();
        let titles = self.titles_above(self.top);
        let covered = titles.len();
        let places = titles.chain(self.top + covered..self.shown.len()).take(self.height);
        let (shown, body) = (&self.shown, &self.body);
        places.map(move |place| (&body[shown[place]], selected == Some(place)))
    }

    /// Whether there is something above and below what is in sight.
    pub(crate) fn is_cut(&self) -> (bool, bool) {
        (self.top > 0, self.top < self.last_top())
    }

    fn last_top(&self) -> usize {
        self.shown.len().saturating_sub(self.height)
    }

    fn is_in_sight(&self, stop: usize) -> bool {
        self.stops.get(stop).is_some_and(|&place| self.in_sight_places().contains(&place))
    }

    /// Places of the lines in sight, but for those that titles stand in the place of.
    fn in_sight_places(&self) -> Range<usize> {
        self.top + self.titles_above(self.top).len()..self.top + self.height
    }

    fn kind(&self, place: usize) -> Option<LineKind> {
        Some(self.body[*self.shown.get(place)?].kind)
    }

    /// Places of the titles of the table that a row is in; none for what is no row. Linear in the rows above.
    fn titles_above(&self, place: usize) -> Range<usize> {
        if self.is_table || self.kind(place) != Some(LineKind::Row) {
            return 0..0;
        }
        let is = |kind| move |above: &usize| self.kind(*above) == Some(kind);
        let end = place - (0..place).rev().take_while(is(LineKind::Row)).count();
        let titles = (0..end).rev().take_while(is(LineKind::Titles)).count();
        end - titles..end
    }

    /// Brings the selected row in sight, with the titles above it.
    fn show_selected(&mut self) {
        let Some(&place) = self.stops.get(self.selected) else { return };
        if place < self.in_sight_places().start {
            self.top = place.saturating_sub(self.titles_above(place).len().min(self.height - 1));
            // No part of titles alone.
            while self.kind(self.top) == Some(LineKind::Titles)
                && self.top.checked_sub(1).and_then(|above| self.kind(above)) == Some(LineKind::Titles)
            {
                self.top -= 1;
            }
        } else if place >= self.top + self.height {
            self.top = place + 1 - self.height;
        }
    }

    /// To the next row, or the one before. Where none is near, the lines move.
    pub(crate) fn step(&mut self, down: bool) {
        let next = if down { self.selected.checked_add(1) } else { self.selected.checked_sub(1) };
        let next = next.and_then(|next| Some((next, *self.stops.get(next)?)));
        let last = self.top + self.height;
        match next {
            Some((next, place)) if self.is_table || (place + NEAR >= self.top && place < last + NEAR) => {
                self.selected = next;
                self.show_selected();
            }
            _ if down => self.top = (self.top + 1).min(self.last_top()),
            _ => self.top = self.top.saturating_sub(1),
        }
    }

    /// Selects the row in this line of those in sight. Says whether it was selected already; None: there is none that can be.
    pub(crate) fn point_at(&mut self, line: usize) -> Option<bool> {
        // Behind the titles that stay in sight there are rows, too.
        if line < self.titles_above(self.top).len() {
            return None;
        }
        let stop = self.stops.binary_search(&(self.top + line)).ok()?;
        Some(std::mem::replace(&mut self.selected, stop) == stop)
    }

    /// To the first row of the next table that has some to select, or of the one before.
    pub(crate) fn table_step(&mut self, down: bool) {
        // A stop that begins a table: the one before it, if any, is not the line above.
        let begins = |at: &usize| {
            let above = self.stops[*at].checked_sub(1).map(|place| self.body[self.shown[place]].kind);
            above != Some(LineKind::Row)
        };
        let found = match down {
            true => (self.selected + 1..self.stops.len()).find(begins),
            false => (0..self.selected.min(self.stops.len())).rfind(begins),
        };
        self.selected = found.unwrap_or(self.selected);
        // From its titles on, unless a good part of it is in sight.
        if let Some(&place) = self.stops.get(self.selected)
            && place + NEAR > self.top + self.height
        {
            self.top = self.titles_above(place).start.min(self.last_top());
        }
        self.show_selected();
    }

    /// By as many lines as are in sight, less one.
    pub(crate) fn page_step(&mut self, down: bool) {
        let lines = self.in_sight_places().len().saturating_sub(1).max(1);
        if self.is_table {
            let last = self.stops.len().saturating_sub(1);
            let to = if down { self.selected + lines } else { self.selected.saturating_sub(lines) };
            self.selected = to.min(last);
            return self.show_selected();
        }
        self.top =
            if down { (self.top + lines).min(self.last_top()) } else { self.top.saturating_sub(lines) };
        let places = self.in_sight_places();
        let in_sight = |stop: &usize| places.contains(&self.stops[*stop]);
        let found = match down {
            _ if self.is_in_sight(self.selected) => None,
            true => (0..self.stops.len()).find(in_sight),
            false => (0..self.stops.len()).rfind(in_sight),
        };
        self.selected = found.unwrap_or(self.selected);
    }

    /// To the first row and line, or the last.
    pub(crate) fn jump(&mut self, to_end: bool) {
        self.selected = if to_end { self.stops.len().saturating_sub(1) } else { 0 };
        self.top = if to_end { self.last_top() } else { 0 };
    }
}

fn has_text(line: &Line, wanted: &str) -> bool {
    line.words.to_lowercase().contains(wanted) || line.text().to_lowercase().contains(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prose;

    /// Lines of text, rows where a letter is a capital one, and titles where it is a digit.
    fn page(letters: &str) -> Sheet {
        let line = |letter: char| {
            let mut line = prose::line(Style::Bold, letter);
            if letter.is_ascii_digit() {
                line.kind = LineKind::Titles;
            }
            if letter.is_uppercase() {
                line.kind = LineKind::Row;
                line.target = Some(Target::Function(letter.into()));
            }
            line
        };
        Sheet::page(letters.chars().map(line).collect())
    }

    fn sight(sheet: &mut Sheet, height: usize) -> String {
        let marked = |(line, selected): (&Line, bool)| {
            if selected { format!("[{}]", line.text()) } else { line.text() }
        };
        sheet.in_sight(height).map(marked).collect()
    }

    #[test]
    fn rows_are_stopped_at_and_long_texts_are_scrolled() {
        let mut sheet = page("aBCdefghijklmnopqrstuV");
        assert_eq!(sight(&mut sheet, 4), "a[B]Cd");
        sheet.step(true);
        assert_eq!(sight(&mut sheet, 4), "aB[C]d");
        // V is further away than can be seen at once.
        sheet.step(true);
        assert_eq!(sight(&mut sheet, 4), "B[C]de");
        (0..8).for_each(|_| sheet.step(true));
        assert_eq!(sight(&mut sheet, 4), "jklm");
        (0..2).for_each(|_| sheet.step(true));
        assert_eq!(sight(&mut sheet, 4), "stu[V]");
        sheet.step(false);
        assert_eq!(sight(&mut sheet, 4), "rstu");
        sheet.table_step(false);
        assert_eq!(sight(&mut sheet, 4), "[B]Cde");
        sheet.table_step(true);
        assert_eq!(sight(&mut sheet, 4), "stu[V]");
        sheet.jump(false);
        assert_eq!(sight(&mut sheet, 4), "a[B]Cd");
        sheet.page_step(true);
        assert_eq!(sight(&mut sheet, 4), "defg");
        sheet.page_step(false);
        assert_eq!(sight(&mut sheet, 4), "a[B]Cd");
    }

    #[test]
    fn titles_stay_above_the_rows_of_their_table() {
        let mut sheet = page("ab12ABCDEFc3GHd");
        assert_eq!(sight(&mut sheet, 5), "ab12[A]");
        (0..3).for_each(|_| sheet.step(true));
        assert_eq!(sight(&mut sheet, 5), "2ABC[D]");
        // B and C are behind the titles.
        (0..2).for_each(|_| sheet.step(true));
        assert_eq!(sight(&mut sheet, 5), "12DE[F]");
        (0..3).for_each(|_| sheet.step(false));
        assert_eq!(sight(&mut sheet, 5), "12[C]DE");
        sheet.step(false);
        assert_eq!(sight(&mut sheet, 5), "12A[B]C");
        sheet.step(false);
        assert_eq!(sight(&mut sheet, 5), "12[A]BC");
        sheet.table_step(true);
        assert_eq!(sight(&mut sheet, 5), "c3[G]Hd");
        sheet.page_step(false);
        assert_eq!(sight(&mut sheet, 5), "12E[F]c");
    }

    #[test]
    fn a_row_is_pointed_at_but_not_what_is_behind_titles() {
        let mut sheet = page("ab12ABCDEFc3GHd");
        assert_eq!(sight(&mut sheet, 5), "ab12[A]");
        assert_eq!([0, 3, 4, 5].map(|line| sheet.point_at(line)), [None, None, Some(true), Some(false)]);
        // B is selected now.
        (0..4).for_each(|_| sheet.step(true));
        // A to C are behind the titles.
        assert_eq!(sight(&mut sheet, 5), "12DE[F]");
        assert_eq!([0, 1, 2].map(|line| sheet.point_at(line)), [None, None, Some(false)]);
        assert_eq!(sight(&mut sheet, 5), "12[D]EF");
    }

    #[test]
    fn a_selected_row_stays_when_others_come_and_when_room_shrinks() {
        let mut sheet = page("ABCDEF");
        assert_eq!(sight(&mut sheet, 6), "[A]BCDEF");
        (0..4).for_each(|_| sheet.step(true));
        let mut next = page("XYABCDEF");
        next.continue_from(&sheet);
        assert_eq!(sight(&mut next, 6), "YABCD[E]");
        assert_eq!(sight(&mut next, 2), "D[E]");
        // Gone: the place counts.
        let mut gone = page("XY");
        gone.continue_from(&next);
        assert_eq!(sight(&mut gone, 2), "X[Y]");
    }

    #[test]
    fn a_filter_leaves_rows_with_a_text() {
        let mut sheet = page("ABAB");
        sheet.set_filter("b");
        assert_eq!((sheet.rows(), sight(&mut sheet, 9)), ((4, 2), "[B]B".to_owned()));
        sheet.set_filter("x");
        assert_eq!((sheet.rows(), sheet.selected().is_none(), sheet.position()), ((4, 0), true, 0));
        sheet.set_filter("");
        assert_eq!(sheet.rows(), (4, 4));
    }
}
