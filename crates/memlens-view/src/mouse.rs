//! What the mouse does, once its reader has handed it over: the wheel goes from row to row, a click selects one, and a click on the selected one
//! opens it. As long as memlens has the mouse, the terminal does not select text with it.

use std::time::{Duration, Instant};

use ratatui::crossterm::event::{MouseButton, MouseEvent, MouseEventKind};

use crate::app::App;

/// Rows by which the wheel goes on, as terminals have it where they turn it into keys.
const WHEEL_ROWS: isize = 3;
/// The second click of two is not for the page that the first one has opened.
const DOUBLE_CLICK: Duration = Duration::from_millis(400);

impl App {
    /// Does what an event of the mouse is for. Says whether there is something to draw.
    pub fn mouse(&mut self, event: MouseEvent) -> bool {
        match event.kind {
            MouseEventKind::ScrollUp => self.wheel(-WHEEL_ROWS),
            MouseEventKind::ScrollDown => self.wheel(WHEEL_ROWS),
            MouseEventKind::Down(MouseButton::Left) => self.click(event.row),
            _ => return false,
        }
        true
    }

    fn wheel(&mut self, rows: isize) {
        self.begin();
        match &mut self.picker {
            Some(picker) => picker.step(rows),
            None => (0..rows.abs()).for_each(|_| self.sheet().step(rows > 0)),
        }
    }

    /// A click on a line of the screen.
    fn click(&mut self, y: u16) {
        self.begin();
        let is_second = self.opened_by_click.is_some_and(|then: Instant| then.elapsed() < DOUBLE_CLICK);
        if is_second || !self.lines_in_sight.contains(&y) {
            return;
        }
        let line = usize::from(y - self.lines_in_sight.start);
        let was_selected = match &mut self.picker {
            Some(picker) => picker.point_at(line),
            None => self.sheet().point_at(line),
        };
        match was_selected {
            None => {}
            Some(false) => self.is_typing = false,
            Some(true) => {
                self.opened_by_click = Some(Instant::now());
                self.enter();
            }
        }
    }
}
