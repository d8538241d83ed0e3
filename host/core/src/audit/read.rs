//! The audit as a reader gets it: the records that the host wrote, in this version or in another one.
//!
//! Unknown keys are ignored, absent ones have their defaults, and a record of an unknown kind is [`ReadEvent::Unknown`]. A
//! line that is none of these is an error for this line only.

use serde::Deserialize;

use super::{ActionRecord, AuditRecord, CallStart, GrantRecord, RefusalCountRecord, RequestRecord};

/// The record of a call.
pub type CallRecord = AuditRecord<String, String>;

/// One line.
#[derive(Debug, Deserialize)]
pub struct AuditLine {
    /// When it was written ([`super::timestamp`]).
    #[serde(default)]
    pub time: String,
    /// Its content.
    #[serde(flatten)]
    pub event: ReadEvent,
}

/// The content of a line.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum ReadEvent {
    /// A call is about to run.
    Start(CallStart),
    /// A call ended.
    Call(Box<CallRecord>),
    /// A request over HTTP was refused.
    Request(RequestRecord<String>),
    /// Several refusals in one count.
    Refused(RefusalCountRecord<String>),
    /// A decision about a plugin's grants.
    Grant(Box<GrantRecord>),
    /// An operator acted on running calls or tools.
    Action(ActionRecord<String>),
    /// Lines before this one were lost.
    Gap {
        /// The number of lost lines.
        lost: u64,
    },
    /// A record of a later version.
    #[serde(other)]
    Unknown,
}

impl AuditLine {
    /// Reads a line.
    ///
    /// # Errors
    /// It is no record.
    pub fn parse(line: &str) -> serde_json::Result<Self> {
        serde_json::from_str(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_other_versions_are_read() {
        let call = r#"{"time":"t","kind":"call","tool":"p__t","outcome":"new","refusal":"newer","later":[1],
            "limit":{"name":"fuel","value":"1","setting":"[plugins.p.limits] fuel = …"},"uses":[],"hints":["a"],
            "usage":{"queued_us":3},"duration_us":10,"start_id":"00000000000000ff-7"}"#;
        let ReadEvent::Call(call) = AuditLine::parse(call).unwrap().event else { panic!("a call") };
        assert_eq!((call.outcome.as_str(), call.refusal.as_deref()), ("new", Some("newer")));
        assert_eq!((call.limit.unwrap().name.as_str(), call.usage.fuel), ("fuel", None));
        assert_eq!(call.duration_us - call.usage.queued_us, 7);
        assert_eq!(call.start_id.unwrap().to_string(), "00000000000000ff-7");
        assert_eq!(call.hints, ["a".into()]);
        let unknown = AuditLine::parse(r#"{"kind":"later","time":"t","x":{}}"#).unwrap();
        assert!(matches!(unknown.event, ReadEvent::Unknown), "{unknown:?}");
    }

    #[test]
    fn a_line_that_is_no_record_is_an_error() {
        for line in
            ["", "5", "{}", "[]", r#"{"kind":"ca"#, r#"{"kind":"gap"}"#, r#"{"kind":"call","uses":1}"#]
        {
            assert!(AuditLine::parse(line).is_err(), "{line}");
        }
    }
}
