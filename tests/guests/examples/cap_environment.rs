//! Reads its environment: variables, clock, randomness. Each tool declares something else.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::time::{Duration, Instant, SystemTime};

use guest::wasip2::clocks::{monotonic_clock, wall_clock};
use guest::wasip2::random::{insecure, insecure_seed, random};
use guest::{Answer, Args, json, structured, tool};

guest::tools!(
    tool("nothing", look),
    tool("time", look).needs(&[("clock", "wall", false)]),
    tool("chance", look).needs(&[("random", "bytes", false)]),
    tool("vars", look).needs(&[
        ("env", "TB_HOST", false),
        ("env", "TB_FIXED", false),
        ("env", "TB_UNSET", false)
    ]),
    tool("var_of_its_own", look).needs(&[("env", "TB_HOST=mine", true), ("env", "TB_FIXED=mine", true)]),
    tool("declares_a", look).needs(&[("env", "TB_A", true)]),
    tool("declares_a3", look).needs(&[("env", "TB_A=3", true)]),
    tool("declares_c", look).needs(&[("env", "TB_C", true)]),
    tool("may", look).needs(&[("clock", "wall", true), ("random", "bytes", true), ("env", "TB_HOST", true)]),
);

fn look(_: &Args) -> Answer {
    let (start, ticks) = (Instant::now(), monotonic_clock::now());
    std::thread::sleep(Duration::from_millis(20));
    let mut unlucky = 0;
    // Rejection sampling must terminate.
    while random::get_random_u64() > u64::MAX / 16 {
        unlucky += 1;
    }
    let drawn = [random::get_random_u64(), insecure::get_insecure_random_u64()];
    structured(&json!({
        "vars": std::env::vars_os().map(|(k, v)| json!([k.to_string_lossy(), v.to_string_lossy()])).collect::<Vec<_>>(),
        "args": std::env::args_os().count(),
        "unix_ms": SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() as u64,
        "wall_resolution_ns": wall_clock::resolution().nanoseconds,
        "elapsed_ms": start.elapsed().as_millis() as u64,
        "ticks": (monotonic_clock::now() - ticks) / 1_000_000,
        "random": drawn.iter().map(u64::to_string).collect::<Vec<_>>(),
        "bytes": random::get_random_bytes(33),
        "seed": format!("{:?}", insecure_seed::insecure_seed()),
        "hash": RandomState::new().hash_one("x").to_string(),
        "unlucky": unlucky,
    }))
}
