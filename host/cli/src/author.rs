//! The commands of those who write plugins: from nothing to a component that runs.
//!
//! What differs by language is behind [`language::Language`], one module each; everything else is the same for all.

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
pub(crate) mod pack;
mod program;
mod project;
mod python;
mod rust;
mod script;
mod template;
pub(crate) mod test;
mod toolchain;
