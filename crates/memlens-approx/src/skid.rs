//! How far samples land from the instruction that they belong to.

use std::fmt;

/// A distribution of displacements: a sample lands so many positions after the one it belongs to
/// (before it, if negative). Probabilities add up to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Skid {
    /// Ascending, each displacement once.
    parts: Vec<(isize, f64)>,
}

/// Why something is no distribution. Reads after "failed to describe the skid: ".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SkidError {
    /// A weight is negative or no number.
    Weight,
    /// The weights add up to nothing.
    Empty,
    /// The variance is negative, or mean or variance no finite number.
    Parameters,
}

impl fmt::Display for SkidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Weight => "a weight is negative or not a number",
            Self::Empty => "the weights add up to nothing",
            Self::Parameters => "mean and variance must be numbers, the variance not negative",
        })
    }
}

impl std::error::Error for SkidError {}

impl Skid {
    /// No skid at all.
    pub fn none() -> Self {
        Self { parts: vec![(0, 1.0)] }
    }

    /// From a histogram of displacements, as calibration finds it: (displacement, weight), weights
    /// of any sum.
    ///
    /// # Errors
    /// If a weight is negative or no number, or all are 0.
    pub fn from_histogram(weights: &[(isize, f64)]) -> Result<Self, SkidError> {
        if weights.iter().any(|&(_, weight)| weight < 0.0 || !weight.is_finite()) {
            return Err(SkidError::Weight);
        }
        let sum: f64 = weights.iter().map(|&(_, weight)| weight).sum();
        if sum <= 0.0 {
            return Err(SkidError::Empty);
        }
        let mut parts: Vec<(isize, f64)> =
            weights.iter().filter(|part| part.1 > 0.0).map(|&(at, weight)| (at, weight / sum)).collect();
        parts.sort_by_key(|part| part.0);
        parts.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            if same {
                earlier.1 += later.1;
            }
            same
        });
        Ok(Self { parts })
    }

    /// A Gaussian of displacements (section 3.3.3: "mean and variance"), cut at three standard
    /// deviations, at whole displacements.
    ///
    /// # Errors
    /// If a parameter is no finite number or the variance negative.
    pub fn gaussian(mean: f64, variance: f64) -> Result<Self, SkidError> {
        if !mean.is_finite() || !variance.is_finite() || variance < 0.0 || mean.abs() > 1e6 || variance > 1e9
        {
            return Err(SkidError::Parameters);
        }
        let reach = 3.0 * variance.sqrt();
        let (first, last) = ((mean - reach).ceil() as isize, (mean + reach).floor() as isize);
        if variance == 0.0 || first > last {
            return Ok(Self { parts: vec![(mean.round() as isize, 1.0)] });
        }
        let weight = |at: isize| (-(at as f64 - mean).powi(2) / (2.0 * variance)).exp();
        let weights: Vec<(isize, f64)> = (first..=last).map(|at| (at, weight(at))).collect();
        Self::from_histogram(&weights)
    }

    /// Displacements with their probabilities, ascending.
    pub fn parts(&self) -> impl Iterator<Item = (isize, f64)> + '_ {
        self.parts.iter().copied()
    }
}
