//! The audit section of a policy (`[audit]`): whether calls require the audit, which calls get a start line, and how
//! much of the audit is kept.

use std::ops::RangeInclusive;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;

use crate::problem::PolicyProblem;
use crate::quantity::unit::{Bytes, Time, Unit};

/// Total size of the audit files, in bytes. The minimum holds eight files with sixteen of the longest lines each.
const BYTES: RangeInclusive<u64> = 8 << 20..=1 << 40;
/// Shortest retention. A file is closed after an eighth of it.
const MIN_AGE: Duration = Duration::from_secs(3600);

/// Which calls get an audit line before they run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StartLines {
    /// Calls that can change something outside the sandbox.
    #[default]
    Effects,
    /// Every call that runs.
    All,
    /// No call.
    Never,
}

/// Whether calls require the audit, and how much of it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuditPolicy {
    /// Refuses every call that cannot be recorded. Every call then gets a start line.
    pub required: bool,
    /// Which calls get an audit line before they run.
    pub start_lines: StartLines,
    /// Total size of all audit files, in bytes.
    #[serde(deserialize_with = "Bytes::read")]
    #[schemars(schema_with = "bytes_schema")]
    pub bytes: u64,
    /// Longest retention of a line. `None` keeps lines as long as `bytes` allows.
    #[serde(deserialize_with = "Time::read_some")]
    #[schemars(schema_with = "age_schema")]
    pub age: Option<Duration>,
}

fn bytes_schema(_: &mut SchemaGenerator) -> Schema {
    <Bytes as Unit<u64>>::schema(&BYTES)
}

fn age_schema(_: &mut SchemaGenerator) -> Schema {
    Time::schema(&(1..=u64::MAX))
}

impl Default for AuditPolicy {
    fn default() -> Self {
        // Eight uncompressed files of 16 MiB.
        Self { required: false, start_lines: StartLines::default(), bytes: 128 << 20, age: None }
    }
}

impl AuditPolicy {
    /// Checks the values.
    ///
    /// # Errors
    /// Names the wrong key and its allowed values.
    pub fn check(&self) -> Result<(), PolicyProblem> {
        Bytes::check("bytes", &self.bytes, &BYTES)?;
        if self.age.is_some_and(|age| age < MIN_AGE) {
            return Err(PolicyProblem::at_keys(["age"], "`age` must be at least `1h`"));
        }
        if self.required && self.start_lines == StartLines::Never {
            let message = "`required = true` and `start_lines = \"never\"` exclude each other: only a start line \
                           shows that a call can be recorded";
            return Err(PolicyProblem::at_keys(["required"], message));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<AuditPolicy, String> {
        let policy: AuditPolicy = toml::from_str(text).map_err(|e| e.to_string())?;
        policy.check().map(|()| policy).map_err(|problem| problem.to_string())
    }

    #[test]
    fn an_audit_table_is_parsed_and_contradictions_are_refused() {
        assert_eq!(read(""), Ok(AuditPolicy::default()));
        let policy = read("required = true\nstart_lines = 'all'\nbytes = '1GiB'\nage = '90d'").unwrap();
        let age = Some(Duration::from_secs(90 * 86_400));
        assert_eq!(policy, AuditPolicy { required: true, start_lines: StartLines::All, bytes: 1 << 30, age });
        for (text, part) in [
            ("bytes = '1MiB'", "`bytes` must be from 8MiB to 1024GiB"),
            ("bytes = '2048GiB'", "`bytes`"),
            ("age = '59m'", "`1h`"),
            ("age = 'forever'", "`90d`"),
            ("start_lines = 'some'", "unknown variant"),
            ("required = true\nstart_lines = 'never'", "exclude each other"),
            ("keep = 1", "unknown field"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
