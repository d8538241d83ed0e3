//! The export `about`: what the crate's `Cargo.toml` says, for people to read, and what the operator may set.

use std::marker::PhantomData;

use crate::bindings::about_world::exports::toolbay::plugin::about::{Guest, PluginInfo};
use crate::schema::{Of, settings_schema};

/// The `CARGO_PKG_*` variables of the plugin's crate, empty where the manifest says nothing; and the settings.
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
    /// The type of the settings that `plugin!` names.
    pub config: Option<Of>,
    /// Those of its tools, if it names none.
    pub of_tools: &'static [Option<Of>],
    /// Whether one instance may answer several calls.
    pub reusable: bool,
}

/// Ties an [`AboutSpec`] to the type `plugin!` makes.
#[doc(hidden)]
pub trait AboutPlugin {
    const ABOUT: AboutSpec;
}

/// The one type of settings that tools are called on: of two, each would refuse what is the other's.
fn only(of_tools: &[Option<Of>]) -> Option<Of> {
    let mut all = of_tools.iter().copied().flatten();
    all.next().filter(|_| all.next().is_none())
}

/// The export `about` of a plugin.
#[derive(Debug)]
#[doc(hidden)]
pub struct ExportedAbout<P>(PhantomData<P>);

impl<P: AboutPlugin> Guest for ExportedAbout<P> {
    fn describe() -> PluginInfo {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let AboutSpec { name, version, description, authors, license, homepage, source, .. } = P::ABOUT;
        let AboutSpec { config, of_tools, reusable, .. } = P::ABOUT;
        PluginInfo {
            name: name.to_owned(),
            version: version.to_owned(),
            description: given(description),
            authors: given(authors),
            license: given(license),
            homepage: given(homepage),
            source: given(source),
            config_schema: config.or_else(|| only(of_tools)).map(settings_schema),
            meta: reusable.then(|| r#"{"reusable":true}"#.to_owned()),
        }
    }
}
