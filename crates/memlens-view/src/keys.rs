//! What keys do, for the page that `?` opens.

/// Keys and what they do, by where they do it. `docs/formats.md` has them, too.
pub(crate) const KEYS: [(&str, &[(&str, &str)]); 5] = [
    (
        "everywhere",
        &[
            ("↑ ↓ k j", "the row above, the row below"),
            ("PgUp PgDn Space", "a page up or down"),
            ("Home End g G", "the first row, the last row"),
            ("Enter", "what is behind the row"),
            ("Esc Backspace q", "back; q at the table quits"),
            ("/", "only rows with a text: letters, then Enter; Esc takes it back"),
            ("a", "what to do about the data (memlens advise)"),
            ("m", "the mouse: a click selects, another opens, the wheel goes on; again: it selects text"),
            ("r", "load the profile again, which it is by itself when it has changed"),
            ("t", "when the program waited for what, and how much memory it had"),
            ("n", "the run, the machine, and all notes"),
            ("? h", "this page"),
            ("Ctrl-C", "quit"),
            ("Ctrl-Z", "stop, until fg in the shell"),
        ],
    ),
    (
        "at the table",
        &[
            ("← → Tab Shift-Tab 1 2 …", "what a row stands for: object, site, function …"),
            ("s", "choose a column to sort by, with what the columns mean"),
            ("< >", "sort by the next column to the left or right"),
        ],
    ),
    ("at a page", &[("Tab Shift-Tab", "the next table of it, the one before")]),
    (
        "at an object",
        &[
            ("l f i", "lines, functions or instructions that touch it"),
            ("c", "the call paths that lead to it"),
        ],
    ),
    ("at a function", &[("l i", "its lines or its instructions")]),
];
