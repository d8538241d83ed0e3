//! The export `about`: the metadata of the crate's `Cargo.toml`, and the settings that an operator can write.

use std::marker::PhantomData;

use crate::bindings::about_world::exports::toolbay::plugin::about::{Guest, PluginInfo};
use crate::schema::{SchemaOf, settings_schema};

/// The `CARGO_PKG_*` variables of the plugin's crate, empty where the manifest has no value, and the settings.
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
    /// The settings type that `plugin!` names.
    pub config: Option<SchemaOf>,
    /// The settings type of the tools, if `plugin!` names none.
    pub of_tools: &'static [Option<SchemaOf>],
    /// Whether one instance may serve several calls.
    pub reusable: bool,
}

/// Ties an [`AboutSpec`] to the type that `plugin!` generates.
#[doc(hidden)]
pub trait AboutPlugin {
    const ABOUT: AboutSpec;
}

/// The single settings type of all tools. Two types would each refuse the keys of the other.
fn only(of_tools: &[Option<SchemaOf>]) -> Option<SchemaOf> {
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
