//! The state on the screen.
//!
//! ```text
//!  memlens    the command                                       ● recording, as of 3 s ago, or that the end is missing
//!  run        mode, time …                                    (in pages: what led there)
//!  1 object  2 site  3 function …
//!  titles of columns
//!  rows                                                        one of them reversed
//!  total
//!  12 of 816 · sorted by …                                     what keys do
//! ```

use memlens_report::{Line as ReportLine, Style as Look, Target};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};
use unicode_width::UnicodeWidthStr;

use crate::app::{App, Shown};
use crate::picker::Picker;
use crate::prose;

/// With less there is no room for a table.
pub(crate) const LEAST_COLUMNS: u16 = 40;
/// With fewer there is no room for rows.
pub(crate) const LEAST_LINES: u16 = 12;

/// Lines of the screen that are not a page's.
pub(crate) const LINES_AROUND: usize = 2;

pub(crate) fn too_small(frame: &mut Frame<'_>) {
    let text = format!("too small: {LEAST_COLUMNS} × {LEAST_LINES} is the least");
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), frame.area());
}

/// Everything.
pub(crate) fn app(app: &mut App, frame: &mut Frame<'_>) {
    let area = frame.area();
    let row = |y: u16| Rect { x: 0, y, width: area.width, height: 1 };
    let colour = app.colour;
    let mut y = 0;
    if app.opened.is_empty() {
        for line in app.table.summary.iter().take(2) {
            frame.render_widget(painted(line, colour), row(y));
            y += 1;
        }
        tabs(app, frame, row(y));
    } else {
        way(app, frame, row(y));
    }
    y += 1;
    recording(app, frame, row(0));

    let head = app.sheet().head.clone();
    let foot = app.sheet().foot.clone();
    for line in &head {
        frame.render_widget(painted(line, colour), row(y));
        y += 1;
    }
    if app.opened.is_empty() {
        mark_sorted(app, frame, y, head.len() as u16);
    }
    let last = area.height - 1;
    let foot_from = last.saturating_sub(foot.len() as u16);
    let height = foot_from.saturating_sub(y);
    let filter = app.sheet().filter().to_owned();
    app.lines_in_sight = y..foot_from;
    for (line, is_selected) in app.sheet().in_sight(height.into()) {
        frame.render_widget(painted(line, colour), row(y));
        if is_selected {
            frame.buffer_mut().set_style(row(y), bar());
        }
        y += 1;
    }
    // The total follows the last row where there is room.
    for line in &foot {
        frame.render_widget(painted(line, colour), row(y));
        y += 1;
    }
    status(app, &filter, frame, row(last));
    picker(app, frame);
}

/// A line with its looks.
fn painted(line: &ReportLine, colour: bool) -> Line<'_> {
    Line::from(
        line.spans
            .iter()
            .map(|(look, text)| Span::styled(text.as_str(), style(*look, colour)))
            .collect::<Vec<_>>(),
    )
}

/// The codes of `memlens report`, in the terminal's sixteen colours.
fn style(look: Look, colour: bool) -> Style {
    match look {
        Look::Bold => Style::new().add_modifier(Modifier::BOLD),
        Look::Dim => Style::new().add_modifier(Modifier::DIM),
        Look::Hot if colour => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
        Look::Hot => Style::new().add_modifier(Modifier::BOLD),
        Look::Warm if colour => Style::new().fg(Color::Yellow),
        _ => Style::new(),
    }
}

