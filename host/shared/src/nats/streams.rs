//! The streams of a deployment besides its buckets, and what a stream with other settings endangers.

use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::jetstream::stream::{Config, DiscardPolicy, StorageType};
use toolbay_policy::name::PluginId;

use super::buckets::{Bucket, Durability};

/// What a policy stores besides the buckets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoragePlan {
    /// The plugins that store entries.
    pub entries: BTreeMap<PluginId, EntriesLimits>,
    /// The saved outputs.
    pub outputs: OutputLimits,
    /// The audit of all replicas.
    pub audit: AuditLimits,
}

/// A stream as it should be.
#[derive(Debug)]
pub(super) struct PlannedStream {
    pub(super) config: Config,
    /// The promise that other settings would break.
    promise: &'static str,
}

impl StoragePlan {
    /// The streams.
    pub(super) fn streams(&self, prefix: &str, durability: Durability) -> Vec<PlannedStream> {
        let of_entries = self.entries.iter().map(|(plugin, limits)| PlannedStream {
            config: limits.stream(prefix, plugin, durability),
            promise: "a plugin reads what it has stored",
        });
        let of_outputs = self
            .outputs
            .streams(prefix, durability)
            .map(|config| PlannedStream { config, promise: "every replica finds saved outputs" });
        let audit = PlannedStream {
            config: self.audit.stream(prefix, durability),
            promise: "the audit of all servers is kept",
        };
        of_entries.chain(of_outputs).chain([audit]).collect()
    }
}

impl PlannedStream {
    /// The stream of a bucket.
    pub(super) fn of_bucket(bucket: Bucket, prefix: &str, durability: Durability) -> Self {
        Self { config: bucket.stream(prefix, durability), promise: bucket.settings().promise }
    }

    /// Settings of an existing stream that endanger the promise, with what mends each. `None`: there is no stream.
    pub(super) fn problems(&self, found: Option<&Config>) -> Vec<String> {
        let (wanted, stream) = (&self.config, &self.config.name);
        let mut problems = Vec::new();
        let mut differs = |what: String, mend: &str| {
            problems
                .push(format!("stream `{stream}` {what}, so it is not sure that {}: {mend}", self.promise));
        };
        let Some(found) = found else {
            differs("does not exist".to_owned(), "run `toolbay shared publish`");
            return problems;
        };
        if found.num_replicas < wanted.num_replicas {
            let (has, wants) = (found.num_replicas, wanted.num_replicas);
            let mend = format!(
                "run `nats stream edit {stream} --replicas {wants}`, or set `[shared] replicas = {has}`"
            );
            differs(format!("has {has} of {wants} replicas"), &mend);
        }
        if found.storage != StorageType::File {
            differs(
                "is in memory".to_owned(),
                "remove the stream, and `toolbay shared publish` makes another one",
            );
        }
        if found.allow_direct {
            let mend = format!("run `nats stream edit {stream} --no-allow-direct`");
            differs("answers reads from any server".to_owned(), &mend);
        }
        if found.discard != wanted.discard && wanted.discard == DiscardPolicy::New {
            let mend = format!("run `nats stream edit {stream} --discard new`");
            differs("drops old records when it is full".to_owned(), &mend);
        }
        if !found.max_age.is_zero() && (wanted.max_age.is_zero() || found.max_age < wanted.max_age) {
            let mend = format!("run `nats stream edit {stream} --max-age {}s`", wanted.max_age.as_secs());
            differs(format!("forgets records after {} s", found.max_age.as_secs()), &mend);
        }
        problems
    }
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

/// The part of the name of the saved outputs behind the prefix.
const OUTPUTS: &str = "outputs";

impl OutputLimits {
    /// The streams: of the lists, and of the texts.
    pub(super) fn streams(self, prefix: &str, durability: Durability) -> [Config; 2] {
        let bucket = outputs_bucket(prefix);
        let stream = |name: String, subjects| Config {
            description: Some("Toolbay: saved outputs".to_owned()),
            max_age: self.age,
            allow_rollup: true,
            ..durability.stream(name, subjects)
        };
        let lists = Config {
            max_messages_per_subject: 1,
            ..stream(format!("KV_{bucket}"), vec![format!("$KV.{bucket}.>")])
        };
        let texts = Config {
            max_bytes: as_limit(self.bytes),
            ..stream(format!("OBJ_{bucket}"), vec![format!("$O.{bucket}.C.>"), format!("$O.{bucket}.M.>")])
        };
        [lists, texts]
    }
}

/// An amount as NATS takes it, which reads zero as no limit.
fn as_limit(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX).max(1)
}

