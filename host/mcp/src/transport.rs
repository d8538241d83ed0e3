//! The transports: lines over stdio, and requests over HTTP.

pub mod http;
pub(crate) mod lines;
pub mod stdio;
