//! The audit as a reader gets it: the records that the host wrote, in this version or in another one.
//!
//! Unknown keys are ignored, and absent ones have their defaults. A value that this version cannot read is left out, and the
//! rest of its record stays. A record of an unknown kind, or without a key that its kind needs, is
//! [`ReadEvent::Unknown`].

use std::borrow::Cow;

use serde::de::{DeserializeOwned, Error as _};
use serde_json::Value;
use serde_path_to_error::Segment;

use super::{ActionRecord, AuditRecord, CallStart, GrantRecord, RefusalCountRecord, RequestRecord};

/// The record of a call.
pub type CallRecord = AuditRecord<String, String>;

/// Most values that are left out of a record, so that a line of odd values costs no long work.
const MAX_UNREADABLE: usize = 64;

/// One line.
#[derive(Debug)]
pub struct AuditLine {
    /// When it was written ([`super::timestamp`]); empty if the line has no time.
    pub time: String,
    /// Its content.
    pub event: ReadEvent,
}

/// The content of a line.
#[derive(Debug)]
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
    Grant(Box<GrantRecord<String>>),
    /// An operator acted on running calls or tools.
    Action(ActionRecord<String>),
    /// Lines before this one were lost.
    Gap {
        /// The number of lost lines.
        lost: u64,
    },
    /// Any other object with a `kind`, most likely a record of a later version.
    Unknown(Value),
}

impl AuditLine {
    /// Reads a line.
    ///
    /// # Errors
    /// The line is no JSON object with a `kind`.
    pub fn parse(line: &str) -> serde_json::Result<Self> {
        let json: Value = serde_json::from_str(line)?;
        let text = |key: &str| json.get(key).and_then(Value::as_str);
        let event = match text("kind").ok_or_else(|| serde_json::Error::custom("a record has a `kind`"))? {
            "start" => read(&json).map(ReadEvent::Start),
            "call" => read(&json).map(|call| ReadEvent::Call(Box::new(call))),
            "request" => read(&json).map(ReadEvent::Request),
            "refused" => read(&json).map(ReadEvent::Refused),
            "grant" => read(&json).map(|grant| ReadEvent::Grant(Box::new(grant))),
            "action" => read(&json).map(ReadEvent::Action),
            "gap" => json.get("lost").and_then(Value::as_u64).map(|lost| ReadEvent::Gap { lost }),
            _ => None,
        };
        let time = text("time").unwrap_or_default().to_owned();
        Ok(Self { time, event: event.unwrap_or(ReadEvent::Unknown(json)) })
    }
}

/// Reads a record without the values that this version cannot read. `None` if the record needs one of them.
fn read<T: DeserializeOwned>(json: &Value) -> Option<T> {
    let mut json = Cow::Borrowed(json);
    for _ in 0..=MAX_UNREADABLE {
        match serde_path_to_error::deserialize(&*json) {
            Ok(record) => return Some(record),
            Err(error) => remove(json.to_mut(), &error.path().iter().collect::<Vec<_>>())?,
        }
    }
    None
}

