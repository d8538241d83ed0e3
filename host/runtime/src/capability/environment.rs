//! What a guest sees of the world through WASI without asking any interface of ours: environment variables, the time,
//! randomness. Prepared once for each tool; a call only hands it on.
//!
//! Without the capability `clock` the wall clock stands at [`FROZEN`]; without `random` each entry gets the same bytes.
//! Both keep working, because the standard libraries of most languages ask for them before the author's code runs, and
//! what a tool computes is then a function of its arguments. The monotonic clock of a call is real: time-outs, sleeping
//! and waiting for files and requests need it. An embedder may put its own in place of both ([`super::clock`]).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use rand_core::TryRng;
use toolbay_policy::Grants;
use wasmtime_wasi::{HostMonotonicClock, HostWallClock, WasiCtxBuilder};

use super::Capabilities;
use super::clock::{Random, Shown, TimeAndChance};
use super::silent::{CLOCK, RANDOM, Silent};

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
    given: TimeAndChance,
}

impl Environment {
    /// Joins the grants with the host's variables, as they are now.
    pub(crate) fn new(grants: &Grants, given: &TimeAndChance) -> Self {
        let value = |rule: &toolbay_policy::capability::environment::EnvRule| match &rule.value {
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
        Self {
            variables,
            clock: !grants.clock.is_empty(),
            random: !grants.random.is_empty(),
            given: given.clone(),
        }
    }

    /// Whether a variable is set.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.variables.iter().any(|(known, _)| known == name)
    }

    /// Sets a call's context up.
    pub(crate) fn apply(&self, wasi: &mut WasiCtxBuilder, of: &Capabilities) {
        wasi.envs(&self.variables);
        if let Some(clock) = &self.given.clock {
            wasi.wall_clock(Shown(Arc::clone(clock))).monotonic_clock(Shown(Arc::clone(clock)));
        }
        if !self.clock {
            wasi.wall_clock(Frozen(Silent::new(of, &CLOCK)));
        }
        match &self.given.random {
            _ if !self.random => fix_randomness(wasi, Silent::new(of, &RANDOM).as_ref()),
            Some(random) => seed_randomness(wasi, random),
            None => {}
        }
    }
}

/// Sets the context of a sealed entry up: no variables, no time of any kind, no chance.
pub(crate) fn seal(wasi: &mut WasiCtxBuilder) {
    wasi.wall_clock(Frozen(None)).monotonic_clock(Frozen(None));
    fix_randomness(wasi, None);
}

fn fix_randomness(wasi: &mut WasiCtxBuilder, silent: Option<&Silent>) {
    wasi.secure_random(Fixed(State::Own(SEED), silent.cloned()))
        .insecure_random(Fixed(State::Own(!SEED), silent.cloned()))
        .insecure_random_seed(u128::from(SEED));
}

fn seed_randomness(wasi: &mut WasiCtxBuilder, random: &Random) {
    let shared = || Fixed(State::Shared(random.clone()), None);
    let seed = shared().word();
    wasi.secure_random(shared()).insecure_random(shared()).insecure_random_seed(u128::from(seed));
}

/// A clock that stands still, and who notes that it was read.
struct Frozen(Option<Silent>);

impl HostWallClock for Frozen {
    fn resolution(&self) -> Duration {
        Duration::from_secs(1)
    }
    fn now(&self) -> Duration {
        if let Some(silent) = &self.0 {
            silent.used();
        }
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
struct Fixed(State, Option<Silent>);

/// Where the sequence is.
enum State {
    /// An entry's own, which begins anew with each.
    Own(u64),
    /// The host's.
    Shared(Random),
}

impl Fixed {
    fn word(&mut self) -> u64 {
        /// What SplitMix64 goes on by each time.
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        if let Some(silent) = &self.1 {
            silent.used();
        }
        let mut z = match &mut self.0 {
            State::Own(state) => {
                *state = state.wrapping_add(STEP);
                *state
            }
            State::Shared(random) => random.step(STEP),
        };
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl TryRng for Fixed {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        self.try_next_u64().map(|wide| (wide >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.word())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            let word = self.word().to_le_bytes();
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
    fn a_seed_is_drawn_from_by_all_and_makes_the_same_sequence() {
        let draw = |seed| {
            let random = Random::new(seed);
            let (mut one, mut other) =
                (Fixed(State::Shared(random.clone()), None), Fixed(State::Shared(random), None));
            [one.word(), other.word(), one.word()]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        let [first, second, third] = draw(7);
        assert!(first != second && second != third, "{first} {second} {third}");
    }

    #[test]
    fn fixed_randomness_repeats_and_does_not_cycle_soon() {
        let draw = || {
            let mut fixed = Fixed(State::Own(SEED), None);
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
