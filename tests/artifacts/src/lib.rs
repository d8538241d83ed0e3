//! Paths of the built plugins and test guests.
//!
//! The build script compiles them. A test names the constant that it needs, so it cannot use a stale file:
//!
//! ```ignore
//! let wasm = std::fs::read(guest_artifacts::API_ECHO)?;
//! let plugins = guest_artifacts::plugins_dir(); // text.wasm, files.wasm, …
//! ```
//!
//! If the environment variable `TOOLBAY_GUESTS` names a folder that `cargo xtask guests FOLDER` made, nothing is
//! compiled and that folder is used.

include!(concat!(env!("OUT_DIR"), "/gen.rs"));

/// A folder with the first-party plugins as `<id>.wasm`, and nothing else.
#[must_use]
pub fn plugins_dir() -> &'static str {
    PLUGINS_DIR
}
