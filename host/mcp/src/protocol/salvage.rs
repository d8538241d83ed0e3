//! Finds the id of a request that no JSON parser reads: a number out of range, half of a surrogate pair, nesting without
//! end, bytes that are not UTF-8, `NaN`. Without it, the client would wait for its answer for ever.
//!
//! The scan knows strings and brackets only, so it finds the members of every object whose end can be found. It neither
//! recurses nor keeps anything.
//!
//! | what no parser reads | outcome |
//! |---|---|
//! | the arguments of a call | the call goes on with the arguments as they are; the pipeline refuses them with `input_invalid` |
//! | anything else of a request | -32602 under the id of the request, with the code `input_invalid` |
//! | a notification or an answer of the client | no answer |

use std::ops::Range;
use std::sync::Arc;

use rmcp::model::{ErrorData, RequestId};
use serde_json::{Value, json};

/// What a message is that no parser reads.
#[derive(Debug)]
pub(crate) enum Salvaged {
    /// A call whose arguments are the only part that cannot be read.
    Call {
        /// The same call without arguments.
        text: String,
        /// Its arguments as the client wrote them.
        arguments: Arc<str>,
    },
    /// A request; this is the answer to it.
    Request(ErrorData, RequestId),
    /// A message that expects no answer.
    Unasked,
}

/// Reads what can be read of a message that is not JSON for `why`. Returns `None` where no object ends with the text, or
/// where a request has no readable id.
pub(crate) fn salvage(bytes: &[u8], why: &str) -> Option<Salvaged> {
    let message = Message::find(bytes)?;
    let asks = message.method.is_some() || !message.answers;
    let Some(id) = message.id else {
        return (message.method.is_some() || message.answers).then_some(Salvaged::Unasked);
    };
    if !asks {
        return Some(Salvaged::Unasked);
    }
    let id = serde_json::from_slice::<RequestId>(bytes.get(id)?).ok()?;
    let is_call = message.method.is_some_and(|at| bytes.get(at) == Some(b"\"tools/call\""));
    let arguments = message.arguments.filter(|_| is_call && !message.twice);
    let text = arguments.and_then(|at| call(bytes, at));
    Some(text.unwrap_or_else(|| {
        let text = format!("input_invalid: the request cannot be read: {why}");
        let error = ErrorData::invalid_params(text, Some(json!({"toolbay/code": "input_invalid"})));
        Salvaged::Request(error, id)
    }))
}

/// Why no parser reads a text, if none does.
pub(crate) fn why_unreadable(text: &str) -> Option<String> {
    // Strict and without a tree: nearly every message ends here.
    if toolbay_core::tool::json::check(text).is_ok() {
        return None;
    }
    // The texts of this library name a place and repeat nothing of the message.
    serde_json::from_str::<Value>(text).err().map(|error| error.to_string())
}

/// The call with its arguments at `at` taken out; `None`: the rest of it cannot be read either.
fn call(bytes: &[u8], at: Range<usize>) -> Option<Salvaged> {
    let (head, tail) = (bytes.get(..at.start)?, bytes.get(at.end..)?);
    let text = String::from_utf8([head, b"{}", tail].concat()).ok()?;
    serde_json::from_str::<Value>(&text).ok()?;
    let mut raw = String::new();
    for chunk in bytes.get(at)?.utf8_chunks() {
        raw.push_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            // JSON allows this character nowhere: arguments that are not UTF-8 stay refused.
            raw.push('\0');
        }
    }
    Some(Salvaged::Call { text, arguments: raw.into() })
}

/// Where the parts of a message are.
#[derive(Debug, Default)]
struct Message {
    id: Option<Range<usize>>,
    method: Option<Range<usize>>,
    arguments: Option<Range<usize>>,
    /// It has a result or an error.
    answers: bool,
    /// It says something twice that must be clear.
    twice: bool,
}

impl Message {
    fn find(bytes: &[u8]) -> Option<Self> {
        let (mut message, mut params) = (Self::default(), None);
        let mut scan = Scan { bytes, at: 0 };
        scan.members(|key, value| match key {
            // As every parser does, the last of two counts.
            b"\"id\"" => message.id = Some(value),
            b"\"method\"" => message.twice |= message.method.replace(value).is_some(),
            b"\"params\"" => message.twice |= params.replace(value).is_some(),
            b"\"result\"" | b"\"error\"" => message.answers = true,
            _ => {}
        })?;
        scan.space();
        if scan.at < bytes.len() {
            return None;
        }
        if let Some(inner) = params.and_then(|at| bytes.get(at.start..at.end).map(|part| (at.start, part))) {
            let (start, bytes) = inner;
            // Parameters that are no object have no arguments.
            let _ = Scan { bytes, at: 0 }.members(|key, value| {
                if key == b"\"arguments\"" {
                    let value = start + value.start..start + value.end;
                    message.twice |= message.arguments.replace(value).is_some();
                }
            });
        }
        Some(message)
    }
}

