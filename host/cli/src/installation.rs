//! A plugin of a registry from its reference to the lock: trust, download, comparison with the version before.

pub(crate) mod install;
pub(crate) mod status;
pub(crate) mod trust;
pub(crate) mod verification;
pub(crate) mod version_diff;

use toolbay_core::tool::PluginOrigin;

/// Where a plugin of a registry comes from, and who signed it.
pub(crate) fn origin_facts(origin: &PluginOrigin) -> [(&'static str, String); 3] {
    let signer = match origin.signer.as_str() {
        "none" => "none: no signature was checked".to_owned(),
        signer => signer.to_owned(),
    };
    [("source", origin.reference.clone()), ("manifest", origin.manifest.clone()), ("signer", signer)]
}
