//! Files of the host and their identity: files that only this user can write, regular files of others, versioned state
//! files with their locks, SHA-256 digests, and the folders of this user.
//!
//! A program that reads a file must not block on a FIFO, follow a link into the folder of another user, or trust what
//! others can write. These rules have one implementation, here. Every other crate that touches such a file uses it.

pub mod digest;
pub mod private;
pub mod regular;
pub mod state_file;
pub mod user_dirs;
