//! Files of the host: the audit, saved output and consents. Only this user can read or write them.

pub(crate) mod audit;
pub(crate) mod consent;
pub(crate) mod held_updates;
pub(crate) mod output_store;
pub(crate) mod stop_order;
