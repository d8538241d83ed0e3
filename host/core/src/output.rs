//! Processing of outputs: budgets, cuts, redaction and marks of untrusted text.

pub mod base64;
pub mod budget;
pub mod encoded_data;
pub mod redact;
pub mod rules;
pub mod untrusted;
