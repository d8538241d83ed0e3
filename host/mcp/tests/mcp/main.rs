//! Tests of the server as a client sees it: lines of JSON over a pipe, in both protocol eras.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "clippy does not recognize the helpers of tests as test code"
)]

mod asking;
mod attachments;
mod bad_input;
mod calls;
mod client;
mod connection;
mod discovery;
mod instructions;
mod legacy_tasks;
mod listing;
mod loading;
mod outputs;
mod prompts_and_resources;
mod puppet;
mod tasks;
