//! The left-hand side of an assignment, read from source text.
//!
//! This is no parser of C, C++, Rust or Fortran: it knows the common shapes of a statement that
//! keeps an allocation, and answers None for everything else.

pub(crate) mod fortran;

/// Methods that make the object they are called on allocate.
const GROWING_METHODS: [&str; 20] = [
    "push_back",
    "emplace_back",
    "push_front",
    "emplace",
    "emplace_front",
    "resize",
    "reserve",
    "assign",
    "insert",
    "append",
    "push",
    "push_str",
    "extend",
    "extend_from_slice",
    "reset",
    "try_emplace",
    "entry",
    "extend_from_within",
    "get_or_insert_with",
    "resize_with",
];

/// What a statement allocates with that is no container's method.
const ALLOCATING: [&str; 6] = ["new ", "make_", "alloc(", "alloc_", "Box::", "Rc::"];

/// Words that begin a statement which declares nothing, or that are no names.
const KEYWORDS: [&str; 22] = [
    "return",
    "if",
    "else",
    "while",
    "for",
    "switch",
    "case",
    "do",
    "goto",
    "throw",
    "delete",
    "new",
    "sizeof",
    "co_return",
    "match",
    "loop",
    "call",
    "print",
    "using",
    "typedef",
    "struct",
    "let",
];

/// The head of a structure's literal is looked for in so many lines above one of its fields.
const MOST_FIELDS_ABOVE: u32 = 32;

/// What a statement seems to keep an allocation in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Receiver {
    /// As spelled: `column`, `graph->column`, `rows[i]`, `self.buffer`.
    pub(crate) name: String,
    /// What the statement does with it.
    pub(crate) by: Means,
}

/// What a statement does with the variable that receives an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Means {
    /// It allocates it (`allocate(a(n))`).
    Allocation,
    /// It calls a method of it that makes it allocate, and keeps the result elsewhere, unless that allocates, too.
    Growth,
    /// It assigns a call's result to it, or calls a method of it.
    Call,
    /// It calls nothing that it spells: an operator or a constructor may allocate, which only objects of classes have.
    Operator,
}

/// The variables that the statements of a text keep the result of a call in, the likeliest first. The statement that a
/// loop or a condition governs comes before its head: a counter in a head receives nothing that the statement
/// allocates. Of several statements only that counts in which the call is, if its place in the text is known.
pub(crate) fn receivers(text: &str, call: Option<usize>) -> Vec<Receiver> {
    let text = without_comments_and_strings(text);
    let mut clauses = clauses(&text);
    let has_call = |clause: &&str| {
        let start = clause.as_ptr() as usize - text.as_ptr() as usize;
        call.is_some_and(|call| (start..start + clause.len()).contains(&call))
    };
    let mut further = None;
    if let Some(&clause) = clauses.iter().find(|clause| has_call(clause)) {
        let start = clause.as_ptr() as usize - text.as_ptr() as usize;
        further = call.and_then(|call| {
            further_declared(clause, call - start).or_else(|| field_of_literal(clause, call - start))
        });
        clauses = vec![clause];
    }
    // `let count = counts.entry(word).or_default();`: what is assigned is not what grew.
    let grown = clauses.iter().filter_map(|clause| {
        let right = &clause[assignment_sign(clause)? + 1..];
        let allocates = ALLOCATING.iter().any(|word| right.contains(word));
        let by = if allocates { Means::Call } else { Means::Growth };
        Some(Receiver { name: growing_call(right)?, by })
    });
    // `int &count = counts[word];`: nor is what refers to a part of it.
    let of_part = clauses.iter().filter_map(|clause| clause.split_at_checked(assignment_sign(clause)?));
    let of_part = of_part.filter(|(left, _)| declares_reference(left)).flat_map(|(_, right)| indexed(right));
    let kept = clauses.iter().filter_map(|clause| receiver(clause));
    let indexed = clauses.iter().flat_map(|clause| indexed(clause));
    let further = further.into_iter().map(|name| Receiver { name, by: Means::Call });
    further.chain(grown).chain(of_part).chain(kept).chain(indexed).collect()
}

/// What a Fortran statement makes room for, if that is several variables, and whether it copies something to them.
pub(crate) fn allocated_together(file: &str, statement: &str) -> Option<(Vec<String>, bool)> {
    fortran::Form::of(file)?;
    let text = without_comments_and_strings(statement);
    let all = fortran::allocated(&text);
    (all.len() > 1).then(|| (all, fortran::copies(&text)))
}

