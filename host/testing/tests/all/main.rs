//! All integration tests in one binary: what authors of plugins see in their tests.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed fixture is a failed test")]

mod guests;
mod record;
