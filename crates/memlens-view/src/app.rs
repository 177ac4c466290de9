//! What is shown, and what keys do to it.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Instant;

use memlens_profile::Profile;
use memlens_report::{
    By, Column, Line, Page, Target, View, groupings, header_page, over_time_page, summary_page, table_page,
    target_page,
};
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::paint;
use crate::picker::Picker;
use crate::prose;
use crate::sheet::{RowKey, Sheet};
use crate::source::Recorded;

/// How an [`App`] begins.
#[derive(Clone, Debug, Default)]
pub struct AppOptions {
    /// What a row of the first table stands for.
    pub by: By,
    /// What it is sorted by; `None`: as [`View::sort`].
    pub sort: Option<Column>,
    /// Whether to use the terminal's colours; without, only bold, dim and reversed text.
    pub colour: bool,
}

/// What is to be done after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Nothing but drawing.
    Draw,
    /// [`App::advise`] is waited for.
    Advise,
    /// [`App::reload`] is.
    Reload,
    /// The process stops, as of other programs by the terminal's key for it, and goes on where it was.
    Suspend,
    /// The end.
    Quit,
}

/// Rows of parts of the run's time.
const PARTS_OF_TIME: usize = 20;

/// What a page above the table shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    Target(Target),
    Advice(String),
    OverTime,
    Notes,
    Keys,
}

/// A page above the table.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) shown: Shown,
    pub(crate) sheet: Sheet,
    /// The width that it is laid out for.
    width: usize,
    /// Whether it has not been seen yet.
    is_new: bool,
}

/// The table.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) sheet: Sheet,
    /// What is known of it besides its lines, which are in the sheet.
    pub(crate) page: Page,
    /// What the run was, in two lines.
    pub(crate) summary: Vec<Line>,
    width: usize,
}

/// The state of the view. [`key`](App::key) changes it, [`draw`](App::draw) shows it.
#[derive(Debug)]
pub struct App {
    recorded: Recorded,
    pub(crate) colour: bool,
    pub(crate) tabs: Vec<By>,
    pub(crate) by: By,
    sort: Option<Column>,
    pub(crate) table: Table,
    /// The selected row of each grouping that was left.
    places: HashMap<&'static str, RowKey>,
    /// Pages above the table, the one in sight last.
    pub(crate) opened: Vec<Opened>,
    /// What stands for code in pages of objects and functions.
    code_by: By,
    pub(crate) picker: Option<Picker>,
    /// Whether letters are those of a filter.
    pub(crate) is_typing: bool,
    /// Something to say until the next key.
    pub(crate) message: Option<String>,
    /// Whether the mouse is the view's, and not the terminal's own.
    has_mouse: bool,
    /// When a click has opened something last.
    pub(crate) opened_by_click: Option<Instant>,
    /// Lines of the last picture that have rows of what is uppermost: the list of columns, else the sheet.
    pub(crate) lines_in_sight: Range<u16>,
    loaded: Instant,
    /// Of the last picture: columns and lines.
    size: Option<(usize, usize)>,
}

impl App {
    /// The table of a profile.
    pub fn new(recorded: Recorded, options: &AppOptions) -> Self {
        let mut tabs = groupings(&recorded.profile);
        if !tabs.contains(&options.by) {
            tabs.push(options.by);
        }
        Self {
            recorded,
            colour: options.colour,
            tabs,
            by: options.by,
            sort: options.sort,
            table: Table::default(),
            places: HashMap::new(),
            opened: Vec::new(),
            code_by: By::Line,
            picker: None,
            is_typing: false,
            message: None,
            has_mouse: false,
            opened_by_click: None,
            lines_in_sight: 0..0,
            loaded: Instant::now(),
            size: None,
        }
    }

    /// The profile that is shown.
    pub fn profile(&self) -> &Profile {
        &self.recorded.profile
    }

    /// Whether the program was being recorded when the profile was loaded.
    pub fn is_running(&self) -> bool {
        self.recorded.is_running
    }

    /// Whether [`mouse`](Self::mouse) wants the mouse's events.
    pub fn has_mouse(&self) -> bool {
        self.has_mouse
    }

    /// Whether the profile lacks the end of the run, and there will be no more of it: its recording was killed, or its program.
    pub(crate) fn is_cut(&self) -> bool {
        !self.is_running() && self.profile().attribution.truncated
    }

    /// Seconds since the profile was loaded.
    pub(crate) fn age_seconds(&self) -> u64 {
        self.loaded.elapsed().as_secs()
    }

