//! Epochs: numbered policies. A replica applies higher ones only.
//!
//! The driver writes the highest epoch to the replica's own disk before it applies it. A store with a lower one, or with
//! the same number and another digest, went back: an operator restored an old copy, or the store lost what it had
//! acknowledged. The replica then refuses calls, because it cannot know which revocations were lost.

use serde::{Deserialize, Serialize};
use toolbay_state::digest::Digest;

/// An epoch: what the store has under the key of epochs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epoch {
    /// Counts from 1.
    pub number: u64,
    /// The digest of what it applies.
    pub digest: Digest,
}

/// The epochs that a replica has seen.
#[derive(Debug, Clone, Default)]
pub struct EpochLog {
    highest: Option<Epoch>,
}

/// What to do with an epoch of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EpochStep {
    /// Persist it, apply it, and then [record](EpochLog::record) it.
    Apply,
    /// The epoch is applied.
    Current,
    /// The store went back. Refuse calls until it has a higher epoch than this one.
    WentBack(Epoch),
}

impl EpochLog {
    /// The log of a replica that has this epoch on its disk.
    #[must_use]
    pub fn new(persisted: Option<Epoch>) -> Self {
        Self { highest: persisted }
    }

    /// Judges the epoch of the store; `None` if the store has none.
    #[must_use]
    pub fn judge(&self, found: Option<&Epoch>) -> EpochStep {
        match (&self.highest, found) {
            (None, None) => EpochStep::Current,
            (None, Some(_)) => EpochStep::Apply,
            (Some(highest), Some(found)) if found.number > highest.number => EpochStep::Apply,
            (Some(highest), Some(found)) if found == highest => EpochStep::Current,
            (Some(highest), _) => EpochStep::WentBack(highest.clone()),
        }
    }

    /// Records an epoch that is on the disk. A lower one changes nothing.
    pub fn record(&mut self, epoch: Epoch) {
        if self.highest.as_ref().is_none_or(|highest| epoch.number > highest.number) {
            self.highest = Some(epoch);
        }
    }

    /// The highest epoch.
    #[must_use]
    pub fn highest(&self) -> Option<&Epoch> {
        self.highest.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(number: u64, digit: char) -> Epoch {
        let digest = digit.to_string().repeat(64).parse().unwrap();
        Epoch { number, digest }
    }

    #[test]
    fn only_a_higher_epoch_is_applied() {
        let mut log = EpochLog::default();
        assert_eq!(log.judge(None), EpochStep::Current);
        assert_eq!(log.judge(Some(&epoch(7, 'a'))), EpochStep::Apply);
        log.record(epoch(7, 'a'));
        log.record(epoch(6, 'b'));
        let back = EpochStep::WentBack(epoch(7, 'a'));
        for (found, step) in [
            (Some(epoch(7, 'a')), EpochStep::Current),
            (Some(epoch(8, 'b')), EpochStep::Apply),
            (Some(epoch(6, 'b')), back.clone()),
            (Some(epoch(7, 'b')), back.clone()),
            (None, back),
        ] {
            assert_eq!(log.judge(found.as_ref()), step, "{found:?}");
        }
    }
}
