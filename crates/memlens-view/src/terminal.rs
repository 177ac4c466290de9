//! The terminal: taken over, drawn on, read from, and given back as it was, however this ends.
//!
//! ```text
//!  key, other size ──► App ──► drawn again
//!  a second        ──► Source: another state? ──► App ──► drawn again
//!  SIGINT, SIGTERM, SIGHUP ──► a thread of its own: gives the terminal back, then ends the process by the signal
//!  Ctrl-Z          ──► gives the terminal back, stops; SIGCONT, also after other stops ──► takes it again, drawn again
//!  return, panic   ──► Screen is dropped: gives the terminal back
//! ```

use std::io::{self, BufWriter, Stdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::crossterm::execute;
use ratatui::crossterm::style::Print;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP, SIGTTOU, SIGWINCH};
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::{emulate_default_handler, raise};

use crate::app::{App, Then};
use crate::source::Source;

/// How often to look for another state of the profile, and to draw how old it is.
const LOOK: Duration = Duration::from_secs(1);
/// A state that takes long to load is looked for so many times as seldom.
const PART_OF_TIME: u32 = 10;
/// Most pictures are written in one piece, so that nobody sees half of one.
const PICTURE_BYTES: usize = 64 << 10;
/// Clicks and the wheel, with places in decimal (xterm's modes 1000 and 1006). Not the many motions between them.
const TAKE_MOUSE: &str = "\x1b[?1000h\x1b[?1006h";
const GIVE_MOUSE_BACK: &str = "\x1b[?1006l\x1b[?1000l";
/// A signal waits no longer for a picture to be whole.
const PATIENCE: Duration = Duration::from_millis(200);

/// Shows a profile until the reader has seen enough. The terminal is then as it was before.
///
/// # Errors
/// When the terminal cannot be written to or read from, or has gone.
pub fn show(app: &mut App, source: &mut dyn Source) -> io::Result<()> {
    let mut screen = Screen::open()?;
    let mut next_look = Instant::now() + LOOK;
    let mut is_drawn = false;
    loop {
        if screen.has_gone_on() {
            screen.take()?;
            is_drawn = false;
        }
        // Keys that wait already are answered by one picture.
        if !is_drawn && !event::poll(Duration::ZERO)? {
            screen.draw(app)?;
            is_drawn = true;
        }
        if event::poll(next_look.saturating_duration_since(Instant::now()))? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    is_drawn = false;
                    match app.key(key) {
                        Then::Draw => {}
                        Then::Advise => {
                            let advice = source.advice(app.profile());
                            app.advise(advice);
                        }
                        Then::Reload => app.reload(source.read()),
                        Then::Suspend => screen.suspend()?,
                        Then::Quit => return Ok(()),
                    }
                }
                Event::Mouse(event) => is_drawn &= !app.mouse(event),
                Event::Resize(..) => is_drawn = false,
                _ => {}
            }
        }
        if Instant::now() >= next_look {
            let began = Instant::now();
            // How old the state is changes, too, while the program runs.
            is_drawn &= !app.is_running();
            if let Some(recorded) = source.renewed() {
                app.renew(recorded);
                is_drawn = false;
            }
            next_look = Instant::now() + LOOK.max(began.elapsed() * PART_OF_TIME);
        }
    }
}

/// The terminal, as long as it is ours.
struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
    /// Held while a picture is written, and for ever by the thread that a signal ends the process in.
    drawing: Arc<Mutex<()>>,
    /// Whether the process was stopped and goes on: others had the terminal meanwhile.
    has_gone_on: Arc<AtomicBool>,
    has_mouse: bool,
    signals: Handle,
    watcher: Option<JoinHandle<()>>,
}

impl Screen {
    fn open() -> io::Result<Self> {
        let mut signals = Signals::new([SIGCONT, SIGHUP, SIGINT, SIGTERM])?;
        let handle = signals.handle();
        let drawing = Arc::new(Mutex::new(()));
        let held = Arc::clone(&drawing);
        let has_gone_on = Arc::new(AtomicBool::new(false));
        let goes_on = Arc::clone(&has_gone_on);
        let watch = move || {
            for signal in signals.forever() {
                if signal == SIGCONT {
                    goes_on.store(true, Ordering::Release);
                    // Who waits for keys looks at once: the size may be another one, too.
                    let _ = raise(SIGWINCH);
                    continue;
                }
                let began = Instant::now();
                let mut guard = held.try_lock();
                while guard.is_err() && began.elapsed() < PATIENCE {
                    thread::sleep(Duration::from_millis(5));
                    guard = held.try_lock();
                }
                give_back();
                let _ = emulate_default_handler(signal);
                return;
            }
        };
        let watcher = thread::Builder::new().name("signals".to_owned()).spawn(watch)?;
        // From here on dropping it gives the terminal back.
        let out = BufWriter::with_capacity(PICTURE_BYTES, io::stdout());
        let terminal = Terminal::new(CrosstermBackend::new(out))?;
        let (signals, watcher) = (handle, Some(watcher));
        let mut screen = Self { terminal, drawing, has_gone_on, has_mouse: false, signals, watcher };
        screen.take()?;
        Ok(screen)
    }

    /// Makes the terminal ours, whoever had it before, and forgets what is on it.
    fn take(&mut self) -> io::Result<()> {
        let _whole = self.drawing.lock().unwrap_or_else(PoisonError::into_inner);
        if tcgetpgrp(io::stdin()).is_ok_and(|group| group != getpgrp()) {
            // It goes on in the background: its settings are the shell's just now, and not those to be given back.
            raise(SIGTTOU)?;
        }
        // Where it is taken for ours still, somebody else has changed the settings meanwhile.
        disable_raw_mode()?;
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen)?;
        // The next picture takes it, if it is wanted.
        self.has_mouse = false;
        let size = self.terminal.size()?;
        self.terminal.resize(size.into())
    }

    /// Whether the process has been stopped since this was asked last.
    fn has_gone_on(&self) -> bool {
        self.has_gone_on.swap(false, Ordering::Acquire)
    }

    /// Gives the terminal back and stops until somebody says to go on. Where nobody could, the kernel does not stop it.
    fn suspend(&mut self) -> io::Result<()> {
        {
            let _whole = self.drawing.lock().unwrap_or_else(PoisonError::into_inner);
            give_back();
            raise(SIGTSTP)?;
        }
        self.has_gone_on.store(true, Ordering::Release);
        Ok(())
    }

    fn draw(&mut self, app: &mut App) -> io::Result<()> {
        let _whole = self.drawing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.has_mouse != app.has_mouse() {
            self.has_mouse = app.has_mouse();
            execute!(io::stdout(), Print(if self.has_mouse { TAKE_MOUSE } else { GIVE_MOUSE_BACK }))?;
        }
        self.terminal.draw(|frame| app.draw(frame))?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
        self.signals.close();
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
    }
}

/// Whoever has lost the terminal needs no answer.
fn give_back() {
    let _ = execute!(io::stdout(), Print(GIVE_MOUSE_BACK), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}
