//! All integration tests in one binary: real guests, compiled from source, in the real host.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests, fixtures included: a failure is to stop them"
)]

mod authors {
    mod compatibility;
    mod pages;
}
mod calls {
    mod audit;
    mod bad_calls;
    mod bad_input;
    mod cancellation;
    mod fairness;
    mod gates;
    mod guest;
    mod nested;
    mod output;
    mod profiles;
    mod reducers;
    mod reducers_builtin;
    mod refusals;
}
mod capabilities {
    mod attachments;
    mod environment;
    mod files;
    mod files_globs;
    mod files_protected;
    mod files_quota;
    mod files_race;
    mod files_stale;
    mod kv;
    mod kv_concurrent;
    mod kv_file;
    mod net;
    mod net_fixture;
    mod net_peer;
    mod net_share;
    mod net_wasi;
    mod process;
    mod process_end;
    pub(crate) mod process_fixture;
    // The sandbox is Linux's.
    #[cfg(target_os = "linux")]
    mod process_sandbox;
    mod process_written;
    mod secrets;
    mod secrets_net;
    mod wasi_files;
}
mod http {
    mod auth;
    mod bad_requests;
    mod crowd;
    mod eras;
    pub(crate) mod fixture;
    mod negotiation;
    mod policy_reload;
    mod resume;
    mod revocation;
}
mod mcp {
    mod bridge_clients;
    mod bridge_foreign;
    mod bridge_hostile;
    mod bridge_http;
    mod bridge_sessions;
    mod bridge_stdio;
    mod running_host;
    mod tasks;
}
mod openapi {
    mod documents;
    mod foreign;
    mod peer;
    mod policy;
    mod services;
}
mod plugins {
    mod cache;
    mod consent;
    mod directory;
    mod directory_policy;
    mod directory_stress;
    mod directory_watch;
    mod first_party;
    mod first_start;
    mod http_handlers;
    mod index;
    mod loaded_code;
    mod metadata;
    mod plain_components;
    mod plain_programs;
    mod prompts_and_resources;
    mod registry;
    mod script;
    mod trust;
    mod unload;
    mod wasi_async;
    mod wasi_interfaces;
    mod web;
}
mod sandbox {
    mod attacks;
    pub(crate) mod compile_bombs;
    mod compile_worker;
    mod fixed_attacks;
    mod fuzzing;
    mod hostile;
    pub(crate) mod leaks;
    mod limits;
    mod memory;
    mod metering;
    mod reused_instances;
    mod wasi;
}
mod loopback;
