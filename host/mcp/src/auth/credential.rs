//! Whether what a request came with still counts: its credential, and the endpoint that it was sent to.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio_util::sync::CancellationToken;

/// Longest time between two looks at the clock: it can be set, and stands still while the machine sleeps.
const LOOK: Duration = Duration::from_secs(30);

/// Until when a request may be worked on: what is done for it ends with its credential or its endpoint.
#[derive(Debug, Clone)]
pub(crate) struct CredentialValidity(Arc<Grounds>);

#[derive(Debug)]
struct Grounds {
    credential: CancellationToken,
    endpoint: CancellationToken,
    expires: Option<SystemTime>,
}

impl CredentialValidity {
    /// `credential` fires when what the caller came with does not count any more, `endpoint` when the endpoint is gone or the
    /// server ends; what the caller came with may expire.
    pub(super) fn new(
        credential: CancellationToken,
        endpoint: CancellationToken,
        expires: Option<SystemTime>,
    ) -> Self {
        Self(Arc::new(Grounds { credential, endpoint, expires }))
    }

    /// Whether it was taken away: the token, the key that signed it, the policy under which nobody was asked, or the
    /// endpoint.
    pub(crate) fn is_revoked(&self) -> bool {
        self.0.credential.is_cancelled() || self.0.endpoint.is_cancelled()
    }

    /// Whether it was taken away or has expired.
    pub(crate) fn is_expired(&self) -> bool {
        self.is_revoked() || self.0.expires.is_some_and(|at| at <= SystemTime::now())
    }

    /// Waits until it is taken away.
    pub(crate) async fn revoked(&self) {
        tokio::select! {
            () = self.0.credential.cancelled() => {}
            () = self.0.endpoint.cancelled() => {}
        }
    }

    /// Waits until it is taken away or has expired.
    pub(crate) async fn expired(&self) {
        let Some(at) = self.0.expires else { return self.revoked().await };
        tokio::select! {
            () = self.revoked() => {}
            () = wait_until(at) => {}
        }
    }
}

async fn wait_until(at: SystemTime) {
    while let Ok(left) = at.duration_since(SystemTime::now()) {
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(LOOK)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn validity(expires: Option<SystemTime>) -> CredentialValidity {
        CredentialValidity::new(CancellationToken::new(), CancellationToken::new(), expires)
    }

    #[tokio::test]
    async fn it_is_over_when_any_of_it_is() {
        let ended = async |validity: &CredentialValidity| {
            tokio::time::timeout(Duration::from_secs(20), validity.expired()).await.expect("it never ends");
        };
        let lasting = validity(None);
        assert!(tokio::time::timeout(Duration::from_millis(20), lasting.expired()).await.is_err());
        lasting.0.credential.cancel();
        ended(&lasting).await;
        let closed = validity(None);
        closed.0.endpoint.cancel();
        ended(&closed).await;
        assert!(lasting.is_expired() && closed.is_expired());
        assert!(lasting.is_revoked() && closed.is_revoked());

        let now = SystemTime::now();
        let short = validity(now.checked_add(Duration::from_millis(50)));
        ended(&short).await;
        assert!(!short.is_revoked(), "whoever has a new token goes on");
        ended(&validity(now.checked_sub(Duration::from_secs(1)))).await;
    }
}
