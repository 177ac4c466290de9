//! What keys do, and what is on the screen then.

#[path = "../../memlens-report/tests/bfs/mod.rs"]
mod bfs;
#[path = "../../memlens-report/tests/slices/mod.rs"]
mod slices;

use memlens_profile::{
    CallPath, Element, Field, FieldIx, FieldUse, FrameIx, ObjectIx, PathCell, PathIx, Profile, SamplingInfo,
};
use memlens_report::{By, Column, LineKind, View, table_page};
use memlens_types::{Counts, Sampled};
use memlens_view::{App, AppOptions, Recorded, Then};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::style::{Color, Modifier};

/// An app on a screen that can be read.
struct Seen {
    app: App,
    terminal: Terminal<TestBackend>,
}

impl Seen {
    fn of(profile: Profile, options: &AppOptions, (columns, lines): (u16, u16)) -> Self {
        let recorded = Recorded { profile, is_running: false };
        let terminal = Terminal::new(TestBackend::new(columns, lines)).expect("a screen");
        let mut seen = Self { app: App::new(recorded, options), terminal };
        seen.draw();
        seen
    }

    fn new() -> Self {
        Self::of(bfs::profile(), &AppOptions { colour: true, ..AppOptions::default() }, (120, 24))
    }

    fn draw(&mut self) {
        self.terminal.draw(|frame| self.app.draw(frame)).expect("drawn");
    }

    /// Presses keys, of which the last one is for this.
    fn press(&mut self, keys: &[KeyCode]) -> Then {
        let mut then = Then::Draw;
        for &key in keys {
            then = self.app.key(KeyEvent::new(key, KeyModifiers::NONE));
            self.draw();
        }
        then
    }

    fn letters(&mut self, letters: &str) -> Then {
        self.press(&letters.chars().map(KeyCode::Char).collect::<Vec<_>>())
    }

    /// Something that the mouse does at the line with some text. Says whether there was something to draw.
    fn mouse(&mut self, kind: MouseEventKind, text: &str) -> bool {
        let row =
            self.lines().iter().position(|line| line.contains(text)).expect("it is on the screen") as u16;
        let is_new = self.app.mouse(MouseEvent { kind, column: 9, row, modifiers: KeyModifiers::NONE });
        self.draw();
        is_new
    }

    fn click(&mut self, text: &str) {
        self.mouse(MouseEventKind::Down(MouseButton::Left), text);
        assert!(!self.mouse(MouseEventKind::Up(MouseButton::Left), ""));
    }

    fn lines(&self) -> Vec<String> {
        let buffer = self.terminal.backend().buffer();
        let row = |y| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..buffer.area.height).map(|y| row(y).trim_end().to_owned()).collect()
    }

    fn text(&self) -> String {
        self.lines().join("\n")
    }

    /// The row that is reversed; the last line, which always is, is none.
    fn selected(&self) -> Option<String> {
        let buffer = self.terminal.backend().buffer();
        let is_reversed = |y: &u16| buffer[(0, *y)].modifier.contains(Modifier::REVERSED);
        let y = (3..buffer.area.height - 1).find(is_reversed)?;
        Some(self.lines()[usize::from(y)].clone())
    }

    fn status(&self) -> String {
        self.lines().pop().unwrap_or_default()
    }
}

use KeyCode::{BackTab, Backspace, Char, Down, End, Enter, Esc, Home, Left, PageDown, Right, Tab, Up};

/// The rows of a table as text.
fn rows(profile: &Profile, by: By, sort: Option<Column>, width: usize) -> Vec<String> {
    let page = table_page(profile, &View { width, by, sort, top: None, trifles: true, ..View::default() });
    let rows = page.lines.iter().filter(|line| line.kind == LineKind::Row);
    rows.map(|line| line.text().trim_end().to_owned()).collect()
}

#[test]
fn the_table_is_that_of_the_report_with_the_run_above_and_the_total_below() {
    let seen = Seen::new();
    let lines = seen.lines();
    assert!(lines[0].starts_with("memlens    ./bfs"), "{}", lines[0]);
    assert!(lines[1].starts_with("run        exact mode · counted · "), "{}", lines[1]);
    assert!(lines[2].starts_with(" 1 object  2 site  3 function  4 line  5 instruction"), "{}", lines[2]);
    assert!(!lines[2].contains("caller") && !lines[2].contains("process"), "{}", lines[2]);
    let rows = rows(&bfs::profile(), By::Object, None, 120);
    let first = lines.iter().position(|line| *line == rows[0]).expect("the first row");
    assert_eq!(lines[first..first + rows.len()], rows);
    assert!(lines[first + rows.len() + 1].contains("total"), "{}", seen.text());
    assert_eq!(seen.selected().as_ref(), Some(&rows[0]));
    assert!(seen.status().starts_with(&format!(" 1 of {} · by share", rows.len())), "{}", seen.status());
}