/// Whether what stands before an assignment's sign declares a reference (C++).
fn declares_reference(left: &str) -> bool {
    let type_name = left.trim_end().trim_end_matches(|c: char| c.is_alphanumeric() || c == '_').trim_end();
    type_name.strip_suffix('&').is_some_and(|before| {
        before.trim_end().ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '>')
    })
}

/// What has an index in a statement, whatever is done with that: `counts[key]++` makes room for an element.
fn indexed(text: &str) -> impl Iterator<Item = Receiver> {
    let name_before = |(at, _)| {
        let before = text[..at].trim_end();
        Some(Receiver { name: before[expression_start(before)?..].to_owned(), by: Means::Operator })
    };
    text.match_indices('[').filter_map(name_before)
}

/// The statements of a text; then what is in the brackets after `for`, `if`, `while` and `switch`.
fn clauses(text: &str) -> Vec<&str> {
    let mut heads = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || "{};".contains(c));
        match head_of(rest) {
            Some(("", after)) => rest = after,
            Some((head, after)) => {
                heads.extend(separated(head));
                rest = after;
            }
            None => match body_of(rest) {
                Some(body) => rest = body,
                None => break,
            },
        }
    }
    // Further conditions and functions follow on lines that hold several statements.
    let mut found: Vec<&str> = Vec::new();
    for statement in separated(rest) {
        let begin = statement.trim_start_matches(|c: char| c.is_whitespace() || "{};".contains(c));
        match head_of(begin).is_some() || body_of(begin).is_some() {
            true => found.extend(clauses(begin)),
            false => found.push(statement),
        }
    }
    found.extend(heads);
    found
}

/// What is in the brackets of the loop or condition that a text begins with (nothing after `else` and `do`), and what
/// comes after it.
fn head_of(text: &str) -> Option<(&str, &str)> {
    let word = first_word(text);
    let after = text[word.len()..].trim_start();
    match word {
        "else" | "do" => return Some(("", after)),
        "for" | "if" | "while" | "switch" => {}
        _ => return None,
    }
    let after = after.strip_prefix("constexpr").unwrap_or(after).trim_start().strip_prefix('(')?;
    let mut depth = 1;
    for (at, c) in after.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some((&after[..at], &after[at + 1..]));
        }
    }
    Some((after, ""))
}

/// What is in the braces of the function or class that a text begins with the head of.
fn body_of(text: &str) -> Option<&str> {
    let (head, body) = text.split_once('{')?;
    let last_word = head.split_whitespace().next_back()?;
    let is_function =
        last_word.ends_with(')') || ["const", "noexcept", "override", "final"].contains(&last_word);
    let is_class = ["struct", "class", "namespace"].contains(&first_word(head));
    let is_statement = head.contains([';', '=']);
    ((is_function || is_class) && !is_statement).then_some(body)
}

/// The parts of a text that end with a semicolon outside of brackets, and the rest.
fn separated(text: &str) -> Vec<&str> {
    let mut depth = 0i32;
    text.split_inclusive(|c| {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            _ => {}
        }
        c == ';' && depth <= 0
    })
    .map(str::trim)
    .collect()
}

/// `rows[i].cells` of `rows[i].cells[k]`.
fn without_subscript(name: &str) -> &str {
    let mut depth = 0;
    for (at, c) in name.char_indices().rev() {
        match c {
            ']' => depth += 1,
            '[' => depth -= 1,
            _ => {}
        }
        match depth {
            0 if c == '[' => return &name[..at],
            0 => break,
            _ => {}
        }
    }
    name
}