/// Removes the value at a path. `None` if there is no such value, or if it is the whole.
fn remove(json: &mut Value, path: &[&Segment]) -> Option<()> {
    match (json, path) {
        (Value::Object(fields), [Segment::Map { key }]) => fields.remove(key).map(drop),
        (Value::Object(fields), [Segment::Map { key }, inner @ ..]) => remove(fields.get_mut(key)?, inner),
        (Value::Array(items), [Segment::Seq { index }]) => {
            (*index < items.len()).then(|| drop(items.remove(*index)))
        }
        (Value::Array(items), [Segment::Seq { index }, inner @ ..]) => remove(items.get_mut(*index)?, inner),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(record: &Value) -> ReadEvent {
        AuditLine::parse(&record.to_string()).unwrap().event
    }

    /// A record of each kind with all of its fields.
    fn records() -> Vec<Value> {
        let origin = json!({"reference": "oci://r/p:1", "manifest": "sha256:ab", "signer": "none"});
        let source = json!({"kind": "plugin", "id": "p", "version": "1", "digest": "ab", "origin": origin});
        vec![
            json!({"kind": "start", "start_id": "00000000000000ff-7", "call_id": "c", "tool": "p__t",
                "source": source, "session_id": "s", "agent_id": "a", "profile": "few"}),
            json!({"kind": "call", "call_id": "c", "outer": "o", "tool": "p__t", "through": "f",
                "source": source, "session_id": "s", "agent_id": "a", "platform": "cli", "client_name": "n",
                "profile": "few", "epoch": 1, "permission": {"action": "deny", "rule": 1, "allowed": false},
                "outcome": "ok", "refusal": "rule", "limit": {"name": "fuel", "value": "1", "setting": "x"},
                "uses": [{"key": "net", "what": "x", "allowed": true}], "uses_not_kept": 1, "hints": ["h"],
                "usage": {"fuel": 5}, "cost_usd": 0.5, "duration_us": 1, "waited_us": 1, "cached": true,
                "delivered_chars": 1, "cut_from_chars": 2, "reducer": "ok", "reason": "r", "began": true,
                "start_id": "00000000000000ff-7"}),
            json!({"kind": "request", "client": "192.0.2.1", "token": "token:ci", "reason": "host",
                "status": 403, "method": "GET", "path": "/", "host": "h"}),
            json!({"kind": "refused", "what": "call", "client": "c", "outcome": "denied", "reason": "rule",
                "last": "p__t", "count": 3, "seconds": 10}),
            json!({"kind": "grant", "event": "loaded", "plugin": "p", "version": "1", "digest": "ab",
                "origin": origin, "granted": {"tools": {"t": {"net": ["a"]}}}, "refused": {"t": ["net b"]},
                "held": ["x"], "by": "me"}),
            json!({"kind": "action", "action": "stop", "subject": "p", "reason": "r", "by": "me"}),
        ]
    }

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
    }

    #[test]
    fn a_value_that_cannot_be_read_costs_only_itself() {
        for record in records() {
            let known = event(&record);
            for key in record.as_object().unwrap().keys().filter(|key| *key != "kind") {
                let (mut odd, mut absent) = (record.clone(), record.clone());
                odd[key] = json!([[[]]]);
                absent.as_object_mut().unwrap().remove(key);
                let (read, rest) = (event(&odd), event(&absent));
                // Without its id, a start line is of no use.
                if (record["kind"].as_str(), key.as_str()) == (Some("start"), "start_id") {
                    assert!(matches!(read, ReadEvent::Unknown(kept) if kept == odd));
                    continue;
                }
                assert_eq!(std::mem::discriminant(&read), std::mem::discriminant(&known), "{key}");
                assert_eq!(format!("{read:?}"), format!("{rest:?}"), "{key}");
            }
        }
    }

    #[test]
    fn an_unknown_value_inside_a_record_costs_only_itself() {
        let [start, call, _, _, grant, _] = <[Value; 6]>::try_from(records()).unwrap();
        let with = |record: &Value, at: &str, value: &Value| {
            let mut record = record.clone();
            *record.pointer_mut(at).unwrap() = value.clone();
            format!("{:?}", event(&record))
        };
        for (record, at, odd, as_if_at, as_if) in [
            (&start, "/source", json!({"kind": "later"}), "/source", Value::Null),
            (&call, "/source", json!({"kind": "later"}), "/source", Value::Null),
            (&call, "/source/kind", json!("later"), "/source", Value::Null),
            (&call, "/source/version", json!(1), "/source/version", Value::Null),
            (&call, "/source/origin/signer", json!(1), "/source/origin", Value::Null),
            (&call, "/permission/action", json!("later"), "/permission", Value::Null),
            (&call, "/permission/rule", json!("later"), "/permission/rule", Value::Null),
            (&call, "/uses/0/allowed", json!("later"), "/uses", json!([])),
            (&call, "/usage/fuel", json!("later"), "/usage/fuel", Value::Null),
            (&grant, "/granted/tools/t/net", json!(1), "/granted/tools/t", json!({})),
            (&grant, "/granted", json!({"tools": {}, "later": {}}), "/granted", json!({"tools": {}})),
            (&grant, "/origin/signer", json!(1), "/origin", Value::Null),
        ] {
            assert_eq!(with(record, at, &odd), with(record, as_if_at, &as_if), "{at}");
        }
        let mut later = grant;
        later["event"] = json!("later");
        assert!(matches!(event(&later), ReadEvent::Grant(record) if record.event == "later"));
    }

    #[test]
    fn every_other_object_with_a_kind_is_kept() {
        for line in [
            r#"{"kind":"later","time":"t","x":{}}"#,
            r#"{"kind":"gap"}"#,
            r#"{"kind":"start","time":"t","tool":"p__t"}"#,
        ] {
            let read = AuditLine::parse(line).unwrap();
            assert!(
                matches!(read.event, ReadEvent::Unknown(json) if serde_json::to_string(&json).unwrap() == line),
                "{line}"
            );
        }
        let many = json!({"kind": "call", "uses": vec![1; 1000]});
        assert!(matches!(event(&many), ReadEvent::Unknown(_)));
    }

    #[test]
    fn a_line_that_is_no_record_is_an_error() {
        for line in ["", "5", "{}", "[]", r#"{"kind":"ca"#, r#"{"kind":1}"#, r#"{"time":"t"}"#] {
            assert!(AuditLine::parse(line).is_err(), "{line}");
        }
    }
}