#[test]
fn keys_lead_from_grouping_to_grouping() {
    let mut seen = Seen::new();
    let profile = bfs::profile();
    for (key, by) in [
        (Right, By::Site),
        (Tab, By::Function),
        (BackTab, By::Site),
        (Char('4'), By::Line),
        (Char('1'), By::Object),
        (Left, By::Kind),
        (Right, By::Object),
        (Char('9'), By::Object),
    ] {
        seen.press(&[key]);
        let rows = rows(&profile, by, None, 120);
        assert_eq!(seen.selected().as_ref(), rows.first(), "{key:?} {by:?}");
    }
    // A grouping that one comes back to is where it was left.
    for (columns, lines) in [(120, 24), (120, 13)] {
        seen.terminal.backend_mut().resize(columns, lines);
        seen.draw();
        seen.press(&[Home, Down, Down, Down, Down]);
        let selected = seen.selected();
        assert!(selected.is_some());
        seen.press(&[Right, Left]);
        assert_eq!(seen.selected(), selected);
    }
}

#[test]
fn what_nothing_has_is_no_order() {
    let options = AppOptions { sort: Some(Column::Samples), ..AppOptions::default() };
    let mut seen = Seen::of(bfs::profile(), &options, (120, 24));
    assert_eq!(seen.selected().as_ref(), rows(&bfs::profile(), By::Object, None, 120).first());
    assert!(seen.status().contains("none has samples: sorted as usual"), "{}", seen.status());
    seen.press(&[Down]);
    assert!(seen.status().contains("by share"), "{}", seen.status());
}

#[test]
fn a_row_is_selected_by_keys_and_stays_in_sight() {
    let options = AppOptions { by: By::Line, ..AppOptions::default() };
    let mut seen = Seen::of(bfs::profile(), &options, (100, 14));
    let rows = rows(&bfs::profile(), By::Line, None, 100);
    assert!(rows.len() > 5, "they have to be more than there is room for");
    let at = |seen: &Seen, row: usize| {
        assert_eq!(seen.selected().as_ref(), Some(&rows[row]), "{}", seen.text());
        let status = format!(" {} of {}", row + 1, rows.len());
        assert!(seen.status().starts_with(&status), "{}", seen.status());
    };
    for (keys, row) in [
        (&[Down, Char('j')][..], 2),
        (&[Up], 1),
        (&[End], rows.len() - 1),
        (&[Down], rows.len() - 1),
        (&[Char('k')], rows.len() - 2),
        (&[Home], 0),
        (&[Up], 0),
        (&[Char('G')], rows.len() - 1),
        (&[Char('g')], 0),
        (&[PageDown], 3),
        (&[PageDown, PageDown, PageDown], rows.len() - 1),
    ] {
        seen.press(keys);
        at(&seen, row);
    }
    // The total stays below them.
    assert!(seen.text().contains("total"));
}

#[test]
fn a_column_is_chosen_from_a_list_that_says_what_they_mean() {
    let mut seen = Seen::new();
    seen.press(&[Char('s')]);
    let text = seen.text();
    assert!(text.contains("sort by") && text.contains("as usual"), "{text}");
    assert!(text.contains("accesses weighted by the latency of the level that serves them"), "{text}");
    // Nothing has samples.
    assert!(!text.contains("samples that hit it"), "{text}");
    let to = |seen: &mut Seen, word: &str| {
        for _ in 0..60 {
            let chosen = seen.lines().iter().zip(0..).any(|(line, y)| {
                let cell = &seen.terminal.backend().buffer()[(10, y)];
                cell.modifier.contains(Modifier::REVERSED) && line.contains(word)
            });
            if chosen {
                return;
            }
            seen.press(&[Down]);
        }
        panic!("{word} is not in the list:\n{}", seen.text());
    };
    to(&mut seen, "│ loads  ");
    seen.press(&[Enter]);
    let sorted = rows(&bfs::profile(), By::Object, Some(Column::Loads), 120);
    assert_eq!(seen.selected().as_ref(), rows(&bfs::profile(), By::Object, Some(Column::Loads), 120).first());
    assert_ne!(sorted, rows(&bfs::profile(), By::Object, None, 120));
    let first = seen.lines().iter().position(|line| *line == sorted[0]).expect("the first row");
    assert_eq!(seen.lines()[first..first + sorted.len()], sorted);
    assert!(seen.status().contains("by loads"), "{}", seen.status());
    // The list begins at what is chosen, and can be left.
    seen.press(&[Char('s'), Up, Esc]);
    assert!(seen.status().contains("by loads") && !seen.text().contains("as usual"), "{}", seen.text());
}

