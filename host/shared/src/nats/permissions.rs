//! The subjects of NATS that a replica and an operator need, and no others.

use std::fmt;

use toolbay_policy::name::PluginId;

use super::buckets::Bucket;
use super::streams::{audit_stream, audit_subject, entries_bucket, outputs_bucket};

/// Who connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A server. It cannot publish an epoch, so one that an attacker took over cannot change the policy of the others.
    Replica,
    /// A person or a job that publishes epochs.
    Operator,
}

/// What a user of NATS may publish and receive. Shown as a block for the configuration of NATS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permissions {
    publish: Vec<String>,
}

impl Permissions {
    /// The permissions under this prefix, with those for the entries of plugins.
    #[must_use]
    pub fn new<'a>(prefix: &str, role: Role, plugins: impl IntoIterator<Item = &'a PluginId>) -> Self {
        let is_operator = role == Role::Operator;
        let mut publish = vec!["$JS.API.INFO".to_owned()];
        for plugin in plugins {
            let bucket = entries_bucket(prefix, plugin);
            let stream = format!("KV_{bucket}");
            match is_operator {
                true => publish.extend(requests(&stream, &["STREAM.INFO", "STREAM.CREATE", "STREAM.UPDATE"])),
                false => {
                    publish.extend(requests(&stream, &["STREAM.INFO", "STREAM.MSG.GET", "STREAM.PURGE"]));
                    publish.push(format!("$KV.{bucket}.>"));
                }
            }
        }
        publish.extend(of_outputs(prefix, is_operator));
        publish.extend(of_audit(prefix, is_operator));
        for bucket in Bucket::ALL {
            let stream = bucket.stream_name(prefix);
            publish.extend(requests(&stream, &["STREAM.INFO", "STREAM.MSG.GET", "CONSUMER.CREATE"]));
            if is_operator {
                publish.extend(requests(&stream, &["STREAM.CREATE", "STREAM.PURGE"]));
            }
            publish.extend(of_consumers(&stream));
            publish.extend(writes(bucket, prefix, is_operator));
        }
        Self { publish }
    }

    /// The subjects that the user may publish to.
    #[must_use]
    pub fn publish(&self) -> &[String] {
        &self.publish
    }
}

/// The subjects of requests about a stream.
fn requests(stream: &str, names: &[&str]) -> Vec<String> {
    names.iter().map(|name| format!("$JS.API.{name}.{stream}")).collect()
}

/// What reading a stream in order needs.
fn of_consumers(stream: &str) -> Vec<String> {
    let names = ["CONSUMER.CREATE", "CONSUMER.INFO", "CONSUMER.DELETE"];
    let mut subjects = requests(&format!("{stream}.>"), &names);
    subjects.push(format!("$JS.FC.{stream}.>"));
    subjects
}

/// What the audit needs. A server can add lines, and nobody can remove them.
fn of_audit(prefix: &str, is_operator: bool) -> Vec<String> {
    let stream = audit_stream(prefix);
    if !is_operator {
        let mut subjects = requests(&stream, &["STREAM.INFO", "STREAM.MSG.GET"]);
        subjects.push(format!("{}.*", audit_subject(prefix)));
        return subjects;
    }
    let names = ["STREAM.INFO", "STREAM.CREATE", "STREAM.UPDATE", "CONSUMER.CREATE"];
    let mut subjects = requests(&stream, &names);
    let names = ["CONSUMER.CREATE", "CONSUMER.INFO", "CONSUMER.DELETE", "CONSUMER.MSG.NEXT"];
    subjects.extend(requests(&format!("{stream}.>"), &names));
    subjects
}

/// What the saved outputs need.
fn of_outputs(prefix: &str, is_operator: bool) -> Vec<String> {
    let bucket = outputs_bucket(prefix);
    let mut subjects = Vec::new();
    for stream in [format!("KV_{bucket}"), format!("OBJ_{bucket}")] {
        match is_operator {
            true => subjects.extend(requests(&stream, &["STREAM.INFO", "STREAM.CREATE", "STREAM.UPDATE"])),
            false => {
                let names = ["STREAM.INFO", "STREAM.MSG.GET", "STREAM.PURGE", "CONSUMER.CREATE"];
                subjects.extend(requests(&stream, &names));
                subjects.extend(of_consumers(&stream));
            }
        }
    }
    if !is_operator {
        subjects.extend(["$KV", "$O"].map(|kind| format!("{kind}.{bucket}.>")));
    }
    subjects
}

/// The subjects of a bucket that are written.
fn writes(bucket: Bucket, prefix: &str, is_operator: bool) -> Vec<String> {
    match bucket {
        Bucket::Epochs if !is_operator => vec![format!("$KV.{}.replica.*", bucket.name(prefix))],
        Bucket::Files if !is_operator => Vec::new(),
        _ => bucket.subjects(prefix),
    }
}

impl fmt::Display for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "permissions {{\n  publish {{\n    allow: [")?;
        for subject in &self.publish {
            writeln!(f, "      \"{subject}\"")?;
        }
        write!(f, "    ]\n  }}\n  subscribe {{ allow: [\"_INBOX.>\"] }}\n}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_operator_may_publish_an_epoch() {
        let plugins = [PluginId::new("notes").unwrap()];
        let (replica, operator) =
            (Permissions::new("p", Role::Replica, &plugins), Permissions::new("p", Role::Operator, &plugins));
        let has =
            |permissions: &Permissions, subject: &str| permissions.publish.iter().any(|one| one == subject);
        assert!(has(&replica, "$KV.p_epochs.replica.*") && !has(&replica, "$KV.p_epochs.>"));
        assert!(has(&operator, "$KV.p_epochs.>") && has(&operator, "$O.p_files.C.>"));
        let writes_objects = |subject: &&String| subject.starts_with("$O.");
        assert_eq!(
            replica.publish.iter().filter(writes_objects).collect::<Vec<_>>(),
            ["$O.p_outputs.>", "$O.p_results.C.>", "$O.p_results.M.>"]
        );
        assert!(!replica.publish.iter().any(|subject| subject.contains("STREAM.CREATE")));
        assert!(has(&replica, "$KV.p_kv_notes.>") && !has(&operator, "$KV.p_kv_notes.>"));
        let text = operator.to_string();
        assert!(
            text.starts_with("permissions {") && text.contains("\"$JS.API.STREAM.CREATE.OBJ_p_files\""),
            "{text}"
        );
    }
}