/// The bucket of the saved outputs.
pub(super) fn outputs_bucket(prefix: &str) -> String {
    format!("{prefix}_{OUTPUTS}")
}

/// How much of the audit of all replicas is kept.
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
            description: Some("Toolbay: the audit of all servers".to_owned()),
            max_bytes: as_limit(self.bytes),
            max_age: self.age.unwrap_or_default(),
            duplicate_window: self.age.map_or(DUPLICATES, |age| age.min(DUPLICATES)),
            deny_delete: true,
            deny_purge: true,
            ..durability.stream(audit_stream(prefix), vec![format!("{}.*", audit_subject(prefix))])
        }
    }
}

/// The stream of the audit.
pub(super) fn audit_stream(prefix: &str) -> String {
    format!("{prefix}_audit")
}

/// The start of the subjects of audit lines; the name of the replica follows.
pub(super) fn audit_subject(prefix: &str) -> String {
    format!("{prefix}.audit")
}

/// The policy key that bounds a stream.
pub(super) fn stream_setting(stream: &str, prefix: &str) -> &'static str {
    if stream == audit_stream(prefix) {
        "`bytes` of [audit]"
    } else if stream.ends_with(&outputs_bucket(prefix)) {
        "`saved_output_bytes` of [host]"
    } else if stream.starts_with(&format!("KV_{prefix}_kv_")) {
        "`kv_bytes` of [limits]"
    } else {
        "what the other accounts of NATS may store"
    }
}

/// What NATS stores with each entry, in bytes: its header, its subject, the headers of its expiry.
const ENTRY_BYTES: u64 = 160;

impl EntriesLimits {
    /// The stream of a plugin's entries. It is a key-value bucket for the tools of NATS.
    pub(super) fn stream(self, prefix: &str, plugin: &PluginId, durability: Durability) -> Config {
        let bucket = entries_bucket(prefix, plugin);
        let bytes = self.bytes.saturating_add(self.keys.saturating_mul(ENTRY_BYTES));
        Config {
            description: Some(format!("Toolbay: key-value storage of `{plugin}`")),
            max_messages_per_subject: 1,
            max_messages: as_limit(self.keys),
            max_bytes: as_limit(bytes),
            // A full stream refuses writes, as the quota of a plugin does.
            discard: DiscardPolicy::New,
            allow_rollup: true,
            allow_message_ttl: true,
            ..durability.stream(format!("KV_{bucket}"), vec![format!("$KV.{bucket}.>")])
        }
    }
}

/// The bucket of a plugin's entries.
pub(super) fn entries_bucket(prefix: &str, plugin: &PluginId) -> String {
    format!("{prefix}_kv_{plugin}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_that_endangers_a_promise_is_named() {
        let planned = PlannedStream::of_bucket(Bucket::Calls, "p", Durability { replicas: 1 });
        let found = Config {
            storage: StorageType::Memory,
            allow_direct: true,
            discard: DiscardPolicy::Old,
            max_age: Duration::from_secs(60),
            ..planned.config.clone()
        };
        let problems = planned.problems(Some(&found)).join("\n");
        for part in ["is in memory", "--no-allow-direct", "--discard new", "forgets records after 60 s"] {
            assert!(problems.contains(part), "{part}: {problems}");
        }
        assert!(planned.problems(Some(&planned.config)).is_empty());
        let audit = AuditLimits { bytes: 1, age: None }.stream("p", Durability { replicas: 1 });
        let audit = PlannedStream { config: audit, promise: "it is kept" };
        let removes_old = Config { discard: DiscardPolicy::Old, ..audit.config.clone() };
        assert!(audit.problems(Some(&removes_old)).is_empty(), "the audit removes its oldest lines");
    }
}
