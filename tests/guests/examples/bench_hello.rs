//! What `toolbay new` makes, from the template itself.

#[rustfmt::skip]
#[path = "../../../host/cli/templates/rust/tool.rs"]
mod template;
