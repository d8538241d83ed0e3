//! What all stages of a call need: the parts of the pipeline, the batch, the guard that records the call, and the memory
//! of its result.

pub(super) mod batch;
pub(super) mod early_result;
pub(super) mod guard;
pub(super) mod parent_call;
pub(super) mod parts;
pub(super) mod refusals;
pub(super) mod result_memory;
pub(super) mod serial;
pub(super) mod shared;
pub(super) mod target;
