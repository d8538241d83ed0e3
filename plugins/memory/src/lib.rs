//! Notes that an agent keeps: write, read, search by words.
//!
//! A note has a name, a text and tags. Lasting notes are shared by all sessions; notes of the session are seen in it
//! alone, and need the session to be known to the host.

pub mod memory_read;
pub mod memory_write;
mod notes;
pub mod session_search;

toolbay_sdk::plugin! {
    tools: [
        memory_read::memory_read,
        memory_write::memory_write,
        session_search::session_search,
    ],
}
