//! Texts that many rows share.

use std::collections::HashSet;
use std::sync::Arc;

/// Keeps each text once: the frames of a large program have a hundred thousand names of files, of which a few hundred
/// differ.
#[derive(Clone, Debug, Default)]
pub struct Texts(HashSet<Arc<str>>);

impl Texts {
    /// The one that is equal to this.
    pub fn shared(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.0.get(text) {
            return known.clone();
        }
        let new: Arc<str> = text.into();
        self.0.insert(new.clone());
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_one() {
        let mut texts = Texts::default();
        let first = texts.shared("main.c");
        assert!(Arc::ptr_eq(&first, &texts.shared("main.c")));
        assert_eq!(&*texts.shared("other.c"), "other.c");
    }
}
