//! What the host keeps on disk: the audit, large results, consents. Files and folders of this user alone.

pub(crate) mod audit;
pub(crate) mod consent;
pub(crate) mod private;
pub(crate) mod regular;
pub(crate) mod spool;
pub(crate) mod state_file;
