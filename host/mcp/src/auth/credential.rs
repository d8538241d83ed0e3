//! Whether the credential of a request, and the endpoint that it was sent to, are still valid.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio_util::sync::CancellationToken;

/// Longest sleep before the wall clock is read again: the clock can be set, and timers stand still while the machine
/// sleeps.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// The validity of a request: its work ends when its credential or its endpoint does.
#[derive(Debug, Clone)]
pub(crate) struct CredentialValidity(Arc<ValiditySources>);

#[derive(Debug)]
struct ValiditySources {
    credential: CancellationToken,
    endpoint: CancellationToken,
    expires: Option<SystemTime>,
}

impl CredentialValidity {
    /// `credential` fires when the credential is revoked, `endpoint` when the endpoint is removed or the server ends. A
    /// credential may also expire.
    pub(super) fn new(
        credential: CancellationToken,
        endpoint: CancellationToken,
        expires: Option<SystemTime>,
    ) -> Self {
        Self(Arc::new(ValiditySources { credential, endpoint, expires }))
    }

    /// Whether the token, the key that signed it, anonymous access or the endpoint was withdrawn.
    pub(crate) fn is_revoked(&self) -> bool {
        self.0.credential.is_cancelled() || self.0.endpoint.is_cancelled()
    }

    /// Whether the credential was revoked or has expired.
    pub(crate) fn is_expired(&self) -> bool {
        self.is_revoked() || self.0.expires.is_some_and(|at| at <= SystemTime::now())
    }

    /// Waits until the credential is revoked.
    pub(crate) async fn revoked(&self) {
        tokio::select! {
            () = self.0.credential.cancelled() => {}
            () = self.0.endpoint.cancelled() => {}
        }
    }

    /// Waits until the credential is revoked or has expired.
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
        tokio::time::sleep(left.min(CLOCK_CHECK_INTERVAL)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn validity(expires: Option<SystemTime>) -> CredentialValidity {
        CredentialValidity::new(CancellationToken::new(), CancellationToken::new(), expires)
    }

    #[tokio::test]
    async fn any_ended_source_ends_the_validity() {
        let ended = async |validity: &CredentialValidity| {
            tokio::time::timeout(Duration::from_secs(20), validity.expired())
                .await
                .expect("the validity did not end");
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
        assert!(!short.is_revoked(), "an expired token is not revoked: the client may present a new one");
        ended(&validity(now.checked_sub(Duration::from_secs(1)))).await;
    }
}
