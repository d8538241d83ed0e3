//! The plugin of `toolbay new`, from the template itself.

#[rustfmt::skip]
#[path = "../../../host/cli/templates/rust/tool.rs"]
mod template;
