//! What of a text stays where it has no room.

use std::cmp::Reverse;
use std::ops::Range;

use memlens_profile::{HEAP_THROUGH, HEAP_USED_BY};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Columns that what is elided keeps at least, beside more than one component.
const LEAST_OF_REST: usize = 6;

/// How many names begin, and what says as much beside the kind of an object: what follows is what tells them apart.
const BEGINNINGS: [(&str, &str); 3] =
    [(HEAP_USED_BY, "by "), (HEAP_THROUGH, "through "), ("frame of ", "of ")];

/// What to leave out of a text that is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Elide {
    /// The end.
    End,
    /// The end of the first part: what follows the last space (`file:line`) stays.
    BeforeLastWord,
    /// What templates were given (`std::map<…>::find`), then what stands before the last component of a name (`…::parts`,
    /// `std::_Hash…._M_next`), where a part of it has room.
    BeforeLastComponent,
}

/// The text in at most `width` columns; `…` stands for what was left out.
pub(crate) fn elide(text: &str, width: usize, how: Elide) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    if let (Elide::BeforeLastWord, Some((first, last))) = (how, text.rsplit_once(' ')) {
        let rest = width.saturating_sub(last.width() + 1);
        if rest >= 4 {
            return format!("{} {last}", elide(first, rest, Elide::BeforeLastComponent));
        }
        if last.width() <= width {
            return last.to_owned();
        }
    }
    if how == Elide::BeforeLastComponent {
        let shorter = BEGINNINGS
            .iter()
            .find_map(|(whole, short)| Some(format!("{short}{}", text.strip_prefix(whole)?)));
        if let Some(shorter) = shorter.or_else(|| without_arguments(text, width)) {
            return elide(&shorter, width, how);
        }
    }
    // Of places without a name the offset in the module tells them apart.
    if let (true, Some(at)) = (how != Elide::End, text.rfind("+0x")) {
        let (module, offset) = text.split_at(at);
        let rest = width.saturating_sub(offset.width());
        if rest >= LEAST_OF_REST {
            return format!("{}{offset}", elide(module, rest, Elide::End));
        }
    }
    if let (Elide::BeforeLastComponent, Some((mut first, mut last))) = (how, split_last_component(text)) {
        // As many of the last ones as leave room for some of the rest: `pos.x` and `vel.x` are different fields.
        while let Some((before, component)) = split_last_component(first)
            && component.width() + last.width() + LEAST_OF_REST <= width
        {
            (first, last) = (before, &text[before.len()..]);
        }
        let rest = width.saturating_sub(last.width());
        if rest >= 4 {
            return format!("{}{last}", elide(first, rest, Elide::End));
        }
    }
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide + 1 > width {
            break;
        }
        out.push(c);
        used += wide;
    }
    if width > 0 {
        out.push('…');
    }
    out
}

/// A name with `<…>` in place of what templates were given, the longest first, as many as it takes to fit a width or all; `None`: there are
/// none. What begins with a bracket is no template's (Rust's `<T as Trait>::name`), but what is in it may be; nor is an operator.
fn without_arguments(text: &str, width: usize) -> Option<String> {
    let mut open: Vec<(usize, bool)> = Vec::new();
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut before = ' ';
    for (place, c) in text.char_indices() {
        match c {
            '<' => {
                let is_operator = text[..place].ends_with("operator") || text[..place].ends_with("operator<");
                let is_template = !is_operator && (before.is_alphanumeric() || matches!(before, '_' | ':'));
                open.push((place + 1, is_template));
            }
            '>' if before != '-' => {
                if let Some((start, true)) = open.pop()
                    && !open.iter().any(|&(_, is_template)| is_template)
                    && text[start..place].width() > 1
                {
                    found.push(start..place);
                }
            }
            _ => {}
        }
        before = c;
    }
    found.sort_by_key(|range| Reverse(text[range.clone()].width()));
    let mut too_many = text.width().saturating_sub(width);
    let needed = found.iter().take_while(|range| {
        let is_needed = too_many > 0;
        too_many = too_many.saturating_sub(text[(*range).clone()].width() - 1);
        is_needed
    });
    let mut left_out: Vec<Range<usize>> = needed.cloned().collect();
    left_out.sort_by_key(|range| Reverse(range.start));
    let mut out = text.to_owned();
    for range in left_out {
        out.replace_range(range, "…");
    }
    (out != text).then_some(out)
}

