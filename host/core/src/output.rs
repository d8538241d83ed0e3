//! Processing of outputs: budgets, cuts, reducers, redaction and marks of untrusted text.

pub mod encoded_data;
pub mod budget;
pub mod rules;
pub mod redact;
pub mod reduce;
pub mod untrusted;