/// What a single statement keeps the result of a call in.
fn receiver(text: &str) -> Option<Receiver> {
    let of = |name, by| Some(Receiver { name, by });
    if let Some(name) = fortran::allocated(text).into_iter().next() {
        return of(name, Means::Allocation);
    }
    if first_word(text) == "return" {
        return None;
    }
    if let Some(mut at) = assignment_sign(text) {
        // `int *a = 0, *b = malloc(n)`: of several declarators the one with the first call.
        while let Some(more) = assignment_sign(&text[at + 1..])
            && !text[at + 1..at + 1 + more].contains(['(', '{', '!'])
        {
            at += 1 + more;
        }
        let (left, right) = (&text[..at], &text[at + 1..]);
        let calls = right.contains(['(', '!', '{']) || right.contains("new ") || right.trim().is_empty();
        let name = left_hand_side(left)?;
        if calls {
            return of(name, Means::Call);
        }
        // `table[key] = 1`: the table makes room for an element.
        return of(without_subscript(&name).to_owned(), Means::Operator);
    }
    if let Some((left, _)) = text.split_once("+=") {
        return of(left_hand_side(left)?, Means::Operator);
    }
    if let Some(name) = growing_call(text).or_else(|| declaration(text)) {
        return of(name, Means::Call);
    }
    of(plain_declaration(text)?, Means::Operator)
}

/// A statement of another language than Fortran is looked for in so many lines above the one with the call.
const MOST_LINES_ABOVE: u32 = 8;

/// The text of the statement with code in a line of a file; and where the line begins in it. Of Fortran's it is the whole
/// statement; others' calls are in the lines that their names are in, and what receives their results is not below.
pub(crate) fn statement(
    file: &str,
    line: u32,
    text_of: impl Fn(u32) -> Option<String>,
) -> Option<(String, usize)> {
    if let Some(form) = fortran::Form::of(file) {
        return form.statement(line, text_of);
    }
    let mut statement = text_of(line)?;
    let mut start = 0;
    for above in (line.saturating_sub(MOST_LINES_ABOVE)..line).rev() {
        let Some(above) = text_of(above).filter(|above| !has_receiver(&statement) && continues(above)) else {
            break;
        };
        start += above.len() + 1;
        statement = format!("{above}\n{statement}");
    }
    let first = line - statement.matches('\n').count() as u32;
    if let Some(above) = head_of_literal(&statement, first, text_of) {
        start += above.len();
        statement = above + &statement;
    }
    Some((statement, start))
}

/// The lines above `line`, which begins with one of a structure's fields (`edges: vec![0; n],`), up to that which assigns the structure to a variable.
fn head_of_literal(statement: &str, line: u32, text_of: impl Fn(u32) -> Option<String>) -> Option<String> {
    let is_field = |text: &str| {
        let text = text.trim_start().trim_start_matches('.');
        let end = text.find(|c: char| !is_name(c)).unwrap_or(text.len());
        let behind = text[end..].trim_start();
        end > 0 && (behind.starts_with(':') && !behind.starts_with("::") || behind.starts_with('='))
    };
    let is_open = statement.trim_end().ends_with([',', '{', '(', '[', ')']);
    if !is_field(statement) || !is_open || has_receiver(statement) && !statement.trim_start().starts_with('.')
    {
        return None;
    }
    let mut head = String::new();
    for above in (line.saturating_sub(MOST_FIELDS_ABOVE)..line).rev() {
        let above = text_of(above)?;
        head = format!("{above}\n{head}");
        match above.trim_end() {
            text if text.ends_with(',') => {}
            text if text.ends_with('{') => return has_receiver(text).then_some(head),
            _ => return None,
        }
    }
    None
}

/// Whether a text has something to the left of a sign that assigns.
fn has_receiver(text: &str) -> bool {
    let text = without_comments_and_strings(text);
    assignment_sign(&text).is_some_and(|at| !text[..at].trim().is_empty())
}

/// Whether a statement seems to begin on an earlier line than the next one, or is after a comment. What follows the head
/// of a loop or a condition is a statement of its own.
fn continues(line: &str) -> bool {
    let text = without_comments_and_strings(line);
    let text = text.trim();
    if text.is_empty() {
        return !line.trim().is_empty();
    }
    if text.ends_with([';', '{', '}', ':']) || text.starts_with('#') {
        return false;
    }
    let inner = text.trim_start_matches(|c: char| c == '}' || c.is_whitespace());
    let inner = inner.strip_prefix("else ").unwrap_or(inner).trim_start();
    let is_head = head_of(inner).is_some_and(|(_, after)| after.is_empty() && !ends_open(inner));
    !(is_head || ends_closed(text))
}

/// Whether more brackets are opened than closed.
fn ends_open(text: &str) -> bool {
    text.matches('(').count() > text.matches(')').count()
}

