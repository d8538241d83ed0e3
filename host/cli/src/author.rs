//! Projects of plugin authors: how each language creates, builds and describes one, and what is checked of a component.
//!
//! Each language has its own module behind [`language`].

pub(crate) mod component;
pub(crate) mod examples;
pub(crate) mod install;
pub(crate) mod language;
pub(crate) mod lint;
pub(crate) mod project;
pub(crate) mod template;

mod c;
mod embedded;
mod javascript;
mod offers;
mod program;
mod python;
mod rust;
mod script;
mod toolchain;
