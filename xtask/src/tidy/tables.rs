//! The architecture as data: which package may depend on which.
//!
//! A new package is an error until it has a line here, so its author states what it may depend on. Tests may depend on
//! everything.

/// Each name with the names that it may mention.
pub(super) type Table = &'static [(&'static str, &'static [&'static str])];

/// The packages of the workspace that each package may depend on. A folder ending in `/*` stands for all its packages.
/// Tests of a package may depend on anything.
pub(super) const PACKAGES: Table = &[
    ("host/policy", &[]),
    ("host/core", &["toolbay-policy"]),
    ("host/discovery", &["toolbay-core", "toolbay-policy"]),
    ("host/vendor", &["toolbay-core", "toolbay-policy"]),
    ("host/reducers", &[]),
    ("host/distribution", &["toolbay-core", "toolbay-policy"]),
    (
        "host/runtime",
        &[
            "toolbay-core",
            "toolbay-discovery",
            "toolbay-distribution",
            "toolbay-macros",
            "toolbay-mcp",
            "toolbay-openapi",
            "toolbay-policy",
            "toolbay-reducers",
            "toolbay-vendor",
        ],
    ),
    // An adapter never depends on another adapter or on the runtime.
    ("host/mcp", &["toolbay-core", "toolbay-discovery", "toolbay-policy"]),
    ("host/macros", &["toolbay-sdk-syntax"]),
    ("host/openapi", &["toolbay-core", "toolbay-policy"]),
    // For plugin authors, whose tests run their plugin in the host.
    ("host/testing", &["toolbay"]),
    ("host/telemetry", &["toolbay", "toolbay-core", "toolbay-policy"]),
    ("host/shared", &["toolbay-core", "toolbay-policy"]),
    ("host/admin", &["toolbay", "toolbay-core", "toolbay-policy", "toolbay-telemetry"]),
    (
        "host/cli",
        &[
            "toolbay",
            "toolbay-admin",
            "toolbay-core",
            "toolbay-discovery",
            "toolbay-distribution",
            "toolbay-mcp",
            "toolbay-openapi",
            "toolbay-policy",
            "toolbay-sdk-syntax",
            "toolbay-shared",
            "toolbay-telemetry",
            "toolbay-vendor",
        ],
    ),
    // What a plugin's author writes; the host's macros and `toolbay build` read it, too.
    ("sdk/rust-syntax", &[]),
    ("sdk/rust-macros", &["toolbay-sdk-syntax"]),
    ("sdk/rust", &["toolbay-sdk-macros"]),
    // The same reducers, native and as a component.
    ("plugins/reducers", &["toolbay-reducers", "toolbay-sdk"]),
    ("plugins/*", &["toolbay-sdk"]),
    ("tests/guests", &["toolbay-sdk"]),
    ("tests/artifacts", &["xtask"]),
    ("tests/benches", &["toolbay", "guest-artifacts"]),
    ("tests/bindings", &[]),
    // Programs that are measured beside this project.
    ("tests/peers/*", &[]),
    ("tests/features", &[]),
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
