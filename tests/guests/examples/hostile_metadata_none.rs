//! No tools at all.

guest::metadata!(Vec::new);