    /// Shows the profile's next state in place of the last one. What is selected stays so, if it is there still.
    pub fn renew(&mut self, recorded: Recorded) {
        if self.is_running() && !recorded.is_running {
            let is_cut = recorded.profile.attribution.truncated;
            let how = if is_cut { " early: this is what there is of it" } else { ": this is all of it" };
            self.message = Some(format!("the recording has ended{how}"));
        }
        self.recorded = recorded;
        self.loaded = Instant::now();
        self.tabs = groupings(self.profile());
        if !self.tabs.contains(&self.by) {
            self.tabs.push(self.by);
        }
        self.table.width = 0;
        for opened in &mut self.opened {
            opened.width = 0;
        }
        // What is gone has no page any more; what was opened from there has not either.
        let profile = &self.recorded.profile;
        let is_there = |opened: &Opened| match &opened.shown {
            Shown::Target(target) => target_page(profile, target, &view(80, By::Line, None)).is_some(),
            Shown::OverTime => over_time_page(profile, &view(80, By::Object, None)).is_some(),
            _ => true,
        };
        let kept = self.opened.iter().take_while(|opened| is_there(opened)).count();
        self.opened.truncate(kept);
    }

    /// Shows what was read again, after [`Then::Reload`], or says why it could not be: the last state then stays.
    pub fn reload(&mut self, read: Result<Recorded, String>) {
        match read {
            Ok(recorded) => {
                self.message = Some("loaded again".to_owned());
                self.renew(recorded);
            }
            Err(why) => self.message = Some(why),
        }
    }

    /// Shows advice, after [`Then::Advise`].
    pub fn advise(&mut self, advice: String) {
        self.open(Shown::Advice(advice));
    }

    /// Draws everything.
    pub fn draw(&mut self, frame: &mut Frame<'_>) {
        let area = frame.area();
        if area.width < paint::LEAST_COLUMNS || area.height < paint::LEAST_LINES {
            return paint::too_small(frame);
        }
        let (width, height) = (area.width.into(), area.height.into());
        self.size = Some((width, height));
        self.lay_out(width, height);
        paint::app(self, frame);
    }

    /// Lays out what is in sight, unless it is already, for so many columns.
    fn lay_out(&mut self, width: usize, height: usize) {
        let before = self.opened.len();
        while let Some(opened) = self.opened.last()
            && opened.width != width
        {
            let shown = opened.shown.clone();
            let lines = self.lines(&shown, width);
            match (lines, self.opened.last_mut()) {
                (Some(lines), Some(opened)) => {
                    let mut sheet = Sheet::page(lines);
                    sheet.continue_from(&opened.sheet);
                    if opened.is_new && matches!(shown, Shown::Target(Target::Objects { .. })) {
                        sheet.begin_at_last_table(height - paint::LINES_AROUND);
                    }
                    opened.is_new = false;
                    (opened.sheet, opened.width) = (sheet, width);
                }
                _ => {
                    self.opened.pop();
                }
            }
        }
        if self.opened.len() < before {
            self.message = Some("nothing of it was recorded".to_owned());
        }
        if self.opened.is_empty() && self.table.width != width {
            self.lay_out_table(width);
        }
    }

    fn lay_out_table(&mut self, width: usize) {
        let profile = &self.recorded.profile;
        let mut page = table_page(profile, &view(width, self.by, self.sort));
        // A grouping may have nothing in the column that another one is sorted by.
        if self.sort.is_some_and(|sort| !page.sortable.contains(&sort)) {
            page = table_page(profile, &view(width, self.by, None));
            let word = self.sort.map_or("", Column::as_str);
            self.message = Some(format!("none has {word}: sorted as usual"));
        }
        let mut sheet = Sheet::table(std::mem::take(&mut page.lines));
        sheet.continue_from(&self.table.sheet);
        if let Some(place) = self.places.remove(self.by.as_str()) {
            sheet.select(Some(&place));
        }
        let summary = summary_page(profile, &view(width, self.by, None)).lines;
        self.table = Table { sheet, page, summary, width };
    }

    /// The lines of a page; None: there is no such thing in the profile.
    fn lines(&self, shown: &Shown, width: usize) -> Option<Vec<Line>> {
        let profile = self.profile();
        let lines = match shown {
            Shown::Target(target) => target_page(profile, target, &view(width, self.code_by, None))?.lines,
            Shown::Advice(text) => prose::lines(text, width),
            Shown::OverTime => {
                let parts = Some(PARTS_OF_TIME);
                over_time_page(profile, &View { top: parts, ..view(width, By::Object, None) })?.lines
            }
            Shown::Notes => {
                header_page(profile, &View { all_notes: true, ..view(width, By::Object, None) }).lines
            }
            Shown::Keys => prose::keys(),
        };
        Some(prose::fit(lines, width))
    }