#[test]
fn columns_beside_each_other_are_sorted_by_in_turn() {
    let mut seen = Seen::new();
    let mut by = Vec::new();
    for _ in 0..40 {
        let status = seen.status();
        let word = status.split("by ").nth(1).and_then(|rest| rest.split_whitespace().next());
        by.push(word.unwrap_or_else(|| panic!("{status}")).to_owned());
        seen.press(&[Char('>')]);
        if seen.status().contains("no other column") {
            break;
        }
    }
    assert!(by.len() > 5 && by.len() < 40, "{by:?}");
    assert_eq!(by[0], "share");
    for word in ["id", "name", "loads", "l1_miss_ratio"] {
        assert_eq!(by.iter().filter(|it| *it == word).count(), 1, "{word} in {by:?}");
    }
    (0..by.len()).for_each(|_| {
        seen.press(&[Char('<')]);
    });
    seen.press(&[Esc]);
    assert!(seen.status().contains("by share"), "{}", seen.status());
}

#[test]
fn rows_are_filtered_by_letters_as_they_are_typed() {
    let mut seen = Seen::new();
    let all = rows(&bfs::profile(), By::Object, None, 120);
    seen.letters("/LEVEL");
    let passing: Vec<&String> = all.iter().filter(|row| row.to_lowercase().contains("level")).collect();
    assert!(!passing.is_empty() && passing.len() < all.len());
    assert_eq!(seen.selected().as_ref(), Some(passing[0]));
    let told = format!(" /LEVEL   {} of {} rows", passing.len(), all.len());
    assert!(seen.status().starts_with(&told), "{}", seen.status());
    // Letters that are commands are letters here; what none has leaves none.
    seen.letters("q");
    assert!(seen.status().contains(&format!("0 of {} rows", all.len())) && seen.selected().is_none());
    seen.press(&[Backspace, Enter]);
    assert!(seen.status().starts_with(&format!(" 1 of {} with ‘LEVEL’", passing.len())), "{}", seen.status());
    // It holds for other groupings, and what is entered from here.
    seen.press(&[Right]);
    assert!(seen.status().contains("with ‘LEVEL’"), "{}", seen.status());
    // Without it the row that was selected is so still, wherever it stands.
    seen.press(&[Left]);
    let selected = seen.selected();
    seen.press(&[Esc]);
    assert!(seen.status().contains(&format!(" of {} · by", all.len())), "{}", seen.status());
    assert_eq!(seen.selected(), selected);
    // Escaping while typing does the same.
    seen.letters("/level");
    seen.press(&[Esc]);
    assert!(seen.status().contains(&format!("of {} · by", all.len())), "{}", seen.status());
}

