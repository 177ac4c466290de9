//! What is advised for a profile: as text, for programs, and the words of which a page is made.

mod json;
mod remedy;
mod text;
mod told;
mod words;

pub use json::{ADVICE_SCHEMA, advice_json};
pub use remedy::comes_by_steps;
pub use text::advice_text;
pub(crate) use told::Told;
