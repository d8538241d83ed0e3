//! Tells systemd when the server is ready, reloads and stops (`Type=notify`, sd_notify(3)). Without a service manager
//! nothing is sent.

use sd_notify::NotifyState;

/// The plugins are loaded, or a reload has begun to apply.
pub(super) fn notify_ready() {
    notify(&[NotifyState::Ready]);
}

/// The server reads its files again.
pub(super) fn notify_reloading() {
    // Since version 253, systemd wants the time in the same message.
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(error) => tracing::debug!(%error, "the clock cannot be read"),
    }
}

/// The server was asked to stop.
pub(super) fn notify_stopping() {
    notify(&[NotifyState::Stopping]);
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager was not notified");
    }
}
