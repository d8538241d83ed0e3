//! The interface between a guest entry and the data in its store. The data also holds what the guest can reach, which
//! the sandbox does not know.

use std::borrow::Cow;
use std::time::Instant;

use toolbay_core::call::CallContext;

use crate::resource_limiter::GuestResourceLimiter;
use crate::stdio::OutputSink;

/// The data of a store that guests run in.
pub trait GuestData: Send + 'static {
    /// The limiter of the store.
    fn limiter(&self) -> &GuestResourceLimiter;

    /// The limiter of the store, for changes.
    fn limiter_mut(&mut self) -> &mut GuestResourceLimiter;

    /// When the entry began.
    fn began(&self) -> Instant;

    /// When the entry must have ended.
    fn deadline(&self) -> Instant;

    /// The call that the entry belongs to; `None` for queries of the host.
    fn call(&self) -> Option<&CallContext>;

    /// The sinks of stdout and stderr; `None` if the guest has not used them.
    fn stdio_sinks(&self) -> Option<[(&'static str, &OutputSink); 2]>;

    /// Redacts what must not leave the host from a guest's text.
    fn redacted<'t>(&self, text: &'t str) -> Cow<'t, str>;

    /// Called once when the entry ends, also when its caller gives up.
    fn end(&self);
}
