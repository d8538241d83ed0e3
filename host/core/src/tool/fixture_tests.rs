//! Definitions of tools for tests.

use toolbay_policy::name::{PluginId, QualifiedName, ToolName};

use crate::tool::schema::Schema;
use crate::tool::{ToolDef, ToolSource};

fn def(name: QualifiedName, source: ToolSource) -> ToolDef {
    let schema = r#"{"type":"object","properties":{"do":{"type":"string"},"n":{"type":"integer"}}}"#;
    ToolDef::new(name, "A puppet.", Schema::input(schema).unwrap(), source)
}

pub(crate) fn plugin_def(plugin: &str, tool: &str) -> ToolDef {
    let id = PluginId::new(plugin).unwrap();
    let name = QualifiedName::join(&id, &ToolName::new(tool).unwrap()).unwrap();
    def(name, ToolSource::Plugin { id, version: None, digest: "00".into(), origin: None })
}

pub(crate) fn mcp_def(server: &str, tool: &str) -> ToolDef {
    let name =
        QualifiedName::join_mcp(&PluginId::new(server).unwrap(), &ToolName::new(tool).unwrap()).unwrap();
    def(name, ToolSource::Mcp { server: server.into(), version: None })
}

pub(crate) fn native_def(tool: &str) -> ToolDef {
    def(QualifiedName::from_native(&ToolName::new(tool).unwrap()), ToolSource::Builtin)
}
