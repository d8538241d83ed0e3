//! How bytes arrive and leave: lines over stdio, requests over HTTP.

pub mod http;
pub(crate) mod lines;
pub mod stdio;
