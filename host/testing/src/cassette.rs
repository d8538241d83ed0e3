//! Recorded HTTP: a file with requests and their responses.
//!
//! ```json
//! {"version": 1, "exchanges": [
//!   {"method": "GET", "url": "https://example.com/", "response": {
//!     "status": 200, "headers": [["content-type", "text/html"]], "body": "<h1>Example Domain</h1>"}}]}
//! ```
//!
//! A request is identified by its method, its URL and the digest of its body (`body_sha256`, omitted without a body). A
//! body that is not text stands in `body_base64`. Each exchange answers once; equal requests are answered in order. The
//! record has nothing else of a request, so no credentials, and of a response no field with credentials or lengths.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use toolbay::{RecordedHttp, RecordedRequest, RecordedResponse};

use crate::golden::sha256;
use crate::is_on;

/// Sends the requests and writes the file.
const RECORD: &str = "TOOLBAY_RECORD_HTTP";
/// The version of the file format.
const VERSION: u32 = 1;
/// Header fields that are not recorded: credentials, and fields that belong to a connection or count bytes.
const LEFT_OUT: [&str; 12] = [
    "authentication-info",
    "authorization",
    "connection",
    "content-length",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "set-cookie",
    "set-cookie2",
    "trailer",
    "transfer-encoding",
    "www-authenticate",
];
/// How many requests a message names.
const SHOWN: usize = 10;

/// A record, in replay or in recording mode.
#[derive(Debug)]
pub(crate) struct Cassette {
    file: PathBuf,
    records: bool,
    state: Mutex<CassetteState>,
}

#[derive(Debug, Default)]
struct CassetteState {
    exchanges: VecDeque<RecordedExchange>,
    problem: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CassetteFile {
    version: u32,
    exchanges: VecDeque<RecordedExchange>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedExchange {
    method: String,
    url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body_sha256: Option<String>,
    response: CassetteResponse,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CassetteResponse {
    status: u16,
    #[serde(default)]
    headers: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
}

impl Cassette {
    /// The record in a file, given relative to the crate.
    pub(crate) fn open(folder: &Path, file: &Path) -> Result<Self, String> {
        Self::in_mode(folder.join(file), is_on(RECORD))
    }

    fn in_mode(file: PathBuf, records: bool) -> Result<Self, String> {
        let exchanges = if records { VecDeque::new() } else { read(&file)? };
        Ok(Self { file, records, state: Mutex::new(CassetteState { exchanges, problem: None }) })
    }

    /// The errors since the last call of this function.
    pub(crate) fn problem(&self) -> Option<String> {
        self.state.lock().problem.take()
    }

    fn write(&self, exchanges: &VecDeque<RecordedExchange>) -> Result<(), String> {
        let file = CassetteFile { version: VERSION, exchanges: exchanges.clone() };
        let mut text = serde_json::to_string_pretty(&file).map_err(|error| error.to_string())?;
        text.push('\n');
        let folder = self.file.parent().unwrap_or(Path::new("."));
        let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&self.file, text));
        written.map_err(|error| format!("`{}` cannot be written: {error}", self.file.display()))
    }

    fn unknown(&self, request: &RecordedRequest, left: &VecDeque<RecordedExchange>) -> String {
        let RecordedRequest { method, url, body } = request;
        let body = digest(body).map(|digest| format!(" with a body of SHA-256 {digest}")).unwrap_or_default();
        let shown: Vec<String> =
            left.iter().take(SHOWN).map(|one| format!("`{} {}`", one.method, one.url)).collect();
        let left = if shown.is_empty() { "nothing".to_owned() } else { shown.join(", ") };
        format!(
            "`{}` has no response (left) to `{method} {url}`{body}; left in it is {left}. To record it anew, run the test \
             with {RECORD}=1",
            self.file.display()
        )
    }
}

impl RecordedHttp for Cassette {
    fn replay(&self, request: &RecordedRequest) -> Result<Option<RecordedResponse>, String> {
        if self.records {
            return Ok(None);
        }
        let mut state = self.state.lock();
        let found = state.exchanges.iter().position(|one| one.is_of(request));
        if let Some(exchange) = found.and_then(|place| state.exchanges.remove(place)) {
            return exchange.response.replayed().map(Some);
        }
        let problem = self.unknown(request, &state.exchanges);
        state.problem.get_or_insert(problem.clone());
        Err(problem)
    }

    fn record(&self, request: &RecordedRequest, response: &RecordedResponse) {
        let mut state = self.state.lock();
        state.exchanges.push_back(RecordedExchange::new(request, response));
        if let Err(problem) = self.write(&state.exchanges) {
            state.problem.get_or_insert(problem);
        }
    }
}

impl RecordedExchange {
    fn new(request: &RecordedRequest, response: &RecordedResponse) -> Self {
        let kept = |name: &str| !LEFT_OUT.contains(&name.to_ascii_lowercase().as_str());
        let (body, body_base64) = match String::from_utf8(response.body.clone()) {
            Ok(text) => (Some(text), None),
            Err(error) => (None, Some(STANDARD.encode(error.as_bytes()))),
        };
        let headers = response.headers.iter().filter(|(name, _)| kept(name)).cloned().collect();
        Self {
            method: request.method.clone(),
            url: request.url.clone(),
            body_sha256: digest(&request.body),
            response: CassetteResponse { status: response.status, headers, body, body_base64 },
        }
    }