/// Whether the text ends with a bracket that an earlier line opened, as the last line of a head does.
fn ends_closed(text: &str) -> bool {
    text.ends_with(')') && text.matches('(').count() < text.matches(')').count()
}

fn first_word(text: &str) -> &str {
    text.split(|c: char| !is_name(c)).next().unwrap_or_default()
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Replaces comments and the contents of string literals by blanks, each byte by one.
fn without_comments_and_strings(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let blank = |out: &mut String, c: char| match c {
        '\n' => out.push('\n'),
        c => out.extend(std::iter::repeat_n(' ', c.len_utf8())),
    };
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '/' if chars.peek() == Some(&'/') => {
                out.push(' ');
                for c in chars.by_ref() {
                    blank(&mut out, c);
                    if c == '\n' {
                        break;
                    }
                }
            }
            '/' if chars.peek() == Some(&'*') => {
                let mut last = ' ';
                chars.next();
                out.push_str("  ");
                for c in chars.by_ref() {
                    blank(&mut out, c);
                    if last == '*' && c == '/' {
                        break;
                    }
                    last = c;
                }
            }
            '"' => {
                out.push('"');
                while let Some(c) = chars.next() {
                    match c {
                        '"' => {
                            out.push('"');
                            break;
                        }
                        '\\' => {
                            blank(&mut out, c);
                            chars.next().into_iter().for_each(|c| blank(&mut out, c));
                        }
                        c => blank(&mut out, c),
                    }
                }
            }
            _ => out.push(c),
        }
    }
    out
}

