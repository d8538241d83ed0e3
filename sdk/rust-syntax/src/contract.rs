//! Generated from `wit`, `sdk/errors.toml` and the tables of `host/policy` by its `sdk_tests.rs`.

/// The keys of capabilities, with the contract's name of the kind.
pub const KINDS: [(&str, &str); 11] = [("fs_read", "fs-read"), ("fs_write", "fs-write"), ("net", "net"), ("process", "process"), ("secret", "secret"), ("kv", "kv"), ("env", "env"), ("attachments", "attachments"), ("clock", "clock"), ("random", "random"), ("invoke", "invoke")];

/// The kinds without a target, with the value that replaces it.
pub const SWITCHES: [(&str, &str); 2] = [("clock", "wall"), ("random", "bytes")];

/// The targets of `kv`.
pub const KV_SCOPES: [&str; 4] = ["tool", "plugin", "session", "agent"];

/// The flags of a tool. The contract's constant is the same word in capitals.
pub const TRAITS: [&str; 8] = ["read_only", "additive", "idempotent", "closed_world", "always_include", "untrusted_output", "needs_approval", "deferred"];

/// The error codes.
pub const CODES: [&str; 4] = ["input-invalid", "not-available", "execution-failed", "stale-write"];

/// The longest name of a tool, in characters.
pub const NAME_CHARS: usize = 48;
