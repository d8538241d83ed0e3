//! What names this program in each export.

use std::hash::{BuildHasher, RandomState};

use super::protobuf::{AttributeValue, Message};
use crate::conventions::{SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION};

/// The resource of all spans and metrics.
#[derive(Debug, Clone)]
pub(super) struct Resource {
    /// Attributes that the operator set, with the name of the service.
    attributes: Vec<(String, String)>,
}

impl Resource {
    /// A resource with the attributes of the operator.
    pub(super) fn new(mut attributes: Vec<(String, String)>) -> Self {
        // Random, so that servers of one machine differ.
        let instance = RandomState::new().hash_one(0);
        for (name, value) in [
            (SERVICE_NAME, "toolbay".to_owned()),
            (SERVICE_VERSION, env!("CARGO_PKG_VERSION").to_owned()),
            (SERVICE_INSTANCE_ID, format!("{instance:016x}")),
        ] {
            if attributes.iter().all(|(own, _)| own != name) {
                attributes.push((name.to_owned(), value));
            }
        }
        Self { attributes }
    }

    /// Writes an export request: the resource, the scope, and the items of the scope. Requests for traces and for metrics
    /// have the same shape.
    pub(super) fn export_request(&self, write_items: impl FnOnce(&mut Message)) -> Vec<u8> {
        let mut request = Message::default();
        request.message(1, |resource_items| {
            resource_items.message(1, |resource| {
                for (name, value) in &self.attributes {
                    resource.attribute(1, (name, AttributeValue::Text(value)));
                }
            });
            resource_items.message(2, |scope_items| {
                scope_items.message(1, |scope| {
                    scope.text(1, "toolbay");
                    scope.text(2, env!("CARGO_PKG_VERSION"));
                });
                write_items(scope_items);
            });
        });
        request.into_bytes()
    }
}
