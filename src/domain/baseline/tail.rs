//! How unlikely a count is.

use statrs::distribution::{Discrete as _, NegativeBinomial};

/// Counts closer to the expected one than this many standard deviations are no surprise at all: whatever the shape, they come more often than
/// once in a thousand.
const NEAR: f64 = 3.0;

/// What counts of one window are drawn from: a negative binomial, as a Poisson count has whose rate is itself uncertain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Law {
    /// The expected count, above 0.
    pub mean: f64,
    /// Variance divided by the mean, from 1 (Poisson) up.
    pub spread: f64,
    /// What comes on top as a share of the mean: the squared coefficient of variation of a pattern that is not known yet.
    pub unknown: f64,
}

impl Law {
    fn variance(&self) -> f64 {
        self.mean * self.spread + self.mean * self.mean * self.unknown
    }

    /// `-log10 P(X >= observed)`, 0 where that is more than about 1 in 1,000; never NaN or infinite, and, but for rounding, never
    /// less for a larger count.
    ///
    /// The tail is bounded from above by the geometric series that begins with its first term, so the surprise is a little too small rather than too
    /// large, and it can be told apart far beyond the smallest `f64`.
    pub fn surprise(&self, observed: u64) -> f64 {
        let count = observed as f64;
        if !(self.mean > 0.0 && self.variance().is_finite()) || count < self.mean + NEAR * self.variance().sqrt() {
            return 0.0;
        }
        let shape = self.mean / ((self.spread - 1.0).max(1e-4) + self.mean * self.unknown);
        // The chance of one more at each step; the mean is shape * more / (1 - more).
        let more = self.mean / (self.mean + shape);
        let Ok(law) = NegativeBinomial::new(shape, 1.0 - more) else { return 0.0 };
        // Above the mean each term is at most this part of the one before, and so are all that follow.
        let ratio = ((shape + count) / (count + 1.0) * more).max(more);
        let surprise = ((1.0 - ratio).ln() - law.ln_pmf(observed)) / std::f64::consts::LN_10;
        if surprise.is_finite() { surprise.max(0.0) } else { 0.0 }
    }

    /// The count below which a share of all lies, `z` being the standard normal's quantile of that share. Good enough for a band that is drawn.
    ///
    /// Wilson and Hilferty's cube root (Proc. Natl. Acad. Sci. 17, 1931) for a gamma distribution of the same mean and variance.
    pub fn quantile(&self, z: f64) -> f64 {
        let shape = self.mean * self.mean / self.variance();
        let root = 1.0 - 1.0 / (9.0 * shape) + z / (3.0 * shape.sqrt());
        let quantile = self.mean * root.max(0.0).powi(3);
        if quantile.is_finite() { quantile } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use statrs::distribution::DiscreteCDF as _;

    use super::*;

    fn law(mean: f64, spread: f64, unknown: f64) -> Law {
        Law { mean, spread, unknown }
    }

    #[test]
    fn the_bound_is_close_to_the_tail_and_never_below_it() {
        for (mean, spread) in [(0.01, 1.05), (0.3, 4.0), (7.5, 1.06), (7.5, 3.0), (60.0, 1.3), (60.0, 9.0), (2_000.0, 1.5)] {
            let shape = mean / (spread - 1.0);
            let exact = NegativeBinomial::new(shape, 1.0 / spread).unwrap();
            let from = (mean + 4.0 * (mean * spread).sqrt()).ceil() as u64;
            for observed in [from + 1, from + 3, from + 10] {
                let tail = -exact.sf(observed - 1).log10();
                let surprise = law(mean, spread, 0.0).surprise(observed);
                assert!(surprise <= tail + 1e-6 && tail - surprise < 0.5, "{mean} {spread} {observed}: {surprise} for {tail}");
            }
        }
    }

    #[test]
    fn a_poisson_count_of_known_rate() {
        // P(X >= 25 | 7.5) = 4.0e-7 and P(X >= 24 | 7.5) = 1.3e-6, summed by hand.
        let poisson = law(7.5, 1.000_001, 0.0);
        assert!(poisson.surprise(24) < 6.0 && poisson.surprise(25) > 6.0, "{} {}", poisson.surprise(24), poisson.surprise(25));
    }

    #[test]
    fn what_lies_near_the_mean_comes_more_often_than_once_in_a_thousand() {
        for (mean, spread) in [(0.001, 1.01), (0.05, 30.0), (1.0, 1.1), (8.0, 2.0), (50.0, 40.0), (5_000.0, 1.2)] {
            let exact = NegativeBinomial::new(mean / (spread - 1.0), 1.0 / spread).unwrap();
            let nearest = (mean + NEAR * (mean * spread).sqrt()).ceil() as u64;
            assert!(nearest <= 1 || exact.sf(nearest - 2) > 1e-3, "{mean} {spread}: {}", exact.sf(nearest - 2));
        }
    }

    proptest! {
        #[test]
        fn surprise_is_a_number_and_grows_with_the_count(
            mean in prop_oneof![Just(0.0), 1e-9..1e-3f64, 1e-3..1e3f64, 1e3..1e7f64],
            spread in prop_oneof![1.0005..2.0f64, 1.0..1e4f64],
            unknown in prop_oneof![Just(0.0), 0.0..2.0f64],
            count in 0..2_000_000_000u64,
            more in 0..1_000_000u64,
        ) {
            let law = law(mean, spread, unknown);
            let (less, greater) = (law.surprise(count), law.surprise(count + more));
            prop_assert!(less.is_finite() && greater.is_finite() && less >= 0.0);
            prop_assert!(greater >= less - 0.01 - less * 1e-6, "{less} > {greater}");
            let quantiles = [law.quantile(-1.645), law.quantile(1.645)];
            prop_assert!(quantiles.iter().all(|q| q.is_finite() && *q >= 0.0) && quantiles[0] <= quantiles[1], "{quantiles:?}");
        }
    }
}
