//! The sessions of browsers: a random cookie that stands for a token. A session ends when its token is taken out of the
//! file.

use std::collections::HashMap;
use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::COOKIE;
use parking_lot::Mutex;
use tokio::time::Instant;
use toolbay_state::digest::Digest;

/// Most sessions at once. A further one ends the one that was used least recently.
const MAX_SESSIONS: usize = 100;
/// Longest life of a session: a working day.
const MAX_LIFE: Duration = Duration::from_secs(12 * 60 * 60);
/// Longest time without a request.
const MAX_IDLE: Duration = Duration::from_secs(60 * 60);

/// The open sessions of a listener.
#[derive(Debug)]
pub(crate) struct Sessions {
    cookie: String,
    open: Mutex<HashMap<SessionKey, OpenSession>>,
}

/// The random name of a session: 32 bytes in hex.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SessionKey(String);

#[derive(Debug)]
struct OpenSession {
    token: Digest,
    began: Instant,
    used: Instant,
}

impl OpenSession {
    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.began) >= MAX_LIFE || now.duration_since(self.used) >= MAX_IDLE
    }
}

impl Sessions {
    /// No sessions. Cookies do not know ports, so `port` is part of their name.
    pub(crate) fn new(port: Option<u16>) -> Self {
        let cookie = port.map_or_else(|| "toolbay".to_owned(), |port| format!("toolbay_{port}"));
        Self { cookie, open: Mutex::default() }
    }

    /// Opens a session for a token and returns the value of `Set-Cookie`.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(crate) fn open(&self, token: Digest) -> Result<String, getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        let key: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let now = Instant::now();
        let mut open = self.open.lock();
        open.retain(|_, session| !session.is_over(now));
        if open.len() >= MAX_SESSIONS
            && let Some(oldest) =
                open.iter().min_by_key(|(_, session)| session.used).map(|(key, _)| key.clone())
        {
            open.remove(&oldest);
        }
        open.insert(SessionKey(key.clone()), OpenSession { token, began: now, used: now });
        Ok(format!(
            "{}={key}; Path=/; HttpOnly; SameSite=Strict; Max-Age={}",
            self.cookie,
            MAX_LIFE.as_secs()
        ))
    }

    /// The session of a request, and its token.
    pub(crate) fn find(&self, headers: &HeaderMap) -> Option<(SessionKey, Digest)> {
        let key = self.key(headers)?;
        let now = Instant::now();
        let mut open = self.open.lock();
        let session = open.get_mut(&key)?;
        if session.is_over(now) {
            open.remove(&key);
            return None;
        }
        session.used = now;
        Some((key, session.token))
    }

    /// Ends a session and returns the value of `Set-Cookie` that removes its cookie.
    pub(crate) fn close(&self, key: &SessionKey) -> String {
        self.open.lock().remove(key);
        format!("{}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0", self.cookie)
    }

    fn key(&self, headers: &HeaderMap) -> Option<SessionKey> {
        let all = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
        let mut pairs = all.flat_map(|value| value.split(';'));
        let value = pairs.find_map(|pair| pair.trim().strip_prefix(&self.cookie)?.strip_prefix('='))?;
        Some(SessionKey(value.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(set_cookie: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let pair = set_cookie.split(';').next().unwrap_or_default();
        headers.insert(COOKIE, format!("other=1; {pair}").parse().unwrap());
        headers
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_ends_by_sign_out_by_idling_and_by_age() {
        let sessions = Sessions::new(Some(1));
        let token = Digest::of(b"a");
        let cookie = sessions.open(token).unwrap();
        assert!(cookie.contains("HttpOnly; SameSite=Strict") && cookie.starts_with("toolbay_1="), "{cookie}");
        let (key, found) = sessions.find(&headers(&cookie)).unwrap();
        assert_eq!(found, token);
        assert!(sessions.close(&key).contains("Max-Age=0"));
        assert!(sessions.find(&headers(&cookie)).is_none());

        let idle = headers(&sessions.open(token).unwrap());
        tokio::time::advance(MAX_IDLE).await;
        assert!(sessions.find(&idle).is_none());

        let old = headers(&sessions.open(token).unwrap());
        for _ in 0..23 {
            tokio::time::advance(MAX_LIFE / 24).await;
            assert!(sessions.find(&old).is_some());
        }
        tokio::time::advance(MAX_LIFE / 24).await;
        assert!(sessions.find(&old).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_least_used_session_makes_room() {
        let sessions = Sessions::new(None);
        let mut cookies = Vec::new();
        for _ in 0..=MAX_SESSIONS {
            cookies.push(headers(&sessions.open(Digest::of(b"a")).unwrap()));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let found = cookies.iter().filter(|cookie| sessions.find(cookie).is_some()).count();
        assert_eq!((found, sessions.find(&cookies[0]).is_none()), (MAX_SESSIONS, true));
    }
}
