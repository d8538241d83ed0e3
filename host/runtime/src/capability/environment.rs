//! What a guest sees of the world through WASI without asking any interface of ours: environment variables, the time,
//! randomness. Prepared once for each tool; a call only hands it on.
//!
//! Without the capability `clock` the wall clock stands at [`FROZEN`]; without `random` each entry gets the same bytes.
//! Both keep working, because the standard libraries of most languages ask for them before the author's code runs, and
//! what a tool computes is then a function of its arguments. The monotonic clock of a call is real: time-outs, sleeping
//! and waiting for files and requests need it.

use std::convert::Infallible;
use std::time::Duration;

use rand_core::TryRng;
use toolbay_core::policy::Grants;
use wasmtime_wasi::{HostMonotonicClock, HostWallClock, WasiCtxBuilder};

/// 2025-01-01T00:00:00Z: late enough for code that takes 1970 for a broken clock.
const FROZEN: Duration = Duration::from_secs(1_735_689_600);
/// Where the fixed randomness begins.
const SEED: u64 = 0x7462_5f72_616e_646f;

/// What one tool sees.
#[derive(Debug, Default)]
pub(crate) struct Environment {
    variables: Vec<(String, String)>,
    clock: bool,
    random: bool,
}

impl Environment {
    /// Joins the grants with the host's variables, as they are now.
    pub(crate) fn new(grants: &Grants) -> Self {
        let value = |rule: &toolbay_core::environment::EnvRule| match &rule.value {
            Some(fixed) => Some(fixed.clone()),
            // A variable that is not set, or is no text, is not there for the guest either.
            None => std::env::var(&rule.name).ok(),
        };
        let mut variables: Vec<(String, String)> = Vec::new();
        for rule in &grants.env {
            // The narrower rule comes with a value; a name stands once, or programs would disagree about it.
            if let Some(value) = value(rule)
                && !variables.iter().any(|(name, _)| *name == rule.name)
            {
                variables.push((rule.name.clone(), value));
            }
        }
        Self { variables, clock: grants.clock, random: grants.random }
    }

    /// Whether a variable is set.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.variables.iter().any(|(known, _)| known == name)
    }

    /// Sets a call's context up.
    pub(crate) fn apply(&self, wasi: &mut WasiCtxBuilder) {
        wasi.envs(&self.variables);
        if !self.clock {
            wasi.wall_clock(Frozen);
        }
        if !self.random {
            fix_randomness(wasi);
        }
    }
}

/// Sets the context of a sealed entry up: no variables, no time of any kind, no chance.
pub(crate) fn seal(wasi: &mut WasiCtxBuilder) {
    wasi.wall_clock(Frozen).monotonic_clock(Frozen);
    fix_randomness(wasi);
}

fn fix_randomness(wasi: &mut WasiCtxBuilder) {
    wasi.secure_random(Fixed(SEED)).insecure_random(Fixed(!SEED)).insecure_random_seed(u128::from(SEED));
}

struct Frozen;

impl HostWallClock for Frozen {
    fn resolution(&self) -> Duration {
        Duration::from_secs(1)
    }
    fn now(&self) -> Duration {
        FROZEN
    }
}

impl HostMonotonicClock for Frozen {
    fn resolution(&self) -> u64 {
        1
    }
    fn now(&self) -> u64 {
        0
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014) from a fixed seed. Not a constant byte: code that draws until a number is small
/// enough would never end.
struct Fixed(u64);

impl TryRng for Fixed {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        self.try_next_u64().map(|wide| (wide >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Ok(z ^ (z >> 31))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            let word = self.try_next_u64()?.to_le_bytes();
            for (byte, random) in chunk.iter_mut().zip(word) {
                *byte = random;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_randomness_repeats_and_does_not_cycle_soon() {
        let draw = || {
            let mut fixed = Fixed(SEED);
            let words: Vec<u64> = (0..1000).map(|_| fixed.try_next_u64().unwrap_or_default()).collect();
            words
        };
        assert_eq!(draw(), draw());
        let mut words = draw();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), 1000);
    }
}
