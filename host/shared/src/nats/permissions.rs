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
            let request = |request: &str| format!("$JS.API.STREAM.{request}.KV_{bucket}");
            publish.push(request("INFO"));
            match is_operator {
                true => publish.extend(["CREATE", "UPDATE"].map(request)),
                false => {
                    publish.extend(["MSG.GET", "PURGE"].map(request));
                    publish.push(format!("$KV.{bucket}.>"));
                }
            }
        }
        publish.extend(of_outputs(prefix, is_operator));
        publish.extend(of_audit(prefix, is_operator));
        for bucket in Bucket::ALL {
            let stream = bucket.stream_name(prefix);
            let mut api = vec!["STREAM.INFO", "STREAM.MSG.GET", "CONSUMER.CREATE"];
            if is_operator {
                api.extend(["STREAM.CREATE", "STREAM.PURGE"]);
            }
            publish.extend(api.into_iter().map(|request| format!("$JS.API.{request}.{stream}")));
            for request in ["CONSUMER.CREATE", "CONSUMER.INFO", "CONSUMER.DELETE"] {
                publish.push(format!("$JS.API.{request}.{stream}.>"));
            }
            publish.push(format!("$JS.FC.{stream}.>"));
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

/// What the audit needs. A server can add lines, and nobody can remove them.
fn of_audit(prefix: &str, is_operator: bool) -> Vec<String> {
    let request = |request: &str| format!("$JS.API.{request}.{}", audit_stream(prefix));
    if !is_operator {
        return vec![
            request("STREAM.INFO"),
            request("STREAM.MSG.GET"),
            format!("{}.*", audit_subject(prefix)),
        ];
    }
    let mut subjects =
        ["STREAM.INFO", "STREAM.CREATE", "STREAM.UPDATE", "CONSUMER.CREATE"].map(request).to_vec();
    let consumers = ["CONSUMER.CREATE", "CONSUMER.INFO", "CONSUMER.DELETE", "CONSUMER.MSG.NEXT"];
    subjects.extend(consumers.map(|name| format!("{}.>", request(name))));
    subjects
}

/// What the saved outputs need.
fn of_outputs(prefix: &str, is_operator: bool) -> Vec<String> {
    let bucket = outputs_bucket(prefix);
    let mut subjects = Vec::new();
    for stream in [format!("KV_{bucket}"), format!("OBJ_{bucket}")] {
        let request = |request: &str| format!("$JS.API.{request}.{stream}");
        subjects.push(request("STREAM.INFO"));
        match is_operator {
            true => subjects.extend(["STREAM.CREATE", "STREAM.UPDATE"].map(request)),
            false => {
                subjects.extend(["STREAM.MSG.GET", "STREAM.PURGE", "CONSUMER.CREATE"].map(request));
                let consumers = ["CONSUMER.CREATE", "CONSUMER.INFO", "CONSUMER.DELETE"];
                subjects.extend(consumers.map(|name| format!("{}.>", request(name))));
                subjects.push(format!("$JS.FC.{stream}.>"));
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
