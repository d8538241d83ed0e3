//! All integration tests of the command in one binary: they run `toolbay` as people, scripts and attackers do.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed fixture is a failed test"
)]

mod admin;
mod admin_page;
mod approval;
mod attack_registry;
mod author;
mod book;
mod cli;
mod completions;
mod control;
mod daemon;
mod decisions;
mod distribution;
mod distribution_attacks;
mod docs;
mod exit_codes;
mod fixture;
mod grant_editor;
mod http;
mod json_output;
mod languages;
mod late_sources;
mod memory;
mod mounts;
mod networks;
mod offline;
mod older_version;
mod openapi;
mod outbound;
mod parties;
mod plain_components;
mod policy;
mod progress;
mod pty;
mod recording;
mod reload;
mod replicas;
mod secrets;
mod servers;
mod settings;
mod shortage;
mod signals;
mod signatures;
mod state;
mod switches;
mod terminal;
mod test_registry;
mod traces;
mod unread_output;
mod updates;
