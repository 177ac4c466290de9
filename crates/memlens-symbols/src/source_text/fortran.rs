//! What is special about the text of Fortran.

use super::is_name;

/// A statement is looked for in so many lines on either side: 255 may go on with one (Fortran 2018, 6.3.2.6), and
/// comments come between.
const MOST_LINES: u32 = 512;
/// Where a line of fixed form says that it goes on with the statement above, counted from 0.
const MARK_COLUMN: usize = 5;

/// How lines make up statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// What ends with `&` goes on in the next line.
    Free,
    /// That of punched cards: what has a mark in its sixth column goes on with the line above.
    Fixed,
}

impl Form {
    /// That of a file, by its name; None: it has no Fortran in it.
    pub(super) fn of(file: &str) -> Option<Self> {
        let extension = file.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
        match &*extension {
            "f90" | "f95" | "f03" | "f08" | "f18" | "f23" => Some(Self::Free),
            "f" | "for" | "ftn" | "f77" => Some(Self::Fixed),
            _ => None,
        }
    }

    /// The statement that a line is of, with a blank for each byte of comments and of what joins lines; and where the
    /// line begins in it. Of a statement's lines gfortran has the last in its debug information, others the first.
    pub(super) fn statement(
        self,
        line: u32,
        text_of: impl Fn(u32) -> Option<String>,
    ) -> Option<(String, usize)> {
        let code_of = |at: u32| text_of(at).map(|text| self.code(&text));
        let has_code = |at: &u32| code_of(*at).is_some_and(|code| !code.trim().is_empty());
        let are_joined = |above: u32, below: u32| {
            text_of(above).zip(text_of(below)).is_some_and(|(above, below)| self.joins(&above, &below))
        };
        let (mut first, mut last) = (line, line);
        for above in (line.saturating_sub(MOST_LINES)..line).rev().filter(has_code) {
            if !are_joined(above, first) {
                break;
            }
            first = above;
        }
        for below in (line.saturating_add(1)..line.saturating_add(MOST_LINES)).filter(has_code) {
            if !are_joined(last, below) {
                break;
            }
            last = below;
        }
        let before = (first..line).map(code_of).collect::<Option<Vec<_>>>()?;
        let from = (line..=last).map(code_of).collect::<Option<Vec<_>>>()?;
        let start = before.iter().map(|code| code.len() + 1).sum();
        Some(([before, from].concat().join("\n"), start))
    }

    /// Whether two lines with code, nothing but comments between them, are of one statement.
    fn joins(self, above: &str, below: &str) -> bool {
        match self {
            Self::Free => without_comment(above).trim_end().ends_with('&'),
            Self::Fixed => goes_on_with_above(below),
        }
    }

