//! Intervals for shares.

/// The 97.5 % point of the normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// The lower end of the 95 % score interval of a share seen in so many observations (E. B. Wilson, Probable
/// Inference, the Law of Succession, and Statistical Inference, JASA 22, 1927).
pub(crate) fn wilson_low(share: f64, observations: f64) -> f64 {
    if observations.is_nan() || observations <= 0.0 {
        return 0.0;
    }
    let squared = Z * Z;
    let middle = share + squared / (2.0 * observations);
    let spread = share * (1.0 - share) / observations + squared / (4.0 * observations * observations);
    ((middle - Z * spread.max(0.0).sqrt()) / (1.0 + squared / observations)).clamp(0.0, share)
}
