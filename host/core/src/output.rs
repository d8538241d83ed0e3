//! What becomes of a result before it is handed over: its share of the budget, cuts, reducers, redaction, marks.

pub mod blobs;
pub mod budget;
pub mod delivery;
pub mod redact;
pub mod reduce;
pub mod untrusted;
