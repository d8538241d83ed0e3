//! Has one test: the committed bindings of the Rust SDK match the output of `wit-bindgen`.
