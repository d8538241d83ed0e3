//! Nothing but a test: the bindings that the Rust SDK keeps are what `wit-bindgen` writes.