/// Goes through a text once.
struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    /// Steps over one byte, if it is this one.
    fn step(&mut self, byte: u8) -> Option<()> {
        (self.peek() == Some(byte)).then(|| self.at += 1)
    }

    /// Steps over a string.
    fn string(&mut self) -> Option<Range<usize>> {
        let start = self.at;
        self.step(b'"')?;
        loop {
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Some(start..self.at);
                }
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
    }

    /// Steps over a value, whatever is in it.
    fn value(&mut self) -> Option<Range<usize>> {
        let (start, mut depth) = (self.at, 0_usize);
        loop {
            match self.peek() {
                Some(b'"') => _ = self.string()?,
                Some(b'{' | b'[') => {
                    depth += 1;
                    self.at += 1;
                }
                Some(b'}' | b']') if depth > 0 => {
                    depth -= 1;
                    self.at += 1;
                }
                Some(b',' | b':') if depth > 0 => self.at += 1,
                Some(byte) if depth > 0 && byte.is_ascii_whitespace() => self.at += 1,
                _ => self.atom()?,
            }
            if depth == 0 {
                return Some(start..self.at);
            }
        }
    }

    /// Steps over a number or a word.
    fn atom(&mut self) -> Option<()> {
        let start = self.at;
        let ends = |byte: u8| byte.is_ascii_whitespace() || b",:{}[]\"".contains(&byte);
        while self.peek().is_some_and(|byte| !ends(byte)) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }

    /// Steps over an object; `each` gets the text of a key, quotes included, and where its value is.
    fn members(&mut self, mut each: impl FnMut(&'a [u8], Range<usize>)) -> Option<()> {
        self.space();
        self.step(b'{')?;
        loop {
            self.space();
            if self.step(b'}').is_some() {
                return Some(());
            }
            let key = self.bytes.get(self.string()?)?;
            self.space();
            self.step(b':')?;
            self.space();
            let value = self.value()?;
            each(key, value);
            self.space();
            if self.step(b',').is_none() {
                return self.step(b'}');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn salvaged(bytes: &[u8]) -> Option<Salvaged> {
        salvage(bytes, "why")
    }

    fn id_of(bytes: &[u8]) -> Option<RequestId> {
        match salvaged(bytes)? {
            Salvaged::Call { text, .. } => {
                let message: Value = serde_json::from_str(&text).unwrap();
                serde_json::from_value(message["id"].clone()).ok()
            }
            Salvaged::Request(_, id) => Some(id),
            Salvaged::Unasked => None,
        }
    }

    #[test]
    fn the_id_is_found_wherever_it_is_and_whatever_cannot_be_read() {
        let deep = format!("{}1{}", "[".repeat(200_000), "]".repeat(200_000));
        let wide = "1".repeat(400);
        let bad: [&[u8]; 12] = [
            b"1e400",
            br#""\ud800""#,
            br#""\udc00\ud800""#,
            br#"{"a":[{"b":-1e999}]}"#,
            b"NaN",
            b"-Infinity",
            b"\"\xff\"",
            b"[\"\\\xff\\\"\",{}]",
            br#""\x""#,
            b"01",
            deep.as_bytes(),
            wide.as_bytes(),
        ];
        for bad in bad {
            for (id, expect) in [("7", RequestId::Number(7)), (r#""a\"b""#, RequestId::String("a\"b".into()))]
            {
                let around = [
                    (
                        format!(
                            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t","arguments":{{"a":"#
                        ),
                        "}}}",
                    ),
                    (
                        format!(
                            r#" {{"jsonrpc":"2.0","id" : {id} ,"method":"tools/call","params":{{"name":"t","_meta":"#
                        ),
                        "} }\n",
                    ),
                    (format!(r#"{{"id":{id},"method":"tools/list","x":"#), "}"),
                ];
                let last = format!(r#"}}}},"id":{id}}}"#);
                let late = (
                    r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"t","arguments":{"id":5,"a":"#
                        .to_owned(),
                    last.as_str(),
                );
                for (head, tail) in around.iter().map(|(head, tail)| (head, *tail)).chain([(&late.0, late.1)])
                {
                    let whole = [head.as_bytes(), bad, tail.as_bytes()].concat();
                    let shown = String::from_utf8_lossy(&whole).chars().take(120).collect::<String>();
                    assert_eq!(id_of(&whole), Some(expect.clone()), "{shown}");
                }
            }
        }
    }

    #[test]
    fn bad_arguments_stay_bad_and_nothing_else_of_a_call_changes() {
        let line = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"t\",\"arguments\": {\"a\":\"\\\xff\xfe\"} ,\"_meta\":{\"progressToken\":3}}}";
        let Some(Salvaged::Call { text, arguments }) = salvaged(line) else { panic!() };
        assert_eq!(
            text,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments": {} ,"_meta":{"progressToken":3}}}"#
        );
        assert!(toolbay_core::tool::json::parse(&arguments).is_err(), "{arguments:?}");
        // What says something twice is judged by nobody.
        for twice in [
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":1e400},"arguments":{}}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":1e400}},"params":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"tools/call","params":{"name":"t","arguments":{"a":1e400}}}"#,
        ] {
            assert!(matches!(salvaged(twice.as_bytes()), Some(Salvaged::Request(..))), "{twice}");
        }
    }

    #[test]
    fn what_has_no_end_or_no_id_is_not_answered_under_one() {
        for none in [
            "",
            "{",
            r#"{"id":1,"method":"ping""#,
            r#"{"id":1,"method":"ping","x":[}"#,
            r#"{"id":1,"method":"ping","x":"}"#,
            r#"{"id":1,"method":"ping","x":1e400} {}"#,
            r#"{"id":1,"method":"ping","x":}"#,
            r#"{"id":1 "method":"ping"}"#,
            r#"{"id":1e400,"method":"ping"}"#,
            r#"{"id":"\ud800","method":"ping"}"#,
            r#"{"id":[1e400],"method":"ping"}"#,
            r#"[{"id":1,"method":"ping","x":1e400}]"#,
            r#"{"x":1e400}"#,
            "nonsense",
        ] {
            assert!(salvaged(none.as_bytes()).is_none(), "{none}");
        }
        for unasked in [
            r#"{"method":"notifications/x","params":{"a":1e400}}"#,
            r#"{"id":1,"result":{"a":1e400}}"#,
            r#"{"id":1,"error":{"a":1e400}}"#,
        ] {
            assert!(matches!(salvaged(unasked.as_bytes()), Some(Salvaged::Unasked)), "{unasked}");
        }
    }
}