#[test]
fn rows_lead_to_what_is_behind_them_and_back() {
    let mut seen = Seen::of(bfs::profile(), &AppOptions::default(), (120, 40));
    let first = seen.selected().expect("a row");
    seen.press(&[Enter]);
    let object = seen.text();
    assert!(seen.lines()[0].starts_with("by object › #") && object.contains("allocated at"), "{object}");
    // The code that touches it is where one is at first.
    let line = seen.selected().expect("a line of code");
    assert!(line.contains("bfs.c:6"), "{line}");
    seen.press(&[Enter]);
    assert!(seen.lines()[0].contains(" › bfs.c:6") && seen.text().contains("in function"), "{}", seen.text());
    // On to the function that it is in, which is the first row of the second table.
    let first_table = seen.selected();
    seen.press(&[Tab]);
    let second_table = seen.selected();
    seen.press(&[BackTab]);
    assert_eq!(seen.selected(), first_table);
    seen.press(&[Down, Down, Down, Up, Tab]);
    assert_ne!(seen.selected(), second_table, "a third one has the instructions");
    seen.press(&[BackTab]);
    assert!(seen.selected().is_some_and(|row| row.contains("bfs_from")), "{}", seen.text());
    seen.press(&[Enter]);
    assert!(seen.lines()[0].ends_with(" › bfs_from") && seen.text().contains("touches"), "{}", seen.text());
    for key in [Esc, Backspace] {
        assert_eq!(seen.press(&[key]), Then::Draw);
    }
    assert_eq!(seen.text(), object);
    assert_eq!(seen.letters("q"), Then::Draw);
    assert_eq!(seen.selected(), Some(first));
    assert_eq!(seen.press(&[Esc]), Then::Draw);
    assert_eq!(seen.letters("q"), Then::Quit);
    let control = |letter| KeyEvent::new(Char(letter), KeyModifiers::CONTROL);
    for keys in ["", "/abc", "s", "?"] {
        let mut seen = Seen::new();
        seen.letters(keys);
        assert_eq!(seen.app.key(control('z')), Then::Suspend, "after {keys}");
        assert_eq!(seen.app.key(control('c')), Then::Quit, "after {keys}");
    }
}

#[test]
fn a_row_of_which_nothing_was_recorded_says_so() {
    let mut seen = Seen::of(bfs::profile(), &AppOptions::default(), (120, 40));
    // main allocated the object, and touched nothing.
    seen.press(&[Enter, BackTab, Down]);
    let before = seen.text();
    assert!(seen.selected().is_some_and(|row| row.starts_with("main ")), "{before}");
    seen.press(&[Enter]);
    assert!(seen.status().contains("nothing of it was recorded"), "{}", seen.status());
    seen.press(&[KeyCode::Insert]);
    assert_eq!(seen.text(), before);
}

#[test]
fn of_a_thread_what_it_touched_is_behind_its_row() {
    let options = AppOptions { by: By::Thread, ..AppOptions::default() };
    let mut seen = Seen::of(bfs::profile(), &options, (120, 40));
    seen.press(&[Enter]);
    let text = seen.text();
    assert!(text.starts_with("by thread › thread 4711\nbfs (4711) · 100 % of the wait"), "{text}");
    assert!(text.contains(" column ") && text.contains("read_graph"), "{text}");
}

#[test]
fn of_an_object_lines_functions_instructions_or_callers_are_shown() {
    let mut seen = Seen::of(bfs::profile(), &AppOptions::default(), (120, 40));
    seen.press(&[Enter]);
    let has = |seen: &Seen, words: &str| seen.text().contains(words);
    // Of one function two lines touch it, and one of another.
    assert!(has(&seen, "2 lines\n") && has(&seen, "bfs.c:37"), "{}", seen.text());
    seen.letters("f");
    assert!(has(&seen, "2 functions\n") && !has(&seen, "bfs.c:61"), "{}", seen.text());
    seen.letters("i");
    assert!(has(&seen, "bfs+0x16") && has(&seen, "instructions\n"), "{}", seen.text());
    seen.letters("c");
    assert!(seen.status().contains("the profile has no call paths"), "{}", seen.status());
    assert!(has(&seen, "bfs+0x16"), "what was there stays: {}", seen.text());
    seen.letters("l");
    assert!(!has(&seen, "bfs+0x16") && has(&seen, "bfs.c:6"), "{}", seen.text());

    let mut profile = bfs::profile();
    profile.run.sampling = Some(SamplingInfo::default());
    for object in &mut profile.objects {
        object.counts.sampled.samples = 7;
    }
    profile.paths = vec![
        CallPath { parent: None, frame: FrameIx::from_index(0) },
        CallPath { parent: Some(PathIx::from_index(0)), frame: FrameIx::from_index(2) },
    ];
    let path = Some(PathIx::from_index(1));
    let object = ObjectIx::from_index(0);
    let sampled = Sampled { samples: 5, cost: 5, ..Sampled::default() };
    let counts = Counts { sampled, ..Counts::default() }.into();
    profile.path_cells = vec![PathCell { path, object, counts }];
    let options = AppOptions { sort: Some(Column::Name), ..AppOptions::default() };
    let name = profile.objects[0].name.clone();
    let mut seen = Seen::of(profile, &options, (120, 40));
    seen.letters(&format!("/{name}"));
    seen.press(&[Enter, Enter]);
    seen.letters("c");
    assert!(seen.text().contains("called from") && seen.text().contains("1 call path"), "{}", seen.text());
}

