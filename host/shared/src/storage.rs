//! The storage ports of the host, over NATS.

mod approvals;
mod attachments;
mod calls;
mod items;
mod kv;
mod outputs;
mod tasks;

pub(crate) use approvals::NatsApprovals;
pub(crate) use attachments::NatsAttachmentStore;
pub(crate) use calls::NatsCallKeys;
pub use kv::NatsKvStore;
pub use outputs::NatsOutputStore;
pub(crate) use tasks::NatsTaskStore;
