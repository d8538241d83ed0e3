//! All integration tests, in one binary: real guests, compiled from source, in the real host.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests, fixtures included: a failure is to stop them"
)]

mod attack_found;
mod attack_held;
mod attack_wasi;
mod audit;
mod bad_calls;
mod bad_input;
mod bridge;
mod bridge_edge;
mod bridge_hostile;
mod bridge_http;
mod cache;
mod calls;
mod cancellation;
mod cap_attachments;
mod cap_environment;
mod cap_files;
mod cap_files_floor;
mod cap_files_globs;
mod cap_files_quota;
mod cap_files_race;
mod cap_files_stale;
mod cap_kv;
mod cap_kv_file;
mod cap_net;
mod cap_net_peer;
mod cap_net_share;
mod cap_net_wasi;
mod cap_process;
mod cap_process_end;
mod cap_process_sandbox;
mod cap_process_written;
mod cap_secrets;
mod cap_secrets_net;
mod cap_wasi_fs;
mod compatibility;
mod compile_bombs;
mod compile_worker;
mod consent;
mod directory;
mod directory_policy;
mod directory_stress;
mod directory_watch;
mod fairness;
mod first_start;
mod foreign;
mod foreign_programs;
mod fuzzing;
mod gates;
mod hostile;
mod http;
mod http_auth;
mod http_bad;
mod http_crowd;
mod http_peer;
mod http_policy;
mod http_resume;
mod http_revoked;
mod invoke;
mod limits;
mod loaded_code;
mod memory;
mod metadata;
mod metering;
mod network;
mod offers;
mod openapi;
mod openapi_documents;
mod openapi_peer;
mod openapi_policy;
mod pages;
mod plugin_index;
mod plugin_web;
mod plugins;
mod profiles;
mod programs;
mod reducers;
mod reducers_builtin;
mod refusals;
mod registry;
mod remains;
mod results;
mod reused;
mod script;
mod server;
mod trust;
