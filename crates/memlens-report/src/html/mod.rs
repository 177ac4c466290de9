//! The report as one page, for a browser: no network, no other file, nothing to install.
//!
//! The page holds the rows of the tables, with the same words and columns, as JSON; a script puts them in order, filters them and opens what
//! is behind a row. What a figure means is said where it is pointed at.

mod data;
mod rows;

use memlens_analysis::{Advice, Finding};
use memlens_profile::Profile;
use serde::Serialize;

use data::Page;

/// The script's, the style's and the data's places in the page.
const TEMPLATE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Rows that a page's tables have unless more are asked for: what is left out is counted.
pub const PAGE_ROWS: usize = 200;

/// What a page shows besides the profile.
pub struct PageView<'a> {
    /// Rows of a table at most; None: all. Of an object there is more behind its row where that is of any weight.
    pub top: Option<usize>,
    /// What to do about it; None where the profile cannot tell (samples of time).
    pub advice: Option<&'a Advice>,
    /// The line of a finding that says what memlens itself can do about it.
    pub how: &'a dyn Fn(&Finding) -> Option<String>,
}

/// The page. Linear in the cells, once for each table; what is behind objects again in theirs.
pub fn html(profile: &Profile, view: &PageView<'_>) -> String {
    let page = Page::new(profile, view);
    let title = format!("memlens: {}", page.command());
    let [before, after_title, after_style, after_data, end] = pieces();
    [before, &text(&title), after_title, STYLE, after_style, &in_script(&page), after_data, SCRIPT, end]
        .concat()
}

/// The template between its places.
fn pieces() -> [&'static str; 5] {
    let mut rest = TEMPLATE;
    let places = ["{{title}}", "{{style}}", "{{data}}", "{{script}}"].map(|place| {
        let (before, after) = rest.split_once(place).unwrap_or((rest, ""));
        rest = after;
        before
    });
    let [title, style, data, script] = places;
    [title, style, data, script, rest]
}

/// A text between tags.
fn text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// JSON inside of a script's tags, which nothing in it ends: names come from the profiled program's files.
fn in_script(data: &impl Serialize) -> String {
    // There is nothing in it that JSON cannot say.
    let json = serde_json::to_string(data).unwrap_or_default();
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_has_its_places_once_and_in_order() {
        let pieces = pieces();
        assert!(pieces.iter().all(|piece| !piece.is_empty() && !piece.contains("{{")), "{pieces:?}");
    }

    #[test]
    fn no_name_ends_the_script() {
        let data = in_script(&["</script><script>alert(1)</script>", "<!--", "a\u{2028}b"]);
        assert!(!data.contains('<') && !data.contains('\u{2028}'), "{data}");
        let back: Vec<String> = serde_json::from_str(&data).unwrap();
        assert_eq!(back, ["</script><script>alert(1)</script>", "<!--", "a\u{2028}b"]);
        assert_eq!(text("a<b>&c"), "a&lt;b&gt;&amp;c");
    }

    #[test]
    fn a_page_needs_nothing_from_elsewhere() {
        let view = PageView { top: None, advice: None, how: &|_| None };
        let page = html(&Profile::default(), &view);
        for word in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!page.contains(word), "{word}");
        }
        assert!(page.ends_with("</html>\n"), "{}", &page[page.len() - 40..]);
    }
}
