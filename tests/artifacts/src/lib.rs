//! Where the built plugins and test guests are.
//!
//! The build script compiles them; a test names what it needs and cannot get something stale:
//!
//! ```ignore
//! let wasm = std::fs::read(guest_artifacts::API_ECHO)?;
//! let plugins = guest_artifacts::plugins_dir(); // text.wasm, files.wasm, …
//! ```
//!
//! With the environment variable `TOOLBAY_GUESTS` set to a folder that `cargo xtask guests FOLDER` made, nothing is
//! compiled and that folder is used.

include!(concat!(env!("OUT_DIR"), "/gen.rs"));

/// A folder that holds the first-party plugins as `<id>.wasm`, and nothing else.
#[must_use]
pub fn plugins_dir() -> &'static str {
    PLUGINS_DIR
}
