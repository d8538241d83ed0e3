//! The architecture as data: which package may depend on which.
//!
//! A new package is an error until its line is here, so that whoever adds it says once what it may know. Tests may know
//! everything.

/// Each name with the names it may mention.
pub(super) type Table = &'static [(&'static str, &'static [&'static str])];

/// What each package may depend on, of the packages here. A folder ending in `/*` stands for all in it. Tests of a
/// package may depend on anything.
pub(super) const PACKAGES: Table = &[
    ("host/policy", &[]),
    ("host/core", &["toolbay-policy"]),
    ("host/discovery", &["toolbay-core", "toolbay-policy"]),
    ("host/vendor", &["toolbay-core", "toolbay-policy"]),
    ("host/reducers", &[]),
    (
        "host/runtime",
        &[
            "toolbay-core",
            "toolbay-discovery",
            "toolbay-openapi",
            "toolbay-policy",
            "toolbay-reducers",
            "toolbay-vendor",
        ],
    ),
    // An adapter never depends on another adapter, and not on what runs the tools.
    ("host/mcp", &["toolbay-core", "toolbay-discovery", "toolbay-policy"]),
    ("host/openapi", &["toolbay-core", "toolbay-policy"]),
    // For authors of plugins, whose tests run what they wrote in the host.
    ("host/testing", &["toolbay"]),
    (
        "host/cli",
        &[
            "toolbay",
            "toolbay-core",
            "toolbay-discovery",
            "toolbay-mcp",
            "toolbay-openapi",
            "toolbay-policy",
            "toolbay-vendor",
        ],
    ),
    ("sdk/rust-macros", &[]),
    ("sdk/rust", &["toolbay-sdk-macros"]),
    // The same reducers, native and as a component.
    ("plugins/reducers", &["toolbay-reducers", "toolbay-sdk"]),
    ("plugins/*", &["toolbay-sdk"]),
    ("tests/guests", &["toolbay-sdk"]),
    ("tests/artifacts", &["xtask"]),
    ("tests/benches", &["toolbay", "guest-artifacts"]),
    ("tests/bindings", &[]),
    // What is measured beside this project, and no part of it.
    ("tests/peers/*", &[]),
    ("tests/fuzz", &["toolbay", "guest-artifacts"]),
    (
        "tests",
        &[
            "toolbay",
            "toolbay-core",
            "toolbay-mcp",
            "toolbay-policy",
            "toolbay-reducers",
            "fuzz",
            "guest-artifacts",
        ],
    ),
    ("xtask", &[]),
];
