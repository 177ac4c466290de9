//! Faults of memlens itself: one message instead of a trace, and a chance to save what there is.

use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::{Mutex, PoisonError};

/// What the last panic said. Set by the hook, taken by whoever catches the panic: some panics are
/// caught and handled further down (damaged Parquet files) and must not show.
static LAST: Mutex<Option<String>> = Mutex::new(None);

/// From now on panics are silent until [`catch`] reports them.
pub fn install_hook() {
    panic::set_hook(Box::new(|info| {
        let message = describe(info);
        tracing::error!("{message}");
        *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(message);
    }));
}

fn describe(info: &PanicHookInfo<'_>) -> String {
    let what = match (info.payload().downcast_ref::<&str>(), info.payload().downcast_ref::<String>()) {
        (Some(text), _) => *text,
        (None, Some(text)) => text.as_str(),
        (None, None) => "unknown reason",
    };
    let place = info.location().map(|at| format!(" ({}:{})", at.file(), at.line())).unwrap_or_default();
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "internal error: {}{place}; please report it with the command (memlens {version})",
        one_line(what)
    )
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Calls `work`; if it panics, says what the panic said, in one line.
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    panic::catch_unwind(AssertUnwindSafe(work)).map_err(|_| {
        let last = LAST.lock().unwrap_or_else(PoisonError::into_inner).take();
        last.unwrap_or_else(|| "internal error".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_one_line() {
        install_hook();
        let message = catch(|| panic!("two\n  lines")).expect_err("it panics");
        let _ = panic::take_hook();
        assert!(message.starts_with("internal error: two lines ("), "{message}");
        assert!(message.contains("internal_error.rs:"), "{message}");
        assert_eq!(catch(|| 7), Ok(7));
    }
}