#[test]
fn advice_notes_and_keys_have_pages() {
    let mut profile = bfs::profile();
    profile.run.notes = vec!["A note that is told. ".repeat(40), "Second.".into(), "The third one.".into()];
    let mut seen = Seen::of(profile, &AppOptions::default(), (100, 24));
    assert_eq!(seen.letters("a"), Then::Advise);
    seen.app.advise("1. column waits: much\n   because of this\n   → do that\n".into());
    seen.draw();
    assert!(seen.text().contains("what to do\n1. column waits: much\n   because"), "{}", seen.text());
    seen.letters("q");
    seen.letters("n");
    seen.press(&[End]);
    assert!(seen.text().contains("The third one."), "{}", seen.text());
    seen.letters("q?");
    assert!(seen.text().contains("choose a column to sort by"), "{}", seen.text());
    // A second time is no second page.
    seen.letters("?q");
    assert!(seen.text().contains("total"), "{}", seen.text());
}

#[test]
fn what_was_when_has_a_page_from_which_objects_are_opened() {
    let mut seen = Seen::of(slices::with_slices(bfs::profile()), &AppOptions::default(), (120, 40));
    seen.letters("t");
    assert!(
        seen.text().contains("over time") && seen.text().contains("column 80 % · visited 20 %"),
        "{}",
        seen.text()
    );
    seen.press(&[KeyCode::Down, KeyCode::Enter]);
    assert!(seen.text().contains("touched by"), "{}", seen.text());
    seen.letters("qq");
    // Of another profile nothing is known.
    let mut seen = Seen::new();
    seen.letters("t");
    assert!(seen.text().contains("does not tell when anything was done"), "{}", seen.text());
}

#[test]
fn another_state_of_the_profile_keeps_what_was_chosen() {
    let mut profile = bfs::profile();
    let mut seen = Seen::of(profile.clone(), &AppOptions::default(), (120, 40));
    seen.app.renew(Recorded { profile: profile.clone(), is_running: true });
    seen.letters("4/bfs.c");
    seen.press(&[Enter, Down, Down]);
    assert!(seen.lines()[0].ends_with("● recording, loaded 0 s ago"), "{}", seen.lines()[0]);
    let selected = seen.selected().expect("a row");
    let name = selected.split_whitespace().find(|word| word.starts_with("bfs.c:")).expect("its name");
    // All others are far costlier now: it goes to the end.
    let index = |cell: &memlens_profile::Cell| cell.code;
    let line: u32 = name.trim_start_matches("bfs.c:").parse().expect("a line");
    let is_it = |profile: &Profile, cell: &memlens_profile::Cell| {
        let code = &profile.code[index(cell).index()];
        profile.stack_frames(code.stack).next().is_some_and(|frame| frame.line == Some(line))
    };
    let cells: Vec<bool> = profile.cells.iter().map(|cell| is_it(&profile, cell)).collect();
    for (cell, is_it) in profile.cells.iter_mut().zip(cells) {
        let mut counts = cell.counts.get();
        counts.loads += if is_it { 0 } else { 1 << 40 };
        cell.counts = counts.into();
    }
    profile.sum_cells();
    seen.app.renew(Recorded { profile: profile.clone(), is_running: true });
    seen.draw();
    let now = seen.selected().expect("a row");
    assert!(now.contains(name) && now != selected, "{now}\n{selected}");
    assert!(
        seen.status().contains("with ‘bfs.c’") && !seen.status().starts_with(" 3 of"),
        "{}",
        seen.status()
    );

    // Pages of what is there stay, those of what is gone are left.
    seen.press(&[Enter]);
    let opened = seen.lines()[0].clone();
    assert!(opened.contains(&format!("by line › {name}")), "{opened}");
    seen.app.renew(Recorded { profile, is_running: true });
    seen.draw();
    assert_eq!(seen.lines()[0], opened);
    let mut without = bfs::profile();
    without.cells.clear();
    seen.app.renew(Recorded { profile: without, is_running: false });
    seen.draw();
    assert!(seen.lines()[0].starts_with("memlens "), "{}", seen.text());
    assert!(seen.status().contains("the recording has ended"), "{}", seen.status());
    assert!(!seen.text().contains("● recording") && !seen.text().contains("partial"), "{}", seen.text());
}

