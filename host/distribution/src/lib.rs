//! How plugins get from an author to an operator, and how they stay what the operator chose.
//!
//! A registry is not trusted: each document and blob is bounded, and accepted only if its SHA-256 is the expected one.
//! The [lock] pins what runs, the [store] holds it, and nothing but a command of the operator resolves a
//! [reference](mod@reference). Requests leave through a [transport](registry::RegistryTransport), whose
//! implementation checks addresses.

pub mod archive;
pub mod credentials;
pub mod digest;
pub mod garbage;
pub mod lock;
pub mod pack;
pub mod reference;
pub mod registry;
pub mod signature;
pub mod store;
pub mod version;

mod media_type;
