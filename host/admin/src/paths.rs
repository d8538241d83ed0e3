//! The paths of the admin listener that decide who may see what.

/// The sign-in page.
pub(crate) const SIGN_IN: &str = "/login";
/// Ends the session. Everybody who is signed in may.
pub(crate) const SIGN_OUT: &str = "/logout";
/// The style sheet.
pub(crate) const STYLE: &str = "/style.css";
/// The script.
pub(crate) const SCRIPT: &str = "/page.js";
/// The icon.
pub(crate) const ICON: &str = "/icon.svg";

/// Whether a path needs no session.
pub(crate) fn is_open(path: &str) -> bool {
    matches!(path, SIGN_IN | STYLE | SCRIPT | ICON)
}

/// Whether a person reads the response.
pub(crate) fn is_page(path: &str) -> bool {
    !path.starts_with("/api/") && path != "/metrics"
}