#[test]
fn a_profile_is_loaded_again_or_stays() {
    let mut seen = Seen::new();
    seen.press(&[Down, Down]);
    let selected = seen.selected();
    assert_eq!(seen.letters("r"), Then::Reload);
    seen.app.reload(Err("cannot open it".into()));
    seen.draw();
    assert!(seen.status().starts_with(" cannot open it"), "{}", seen.status());
    assert_eq!(seen.selected(), selected);
    let mut more = bfs::profile();
    more.run.command = vec!["./another".into()];
    seen.app.reload(Ok(Recorded { profile: more, is_running: false }));
    seen.draw();
    assert!(seen.status().starts_with(" loaded again"), "{}", seen.status());
    assert!(seen.lines()[0].contains("./another"), "{}", seen.text());
    assert_eq!(seen.selected(), selected);
}

#[test]
fn a_click_selects_a_row_and_another_one_opens_it() {
    let mut seen = Seen::of(bfs::profile(), &AppOptions::default(), (120, 40));
    let rows = rows(&bfs::profile(), By::Object, None, 120);
    assert!(!seen.app.has_mouse());
    seen.letters("m");
    assert!(seen.app.has_mouse() && seen.status().contains("another one opens it"), "{}", seen.status());
    seen.click(&rows[2]);
    assert_eq!(seen.selected().as_ref(), Some(&rows[2]));
    // Neither titles nor the total are rows.
    for line in [" kind ", " total "] {
        seen.click(line);
        assert_eq!(seen.selected().as_ref(), Some(&rows[2]));
    }
    seen.mouse(MouseEventKind::ScrollDown, "total");
    assert_eq!(seen.selected().as_ref(), Some(&rows[5]));
    seen.mouse(MouseEventKind::ScrollUp, "total");
    seen.click(&rows[2]);
    assert!(seen.lines()[0].starts_with("by object › #"), "{}", seen.text());
    // A double click on what was selected is one.
    let page = seen.text();
    let line = seen.selected().expect("a line of code");
    seen.click(&line);
    assert_eq!(seen.text(), page);
    seen.letters("qm");
    assert!(!seen.app.has_mouse() && seen.status().contains("selects text"), "{}", seen.status());
}

#[test]
fn a_column_is_clicked_at() {
    let mut seen = Seen::new();
    seen.letters("s");
    seen.mouse(MouseEventKind::ScrollDown, "as usual");
    seen.mouse(MouseEventKind::ScrollUp, "as usual");
    seen.click("│ id  ");
    assert!(seen.text().contains("as usual"), "it is only chosen: {}", seen.text());
    seen.click("│ id  ");
    assert!(seen.status().contains("by id"), "{}", seen.text());
    assert!(!seen.text().contains("as usual"), "{}", seen.text());
}

#[test]
fn a_profile_without_the_end_of_the_run_says_so_on_every_page() {
    let mut profile = bfs::profile();
    profile.attribution.truncated = true;
    let mut seen = Seen::of(profile.clone(), &AppOptions::default(), (120, 40));
    let is_told = |seen: &Seen| seen.lines()[0].ends_with(" ◐ partial: the end of the run is missing");
    assert!(is_told(&seen), "{}", seen.text());
    seen.press(&[Enter]);
    assert!(is_told(&seen) && seen.lines()[0].starts_with("by object › #"), "{}", seen.text());
    // What is being recorded will have its end.
    seen.app.renew(Recorded { profile: profile.clone(), is_running: true });
    seen.draw();
    assert!(!is_told(&seen) && seen.lines()[0].contains("● recording"), "{}", seen.text());
    seen.app.renew(Recorded { profile, is_running: false });
    seen.draw();
    assert!(is_told(&seen) && seen.status().contains("the recording has ended early"), "{}", seen.status());
}

