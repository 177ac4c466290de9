//! The forms a trace can be written in.

use std::fmt;
use std::str::FromStr;

use crate::word::nearest;

/// The form of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TraceFormat {
    /// A line an access, for people.
    Text,
    /// Comma-separated values and two side files.
    Csv,
    /// A folder of Parquet files.
    Parquet,
}

impl TraceFormat {
    /// All forms.
    pub const ALL: [Self; 3] = [Self::Text, Self::Csv, Self::Parquet];

    /// The word of the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Csv => "csv",
            Self::Parquet => "parquet",
        }
    }
}

impl fmt::Display for TraceFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A word that names no [`TraceFormat`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ParseFormatError {
    /// The word given.
    pub word: String,
    /// The nearest valid word, if one is near.
    pub nearest: Option<&'static str>,
}

impl fmt::Display for ParseFormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "‘{}’ is no trace format", self.word)?;
        match self.nearest {
            Some(nearest) => write!(f, "; did you mean ‘{nearest}’?"),
            None => f.write_str("; valid are text, csv, parquet"),
        }
    }
}

impl FromStr for TraceFormat {
    type Err = ParseFormatError;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|format| format.as_str() == word).ok_or_else(|| ParseFormatError {
            word: word.to_owned(),
            nearest: nearest(word, Self::ALL.into_iter().map(Self::as_str)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_parse_back_and_near_ones_are_offered() {
        for format in TraceFormat::ALL {
            assert_eq!(format.as_str().parse(), Ok(format));
        }
        let error = "paquet".parse::<TraceFormat>().unwrap_err();
        assert_eq!(error.to_string(), "‘paquet’ is no trace format; did you mean ‘parquet’?");
        let error = "xml".parse::<TraceFormat>().unwrap_err();
        assert_eq!(error.to_string(), "‘xml’ is no trace format; valid are text, csv, parquet");
    }
}
