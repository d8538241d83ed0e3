//! `list-tools` calls an import that only a running call may use.

use guest::host::{context, kv};

guest::metadata!(|| {
    let stolen = format!("{} {:?}", context::call_id(), kv::get(kv::Scope::Plugin, "key"));
    vec![guest::ToolDef { description: stolen, ..guest::definition("import") }]
});
