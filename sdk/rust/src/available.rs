//! The export `availability`: a function of the author that decides which tools are available.

use std::marker::PhantomData;

use crate::bindings::availability_world::exports::toolbay::plugin::availability::Guest;

/// Ties the check of a crate to the type that `plugin!` generates.
#[doc(hidden)]
pub trait AvailabilityPlugin {
    const CHECK: fn(&str) -> Result<(), String>;
}

/// The export `availability` of a plugin.
#[derive(Debug)]
#[doc(hidden)]
pub struct ExportedAvailability<P>(PhantomData<P>);

impl<P: AvailabilityPlugin> Guest for ExportedAvailability<P> {
    fn check(tool: String) -> Result<(), String> {
        (P::CHECK)(&tool)
    }
}
