//! The Cargo features of this build, for the check of policies.

use toolbay_policy::Feature;

/// The features that a policy can need and that this program has.
pub(crate) const FEATURES: &[Feature] = &[
    #[cfg(feature = "net")]
    Feature::Net,
    #[cfg(feature = "mcp")]
    Feature::Mcp,
    #[cfg(feature = "openapi")]
    Feature::OpenApi,
    #[cfg(feature = "registry")]
    Feature::Registry,
];
