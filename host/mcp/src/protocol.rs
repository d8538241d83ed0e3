//! The protocol without I/O: messages, the lifecycle of both eras, request correlation in both directions, event
//! streams.

pub(crate) mod bounded;
pub(crate) mod bounds;
pub(crate) mod event_stream;
pub(crate) mod event_streams;
#[cfg(test)]
mod event_streams_tests;
pub(crate) mod incoming;
pub(crate) mod legacy;
pub(crate) mod legacy_tasks;
pub(crate) mod lifecycle;
pub(crate) mod members;
pub(crate) mod message;
pub(crate) mod mirror;
pub(crate) mod objects;
pub(crate) mod open_requests;
pub(crate) mod outbound;
pub(crate) mod pages;
pub(crate) mod progress;
pub(crate) mod repair;
pub(crate) mod request_state;
pub(crate) mod salvage;
pub(crate) mod sse;
pub(crate) mod unreadable;
pub(crate) mod uri;
