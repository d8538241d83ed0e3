//! `requestState`: the opaque state that the client returns when it retries a call with input (2026-07-28).
//!
//! The client can read the state and could forge it. It is therefore authenticated with HMAC-SHA256, and bound to the
//! client, to the request with its name and a hash of its arguments, and to an expiry. Each process accepts a state once.
//!
//! The key is random for each process, so a state is not valid after a restart or on another server; or it is one that the
//! operator gives to all of them. Then another server could accept a state again, which only repeats answers that the same
//! client already gave.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::{ErrorData, RequestStateCodec, RequestStateError, SealOptions};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Nonces of used states that are remembered, to prevent replay. If more states are used within their lifetime, the
/// oldest could be replayed, which only repeats answers that the same client already gave.
const MAX_USED_NONCES: usize = 4096;
/// Longest accepted state, in bytes: 64 KiB of answers plus encoding and signature.
const MAX_STATE: usize = 128 << 10;
/// Most bytes of answers in a state.
pub(crate) const MAX_ANSWERS: usize = 64 << 10;

/// The content of a state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RequestStatePayload {
    /// Unique id, to accept the state only once.
    nonce: String,
    /// Hash of the approval request that was sent, if one was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) approval: Option<String>,
    /// Answers of earlier rounds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) answers: BTreeMap<String, Value>,
}

impl RequestStatePayload {
    /// Creates a payload. Sealing adds the nonce.
    pub(crate) fn new(approval: Option<String>, answers: BTreeMap<String, Value>) -> Self {
        Self { approval, answers, ..Self::default() }
    }
}

/// Signs states, and verifies those that clients return.
pub(crate) struct RequestStateSigner {
    codec: Option<RequestStateCodec>,
    /// Nonces of the last used states.
    used_nonces: Mutex<VecDeque<String>>,
}

impl fmt::Debug for RequestStateSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestStateSigner").finish_non_exhaustive()
    }
}

impl RequestStateSigner {
    /// Creates a signer with a random key.
    pub(crate) fn new() -> Self {
        let mut key = vec![0; 32];
        let codec = match getrandom::fill(&mut key) {
            Ok(()) => RequestStateCodec::try_new(key).ok(),
            Err(error) => {
                tracing::error!(%error, "random numbers are unavailable: 2026-07-28 clients cannot be asked for input");
                None
            }
        };
        Self { codec, used_nonces: Mutex::default() }
    }

    /// Creates a signer with a key that other processes have, too: at least 32 random bytes.
    pub(crate) fn with_key(key: &[u8]) -> Self {
        Self { codec: RequestStateCodec::try_new(key.to_vec()).ok(), used_nonces: Mutex::default() }
    }

    /// Whether a key could be generated.
    pub(crate) fn is_ready(&self) -> bool {
        self.codec.is_some()
    }

    /// Signs a state for a context: the client and its request. The state expires after `life`.
    pub(crate) fn seal(
        &self,
        context: &str,
        state: RequestStatePayload,
        life: Duration,
    ) -> Result<String, ErrorData> {
        let size = serde_json::to_string(&state.answers).map_or(usize::MAX, |text| text.len());
        if size > MAX_ANSWERS {
            let text = format!("the answers exceed {MAX_ANSWERS} bytes in total");
            return Err(ErrorData::invalid_params(text, None));
        }
        let (Some(codec), Some(nonce)) = (&self.codec, random_hex_name()) else {
            return Err(ErrorData::internal_error("random numbers are unavailable", None));
        };
        let options = SealOptions::new().associated_data(context.as_bytes()).ttl(life);
        let sealed = codec.seal_json_with(&RequestStatePayload { nonce, ..state }, &options);
        sealed.map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    /// Verifies a state that a client returned: it must have been issued for the same context, and be unexpired and
    /// unused.
    pub(crate) fn open(&self, context: &str, sealed: &str) -> Result<RequestStatePayload, ErrorData> {
        let refuse = |text: &'static str| ErrorData::invalid_params(text, None);
        const FORGED: &str = "`requestState` was not issued by this server for this tool, these arguments and this \
                              client; call again without it";
        let Some(codec) = self.codec.as_ref().filter(|_| sealed.len() <= MAX_STATE) else {
            return Err(refuse(FORGED));
        };
        let opened = codec.open_json_with::<RequestStatePayload>(sealed, context.as_bytes());
        let state = opened.map_err(|error| match error {
            RequestStateError::Expired => refuse("`requestState` has expired; call again without it"),
            _ => refuse(FORGED),
        })?;
        let mut used = self.used_nonces.lock();
        if used.contains(&state.nonce) {
            return Err(refuse("`requestState` was used before; call again without it"));
        }
        used.push_back(state.nonce.clone());
        if used.len() > MAX_USED_NONCES {
            used.pop_front();
        }
        Ok(state)
    }
}

/// A random, unguessable name.
pub(crate) fn random_hex_name() -> Option<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Duration = Duration::from_secs(60);

