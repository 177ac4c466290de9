//! Words from a fixed list, as clap's value parsers: errors come from the list's own crate, completions
//! and help from the list.

use std::marker::PhantomData;
use std::str::FromStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command};

/// Parses a word with `T::from_str`, whose error names the nearest valid word.
#[derive(Clone)]
pub struct Words<T> {
    valid: Vec<PossibleValue>,
    result: PhantomData<T>,
}

impl<T> Words<T> {
    /// A parser that offers these words, each with its meaning, if there is something to say.
    pub fn new<'a>(valid: impl IntoIterator<Item = (&'static str, Option<&'a str>)>) -> Self {
        let valid = valid.into_iter().map(|(word, meaning)| match meaning {
            Some(meaning) => PossibleValue::new(word).help(meaning.to_owned()),
            None => PossibleValue::new(word),
        });
        Self { valid: valid.collect(), result: PhantomData }
    }
}

impl<T> TypedValueParser for Words<T>
where
    T: FromStr + Clone + Send + Sync + 'static,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    type Value = T;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<T, clap::Error> {
        (|text: &str| text.parse::<T>()).parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.valid.iter().cloned()))
    }
}