#[test]
fn other_sizes_are_laid_out_anew_and_too_small_ones_say_so() {
    let mut seen = Seen::new();
    seen.press(&[Down, Down]);
    let name = |row: Option<String>| row.and_then(|row| row.split_whitespace().nth(3).map(str::to_owned));
    let selected = name(seen.selected());
    assert!(selected.is_some());
    for (columns, lines) in [(80, 12), (200, 60), (40, 12), (120, 24)] {
        seen.terminal.backend_mut().resize(columns, lines);
        seen.draw();
        assert!(seen.status().contains("? keys"), "{}", seen.text());
        assert!(seen.selected().is_some(), "{}", seen.text());
    }
    assert_eq!(name(seen.selected()), selected);
    for (columns, lines) in [(39, 24), (120, 11), (10, 3), (1, 1)] {
        seen.terminal.backend_mut().resize(columns, lines);
        seen.draw();
        seen.press(&[Down, PageDown, Enter, Esc, Char('s'), Esc]);
        assert!(!seen.text().contains("total"), "{}", seen.text());
    }
    seen.terminal.backend_mut().resize(39, 24);
    seen.draw();
    assert!(seen.text().starts_with("too small: 40 × 12 is the least"), "{}", seen.text());
}

#[test]
fn names_cannot_steer_the_terminal_and_wide_letters_have_room() {
    let mut profile = bfs::profile();
    profile.objects[0].name = "evil\x1b[2J\nname".into();
    profile.objects[1].name = "数据表".into();
    let mut seen = Seen::of(profile, &AppOptions::default(), (120, 24));
    let check = |seen: &Seen| {
        let buffer = seen.terminal.backend().buffer();
        assert!(buffer.content.iter().all(|cell| !cell.symbol().chars().any(char::is_control)));
    };
    check(&seen);
    assert!(seen.text().contains("evil\u{fffd}[2J\u{fffd}name"), "{}", seen.text());
    // A wide letter takes two places: what is right of it is where it is in other rows.
    let places: Vec<Option<usize>> = (0..24)
        .map(|y| {
            let buffer = seen.terminal.backend().buffer();
            (0..117).find(|&x| (x..x + 4).map(|x| buffer[(x, y)].symbol()).collect::<String>() == "heap")
        })
        .filter(Option::is_some)
        .map(|x| x.map(usize::from))
        .collect();
    assert!(places.len() > 2 && places.iter().all(|x| *x == places[0]), "{places:?}");
    seen.letters("/evil");
    seen.press(&[Enter, Enter]);
    check(&seen);
    assert!(seen.lines()[0].contains("evil"), "{}", seen.text());
}

#[test]
fn without_colours_bold_and_reversed_text_tell_rows_apart() {
    let colours = |seen: &Seen| {
        let cells = &seen.terminal.backend().buffer().content;
        cells.iter().filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset).count()
    };
    assert!(colours(&Seen::new()) > 0);
    let mut seen = Seen::of(bfs::profile(), &AppOptions::default(), (120, 24));
    assert_eq!(colours(&seen), 0);
    let cells = seen.terminal.backend().buffer().content.clone();
    assert!(cells.iter().any(|cell| cell.modifier.contains(Modifier::BOLD)));
    assert!(seen.selected().is_some());
    seen.press(&[Enter]);
    assert_eq!(colours(&seen), 0);
}

#[test]
fn a_profile_without_anything_says_so() {
    let mut seen = Seen::of(Profile::default(), &AppOptions::default(), (100, 24));
    assert!(seen.text().contains("The profile holds no accesses and no samples"), "{}", seen.text());
    seen.press(&[Down, Enter, Char('s'), Enter, Char('>'), Right, Char('/'), Char('x'), Enter, End, Esc]);
    assert!(seen.selected().is_none());
}

#[test]
fn keys_that_come_before_the_next_picture_are_for_what_is_there_then() {
    let keys = [Char('4'), Down, Down, Enter, Tab, Enter, Char('i')];
    let mut one_by_one = Seen::new();
    one_by_one.press(&keys);
    let mut at_once = Seen::new();
    for key in keys {
        at_once.app.key(KeyEvent::new(key, KeyModifiers::NONE));
    }
    at_once.draw();
    assert_eq!(at_once.text(), one_by_one.text());
    assert!(at_once.lines()[0].contains("by line › bfs.c:"), "{}", at_once.text());
}