/// The byte index of the first `=` that assigns.
fn assignment_sign(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut angle = 0i32;
    // `let v:Vec<u64>=…`: where the list of a type's parameters ends, `>=` compares nothing.
    let mut parameters_end = None;
    let is_declaration = text.trim_start().starts_with("let ");
    for (at, &byte) in bytes.iter().enumerate() {
        let before = at.checked_sub(1).map(|i| bytes[i]);
        let after = bytes.get(at + 1).copied();
        match byte {
            b'<' => angle += 1,
            b'>' if before != Some(b'-') && before != Some(b'=') => {
                angle -= 1;
                parameters_end = (is_declaration && angle == 0).then_some(at);
            }
            b'=' => {
                let compound = matches!(
                    before,
                    Some(
                        b'=' | b'!'
                            | b'<'
                            | b'>'
                            | b'+'
                            | b'-'
                            | b'*'
                            | b'/'
                            | b'%'
                            | b'&'
                            | b'|'
                            | b'^'
                            | b':'
                    )
                );
                let is_behind_type = at > 0 && parameters_end == Some(at - 1);
                if (!compound || is_behind_type) && !matches!(after, Some(b'=' | b'>')) && angle <= 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// The expression or declared name at the end of the text before `=`.
fn left_hand_side(left: &str) -> Option<String> {
    let mut left = left.trim_end();
    // `let v: Vec<i32> = …` and `let mut v = …`.
    let inner = left.rsplit(['(', ';', '{']).next().unwrap_or(left).trim_start();
    if let Some(rest) = inner.strip_prefix("let ").or_else(|| left.trim_start().strip_prefix("let ")) {
        let rest = rest.trim_start();
        let rest = rest.strip_prefix("mut ").unwrap_or(rest).trim_start();
        let name: String = rest.chars().take_while(|&c| is_name(c)).collect();
        return (!name.is_empty() && name != "_" && name != "Some" && name != "Ok").then_some(name);
    }
    // A declared array or attribute: `int *rows[4] = {…}` is no allocation; keep `rows[i]`.
    let start = expression_start(left)?;
    let dereferenced = left[..start].trim() == "*";
    left = &left[start..];
    let name: String = left.split_whitespace().collect();
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || KEYWORDS.contains(&name.as_str())
    {
        return None;
    }
    Some(if dereferenced { format!("*{name}") } else { name })
}

/// Where the postfix expression that ends the text starts: names joined by `.`, `->`, `::`, `%`,
/// with subscripts.
fn expression_start(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = bytes.len();
    loop {
        // Subscripts.
        while at > 0 && bytes[at - 1] == b']' {
            let mut depth = 0;
            while at > 0 {
                at -= 1;
                match bytes[at] {
                    b']' => depth += 1,
                    b'[' => depth -= 1,
                    _ => {}
                }
                if depth == 0 {
                    break;
                }
            }
            if depth != 0 {
                return None;
            }
        }
        let end = at;
        while at > 0
            && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_' || bytes[at - 1] >= 0x80)
        {
            at -= 1;
        }
        if at == end {
            return None;
        }
        let before = &text[..at];
        match ["->", "::", ".", "%"].iter().find(|joint| before.ends_with(**joint)) {
            Some(joint) => at -= joint.len(),
            None => return Some(at),
        }
    }
}

/// `v` of `v.push_back(x);`.
fn growing_call(text: &str) -> Option<String> {
    let open = text.find('(')?;
    let (left, method) = text[..open].trim_end().rsplit_once(['.', '>'])?;
    if !GROWING_METHODS.contains(&method.trim()) {
        return None;
    }
    let left = left.strip_suffix('-').unwrap_or(left).trim();
    let left = left.trim_start_matches(['*', '&']);
    let name = left_hand_side(left.strip_prefix("mut ").unwrap_or(left))?;
    (name != "this" && name != "self").then_some(name)
}

/// `v` of `std::vector<int> v(n);` or `Buffer b{n};`.
fn declaration(text: &str) -> Option<String> {
    let text = text.strip_suffix(';')?.trim_end();
    if KEYWORDS.contains(&first_word(text)) || !text.ends_with([')', '}']) {
        return None;
    }
    // The first bracket outside of template arguments.
    let mut angle = 0i32;
    let open = text.char_indices().find_map(|(at, c)| {
        match c {
            '<' => angle += 1,
            '>' => angle -= 1,
            '(' | '{' if angle <= 0 => return Some(at),
            _ => {}
        }
        None
    })?;
    declared_name(&text[..open])
}

/// `w` of `std::vector<int> v(n), w(2 * n);` or `int *v = f(n), *w = f(2 * n);`, where the call is in its part of that.
fn further_declared(text: &str, call: usize) -> Option<String> {
    let is_assigned = declaration(text).is_none();
    if is_assigned
        && (assignment_sign(text).is_none()
            || KEYWORDS.contains(&first_word(text)) && first_word(text) != "struct")
    {
        return None;
    }
    let mut depth = 0i32;
    let ends_declarator = |c: char| {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' | '>' => depth -= 1,
            _ => {}
        }
        c == ',' && depth <= 0
    };
    let mut declarators = text.split(ends_declarator);
    let mut behind = declarators.next()?.len() + 1;
    if call < behind {
        return None;
    }
    let declarator = declarators.find(|declarator| {
        behind += declarator.len() + 1;
        call < behind
    })?;
    let name = declarator.trim_start().trim_start_matches(['*', '&']).trim_start();
    let end = name.find(|c: char| !is_name(c)).unwrap_or(name.len());
    let is_one = !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit());
    let behind = name[end..].trim_start();
    let has_own = !is_assigned || behind.starts_with('=') && !behind.starts_with("==");
    (end > 0 && is_one && has_own).then(|| name[..end].to_owned())
}

/// `w.edges` of `let w = Graph { nodes: Vec::new(), edges: vec![0; n] };` or `struct graph w = {.nodes = 0, .edges = malloc(n)};`, where
/// the call is in what that field gets.
fn field_of_literal(text: &str, call: usize) -> Option<String> {
    // The innermost bracket that is open at the call, and where the field's part begins.
    let (mut open, mut parts) = (Vec::new(), vec![0]);
    for (at, c) in text.char_indices().take_while(|&(at, _)| at < call) {
        match c {
            '(' | '[' | '{' => {
                open.push((at, c));
                parts.push(at + 1);
            }
            ')' | ']' | '}' => {
                open.pop();
                parts.pop();
            }
            ',' => *parts.last_mut()? = at + 1,
            _ => {}
        }
    }
    let (at, _) = *open.last().filter(|(_, bracket)| *bracket == '{')?;
    let part = text.get(*parts.last()?..call)?.trim_start();
    let name_of = |text: &str| {
        let end = text.find(|c: char| !is_name(c)).unwrap_or(text.len());
        let behind = text[end..].trim_start();
        (end > 0).then(|| (text[..end].to_owned(), behind.to_owned()))
    };
    let field = match part.strip_prefix('.') {
        Some(part) => name_of(part).filter(|(_, behind)| behind.starts_with('='))?.0,
        None => name_of(part).filter(|(_, behind)| behind.starts_with(':') && !behind.starts_with("::"))?.0,
    };
    // The structure's name, if the language has it there; then what is assigned to.
    let before = text[..at].trim_end().trim_end_matches(|c: char| is_name(c) || c == ':').trim_end();
    let before =
        before.strip_suffix(')').map_or(before, |cast| cast.rsplit_once('(').map_or(cast, |(left, _)| left));
    let left = before.trim_end().strip_suffix('=')?;
    Some(format!("{}.{field}", left_hand_side(left)?))
}

/// `v` of `std::deque<int> v;`.
fn plain_declaration(text: &str) -> Option<String> {
    let text = text.strip_suffix(';')?;
    if KEYWORDS.contains(&first_word(text)) { None } else { declared_name(text) }
}

/// The name that a text ends with, if what comes before it may be a type.
fn declared_name(text: &str) -> Option<String> {
    let head = text.trim_end();
    let start = head.rfind(|c: char| !is_name(c)).map_or(0, |at| at + 1);
    let (of_type, name) = head.split_at(start);
    let plausible = of_type.ends_with([' ', '>', '*', '&'])
        && !of_type.trim().is_empty()
        && !of_type.contains("->")
        && of_type.chars().all(|c| is_name(c) || c.is_whitespace() || ":<>,*&[]".contains(c));
    (plausible && !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()))
        .then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_declarators_that_with_the_call_counts() {
        let text = "std::map<int, int> a(n), *b(x), c{1, 2}, d(f(3), 4);";
        let first = |part: &str| {
            let place = text.find(part).expect("there") + part.len() - 1;
            receivers(text, Some(place)).into_iter().next().map(|receiver| receiver.name)
        };
        let names = ["a(n)", "b(x)", "c{1, 2}", "d(f(3), 4)"].map(|part| first(part).unwrap_or_default());
        assert_eq!(names, ["a", "b", "c", "d"]);
        for (text, call, name) in [
            ("struct buf a = make(1), b = make(2);", "make(2)", "b"),
            ("struct buf a = make(1), b = make(2);", "make(1)", "a"),
            ("int *a = calloc(n, 4), *b = calloc(m, 4), c = 3;", "calloc(m", "b"),
            ("total = sum(a, b), p = make(2);", "make(2)", "p"),
            ("p = pick(a, b == make(2));", "make(2)", "p"),
        ] {
            let found = receivers(text, text.find(call)).into_iter().next();
            assert_eq!(found.map(|receiver| receiver.name).as_deref(), Some(name), "{text}");
        }
    }

    #[test]
    fn fields_of_a_literal_have_their_names() {
        let first = |text: &str, part: &str| {
            let place = text.find(part).expect("there");
            receivers(text, Some(place)).into_iter().next().map(|receiver| receiver.name)
        };
        let text = "let mut w=World{aa:Vec::with_capacity(n),bb:Box::new([f(1, 2), 3]), cc: vec![0; n]};";
        let names = ["Vec::with", "Box::new", "vec!"].map(|part| first(text, part).unwrap_or_default());
        assert_eq!(names, ["w.aa", "w.bb", "w.cc"]);
        let text = "struct graph g = {.nodes = malloc(n), .edges = (int *)calloc(m, 4)};";
        let names = ["malloc", "calloc"].map(|part| first(text, part).unwrap_or_default());
        assert_eq!(names, ["g.nodes", "g.edges"]);
        assert_eq!(
            first("self.state = State { rows: vec![0; n] };", "vec!").as_deref(),
            Some("self.state.rows")
        );
        // No literal of a structure: an array, a block.
        assert_eq!(first("int *rows[] = {malloc(4), malloc(8)};", "malloc(8)").as_deref(), Some("rows[]"));
        let lines = [
            "let mut w = World {",
            "    aa: Vec::with_capacity(n),",
            "    bb: Vec::with_capacity(n * 4),",
            "};",
        ];
        let text_of = |line: u32| lines.get(line.checked_sub(1)? as usize).map(|&line| line.to_owned());
        let (text, start) = statement("a.rs", 3, text_of).expect("a line");
        let place = Some(start + 8);
        assert_eq!(receivers(&text, place).into_iter().next().map(|it| it.name).as_deref(), Some("w.bb"));
    }

    #[test]
    fn a_container_that_grows_is_told_from_what_is_kept() {
        let means = |text: &str| receivers(text, None).into_iter().next().map(|it| (it.name, it.by));
        let grown = |name: &str| Some((name.to_owned(), Means::Growth));
        assert_eq!(means("auto [it, is_new] = levels.try_emplace(p, p);"), grown("levels"));
        assert_eq!(means("auto it = book->levels.emplace(p, Level(p)).first;"), grown("book->levels"));
        // It may be the other allocation that is kept.
        let either = means("auto it = owners.emplace(p, new Level(p)).first;");
        assert_eq!(either, Some(("owners".to_owned(), Means::Call)));
    }

    #[test]
    fn of_several_statements_that_with_the_call_counts() {
        for (text, call, name) in [
            (
                "int *histogram = new int[n]; std::vector<int> keys; keys.push_back(1);",
                "push_back",
                Some("keys"),
            ),
            ("order.emplace_front(k, k * 2); index[k] = order.begin();", "emplace_front", Some("order")),
            ("int &n = ix.words[b]; n++;", "ix.words[b]", Some("ix.words")),
            ("const std::vector<int>& row = rows[k];", "rows[k]", Some("rows")),
            ("node *p = &nodes[k];", "nodes[k]", Some("p")),
            ("/* \u{e9};é\" */ puts(\"\\\"=;\"); a = f(); b = g();", "g()", Some("b")),
            ("if (!table) table = f(n); else count = g(n);", "g(n)", Some("count")),
            ("for (int i = 0; i < n; i++) free(f(n)); b = g();", "f(n)", None),
            ("int main(){jobs.resize(4000); run(jobs);", "resize", Some("jobs")),
            ("struct S { int n; void add(int i) const { rows.push_back(i); }", "push_back", Some("rows")),
            (
                "for (int i = 0; i < n; i++) { long a = i; if (i & 1) list.push_back(a); }",
                "push_back",
                Some("list"),
            ),
            ("a = f();", "nowhere", Some("a")),
        ] {
            let found = receivers(text, Some(text.find(call).unwrap_or(text.len()))).into_iter().next();
            assert_eq!(found.map(|receiver| receiver.name).as_deref(), name, "{text}");
        }
    }

    #[test]
    fn statements_and_their_left_hand_sides() {
        for (statement, name) in [
            ("int *column = malloc(n * sizeof(int));", Some("column")),
            ("void* p = arena.allocate(sizeof(Node), alignof(Node));", Some("p")),
            ("p = allocate(n);", Some("p")),
            ("if (n > 0) allocate(a(n), b(n))", Some("a")),
            ("    int* column=(int*)malloc(n);", Some("column")),
            ("g->column = calloc(n, 4);", Some("g->column")),
            ("g->rows[i].cells = calloc(n, 4);", Some("g->rows[i].cells")),
            ("matrix[i] = malloc(n);", Some("matrix[i]")),
            ("*out = malloc(n);", Some("*out")),
            ("if ((p = malloc(n)) == NULL) return 1;", Some("p")),
            ("if (!(buffer = xmalloc(n)))", Some("buffer")),
            ("char *a = 0, *b = malloc(n);", Some("b")),
            ("return malloc(n);", None),
            ("free(malloc(n));", None),
            ("x == malloc(n);", None),
            ("total += count(n);", None),
            ("auto *graph = new Graph(n);", Some("graph")),
            ("this->column = new int[n];", Some("this->column")),
            ("std::vector<int> v(n);", Some("v")),
            ("std::map<int, std::pair<int, int>> index{a, b};", Some("index")),
            ("std::unique_ptr<int[]> owned = std::make_unique<int[]>(n);", Some("owned")),
            ("queue.push_back(v);", Some("queue")),
            ("g.levels->push_back(v);", Some("g.levels")),
            ("let v = Vec::with_capacity(n);", Some("v")),
            ("let mut visited: Vec<u8> = vec![0; n];", Some("visited")),
            ("let keys:Vec<u64>=(0..n).collect();", Some("keys")),
            ("let rows:Vec<Vec<u64>>=vec![vec![0; n]; n];", Some("rows")),
            ("if a<b&&c>=d {", None),
            ("self.buffer = vec![0; n];", Some("self.buffer")),
            ("*self.index.entry(key).or_insert_with(|| {", Some("self.index")),
            ("self.index\n    .entry(key)", Some("self.index")),
            ("(*counts).entry(word) += 1;", None),
            ("auto [place, is_new] = index.emplace(key, value);", Some("index")),
            ("foo(bar.push(3));", None),
            ("allocate(a(n), b(n))", Some("a")),
            ("ALLOCATE(grid%cells(n, m), stat=ierr)", Some("grid%cells")),
            ("allocate(cells(i)%hist(500))", Some("cells(i)%hist")),
            ("allocate(cells(first(i), j)%hist(n), x(n))", Some("cells(first(i),j)%hist")),
            ("deallocate(a)", None),
            ("s = \"a = b\"; // p = malloc(3)", None),
            ("int *p = /* q = */ malloc(3);", Some("p")),
            ("", None),
            ("=", None),
            ("] = f(", None),
        ] {
            let found =
                receivers(statement, None).into_iter().find(|receiver| receiver.by != Means::Operator);
            assert_eq!(found.map(|receiver| receiver.name).as_deref(), name, "{statement}");
        }
    }

    #[test]
    fn what_a_loop_or_condition_governs_comes_before_its_head() {
        for (text, name) in [
            ("for (int i = 0; i < n; i++) list.push_back(i);", "list"),
            ("for (int i = first(); i < n; i++) list.push_back(i);", "list"),
            ("for (int i = 0; i < n; i++)\n  a.col.push_back(i % n);", "a.col"),
            ("for (auto &r : rows) r.assign(500, n);", "r"),
            ("for (auto &r : rows) for (int x : r) sums.push_back(x);", "sums"),
            ("for (Node *p = make(n); p; p = p->next) use(p);", "p"),
            ("if (rnd() & 1) shapes.emplace_back(new Circle(i));", "shapes"),
            ("else shapes.push_back(std::make_unique<Rect>(i, i));", "shapes"),
            ("} else if (x) { v.push_back(x); }", "v"),
            ("while ((line = next(file))) count(line);", "line"),
            ("if constexpr (wide) table.resize(n);", "table"),
            ("a = 1; names.emplace_back(\"a\");", "names"),
        ] {
            let found = receivers(text, None).into_iter().find(|receiver| receiver.by != Means::Operator);
            assert_eq!(found.map(|receiver| receiver.name).as_deref(), Some(name), "{text}");
        }
    }

    #[test]
    fn operators_and_copies_allocate_for_objects_only() {
        for (text, name) in [
            ("std::vector<int> copy = a.col;", "copy"),
            ("hashed[k % 100] = j;", "hashed"),
            ("rows[i].cells[keys[j]] = j;", "rows[i].cells"),
            ("text += c;", "text"),
            ("hashed[k % 100]++;", "hashed"),
            ("if (f(x)) --a.entries[k].weight;", "a.entries"),
            ("std::deque<std::pair<int, int>> queue;", "queue"),
            ("text += char('a' + i % 26);", "text"),
        ] {
            let found = receivers(text, None).into_iter().next();
            assert_eq!(found, Some(Receiver { name: name.to_owned(), by: Means::Operator }), "{text}");
        }
    }

    #[test]
    fn a_statement_may_begin_a_line_earlier() {
        assert!(continues("int *column ="));
        assert!(continues("  // what comes here"));
        assert!(!continues(""));
        assert!(!continues("x = 1;"));
        assert!(!continues("{ // p"));
        assert!(continues("table.emplace(first(a),"));
        for head in
            ["for (int i = 0; i < n; i++)", "if (rnd() & 1)", "else", "} else if (f(x))", "i < n; i++)", "do"]
        {
            assert!(!continues(head), "{head}");
        }
        let lines = ["y = 2;", "g->column // one", "  /* two */", "    = make(n == 3,", "  malloc(n));"];
        let of =
            |line| statement("a.c", line, |at| Some((*lines.get((at as usize).checked_sub(1)?)?).into()));
        for line in [4, 5] {
            let (text, start) = of(line).expect("it is there");
            assert!(text.starts_with(lines[1]) && text[start..].starts_with(lines[line as usize - 1]));
            assert_eq!(receivers(&text, None)[0].name, "g->column", "{line}");
        }
        assert_eq!(of(1), Some((lines[0].to_owned(), 0)));
    }
}
