//! Runs replicas of [`toolbay_shared::protocol`] against a store and a network that fail, and compares what they do with the truth.
//!
//! Everything follows from a seed. True time is that of the simulation; each replica has a clock of its own with another
//! start and another rate. A failure names its seed, which runs alone with `TOOLBAY_SEED=… cargo test -p toolbay-shared
//! --test simulation`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a failed fixture is a failed test"
)]

mod network;
mod random;
mod replica;
mod rules;
mod store;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use rules::{Mutation, Rules};
use world::World;

/// How many seeds run.
const SEEDS: u64 = 10_000;
/// Seeds below this number must reveal each mutation.
const SEEDS_FOR_MUTATIONS: u64 = 1_000;
/// Seeds that found a mistake, which always run first.
const FOUND: &[u64] = &[];

/// The problem that a seed reveals.
fn problem_of(seed: u64, rules: Rules) -> Option<String> {
    let run = catch_unwind(AssertUnwindSafe(|| World::new(seed, rules).run()));
    match run {
        Ok(Ok(())) => None,
        Ok(Err(problem)) => Some(problem),
        Err(_) => Some("panicked".to_owned()),
    }
}

#[test]
fn every_promise_holds_for_every_seed() {
    let alone = std::env::var("TOOLBAY_SEED").ok().map(|seed| seed.parse::<u64>().expect("a number"));
    let seeds: Vec<u64> = match alone {
        Some(seed) => vec![seed],
        None => FOUND.iter().copied().chain(0..SEEDS).collect(),
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let problems_of = &|part: usize| {
        let seeds = seeds.iter().skip(part).step_by(threads);
        let found =
            seeds.filter_map(|seed| Some(format!("seed {seed}: {}", problem_of(*seed, Rules::default())?)));
        found.take(3).collect::<Vec<_>>()
    };
    let problems: Vec<String> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|part| scope.spawn(move || problems_of(part))).collect();
        running.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(problems.is_empty(), "{}\nrun one alone with TOOLBAY_SEED", problems.join("\n"));
}

#[test]
fn a_replica_that_breaks_a_rule_is_found_out() {
    for mutation in Mutation::ALL {
        let rules = Rules { broken: Some(mutation) };
        let found = (0..SEEDS_FOR_MUTATIONS).find_map(|seed| problem_of(seed, rules));
        let problem =
            found.unwrap_or_else(|| panic!("no seed below {SEEDS_FOR_MUTATIONS} reveals {mutation:?}"));
        assert!(problem.contains(mutation.reveals()), "{mutation:?}: {problem}");
    }
}
