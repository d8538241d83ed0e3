//! The export `about`: what the crate's `Cargo.toml` says, for people to read.

use std::marker::PhantomData;

use crate::bindings::about_world::exports::toolbay::plugin::about::{Guest, PluginInfo};

/// The `CARGO_PKG_*` variables of the plugin's crate; empty where the manifest says nothing.
#[derive(Debug, Clone, Copy)]
#[doc(hidden)]
pub struct AboutSpec {
    pub name: &'static str,
    pub version: &'static str,
    pub description: &'static str,
    pub authors: &'static str,
    pub license: &'static str,
    pub homepage: &'static str,
    pub source: &'static str,
}

/// Ties an [`AboutSpec`] to the type `plugin!` makes.
#[doc(hidden)]
pub trait AboutPlugin {
    const ABOUT: AboutSpec;
}

/// The export `about` of a plugin.
#[derive(Debug)]
#[doc(hidden)]
pub struct ExportedAbout<P>(PhantomData<P>);

impl<P: AboutPlugin> Guest for ExportedAbout<P> {
    fn describe() -> PluginInfo {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let AboutSpec { name, version, description, authors, license, homepage, source } = P::ABOUT;
        PluginInfo {
            name: name.to_owned(),
            version: version.to_owned(),
            description: given(description),
            authors: given(authors),
            license: given(license),
            homepage: given(homepage),
            source: given(source),
            config_schema: None,
            meta: None,
        }
    }
}
