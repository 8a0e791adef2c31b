//! What messages of one failure group have more often than the rest of their DLQ.

use std::collections::{BTreeMap, BTreeSet};

/// Something a message has, of which another may have another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trait {
    Partition(i32),
    OriginPartition(i32),
    ConsumerGroup(String),
    /// The business key, else the record key.
    Key(String),
    Tenant(String),
    /// The name of a header, whatever it holds.
    Header(String),
    HeaderValue(String, String),
}

/// A trait that is more frequent here than elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contrast {
    pub of: Trait,
    /// How many messages here have it, and how many elsewhere.
    pub here: usize,
    pub elsewhere: usize,
}

/// 99.9% of a normal distribution lie within so many standard deviations. Stricter than the usual 95%: hundreds of keys and headers are compared at
/// once, and of so many some always differ by chance.
const Z: f64 = 3.29;
/// A trait of fewer messages is an accident, whatever the interval says.
const LEAST: usize = 5;

/// The traits whose share here lies above that elsewhere beyond doubt: the lower bound of its Wilson interval here is over the upper bound
/// elsewhere. The largest difference first. Nothing can be said where either side has no message: empty.
///
/// `here` and `elsewhere` hold the traits of one message each.
pub fn contrasts(here: &[BTreeSet<Trait>], elsewhere: &[BTreeSet<Trait>]) -> Vec<Contrast> {
    let (n_here, n_elsewhere) = (here.len(), elsewhere.len());
    if n_here == 0 || n_elsewhere == 0 {
        return Vec::new();
    }
    let there = counted(elsewhere);
    let contrast = |(of, here): (&Trait, usize)| Contrast { of: of.clone(), here, elsewhere: there.get(of).copied().unwrap_or(0) };
    let stands_out =
        |contrast: &Contrast| contrast.here >= LEAST && wilson(contrast.here, n_here).0 > wilson(contrast.elsewhere, n_elsewhere).1;
    let mut found: Vec<Contrast> = counted(here).into_iter().map(contrast).filter(stands_out).collect();
    let difference = |contrast: &Contrast| contrast.here as f64 / n_here as f64 - contrast.elsewhere as f64 / n_elsewhere as f64;
    found.sort_by(|a, b| difference(b).total_cmp(&difference(a)).then_with(|| a.of.cmp(&b.of)));
    without_repetitions(found)
}

/// Without the names of headers whose one value says the same.
fn without_repetitions(found: Vec<Contrast>) -> Vec<Contrast> {
    let said = |name: &str, of: &Contrast| {
        let same = |other: &Contrast| (other.here, other.elsewhere) == (of.here, of.elsewhere);
        found.iter().any(|other| matches!(&other.of, Trait::HeaderValue(header, _) if header == name) && same(other))
    };
    let repeats = |contrast: &Contrast| matches!(&contrast.of, Trait::Header(name) if said(name, contrast));
    found.iter().filter(|contrast| !repeats(contrast)).cloned().collect()
}

fn counted(messages: &[BTreeSet<Trait>]) -> BTreeMap<&Trait, usize> {
    let mut counts = BTreeMap::new();
    messages.iter().flatten().for_each(|of| *counts.entry(of).or_insert(0) += 1);
    counts
}

/// Wilson's score interval for `hits` of `n`, `n` over 0 (Wilson, JASA 22, 1927): unlike the plain one it is right for few messages and shares near 0 and 1.
fn wilson(hits: usize, n: usize) -> (f64, f64) {
    let (p, n) = (hits as f64 / n as f64, n as f64);
    let (z2, spread) = (Z * Z, p * (1.0 - p) / n);
    let middle = p + z2 / (2.0 * n);
    let half = Z * (spread + z2 / (4.0 * n * n)).sqrt();
    let scale = 1.0 + z2 / n;
    ((middle - half) / scale, (middle + half) / scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `hits` of `n` messages with the trait, all of them in partition 0.
    fn messages(of: &Trait, hits: usize, n: usize) -> Vec<BTreeSet<Trait>> {
        let one = |index: usize| BTreeSet::from_iter((index < hits).then(|| of.clone()).into_iter().chain([Trait::Partition(0)]));
        (0..n).map(one).collect()
    }

    fn found(here: (usize, usize), elsewhere: (usize, usize)) -> bool {
        let of = Trait::Partition(7);
        let found = contrasts(&messages(&of, here.0, here.1), &messages(&of, elsewhere.0, elsewhere.1));
        assert!(found.iter().all(|contrast| contrast.of == of), "what all have stands out nowhere: {found:?}");
        !found.is_empty()
    }

    #[test]
    fn a_clear_difference_stands_out_and_chance_does_not() {
        assert!(found((460, 500), (55, 500)), "92% against 11%");
        assert!(found((500, 500), (400, 500)));
        assert!(!found((50, 500), (40, 500)), "10% against 8%");
        assert!(!found((250, 500), (250, 500)));
        assert!(!found((10, 500), (400, 500)), "rarer here is not over-represented");
    }

    #[test]
    fn few_messages_prove_little() {
        assert!(!found((4, 4), (0, 500)), "four of four");
        assert!(!found((5, 500), (0, 500)), "a handful among many");
        assert!(!found((8, 10), (4, 10)));
        assert!(found((10, 10), (0, 500)));
        assert!(!found((500, 500), (0, 0)), "nothing to compare with");
        assert!(!found((0, 0), (9, 500)));
    }

    #[test]
    fn the_largest_difference_comes_first_and_a_header_is_named_once() {
        let value = Trait::HeaderValue("region".into(), "eu".into());
        let name = Trait::Header("region".into());
        let tenant = Trait::Tenant("acme".into());
        let here: Vec<_> = (0..100)
            .map(|index| {
                let with = |of: &Trait, until: usize| (index < until).then(|| of.clone());
                BTreeSet::from_iter([with(&value, 60), with(&name, 60), with(&tenant, 90)].into_iter().flatten())
            })
            .collect();
        let order: Vec<_> = contrasts(&here, &messages(&Trait::Partition(1), 1, 100)).into_iter().map(|contrast| contrast.of).collect();
        assert_eq!(order, [tenant, value]);
    }

    #[test]
    fn the_interval_is_wilsons() {
        // z = 3.29, 8 of 10: computed by hand from the formula.
        let (low, high) = wilson(8, 10);
        assert!((low - 0.3162).abs() < 5e-4 && (high - 0.9719).abs() < 5e-4, "{low} {high}");
    }

    proptest! {
        #[test]
        fn what_stands_out_is_more_frequent_here(hits in 0_usize..60, n in 1_usize..60, other in 0_usize..60, m in 1_usize..60) {
            let (hits, other) = (hits.min(n), other.min(m));
            if found((hits, n), (other, m)) {
                prop_assert!(hits * m > other * n);
            }
            let (low, high) = wilson(hits, n);
            let share = hits as f64 / n as f64;
            prop_assert!(low > -1e-9 && low <= share + 1e-9 && share <= high + 1e-9 && high < 1.0 + 1e-9);
        }
    }
}