    fn is_of(&self, request: &RecordedRequest) -> bool {
        self.method == request.method && self.url == request.url && self.body_sha256 == digest(&request.body)
    }
}

impl CassetteResponse {
    fn replayed(self) -> Result<RecordedResponse, String> {
        let body = match (self.body, self.body_base64) {
            (Some(text), None) => text.into_bytes(),
            (None, Some(text)) => STANDARD.decode(text).map_err(|error| format!("`body_base64`: {error}"))?,
            (None, None) => Vec::new(),
            (Some(_), Some(_)) => return Err("a response has `body` or `body_base64`, not both".to_owned()),
        };
        Ok(RecordedResponse { status: self.status, headers: self.headers, body })
    }
}

fn digest(body: &[u8]) -> Option<String> {
    (!body.is_empty()).then(|| sha256(body))
}

fn read(file: &Path) -> Result<VecDeque<RecordedExchange>, String> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| {
        format!("the record `{shown}` cannot be read: {error}; to write it, run the test with {RECORD}=1")
    })?;
    let file: CassetteFile =
        serde_json::from_str(&text).map_err(|error| format!("the record `{shown}`: {error}"))?;
    match file.version {
        VERSION => Ok(file.exchanges),
        other => Err(format!("the record `{shown}` is of version {other}; this reads version {VERSION}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, body: &str) -> RecordedRequest {
        RecordedRequest {
            method: method.to_owned(),
            url: "https://a.example/x".to_owned(),
            body: body.as_bytes().to_vec(),
        }
    }

    fn response(body: &[u8]) -> RecordedResponse {
        let headers = [("content-type", "text/plain"), ("Set-Cookie", "id=1"), ("content-length", "3")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        RecordedResponse { status: 200, headers, body: body.to_vec() }
    }

    #[test]
    fn what_was_recorded_is_replayed_once_and_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("http/one.json");
        let recording = Cassette::in_mode(file.clone(), true).unwrap();
        assert_eq!(recording.replay(&request("GET", "")), Ok(None));
        recording.record(&request("GET", ""), &response(b"one"));
        recording.record(&request("POST", "a"), &response(b"\xff\x00"));
        recording.record(&request("GET", ""), &response(b"two"));
        assert_eq!(recording.problem(), None);
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(!text.contains("id=1") && !text.contains("content-length"), "{text}");

        let replayed = Cassette::in_mode(file, false).unwrap();
        let body = |request: &RecordedRequest| replayed.replay(request).unwrap().unwrap().body;
        assert_eq!(body(&request("GET", "")), b"one");
        assert_eq!(body(&request("POST", "a")), b"\xff\x00");
        assert_eq!(body(&request("GET", "")), b"two");
        assert_eq!(replayed.problem(), None);
    }

    #[test]
    fn an_unknown_request_names_itself_and_what_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("one.json");
        let recording = Cassette::in_mode(file.clone(), true).unwrap();
        recording.record(&request("POST", "a"), &response(b"one"));
        let replayed = Cassette::in_mode(file, false).unwrap();
        for (method, body) in [("GET", ""), ("POST", "b"), ("PUT", "a")] {
            let problem = replayed.replay(&request(method, body)).unwrap_err();
            for part in [&format!("`{method} https://a.example/x`"), "`POST https://a.example/x`", RECORD] {
                assert!(problem.contains(part), "{problem}");
            }
            assert_eq!(replayed.problem(), Some(problem));
        }
        replayed.replay(&request("POST", "a")).unwrap();
        assert!(replayed.replay(&request("POST", "a")).unwrap_err().contains("left in it is nothing"));
    }

    #[test]
    fn a_file_that_is_no_record_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("one.json");
        let problem = |text: &str| {
            std::fs::write(&file, text).unwrap();
            Cassette::in_mode(file.clone(), false).unwrap_err()
        };
        assert!(problem("{").contains("one.json"));
        assert!(problem(r#"{"version": 2, "exchanges": []}"#).contains("version 2"));
        assert!(problem(r#"{"version": 1, "exchanges": [], "more": 1}"#).contains("unknown field"));
        let absent = Cassette::in_mode(dir.path().join("absent.json"), false).unwrap_err();
        assert!(absent.contains(RECORD), "{absent}");
        let both = CassetteResponse {
            status: 200,
            headers: vec![],
            body: Some(String::new()),
            body_base64: Some(String::new()),
        };
        assert!(both.replayed().unwrap_err().contains("not both"));
    }
}