/// What is selected: a bar of one colour, on which only bold text differs.
fn bar() -> Style {
    Style::new().fg(Color::Reset).add_modifier(Modifier::REVERSED).remove_modifier(Modifier::DIM)
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

/// The groupings, each with its key.
fn tabs(app: &App, frame: &mut Frame<'_>, area: Rect) {
    let mut spans = Vec::new();
    for (number, by) in (1..).zip(&app.tabs) {
        let key = number % 10;
        let is_here = *by == app.by;
        let look = if is_here {
            Style::new().add_modifier(Modifier::REVERSED | Modifier::BOLD)
        } else {
            Style::new()
        };
        let key_look = if is_here { look } else { dim() };
        spans.push(Span::styled(format!(" {key} "), key_look));
        spans.push(Span::styled(format!("{} ", by.as_str()), look));
    }
    let width: usize = spans.iter().map(|span| span.content.width()).sum();
    if width > area.width.into() {
        // Without the keys' numbers.
        spans = spans.into_iter().skip(1).step_by(2).collect();
    }
    frame.render_widget(Line::from(spans), area);
}

/// What led to the page in sight.
fn way(app: &App, frame: &mut Frame<'_>, area: Rect) {
    let mut names: Vec<String> = vec![format!("by {}", app.by.as_str())];
    names.extend(app.opened.iter().map(|opened| name(&opened.shown)));
    // The nearest steps stay.
    let room: usize = area.width.into();
    let total = |names: &[String]| names.iter().map(|name| name.width() + 3).sum::<usize>();
    while names.len() > 2 && total(&names) > room {
        names.remove(0);
    }
    let last = names.pop().unwrap_or_default();
    let before: String = names.iter().map(|name| format!("{name} › ")).collect();
    frame.render_widget(
        Line::from(vec![Span::styled(before, dim()), Span::styled(last, style(Look::Bold, false))]),
        area,
    );
}

/// What a page is called.
fn name(shown: &Shown) -> String {
    match shown {
        Shown::Advice(_) => "what to do".to_owned(),
        Shown::OverTime => "over time".to_owned(),
        Shown::Notes => "the run".to_owned(),
        Shown::Keys => "keys".to_owned(),
        Shown::Target(Target::Objects { ids, name }) => match &ids[..] {
            [id] => format!("#{id} {name}"),
            _ => name.clone(),
        },
        Shown::Target(Target::Line { file, line }) => {
            format!("{}:{line}", file.rsplit('/').next().unwrap_or(file))
        }
        Shown::Target(Target::Instruction { module, offset }) => {
            let module =
                module.as_deref().map_or("generated", |path| path.rsplit('/').next().unwrap_or(path));
            format!("{module}+{offset:#x}")
        }
        Shown::Target(Target::Site(name) | Target::Function(name) | Target::Field(name)) => name.clone(),
        Shown::Target(Target::Kind(kind)) => kind.as_str().to_owned(),
        Shown::Target(Target::Thread { tid, .. }) => format!("thread {tid}"),
        Shown::Target(Target::Process(pid)) => {
            pid.map_or("process".to_owned(), |pid| format!("process {pid}"))
        }
        Shown::Target(Target::Path { .. }) => "call path".to_owned(),
        Shown::Target(_) => String::new(),
    }
}

/// That the program runs still, and how old what is shown is; or that the profile ends before the program did.
fn recording(app: &App, frame: &mut Frame<'_>, area: Rect) {
    let (text, colour) = match () {
        _ if app.is_running() => {
            let age = match app.age_seconds() {
                seconds @ 0..100 => format!("{seconds} s"),
                seconds => format!("{} min", seconds / 60),
            };
            (format!(" ● recording, loaded {age} ago "), Color::Green)
        }
        _ if app.is_cut() => {
            let more = if area.width < 80 { "" } else { ": the end of the run is missing" };
            (format!(" ◐ partial{more} "), Color::Yellow)
        }
        _ => return,
    };
    let width = (text.width() as u16).min(area.width);
    let place = Rect { x: area.width - width, width, ..area };
    let look = if app.colour { Style::new().fg(colour) } else { Style::new().add_modifier(Modifier::BOLD) };
    frame.render_widget(Clear, place);
    frame.render_widget(Span::styled(text, look), place);
}

/// The title of what the table is sorted by.
fn mark_sorted(app: &App, frame: &mut Frame<'_>, below: u16, titles: u16) {
    let page = &app.table.page;
    let Some(placed) = page.columns.iter().find(|placed| Some(placed.column) == page.sort) else { return };
    // Of the titles the last is the rule, and above two lines of titles there may be sections.
    let lines = titles.saturating_sub(1).min(2);
    let place =
        Rect { x: placed.from as u16, y: below - 1 - lines, width: placed.width as u16, height: lines };
    let look = Style::new().add_modifier(Modifier::BOLD).remove_modifier(Modifier::DIM);
    let place = place.intersection(frame.area());
    frame.buffer_mut().set_style(place, look);
}

/// The last line: where one is, and what keys do.
fn status(app: &mut App, filter: &str, frame: &mut Frame<'_>, area: Rect) {
    let is_table = app.opened.is_empty();
    let (all, passing) = app.sheet().rows();
    let position = app.sheet().position();
    let (above, below) = app.sheet().is_cut();
    let mut left = match () {
        _ if app.is_typing => format!(" /{filter}"),
        _ if is_table && all > 0 => format!(" {position} of {passing}"),
        _ => match (above, below) {
            (false, false) => String::new(),
            (false, true) => " more below".to_owned(),
            (true, true) => " more above and below".to_owned(),
            (true, false) => " more above".to_owned(),
        },
    };
    let cursor = left.width() as u16;
    if app.is_typing {
        left += &format!("   {passing} of {all} rows; Enter keeps them, Esc shows all");
    } else if !filter.is_empty() {
        left += &format!(" with ‘{filter}’, of {all}; Esc shows all");
    } else if let (true, Some(sort)) = (is_table && all > 0, app.table.page.sort) {
        left += &format!(" · by {}", sort.as_str());
    }
    if let Some(message) = &app.message {
        left = format!(" {message}");
    }
    let hints: &[&str] = match app.opened.last().map(|opened| &opened.shown) {
        _ if app.is_typing => &[],
        None => &["? keys", "q quit", "Enter open", "/ filter", "s sort", "t time", "a advice", "n notes"],
        Some(Shown::Target(Target::Objects { .. })) => {
            &["? keys", "q back", "Enter open", "l lines", "f functions", "i instructions", "c callers"]
        }
        Some(Shown::Target(Target::Function(_))) => {
            &["? keys", "q back", "Enter open", "l lines", "i instructions"]
        }
        Some(Shown::Target(_) | Shown::OverTime) => &["? keys", "q back", "Enter open"],
        Some(_) => &["q back"],
    };
    // The weightiest come first, and stay.
    let room = usize::from(area.width).saturating_sub(left.width() + 2);
    let mut right = String::new();
    for hint in hints {
        let longer = if right.is_empty() { (*hint).to_owned() } else { format!("{right}  {hint}") };
        if longer.width() + 1 > room {
            break;
        }
        right = longer;
    }
    let fill = usize::from(area.width).saturating_sub(left.width() + right.width() + 1);
    let text = format!("{left}{}{right} ", " ".repeat(fill));
    frame.render_widget(Span::styled(text, bar()), area);
    if app.is_typing {
        frame.set_cursor_position((cursor.min(area.width - 1), area.y));
    }
}

/// The list of columns, above everything.
fn picker(app: &mut App, frame: &mut Frame<'_>) {
    const WORD: usize = 21;
    const MEANING_LINES: u16 = 2;
    let Some(picker) = &mut app.picker else { return };
    let area = frame.area();
    let width = area.width.saturating_sub(4).min(110);
    let wanted = picker.choices.len() as u16 + 3 + MEANING_LINES;
    let height = wanted.min(area.height - 2);
    let place = Rect { x: (area.width - width) / 2, y: (area.height - height) / 2, width, height };
    frame.render_widget(Clear, place);
    let block = Block::bordered().title(" sort by ").title_bottom(" Enter sorts, Esc leaves it ");
    let inner = block.inner(place);
    frame.render_widget(block, place);
    let room = usize::from(inner.width);
    let rows = inner.height.saturating_sub(MEANING_LINES + 1);
    app.lines_in_sight = inner.y..inner.y + rows;
    let mut meaning = "";
    for (y, (choice, is_chosen)) in (inner.y..).zip(picker.in_sight(rows.into())) {
        let (word, means) = Picker::words(choice);
        let line = Line::from(vec![
            Span::styled(format!(" {word:WORD$}"), style(Look::Bold, false)),
            Span::styled(means, dim()),
        ]);
        let row = Rect { y, height: 1, ..inner };
        frame.render_widget(line, row);
        if is_chosen {
            meaning = means;
            frame.buffer_mut().set_style(row, bar());
        }
    }
    // As a whole, where its line has no room for it.
    if meaning.width() + WORD + 1 > room {
        for (y, line) in
            (inner.y + rows + 1..inner.bottom()).zip(prose::lines(meaning, room.saturating_sub(2)))
        {
            let text = format!(" {}", line.text());
            frame.render_widget(Span::raw(text), Rect { y, height: 1, ..inner });
        }
    }
}
