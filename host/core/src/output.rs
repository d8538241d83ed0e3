//! Processing of outputs: budgets, cuts, reducers, redaction and marks of untrusted text.

pub mod base64;
pub mod budget;
pub mod encoded_data;
pub mod redact;
pub mod reduce;
pub mod rules;
pub mod untrusted;