    fn state() -> RequestStatePayload {
        RequestStatePayload { approval: Some("a".to_owned()), ..RequestStatePayload::default() }
    }

    #[test]
    fn servers_with_one_key_accept_each_others_states() {
        let [one, two, other] = [1, 1, 2].map(|byte| RequestStateSigner::with_key(&[byte; 32]));
        let sealed = one.seal("me", state(), LIFE).unwrap();
        assert!(two.open("you", &sealed).is_err() && other.open("me", &sealed).is_err());
        assert_eq!(two.open("me", &sealed).unwrap().approval.as_deref(), Some("a"));
        assert!(two.open("me", &sealed).is_err(), "each process accepts it once");
    }

    #[test]
    fn a_state_is_valid_once_and_for_its_request() {
        let signer = RequestStateSigner::new();
        let sealed = signer.seal("me tools/call t 1", state(), LIFE).unwrap();
        for (context, text, part) in [
            ("you tools/call t 1", sealed.clone(), "was not issued by this server"),
            ("me tools/call u 1", sealed.clone(), "was not issued by this server"),
            ("me tools/call t 1", format!("{sealed}x"), "was not issued by this server"),
            ("me tools/call t 1", String::new(), "was not issued by this server"),
            ("me tools/call t 1", "x".repeat(MAX_STATE + 1), "was not issued by this server"),
        ] {
            let error = signer.open(context, &text).unwrap_err();
            assert!(error.message.contains(part), "{error:?}");
        }
        assert_eq!(signer.open("me tools/call t 1", &sealed).unwrap().approval.as_deref(), Some("a"));
        let error = signer.open("me tools/call t 1", &sealed).unwrap_err();
        assert!(error.message.contains("used before"), "{error:?}");
        let error = RequestStateSigner::new().open("me tools/call t 1", &sealed).unwrap_err();
        assert!(error.message.contains("was not issued by this server"), "another process: {error:?}");
    }

    #[test]
    fn a_state_expires() {
        let signer = RequestStateSigner::new();
        let sealed = signer.seal("c", state(), Duration::from_millis(1)).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert!(signer.open("c", &sealed).unwrap_err().message.contains("has expired"));
    }

    #[test]
    fn states_and_remembered_nonces_are_bounded() {
        let signer = RequestStateSigner::new();
        let large = RequestStatePayload {
            answers: [("a".to_owned(), Value::from("x".repeat(MAX_ANSWERS)))].into(),
            ..state()
        };
        assert!(signer.seal("c", large, LIFE).unwrap_err().message.contains("bytes"));
        for _ in 0..=MAX_USED_NONCES {
            let sealed = signer.seal("c", state(), LIFE).unwrap();
            signer.open("c", &sealed).unwrap();
        }
        assert_eq!(signer.used_nonces.lock().len(), MAX_USED_NONCES);
    }
}
