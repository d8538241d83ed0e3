//! Environment variables, clocks and randomness, which guests read through WASI. Prepared once for each tool; a call
//! only applies them.
//!
//! Without the capability `clock` the wall clock is frozen at `FROZEN_TIME`; without `random` each entry gets the
//! same bytes. Both keep working, because the standard libraries of most languages use them before the author's code
//! runs. The output of such a tool is a function of its arguments. The monotonic clock of a call is real: time-outs,
//! sleeping and waiting for files and requests need it. An embedder can replace the clocks and the random source
//! ([`clock`]).

pub mod clock;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use rand_core::TryRng;
use toolbay_policy::limits::CallLimits;
use toolbay_policy::{GrantKey, Grants};
use toolbay_sandbox::engine::AsyncSupport;
use wasmtime::component::Linker;
use wasmtime_wasi::{HostMonotonicClock, HostWallClock, WasiCtxBuilder};

use super::Capabilities;
use crate::capability::Capability;
use crate::silent_refusal::{CLOCK_READS, RANDOM_BYTES, SilentRefusal};
use crate::state::GuestState;
use clock::{EnvironmentOverrides, SeededRandom, WasiClock};

/// Environment variables, clocks and randomness.
pub(crate) struct WasiEnvironment;

impl Capability for WasiEnvironment {
    const KEYS: &'static [GrantKey] = &[GrantKey::Env, GrantKey::Clock, GrantKey::Random];

    type State = ();

    fn begin(_: &CallLimits) {}

    fn link(linker: &mut Linker<GuestState>, async_support: AsyncSupport) -> wasmtime::Result<()> {
        if async_support == AsyncSupport::On {
            wasmtime_wasi::p3::clocks::add_to_linker(linker)?;
            wasmtime_wasi::p3::random::add_to_linker(linker)?;
        }
        Ok(())
    }

    fn configure(wasi: &mut WasiCtxBuilder, of: &Capabilities) {
        match &of.grantee.granted {
            Some(granted) => granted.environment.configure(wasi, of),
            None => configure_sealed(wasi),
        }
    }
}

/// 2025-01-01T00:00:00Z. Some code treats 1970 as a broken clock.
const FROZEN_TIME: Duration = Duration::from_secs(1_735_689_600);
/// The seed of the fixed random bytes.
const SEED: u64 = 0x7462_5f72_616e_646f;

/// The environment of one tool.
#[derive(Debug, Default)]
pub struct Environment {
    variables: Vec<(String, String)>,
    clock: bool,
    random: bool,
    overrides: EnvironmentOverrides,
}

impl Environment {
    /// Combines the grants with the current environment variables of the host.
    pub fn new(grants: &Grants, overrides: &EnvironmentOverrides) -> Self {
        let value = |rule: &toolbay_policy::capability::environment::EnvRule| match &rule.value {
            Some(fixed) => Some(fixed.clone()),
            // A variable that is unset or is not UTF-8 is absent for the guest.
            None => std::env::var(&rule.name).ok(),
        };
        let mut variables: Vec<(String, String)> = Vec::new();
        for rule in &grants.env {
            // The narrower rule has a value. Each name occurs once: programs disagree about duplicates.
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
            overrides: overrides.clone(),
        }
    }

    /// Whether the guest sees the variable `name`.
    pub fn has(&self, name: &str) -> bool {
        self.variables.iter().any(|(known, _)| known == name)
    }

    /// Configures the WASI context of a call.
    fn configure(&self, wasi: &mut WasiCtxBuilder, of: &Capabilities) {
        wasi.envs(&self.variables);
        if let Some(clock) = &self.overrides.clock {
            wasi.wall_clock(WasiClock(Arc::clone(clock))).monotonic_clock(WasiClock(Arc::clone(clock)));
        }
        if !self.clock {
            wasi.wall_clock(FrozenClock(SilentRefusal::new(of, &CLOCK_READS)));
        }
        match &self.overrides.random {
            _ if !self.random => fix_randomness(wasi, SilentRefusal::new(of, &RANDOM_BYTES).as_ref()),
            Some(random) => seed_randomness(wasi, random),
            None => {}
        }
    }
}

/// Configures the WASI context of a sealed entry: no variables, frozen clocks and fixed random bytes.
fn configure_sealed(wasi: &mut WasiCtxBuilder) {
    wasi.wall_clock(FrozenClock(None)).monotonic_clock(FrozenClock(None));
    fix_randomness(wasi, None);
}

fn fix_randomness(wasi: &mut WasiCtxBuilder, refusal: Option<&SilentRefusal>) {
    wasi.secure_random(SplitMix64(SequenceState::PerEntry(SEED), refusal.cloned()))
        .insecure_random(SplitMix64(SequenceState::PerEntry(!SEED), refusal.cloned()))
        .insecure_random_seed(u128::from(SEED));
}

fn seed_randomness(wasi: &mut WasiCtxBuilder, random: &SeededRandom) {
    let shared = || SplitMix64(SequenceState::Shared(random.clone()), None);
    let seed = shared().next_word();
    wasi.secure_random(shared()).insecure_random(shared()).insecure_random_seed(u128::from(seed));
}

/// A frozen clock, with the reporter of its reads.
struct FrozenClock(Option<SilentRefusal>);

impl HostWallClock for FrozenClock {
    fn resolution(&self) -> Duration {
        Duration::from_secs(1)
    }
    fn now(&self) -> Duration {
        if let Some(refusal) = &self.0 {
            refusal.record_use();
        }
        FROZEN_TIME
    }
}

impl HostMonotonicClock for FrozenClock {
    fn resolution(&self) -> u64 {
        1
    }
    fn now(&self) -> u64 {
        0
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014) from a fixed seed. A constant byte would not do: code that draws until a
/// number is small enough would loop forever.
struct SplitMix64(SequenceState, Option<SilentRefusal>);

/// The state of a random sequence.
enum SequenceState {
    /// The sequence of one entry, which restarts with each entry.
    PerEntry(u64),
    /// The embedder's sequence, shared by all calls of the host.
    Shared(SeededRandom),
}

impl SplitMix64 {
    fn next_word(&mut self) -> u64 {
        /// The increment of SplitMix64.
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        if let Some(refusal) = &self.1 {
            refusal.record_use();
        }
        let mut z = match &mut self.0 {
            SequenceState::PerEntry(state) => {
                *state = state.wrapping_add(STEP);
                *state
            }
            SequenceState::Shared(random) => random.advance(STEP),
        };
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl TryRng for SplitMix64 {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        self.try_next_u64().map(|wide| (wide >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.next_word())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next_word().to_le_bytes();
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
    fn shared_draws_from_one_seed_are_reproducible() {
        let draw = |seed| {
            let random = SeededRandom::new(seed);
            let (mut one, mut other) = (
                SplitMix64(SequenceState::Shared(random.clone()), None),
                SplitMix64(SequenceState::Shared(random), None),
            );
            [one.next_word(), other.next_word(), one.next_word()]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        let [first, second, third] = draw(7);
        assert!(first != second && second != third, "{first} {second} {third}");
    }

    #[test]
    fn fixed_randomness_repeats_and_has_a_long_period() {
        let draw = || {
            let mut fixed = SplitMix64(SequenceState::PerEntry(SEED), None);
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
