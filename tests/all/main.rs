//! All integration tests, in one binary: real guests, compiled from source, in the real host.

mod bad_input;
mod calls;
mod cap_files;
mod cap_wasi_fs;
mod directory;
mod hostile;
mod metadata;
mod plugins;
mod reducers;
