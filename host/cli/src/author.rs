//! The commands for plugin authors: from a new project to an installed component.
//!
//! Each language has its own module behind [`language::PluginLanguage`].

pub(crate) mod args;
pub(crate) mod component;
pub(crate) mod lint;

pub(crate) mod build;
mod c;
pub(crate) mod dev;
mod embedded;
mod examples;
mod install;
mod javascript;
pub(crate) mod language;
pub(crate) mod new;
mod offers;
pub(crate) mod pack;
mod program;
mod project;
mod python;
mod rust;
mod script;
mod template;
pub(crate) mod test;
mod toolchain;
