//! What is special about the text of Fortran.

use super::is_name;

/// Whether a file has Fortran in it, by its name.
pub(crate) fn is_fortran_file(file: &str) -> bool {
    let extension = file.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    matches!(&*extension, "f" | "for" | "ftn" | "f77" | "f90" | "f95" | "f03" | "f08" | "f18" | "f23")
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

/// `a` of `allocate(a(n), b(n))`.
pub(super) fn allocated(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let at = lower.find("allocate")?;
    if lower[..at].ends_with(is_name) {
        return None;
    }
    let rest = text[at + "allocate".len()..].trim_start().strip_prefix('(')?;
    // `allocate(integer(8) :: a(n))`: a type may come first.
    let rest = rest.split_once("::").map_or(rest, |(_, names)| names).trim_start();
    // `cells(i)%hist(500)`: the last brackets are the shape of what is allocated.
    let (mut depth, mut end) = (0, 0);
    for (at, c) in rest.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth > 0 => depth -= 1,
            _ if depth > 0 => {}
            c if is_name(c) || c == '%' => end = at + c.len_utf8(),
            _ => break,
        }
    }
    let name: String = rest[..end].split_whitespace().collect();
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

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
