//! Counts of which some are not known.

/// The sum of what is known of two; `None`: nothing is.
pub fn sum_of_known(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.saturating_add(other)),
        (one, other) => one.or(other),
    }
}