    fn open(&mut self, shown: Shown) {
        if self.opened.last().is_some_and(|opened| opened.shown == shown) {
            return;
        }
        self.opened.push(Opened { shown, sheet: Sheet::default(), width: 0, is_new: true });
    }

    /// What is in sight.
    pub(crate) fn sheet(&mut self) -> &mut Sheet {
        match self.opened.last_mut() {
            Some(opened) => &mut opened.sheet,
            None => &mut self.table.sheet,
        }
    }

    /// Forgets what was said, and lays out what is in sight by now: keys may come faster than pictures, and each is for what the one
    /// before led to.
    pub(crate) fn begin(&mut self) {
        self.message = None;
        if let Some((width, height)) = self.size {
            self.lay_out(width, height);
        }
    }

    /// Does what a key is for.
    pub fn key(&mut self, key: KeyEvent) -> Then {
        self.begin();
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && matches!(key.code, KeyCode::Char('c' | 'C')) {
            return Then::Quit;
        }
        if control {
            let is_stop = matches!(key.code, KeyCode::Char('z' | 'Z'));
            return if is_stop { Then::Suspend } else { Then::Draw };
        }
        if key.modifiers.contains(KeyModifiers::ALT) {
            // What a terminal sends for Escape and a letter, too, where they come at once.
            self.key(KeyCode::Esc.into());
            return self.key(key.code.into());
        }
        if self.picker.is_some() {
            self.key_of_picker(key.code);
            return Then::Draw;
        }
        if self.is_typing {
            self.key_of_filter(key.code);
            return Then::Draw;
        }
        match key.code {
            KeyCode::Up | KeyCode::Char('k') => self.sheet().step(false),
            KeyCode::Down | KeyCode::Char('j') => self.sheet().step(true),
            KeyCode::PageUp => self.sheet().page_step(false),
            KeyCode::PageDown | KeyCode::Char(' ') => self.sheet().page_step(true),
            KeyCode::Home | KeyCode::Char('g') => self.sheet().jump(false),
            KeyCode::End | KeyCode::Char('G') => self.sheet().jump(true),
            KeyCode::Enter => self.enter(),
            KeyCode::Esc if !self.sheet().filter().is_empty() => self.sheet().set_filter(""),
            KeyCode::Esc | KeyCode::Backspace if !self.opened.is_empty() => self.back(),
            KeyCode::Char('q') => {
                if self.opened.is_empty() {
                    return Then::Quit;
                }
                self.back();
            }
            KeyCode::Tab if !self.opened.is_empty() => self.sheet().table_step(true),
            KeyCode::BackTab if !self.opened.is_empty() => self.sheet().table_step(false),
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('a') => return Then::Advise,
            KeyCode::Char('m') => self.hand_over_mouse(),
            KeyCode::Char('r') => return Then::Reload,
            KeyCode::Char('n') => self.open(Shown::Notes),
            KeyCode::Char('t') => match self.lines(&Shown::OverTime, 80) {
                Some(_) => self.open(Shown::OverTime),
                None => self.message = Some("the profile does not tell when anything was done".to_owned()),
            },
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.open(Shown::Keys),
            _ if self.opened.is_empty() => self.key_of_table(key),
            code => self.key_of_page(code),
        }
        Then::Draw
    }

    fn key_of_table(&mut self, key: KeyEvent) {
        match key.code {
            KeyCode::Right | KeyCode::Tab => self.next_grouping(true),
            KeyCode::Left | KeyCode::BackTab => self.next_grouping(false),
            KeyCode::Char(digit @ '0'..='9') => {
                // 0 is the tenth.
                let at = (digit as usize + 9 - '0' as usize) % 10;
                if let Some(&by) = self.tabs.get(at) {
                    self.group(by);
                }
            }
            KeyCode::Char('s') => {
                self.picker = Some(Picker::new(&self.table.page.sortable, self.sort));
            }
            KeyCode::Char('<' | ',') => self.sort_beside(false),
            KeyCode::Char('>' | '.') => self.sort_beside(true),
            _ => {}
        }
    }

