//! `lazaret partition explain`.

use std::fmt::Write as _;

use super::Failure;
use super::args::Explain;
use crate::domain::partition::{self, Placement};

/// What growth is shown when nobody says.
const GROWN: i32 = 8;

/// The explanation as text, for a person and for `grep`.
///
/// # Errors
/// The topic would shrink.
pub fn explain(args: &Explain) -> Result<String, Failure> {
    let usual = if args.partitions < GROWN { GROWN } else { args.partitions.saturating_mul(2) };
    let new_partitions = args.new_partitions.unwrap_or(usual);
    if new_partitions < args.partitions {
        let what = format!(
            "--new-partitions: {new_partitions} is fewer than the {} there are, and Kafka takes no partition away",
            args.partitions
        );
        return Err(Failure::Usage(format!("{what}. Give {} or more.", args.partitions)));
    }
    let told = partition::explain(&args.key, args.partitions, new_partitions);
    let mut out = String::new();
    line(&mut out, format_args!("key {:?}, {} partitions: {}", told.now.key, told.partitions, both(&told.now)));
    line(&mut out, format_args!("  murmur2: Java producers (murmur2_random). crc32: librdkafka producers by default (consistent_random)."));
    if told.new_partitions != told.partitions {
        let moved = format!("{:.0} % of all keys change partition", told.moved_share * 100.0);
        line(
            &mut out,
            format_args!("at {} partitions: {} ({}); {moved}", told.new_partitions, both(&told.then), movement(&told.now, &told.then)),
        );
    }
    let last = told.salted.len() - 1;
    line(&mut out, format_args!("\nwith -0 to -{last} appended to the key, to spread it over {} partitions:", told.partitions));
    for placement in &told.salted {
        line(&mut out, format_args!("  {:<24} {}", placement.key, both(placement)));
    }
    let (murmur2, crc32) = told.salted_reach();
    line(&mut out, format_args!("  reach {murmur2} of {0} partitions by murmur2, {crc32} of {0} by crc32", told.partitions));
    Ok(out)
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("writing to a String cannot fail");
}

fn both(placement: &Placement) -> String {
    format!("murmur2 {}, crc32 {}", partition(placement.murmur2), partition(placement.crc32))
}

/// An empty key has no partition of its own under consistent_random.
fn partition(number: Option<i32>) -> String {
    number.map_or_else(|| "any".to_owned(), |number| number.to_string())
}

fn movement(now: &Placement, then: &Placement) -> String {
    let one = |name: &str, now: Option<i32>, then: Option<i32>| match (now, then) {
        (Some(now), Some(then)) if now == then => format!("{name} stays on {now}"),
        (Some(now), Some(then)) => format!("{name} moves {now} -> {then}"),
        _ => format!("{name} goes anywhere"),
    };
    format!("{}, {}", one("murmur2", now.murmur2, then.murmur2), one("crc32", now.crc32, then.crc32))
}
