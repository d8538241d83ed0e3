//! Notes of an agent: write, read, search by words; and a search over its recorded conversations.
//!
//! A note has a name, a text and tags. All sessions share lasting notes. A session note is visible in its session
//! only, and needs a session that the host knows.

pub mod conversation_search;
pub mod memory_read;
pub mod memory_write;
mod notes;
pub mod session_search;
mod turns;

toolbay_sdk::plugin! {
    tools: [
        memory_read::memory_read,
        memory_write::memory_write,
        session_search::session_search,
        conversation_search::conversation_search,
    ],
}