    fn key_of_page(&mut self, code: KeyCode) {
        let target = self.opened.last().map(|opened| &opened.shown);
        let is_object = match target {
            Some(Shown::Target(Target::Objects { .. })) => true,
            Some(Shown::Target(Target::Function(_))) => false,
            _ => return,
        };
        let by = match code {
            KeyCode::Char('l') => By::Line,
            KeyCode::Char('i') => By::Instruction,
            KeyCode::Char('f') if is_object => By::Function,
            KeyCode::Char('c') if is_object => By::Caller,
            _ => return,
        };
        if !self.tabs.contains(&by) {
            let why = by.missing_in(self.profile()).unwrap_or("a bus does not tell which code touches what");
            self.message = Some(why.to_owned());
            return;
        }
        self.code_by = by;
        for opened in &mut self.opened {
            opened.width = 0;
        }
    }

    fn key_of_picker(&mut self, code: KeyCode) {
        let Some(picker) = &mut self.picker else { return };
        match code {
            KeyCode::Up | KeyCode::Char('k') => picker.step(-1),
            KeyCode::Down | KeyCode::Char('j') => picker.step(1),
            KeyCode::PageUp => picker.step(-10),
            KeyCode::PageDown | KeyCode::Char(' ') => picker.step(10),
            KeyCode::Home | KeyCode::Char('g') => picker.step(isize::MIN),
            KeyCode::End | KeyCode::Char('G') => picker.step(isize::MAX),
            KeyCode::Enter => self.enter(),
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Char('q' | 's') => self.picker = None,
            _ => {}
        }
    }

    fn key_of_filter(&mut self, code: KeyCode) {
        let mut filter = self.sheet().filter().to_owned();
        match code {
            KeyCode::Enter | KeyCode::Down | KeyCode::Up => return self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                filter.clear();
            }
            KeyCode::Backspace if filter.is_empty() => return self.is_typing = false,
            KeyCode::Backspace => {
                filter.pop();
            }
            KeyCode::Char(letter) => filter.push(letter),
            _ => return,
        }
        self.sheet().set_filter(&filter);
    }

    /// To what is behind the selected row; with the list of columns open, to that order.
    pub(crate) fn enter(&mut self) {
        if let Some(picker) = self.picker.take() {
            return self.sort_by(picker.choices.get(picker.chosen).copied().flatten());
        }
        if let Some(target) = self.sheet().selected().and_then(|line| line.target.clone()) {
            self.open(Shown::Target(target));
        }
    }

    fn hand_over_mouse(&mut self) {
        self.has_mouse = !self.has_mouse;
        let what = match self.has_mouse {
            true => "a click selects a row, another one opens it; m gives the mouse back to the terminal",
            false => "the mouse selects text again",
        };
        self.message = Some(what.to_owned());
    }

    fn back(&mut self) {
        self.opened.pop();
        self.is_typing = false;
    }

    fn next_grouping(&mut self, to_the_right: bool) {
        let count = self.tabs.len();
        let at = self.tabs.iter().position(|by| *by == self.by).unwrap_or(0);
        let next = if to_the_right { at + 1 } else { at + count - 1 };
        if let Some(&by) = self.tabs.get(next % count.max(1)) {
            self.group(by);
        }
    }

    fn group(&mut self, by: By) {
        if by == self.by {
            return;
        }
        if let Some(key) = self.table.sheet.key() {
            self.places.insert(self.by.as_str(), key);
        }
        self.by = by;
        // Other rows: from the top, with the same filter.
        self.table.sheet = self.table.sheet.emptied();
        self.table.width = 0;
    }

    fn sort_by(&mut self, sort: Option<Column>) {
        self.sort = sort;
        self.table.width = 0;
    }

    /// To the next column that rows can be sorted by, in the order of the table as it is when nobody has chosen: a share that rows
    /// are sorted by goes to the front.
    fn sort_beside(&mut self, to_the_right: bool) {
        let page = &self.table.page;
        let usual = table_page(self.profile(), &view(self.table.width, self.by, None));
        let mut order: Vec<Column> = usual.columns.iter().map(|placed| placed.column).collect();
        order.retain(|column| usual.sortable.contains(column));
        let at = page.sort.and_then(|sort| order.iter().position(|column| *column == sort));
        let next = match at {
            Some(at) if to_the_right => at + 1,
            Some(at) => at.wrapping_sub(1),
            None => 0,
        };
        match order.get(next) {
            Some(&column) => self.sort_by((next > 0).then_some(column)),
            None => self.message = Some("there is no other column on this side".to_owned()),
        }
    }
}

/// All rows of a table, or of the tables of a page.
fn view(width: usize, by: By, sort: Option<Column>) -> View {
    View { width, colour: false, by, sort, top: None, trifles: true, all_notes: false }
}