#[test]
fn no_keys_in_whatever_order_and_size_bring_it_down() {
    const KEYS: [KeyCode; 29] = [
        Up,
        Down,
        Left,
        Right,
        Home,
        End,
        PageDown,
        KeyCode::PageUp,
        Enter,
        Enter,
        Esc,
        Backspace,
        Tab,
        BackTab,
        Char('/'),
        Char('s'),
        Char('a'),
        Char('n'),
        Char('?'),
        Char('f'),
        Char('i'),
        Char('c'),
        Char('l'),
        Char('<'),
        Char('>'),
        Char('5'),
        Char('m'),
        Char('r'),
        KeyCode::Insert,
    ];
    // Numerical Recipes' generator: the same keys each time.
    let mut state = 1_u32;
    let mut next = |below: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % below
    };
    let mut empty = bfs::profile();
    empty.cells.clear();
    let mut seen = Seen::new();
    for step in 0..6000 {
        match next(200) {
            0 => seen.app.renew(Recorded { profile: bfs::profile(), is_running: step % 2 == 0 }),
            1 => seen.app.renew(Recorded { profile: empty.clone(), is_running: false }),
            2 => seen.terminal.backend_mut().resize(next(150) as u16 + 1, next(40) as u16 + 1),
            3..10 => {
                let kinds = [
                    MouseEventKind::Down(MouseButton::Left),
                    MouseEventKind::ScrollDown,
                    MouseEventKind::ScrollUp,
                ];
                let (kind, row) = (kinds[next(3)], next(42) as u16);
                seen.app.mouse(MouseEvent { kind, column: 9, row, modifiers: KeyModifiers::NONE });
            }
            _ => {
                let key = KEYS[next(KEYS.len())];
                assert_ne!(seen.app.key(KeyEvent::new(key, KeyModifiers::NONE)), Then::Quit);
            }
        }
        if next(3) > 0 {
            seen.draw();
        }
    }
    // It is all there still.
    seen.terminal.backend_mut().resize(120, 24);
    seen.app.renew(Recorded { profile: bfs::profile(), is_running: false });
    seen.press(&[Esc; 9]);
    (0..2000).for_each(|_| {
        seen.press(&[Esc]);
    });
    seen.press(&[Char('1')]);
    assert!(seen.text().contains(" of 8 · by"), "{}", seen.text());
}

#[test]
fn a_grouping_begins_with_its_first_row_though_another_one_is_of_the_selected_object() {
    let mut profile = bfs::profile();
    let sort = Some(Column::Name);
    let first = rows(&profile, By::Object, sort, 120)[0].clone();
    let object = profile.objects.iter().position(|object| first.contains(&format!(" {} ", object.name)));
    let object = object.expect("the first object by name");
    // Its field comes last by name.
    profile.objects[object].element = Some(Element { type_name: "zzz".into(), bytes: 4 });
    let object = ObjectIx::from_index(object);
    profile.fields = vec![Field { object, offset_bytes: Some(0), size_bytes: Some(4), ..Field::default() }];
    let cells = profile.cells.iter().filter(|cell| cell.object == object);
    profile.field_uses =
        cells.map(|cell| FieldUse { code: cell.code, field: FieldIx::from_index(0), seen: 1 }).collect();
    let fields = rows(&profile, By::Field, sort, 120);
    let options = AppOptions { sort, ..AppOptions::default() };
    let mut seen = Seen::of(profile, &options, (120, 24));
    assert_eq!(seen.selected(), Some(first));
    seen.press(&[Char('6')]);
    assert_eq!(seen.selected().as_ref(), fields.first(), "{}", seen.text());
    assert!(fields.last().is_some_and(|row| row.contains("zzz")), "{fields:?}");
}

#[test]
fn what_is_too_wide_goes_on_in_the_next_line() {
    let mut profile = bfs::profile();
    profile.run.notes = vec!["x".repeat(150)];
    let mut seen = Seen::of(profile, &AppOptions::default(), (60, 30));
    seen.letters("n");
    assert_eq!(seen.text().matches('x').count(), 150 + "exact exit".matches('x').count(), "{}", seen.text());
}

#[test]
fn letters_with_other_keys_held_are_no_commands() {
    let mut seen = Seen::new();
    let before = seen.text();
    for letter in ['a', 'n', 'q', 's', '/', '4'] {
        assert_eq!(seen.app.key(KeyEvent::new(Char(letter), KeyModifiers::CONTROL)), Then::Draw);
    }
    seen.draw();
    assert_eq!(seen.text(), before);
    // Escape and a letter at once: out of the filter, then to the notes.
    seen.letters("/xyz");
    seen.app.key(KeyEvent::new(Char('n'), KeyModifiers::ALT));
    seen.draw();
    assert!(seen.lines()[0].contains("the run"), "{}", seen.text());
    seen.letters("q");
    assert_eq!(seen.text(), before);
}
