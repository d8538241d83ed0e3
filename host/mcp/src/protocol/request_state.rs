//! `requestState`: what a call that waits for answers gives the client to bring back, in the era without sessions.
//!
//! The client can read it and can send anything. So it is sealed (HMAC-SHA256, a key of this process) and bound: to
//! whom it was given, to the request with its name and the hash of its arguments, and to a time. Each is taken once.
//! A server that is started anew takes none of before; neither does another replica.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::{ErrorData, RequestStateCodec, RequestStateError, SealOptions};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Used states that are remembered, so that none is taken twice. With more within one life of a state, the oldest
/// could be used again: that asks nobody anything, and answers only what the same client has answered before.
const MAX_USED: usize = 4096;
/// Longest state that is read, in bytes: answers of 64 KiB with what seals them.
const MAX_STATE: usize = 128 << 10;
/// Most bytes of answers that a state carries.
pub(crate) const MAX_ANSWERS: usize = 64 << 10;

/// What a state says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    /// Which it is, once.
    nonce: String,
    /// Which question about the call's permission was asked, if one was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) approval: Option<String>,
    /// What was answered in earlier rounds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) answers: BTreeMap<String, Value>,
}

impl State {
    /// One that is not sealed yet.
    pub(crate) fn new(approval: Option<String>, answers: BTreeMap<String, Value>) -> Self {
        Self { approval, answers, ..Self::default() }
    }
}

/// RequestStateSigner states and opens them.
pub(crate) struct RequestStateSigner {
    codec: Option<RequestStateCodec>,
    /// Those that were used last.
    used: Mutex<VecDeque<String>>,
}

impl fmt::Debug for RequestStateSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestStateSigner").finish_non_exhaustive()
    }
}

impl RequestStateSigner {
    /// With a key that nobody else has.
    pub(crate) fn new() -> Self {
        let mut key = vec![0; 32];
        let codec = match getrandom::fill(&mut key) {
            Ok(()) => RequestStateCodec::try_new(key).ok(),
            Err(error) => {
                tracing::error!(%error, "no random numbers: clients cannot be asked in the era without sessions");
                None
            }
        };
        Self { codec, used: Mutex::default() }
    }

    /// Whether there is a key.
    pub(crate) fn is_ready(&self) -> bool {
        self.codec.is_some()
    }

    /// A state for who asked what.
    pub(crate) fn seal(&self, context: &str, state: State, life: Duration) -> Result<String, ErrorData> {
        let size = serde_json::to_string(&state.answers).map_or(usize::MAX, |text| text.len());
        if size > MAX_ANSWERS {
            let text = format!("the answers have more than {MAX_ANSWERS} bytes together");
            return Err(ErrorData::invalid_params(text, None));
        }
        let (Some(codec), Some(nonce)) = (&self.codec, random_name()) else {
            return Err(ErrorData::internal_error("no random numbers", None));
        };
        let options = SealOptions::new().associated_data(context.as_bytes()).ttl(life);
        let sealed = codec.seal_json_with(&State { nonce, ..state }, &options);
        sealed.map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    /// What a client brought back, if it is what it was given for this very request and did not bring before.
    pub(crate) fn open(&self, context: &str, sealed: &str) -> Result<State, ErrorData> {
        let refuse = |text: &'static str| ErrorData::invalid_params(text, None);
        const FORGED: &str = "`requestState` is not what this server gave out for this request: same tool, same \
                              arguments, same client; call again without it";
        let Some(codec) = self.codec.as_ref().filter(|_| sealed.len() <= MAX_STATE) else {
            return Err(refuse(FORGED));
        };
        let opened = codec.open_json_with::<State>(sealed, context.as_bytes());
        let state = opened.map_err(|error| match error {
            RequestStateError::Expired => refuse("`requestState` is too old; call again without it"),
            _ => refuse(FORGED),
        })?;
        let mut used = self.used.lock();
        if used.contains(&state.nonce) {
            return Err(refuse("`requestState` was used before; call again without it"));
        }
        used.push_back(state.nonce.clone());
        if used.len() > MAX_USED {
            used.pop_front();
        }
        Ok(state)
    }
}

/// A name that cannot be guessed.
pub(crate) fn random_name() -> Option<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Duration = Duration::from_secs(60);

    fn state() -> State {
        State { approval: Some("a".to_owned()), ..State::default() }
    }

    #[test]
    fn a_state_is_good_once_and_for_its_request() {
        let signer = RequestStateSigner::new();
        let sealed = signer.seal("me tools/call t 1", state(), LIFE).unwrap();
        for (context, text, part) in [
            ("you tools/call t 1", sealed.clone(), "not what this server gave"),
            ("me tools/call u 1", sealed.clone(), "not what this server gave"),
            ("me tools/call t 1", format!("{sealed}x"), "not what this server gave"),
            ("me tools/call t 1", String::new(), "not what this server gave"),
            ("me tools/call t 1", "x".repeat(MAX_STATE + 1), "not what this server gave"),
        ] {
            let error = signer.open(context, &text).unwrap_err();
            assert!(error.message.contains(part), "{error:?}");
        }
        assert_eq!(signer.open("me tools/call t 1", &sealed).unwrap().approval.as_deref(), Some("a"));
        let error = signer.open("me tools/call t 1", &sealed).unwrap_err();
        assert!(error.message.contains("used before"), "{error:?}");
        let error = RequestStateSigner::new().open("me tools/call t 1", &sealed).unwrap_err();
        assert!(error.message.contains("not what this server gave"), "another process: {error:?}");
    }

    #[test]
    fn a_state_ends() {
        let signer = RequestStateSigner::new();
        let sealed = signer.seal("c", state(), Duration::from_millis(1)).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert!(signer.open("c", &sealed).unwrap_err().message.contains("too old"));
    }

    #[test]
    fn a_state_is_bounded_and_so_is_the_memory_of_them() {
        let signer = RequestStateSigner::new();
        let large =
            State { answers: [("a".to_owned(), Value::from("x".repeat(MAX_ANSWERS)))].into(), ..state() };
        assert!(signer.seal("c", large, LIFE).unwrap_err().message.contains("bytes"));
        for _ in 0..=MAX_USED {
            let sealed = signer.seal("c", state(), LIFE).unwrap();
            signer.open("c", &sealed).unwrap();
        }
        assert_eq!(signer.used.lock().len(), MAX_USED);
    }
}
