//! The buckets, each with the promise that its settings keep.

use std::time::Duration;

use async_nats::jetstream::stream::{Config, DiscardPolicy, StorageType};
use toolbay_core::call::idempotency::KEY_LIFE;

/// What is kept together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bucket {
    /// The epoch and the heartbeats, in one stream: their order is a promise.
    Epochs,
    /// The budgets of sessions.
    Ledger,
    /// The leases of serial queues.
    Leases,
    /// The bundles of epochs and the components of plugins, as objects that their digests name.
    Files,
    /// What replicas know about each other's calls: tasks, idempotency keys, approvals, and which files tools created.
    Calls,
    /// The files that tools created and the large states of tasks, as objects.
    Results,
}

/// How the store keeps what it has acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Durability {
    /// The number of NATS servers that have each record: 1, 3 or 5.
    pub replicas: usize,
}

impl Durability {
    /// A stream on disk.
    pub(super) fn stream(self, name: String, subjects: Vec<String>) -> Config {
        Config {
            name,
            subjects,
            storage: StorageType::File,
            num_replicas: self.replicas,
            // Any server could answer a direct read, also one that has not got the last write.
            allow_direct: false,
            ..Config::default()
        }
    }
}

/// The settings of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketSettings {
    /// The part of its name behind the prefix.
    pub name: &'static str,
    /// How long a record stays after its last write; zero for ever.
    pub age: Duration,
    /// Most bytes of all records; `None`: as many as NATS has room for.
    pub bytes: Option<i64>,
    /// What is lost if a record disappears earlier.
    pub promise: &'static str,
}

impl Bucket {
    /// All buckets.
    pub const ALL: [Self; 6] =
        [Self::Epochs, Self::Ledger, Self::Leases, Self::Files, Self::Calls, Self::Results];

    /// The settings.
    #[must_use]
    pub const fn settings(self) -> BucketSettings {
        match self {
            Self::Epochs => BucketSettings {
                name: "epochs",
                age: Duration::ZERO,
                bytes: None,
                promise: "a revocation reaches every replica",
            },
            Self::Ledger => BucketSettings {
                name: "ledger",
                // A chunk of a budget lives for a minute, and no chunk may outlive its account.
                age: Duration::from_secs(24 * 3600),
                bytes: None,
                promise: "a budget is never exceeded",
            },
            Self::Leases => BucketSettings {
                name: "leases",
                age: Duration::from_secs(3600),
                bytes: None,
                promise: "one replica acts for a serial queue",
            },
            Self::Files => BucketSettings {
                name: "files",
                age: Duration::ZERO,
                bytes: None,
                promise: "a new replica finds the policy and the plugins",
            },
            Self::Calls => BucketSettings {
                name: "calls",
                age: KEY_LIFE,
                bytes: Some(256 << 20),
                promise: "no call begins twice under one idempotency key",
            },
            Self::Results => BucketSettings {
                name: "results",
                age: KEY_LIFE,
                bytes: Some(1 << 30),
                promise: "every replica finds the results of tasks and the files of sessions",
            },
        }
    }

    /// The name of the bucket for the tools of NATS.
    pub(super) fn name(self, prefix: &str) -> String {
        format!("{prefix}_{}", self.settings().name)
    }

    /// Whether it has objects, and not records.
    pub(super) fn has_objects(self) -> bool {
        matches!(self, Self::Files | Self::Results)
    }

    /// The name of the stream.
    pub(super) fn stream_name(self, prefix: &str) -> String {
        let kind = if self.has_objects() { "OBJ" } else { "KV" };
        format!("{kind}_{}", self.name(prefix))
    }

    /// The subjects of the stream.
    pub(super) fn subjects(self, prefix: &str) -> Vec<String> {
        let name = self.name(prefix);
        match self.has_objects() {
            true => vec![format!("$O.{name}.C.>"), format!("$O.{name}.M.>")],
            false => vec![format!("$KV.{name}.>")],
        }
    }

    /// The stream of the bucket. It is a key-value bucket or an object store for the tools of NATS.
    pub(super) fn stream(self, prefix: &str, durability: Durability) -> Config {
        Config {
            description: Some(format!("Toolbay: {}", self.settings().promise)),
            // An object has many messages under one subject.
            max_messages_per_subject: if self.has_objects() { -1 } else { 1 },
            max_age: self.settings().age,
            max_bytes: self.settings().bytes.unwrap_or(-1),
            // A full bucket refuses writes. The oldest record may be the one that matters.
            discard: DiscardPolicy::New,
            allow_rollup: true,
            allow_message_ttl: true,
            deny_delete: !self.has_objects(),
            ..durability.stream(self.stream_name(prefix), self.subjects(prefix))
        }
    }
}