    /// A line with blanks in place of comments and of what joins it with others.
    fn code(self, text: &str) -> String {
        let is_comment = text.starts_with('#') || self == Self::Fixed && text.starts_with(['c', 'C', '*']);
        let code = if is_comment { "" } else { without_comment(text) };
        let mut bytes = code.as_bytes().to_vec();
        let marks = match self {
            Self::Free => {
                let trimmed = code.trim();
                let first = code.len() - code.trim_start().len();
                let last = (first + trimmed.len()).saturating_sub(1);
                [trimmed.starts_with('&').then_some(first), trimmed.ends_with('&').then_some(last)]
            }
            Self::Fixed => [goes_on_with_above(code).then_some(MARK_COLUMN), None],
        };
        for mark in marks.into_iter().flatten() {
            if let Some(mark) = bytes.get_mut(mark) {
                *mark = b' ';
            }
        }
        bytes.resize(text.len(), b' ');
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Whether a line of fixed form goes on with the statement above.
fn goes_on_with_above(text: &str) -> bool {
    let mut mark = text.bytes().skip(MARK_COLUMN);
    text.bytes().take(MARK_COLUMN).all(|byte| byte == b' ')
        && mark.next().is_some_and(|mark| mark.is_ascii_graphic() && !matches!(mark, b'0' | b'!'))
}

/// A line up to its comment.
fn without_comment(text: &str) -> &str {
    let mut quote = None;
    let end = text.find(|c: char| {
        match quote {
            None if c == '!' => return true,
            None if matches!(c, '\'' | '"') => quote = Some(c),
            Some(open) if open == c => quote = None,
            _ => {}
        }
        false
    });
    &text[..end.unwrap_or(text.len())]
}

/// Whether a Fortran text has a variable by itself, not for one of its components.
pub(crate) fn names_whole(text: &str, name: &str) -> bool {
    let (text, name) = (text.to_ascii_lowercase(), name.to_ascii_lowercase());
    text.match_indices(&name).any(|(at, _)| {
        let after = &text[at + name.len()..];
        let mut depth = 0;
        let behind = after.find(|c: char| {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => return depth == 0 && !c.is_whitespace(),
            }
            depth < 0
        });
        let is_word = !text[..at].ends_with(|c: char| is_name(c) || c == '%') && !after.starts_with(is_name);
        is_word && behind.is_none_or(|behind| !after[behind..].starts_with('%'))
    })
}

/// `a` and `b` of `allocate(a(n), b(n), stat=s)`.
pub(crate) fn allocated(text: &str) -> Vec<String> {
    let Some(list) = list_of_allocate(text) else { return Vec::new() };
    let mut items = split_at_commas(list);
    // `allocate(integer(8) :: a(n))`: a type may come first.
    let first = items.next().map(|item| item.split_once("::").map_or(item, |(_, name)| name));
    first.filter(|item| !item.contains('=')).into_iter().chain(items).filter_map(shaped).collect()
}

/// Whether an ALLOCATE statement copies what it allocates: components of it may be allocated as well.
pub(crate) fn copies(text: &str) -> bool {
    let is_source = |item: &str| item.trim_start().to_ascii_lowercase().starts_with("source");
    list_of_allocate(text)
        .is_some_and(|list| split_at_commas(list).any(|item| is_source(item) && item.contains('=')))
}

/// What comes behind the bracket of an ALLOCATE statement.
fn list_of_allocate(text: &str) -> Option<&str> {
    const WORD: &str = "allocate";
    let lower = text.to_ascii_lowercase();
    lower.match_indices(WORD).find_map(|(at, _)| {
        // A statement of its own: no other language's function or method.
        let before = lower[..at].trim_end();
        let is_call = before.ends_with(['=', '.', '>', ':', ',']);
        let is_word = !lower[..at].ends_with(is_name) && !is_call;
        text[at + WORD.len()..].trim_start().strip_prefix('(').filter(|_| is_word)
    })
}

/// By how much a character goes into brackets.
fn depth_of(c: char) -> i32 {
    match c {
        '(' | '[' => 1,
        ')' | ']' => -1,
        _ => 0,
    }
}

/// The parts of a list up to the bracket that closes it.
fn split_at_commas(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    let end = list.find(|c: char| {
        depth += depth_of(c);
        depth < 0
    });
    let mut depth = 0;
    list[..end.unwrap_or(list.len())].split(move |c: char| {
        depth += depth_of(c);
        c == ',' && depth == 0
    })
}

/// `cells(i)%hist` of `cells(i)%hist(500)`: the last brackets are the shape of what is allocated. None: it is an option (`stat=s`).
fn shaped(item: &str) -> Option<String> {
    let (mut depth, mut end) = (0, 0);
    for (at, c) in item.char_indices() {
        depth += depth_of(c);
        match c {
            _ if depth > 0 => {}
            '=' => return None,
            c if is_name(c) || c == '%' => end = at + c.len_utf8(),
            _ => {}
        }
    }
    let name: String = item[..end].split_whitespace().collect();
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The statement of a line of a text, counted from 1.
    fn statement(form: Form, text: &str, line: u32) -> Option<(String, usize)> {
        form.statement(line, |at| text.lines().nth((at as usize).checked_sub(1)?).map(str::to_owned))
    }

    #[test]
    fn a_statement_has_all_its_lines() {
        let free = "n = 3\n\
            allocate (a(n), & ! one & two\n\
            \n\
            ! c(n) is later\n\
            &b(n), c(n), stat = n) ! d\n\
            print *, '&!', &\n\
            n\n";
        for line in [2, 5] {
            let (text, start) = statement(Form::Free, free, line).expect("it is there");
            let words: Vec<&str> = text.split_whitespace().collect();
            assert_eq!(words.join(" "), "allocate (a(n), b(n), c(n), stat = n)", "{line}");
            let begin = if line == 2 { "allocate" } else { " b(n)" };
            assert!(text[start..].starts_with(begin), "{line}");
        }
        assert_eq!(statement(Form::Free, free, 1), Some(("n = 3".to_owned(), 0)));
        assert_eq!(statement(Form::Free, free, 7).expect("it is there").0, "print *, '&!',  \nn");
        assert_eq!(statement(Form::Free, free, 8), None);
        let fixed = "      n = 3\n\
            \x20     allocate (a(n),\n\
            c     c(n) is later\n\
            \x20    1  b(n))\n\
            \x2010   continue\n";
        for line in [2, 4] {
            let (text, _) = statement(Form::Fixed, fixed, line).expect("it is there");
            let words: Vec<&str> = text.split_whitespace().collect();
            assert_eq!(words, ["allocate", "(a(n),", "b(n))"], "{line}");
        }
    }

    #[test]
    fn a_statement_may_allocate_several() {
        for (text, names) in [
            ("allocate(a(n), b(n), stat = s)", &["a", "b"][..]),
            ("allocate (sp(k)%p(100000), sp(f(k, 1)) % w(200000))", &["sp(k)%p", "sp(f(k,1))%w"]),
            ("if (x == 1) ALLOCATE(real(8) :: a(0:n), b, source=c(1:n, 2))", &["a", "b"]),
            ("allocate(a(n)) ; b = 1", &["a"]),
            ("deallocate(a)", &[]),
            ("call allocate_all(a)", &[]),
            ("if (.not. allocated(a)) allocate(a(n), b(n))", &["a", "b"]),
            ("deallocate(a); allocate(b(n), c(n))", &["b", "c"]),
            ("allocate(a(3), source=[real(8) :: 1, 2, 3])", &["a"]),
            ("allocate(x(n)[1:*], y(n))", &["x", "y"]),
            ("allocate(character(len=5) :: s(n))", &["s"]),
        ] {
            assert_eq!(allocated(text), names, "{text}");
        }
    }

    #[test]
    fn components_are_not_the_variable() {
        for (text, is_named) in [
            ("allocate (OLD(n, n), cells(i))", true),
            ("allocate(cells(i)%hist(500))", false),
            ("allocate(cells (first(i), 2) % hist(500), cells(3))", true),
            ("allocate(cells%hist(500), my_cells(2), cells2(3), a%cells(2))", false),
            ("cells", true),
        ] {
            assert_eq!(
                names_whole(text, if text.contains("OLD") { "old" } else { "cells" }),
                is_named,
                "{text}"
            );
        }
    }
}
