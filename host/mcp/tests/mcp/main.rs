//! The server as a client sees it: lines of JSON over a pipe, in both eras of the protocol.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "the helpers of a test are tests, which clippy does not see"
)]

mod asking;
mod attachments;
mod bad_input;
mod calls;
mod client;
mod connection;
mod discovery;
mod listing;
mod loading;
mod outputs;
mod prompts_and_resources;
mod puppet;
mod tasks;
