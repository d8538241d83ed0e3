//! Rules that a simulated replica can break, to show that the simulation would notice.

/// The rules that replicas follow.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rules {
    /// The rule that they break.
    pub(super) broken: Option<Mutation>,
}

/// A mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mutation {
    /// A lease is counted from the reply.
    LeaseFromReply,
    /// A lease is taken over without waiting.
    ImpatientTakeover,
    /// A heartbeat counts before the watch has reached it.
    FreshWithoutWatch,
    /// A heartbeat is counted from the reply.
    FreshFromReply,
    /// The highest epoch is not written to the disk.
    ForgottenEpoch,
    /// A chunk is spent although its request had no reply.
    SpentUnknown,
    /// Units that may have been given back are spent.
    SpentReturned,
    /// A chunk is spent after its life, when the store may have forgotten the account.
    EndlessChunk,
}

impl Mutation {
    pub(super) const ALL: [Self; 8] = [
        Self::LeaseFromReply,
        Self::ImpatientTakeover,
        Self::FreshWithoutWatch,
        Self::FreshFromReply,
        Self::ForgottenEpoch,
        Self::SpentUnknown,
        Self::SpentReturned,
        Self::EndlessChunk,
    ];

    /// A word of the broken promise.
    pub(super) fn reveals(self) -> &'static str {
        match self {
            Self::LeaseFromReply | Self::ImpatientTakeover => "two replicas act",
            Self::FreshWithoutWatch | Self::FreshFromReply => "was revoked",
            Self::ForgottenEpoch => "went back",
            Self::SpentUnknown | Self::SpentReturned | Self::EndlessChunk => "budget",
        }
    }
}
