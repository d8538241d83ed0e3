//! The buckets, each with the promise that its settings keep.

use std::time::Duration;

use async_nats::jetstream::stream::{Config, DiscardPolicy, StorageType};
use toolbay_core::call::idempotency::KEY_LIFE;
use toolbay_policy::name::PluginId;

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
    /// What servers know about each other's calls: tasks, idempotency keys, approvals, and which files tools created.
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

/// How much the entries of one plugin may be. Each entry counts with its key and some bytes of NATS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntriesLimits {
    /// Most entries.
    pub keys: u64,
    /// Most bytes of all keys and values.
    pub bytes: u64,
}

/// How much the saved outputs of all sessions may be, and for how long they are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputLimits {
    /// Most bytes of all texts. The oldest are lost first.
    pub bytes: u64,
    /// How long a text is kept.
    pub age: Duration,
}

/// The part of the name behind the prefix: of the lists, and of the texts.
const OUTPUTS: &str = "outputs";

impl OutputLimits {
    /// The streams: of the lists, and of the texts.
    pub(super) fn streams(self, prefix: &str, durability: Durability) -> [Config; 2] {
        let bucket = outputs_bucket(prefix);
        let stream = |name: String, subjects| Config {
            subjects,
            name,
            description: Some("Toolbay: saved outputs".to_owned()),
            max_age: self.age,
            storage: StorageType::File,
            num_replicas: durability.replicas,
            allow_direct: false,
            allow_rollup: true,
            ..Config::default()
        };
        let lists = Config {
            max_messages_per_subject: 1,
            ..stream(format!("KV_{bucket}"), vec![format!("$KV.{bucket}.>")])
        };
        let texts = Config {
            max_bytes: i64::try_from(self.bytes).unwrap_or(i64::MAX).max(1),
            ..stream(format!("OBJ_{bucket}"), vec![format!("$O.{bucket}.C.>"), format!("$O.{bucket}.M.>")])
        };
        [lists, texts]
    }
}

/// The bucket of the saved outputs.
pub(super) fn outputs_bucket(prefix: &str) -> String {
    format!("{prefix}_{OUTPUTS}")
}

/// How much of the audit of all servers is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditLimits {
    /// Most bytes of all lines. The oldest are removed first.
    pub bytes: u64,
    /// How long a line is kept; `None`: as long as there is room.
    pub age: Option<Duration>,
}

/// How long NATS knows the ids of lines: one that is sent again within this time is stored once.
const DUPLICATES: Duration = Duration::from_secs(3600);

impl AuditLimits {
    /// The stream of the lines.
    pub(super) fn stream(self, prefix: &str, durability: Durability) -> Config {
        Config {
            subjects: vec![format!("{}.*", audit_subject(prefix))],
            name: audit_stream(prefix),
            description: Some("Toolbay: the audit of all servers".to_owned()),
            max_bytes: i64::try_from(self.bytes).unwrap_or(i64::MAX).max(1),
            max_age: self.age.unwrap_or_default(),
            duplicate_window: self.age.map_or(DUPLICATES, |age| age.min(DUPLICATES)),
            storage: StorageType::File,
            num_replicas: durability.replicas,
            deny_delete: true,
            deny_purge: true,
            ..Config::default()
        }
    }
}

/// The stream of the audit.
pub(super) fn audit_stream(prefix: &str) -> String {
    format!("{prefix}_audit")
}

/// The start of the subjects of audit lines; the name of the server follows.
pub(super) fn audit_subject(prefix: &str) -> String {
    format!("{prefix}.audit")
}

/// What NATS stores with each entry, in bytes: its header, its subject, the headers of its expiry.
const ENTRY_BYTES: u64 = 160;

impl EntriesLimits {
    /// The stream of a plugin's entries. It is a key-value bucket for the tools of NATS.
    pub(super) fn stream(self, prefix: &str, plugin: &PluginId, durability: Durability) -> Config {
        let bucket = entries_bucket(prefix, plugin);
        let as_limit = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX).max(1);
        let bytes = self.bytes.saturating_add(self.keys.saturating_mul(ENTRY_BYTES));
        Config {
            subjects: vec![format!("$KV.{bucket}.>")],
            name: format!("KV_{bucket}"),
            description: Some(format!("Toolbay: key-value storage of `{plugin}`")),
            max_messages_per_subject: 1,
            max_messages: as_limit(self.keys),
            max_bytes: as_limit(bytes),
            // A full stream refuses writes, as the quota of a plugin does.
            discard: DiscardPolicy::New,
            storage: StorageType::File,
            num_replicas: durability.replicas,
            allow_direct: false,
            allow_rollup: true,
            allow_message_ttl: true,
            ..Config::default()
        }
    }
}

/// The bucket of a plugin's entries.
pub(super) fn entries_bucket(prefix: &str, plugin: &PluginId) -> String {
    format!("{prefix}_kv_{plugin}")
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
            subjects: self.subjects(prefix),
            name: self.stream_name(prefix),
            description: Some(format!("Toolbay: {}", self.settings().promise)),
            // An object has many messages under one subject.
            max_messages_per_subject: if self.has_objects() { -1 } else { 1 },
            max_age: self.settings().age,
            max_bytes: self.settings().bytes.unwrap_or(-1),
            // A full bucket refuses writes. The oldest record may be the one that matters.
            discard: DiscardPolicy::New,
            storage: StorageType::File,
            num_replicas: durability.replicas,
            // Any server could answer a direct read, also one that has not got the last write.
            allow_direct: false,
            allow_rollup: true,
            allow_message_ttl: true,
            deny_delete: !self.has_objects(),
            ..Config::default()
        }
    }

    /// Differences of an existing stream that endanger the promise, with what mends them.
    pub(super) fn differences(self, prefix: &str, durability: Durability, found: &Config) -> Vec<String> {
        let wanted = self.stream(prefix, durability);
        let (stream, promise) = (&wanted.name, self.settings().promise);
        let mut problems = Vec::new();
        let mut differs = |what: String, mend: &str| {
            problems.push(format!("stream `{stream}` {what}, so it is not sure that {promise}: {mend}"));
        };
        if found.num_replicas < wanted.num_replicas {
            let (has, wants) = (found.num_replicas, wanted.num_replicas);
            differs(
                format!("has {has} of {wants} replicas"),
                &format!(
                    "run `nats stream edit {stream} --replicas {wants}`, or set `[shared] replicas = {has}`"
                ),
            );
        }
        if found.storage != StorageType::File {
            differs("is in memory".to_owned(), "remove the stream, and Toolbay makes another one in files");
        }
        if found.allow_direct {
            differs(
                "answers reads from any server".to_owned(),
                &format!("run `nats stream edit {stream} --no-allow-direct`"),
            );
        }
        if found.discard != DiscardPolicy::New {
            differs(
                "drops old records when it is full".to_owned(),
                &format!("run `nats stream edit {stream} --discard new`"),
            );
        }
        if !found.max_age.is_zero() && (wanted.max_age.is_zero() || found.max_age < wanted.max_age) {
            differs(
                format!("forgets records after {} s", found.max_age.as_secs()),
                &format!("run `nats stream edit {stream} --max-age {}s`", wanted.max_age.as_secs()),
            );
        }
        problems
    }
}