/// A name and its last component with the sign before it: `graph`, `->column`. What is in angle brackets is one thing, and a
/// dot before a word with others behind it is none of these signs (`.dynstr of libc.so.6`).
fn split_last_component(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0_i32;
    let mut at = None;
    let (mut before, mut has_words) = (None, false);
    for (place, c) in text.char_indices() {
        match (before, c) {
            (_, ' ') if depth == 0 => has_words = true,
            (_, '<') => depth += 1,
            (Some('-'), '>') if depth == 0 => at = Some(place - 1),
            (_, '>') => depth -= 1,
            (Some(':'), ':') if depth == 0 => at = Some(place - 1),
            (_, '%') | (_, '.') if depth == 0 => at = Some(place),
            _ => {}
        }
        before = Some(c);
    }
    let parts = text.split_at(at.filter(|&at| at > 0)?);
    let is_file = parts.1.starts_with('.') && has_words;
    (!is_file).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eliding_keeps_what_matters() {
        assert_eq!(elide("column", 6, Elide::End), "column");
        assert_eq!(elide("rowstarts", 6, Elide::End), "rowst…");
        assert_eq!(elide("read_the_graph bfs.c:11", 16, Elide::BeforeLastWord), "read_t… bfs.c:11");
        assert_eq!(elide("read_the_graph bfs.c:11", 10, Elide::BeforeLastWord), "bfs.c:11");
        // Wide characters count twice.
        assert_eq!(elide("数据数据", 5, Elide::End), "数据…");
        let component = |text, width| elide(text, width, Elide::BeforeLastComponent);
        assert_eq!(component("particles_mod::parts", 16), "particle…::parts");
        assert_eq!(component("main.graph->rows", 12), "main.…->rows");
        assert_eq!(component("particles_mod::particles%pos.x", 20), "particles_mod…%pos.x");
        assert_eq!(component("std::map<a::b, c::d>.first", 18), "std::map<…>.first");
        assert_eq!(component("std::map<a::b, c::d>.first", 14), "std::ma….first");
        assert_eq!(component("std::map<a::b, c::d>", 12), "std::map<…>");
        assert_eq!(component("std::pair<x>::of<std::map<a, std::less<b>>>", 22), "std::pair<x>::of<…>");
        assert_eq!(component("<alloc::Vec<core::T> as Drop>::drop", 31), "<alloc::Vec<…> as Drop>::drop");
        assert_eq!(component("std::operator<<std::char_traits>", 16), "std::operator<<…");
        assert_eq!(component("heap used by sqlite3VdbeExec", 16), "by sqlite3VdbeE…");
        assert_eq!(component("heap through std::map<int, long>", 20), "through std::map<…>");
        assert_eq!(component("frame of main", 13), "frame of main");
        assert_eq!(component("heap used by libsqlite3.so.0.8.6+0xb8a24", 20), "by libsqlit…+0xb8a24");
        let place = |text, width| elide(text, width, Elide::BeforeLastWord);
        assert_eq!(place("libsqlite3.so.0.8.6+0xb8a24", 20), "libsqlite3.…+0xb8a24");
        assert_eq!(
            place("std::vector<std::pair<int, long>>::push_back a.h:7", 36),
            "std::vector<…>::push_back a.h:7"
        );
        assert_eq!(component(".dynstr of libc.so.6", 12), ".dynstr of …");
        assert_eq!(component("a::quite_a_long_name", 12), "a::quite_a_…");
    }
}
