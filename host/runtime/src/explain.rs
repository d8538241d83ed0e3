//! Explains to people what a tool may do, with the functions that make the decisions.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use toolbay_core::registry::ToolEntry;
use toolbay_core::tool::PluginOrigin;
use toolbay_policy::capability::net::NetRule;
use toolbay_policy::capability::{Capability, CapabilityKind, imports_everything, undeclared_imports};
use toolbay_policy::hint::Hint;
use toolbay_policy::name::{PluginId, ToolName};
use toolbay_policy::quantity;
use toolbay_policy::rule::GrantRule as _;
use toolbay_policy::{GrantKey, LimitRow, Policy, ProposedLine};

use crate::openapi_info::OpenApiInfo;
use crate::plugins::loader::{is_plain, tool_limits};
use crate::plugins::plugin::Plugin;

/// Everything that decides what one tool may do.
#[derive(Debug, Clone, Serialize)]
pub struct Explanation {
    /// The tool's qualified name.
    pub tool: String,
    /// The plugin's id.
    pub plugin: String,
    /// The version that the plugin claims.
    pub version: Option<String>,
    /// SHA-256 of the plugin's bytes, in hex.
    pub digest: String,
    /// The registry that the plugin comes from; absent for a local file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Arc<PluginOrigin>>,
    /// The profile under which the tool is explained.
    pub profile: Option<String>,
    /// The reason why the tool cannot be called; `None` if it can.
    pub unavailable: Option<String>,
    /// The steps before a call runs: the permission rules that can match, the serial queue and the result cache. When
    /// two rules disagree, the stricter one applies.
    pub calls: Vec<String>,
    /// The capabilities that the tool declares.
    #[serde(rename = "wishes")]
    pub capabilities: Vec<CapabilityExplanation>,
    /// The settings that the plugin declares, with the operator's values.
    pub settings: Vec<SettingExplanation>,
    /// Interfaces that the component imports although no tool declares a capability for them. Calls to them are
    /// refused. WASI is listed for plain components only, because language runtimes import it in every plugin.
    pub undeclared: Vec<String>,
    /// The limits of one call.
    pub limits: Vec<LimitRow>,
    /// The limits of all calls together.
    pub host: Vec<LimitRow>,
}

/// One setting of a plugin.
#[derive(Debug, Clone, Serialize)]
pub struct SettingExplanation {
    /// The key in `[plugins.ID.config]`.
    pub key: String,
    /// The author's description.
    pub description: Option<String>,
    /// The operator's value as JSON; `None` if it is not set.
    pub value: Option<Value>,
    /// The line in the policy, from 1.
    pub line: Option<usize>,
}

/// The decision about one declared capability.
#[derive(Debug, Clone, Serialize)]
pub struct CapabilityExplanation {
    /// The declared capability.
    #[serde(flatten)]
    pub capability: Capability,
    /// The granted part, in the syntax of the policy.
    pub granted: Vec<String>,
    /// The tables and keys of the policy behind the decision.
    #[serde(rename = "stands")]
    pub policy_keys: Vec<String>,
    /// The reason why nothing is granted, with the lines that would grant it.
    pub refused: Option<Hint>,
    /// The single line that would grant the capability.
    pub proposal: Option<ProposedLine>,
}

/// Describes how the policy treats calls of a tool.
fn describe_calls(policy: &Policy, entry: &ToolEntry, profile: Option<&str>) -> Vec<String> {
    let tags: Vec<&str> = entry.tags().iter().map(|tag| &**tag).collect();
    let tool = entry.def.subject(&tags);
    let mut lines = policy.permissions().describe(tool, "the policy");
    if let Some(profile) = profile.and_then(|name| policy.profile(name)) {
        let rules = &profile.permissions;
        if !rules.allows_everything() {
            lines.extend(rules.describe(tool, &format!("[profile.{}]", profile.name())));
        }
    }
    let queue = entry
        .call
        .serial
        .as_ref()
        .map(|queue| format!("calls run one at a time, in the serial queue `{queue}`"));
    let cache = entry.call.cache.map(quantity::show_duration);
    lines.into_iter().chain(queue).chain(cache.map(|age| format!("results are cached for {age}"))).collect()
}

/// Lists the declared settings, then those that only the policy has. The latter have no description.
fn explain_settings(policy: &Policy, plugin: &Plugin) -> Vec<SettingExplanation> {
    let about = plugin.descriptor.about.as_ref();
    let declared = about.and_then(|about| about.config_schema.as_ref()?.get("properties")?.as_object());
    let written = policy.config(&plugin.id).into_iter().flatten().map(|(key, _)| key);
    let mut keys: Vec<&String> = declared.into_iter().flatten().map(|(key, _)| key).collect();
    keys.extend(written.filter(|key| declared.is_none_or(|declared| !declared.contains_key(*key))));
    let setting = |key: &String| SettingExplanation {
        description: declared
            .and_then(|declared| declared.get(key)?.get("description")?.as_str())
            .map(str::to_owned),
        value: policy.config(&plugin.id).and_then(|config| config.get(key)).cloned(),
        line: policy.config_line(&plugin.id, key),
        key: key.clone(),
    };
    keys.into_iter().map(setting).collect()
}

/// Explains a tool of a plugin.
pub(crate) fn explain_plugin_tool(
    policy: &Policy,
    plugin: &Plugin,
    entry: &ToolEntry,
    tool: &ToolName,
    profile: Option<&str>,
    unavailable: Option<String>,
) -> Option<Explanation> {
    let id: &PluginId = &plugin.id;
    let descriptor = plugin.descriptor.tools.iter().find(|one| one.name == tool.as_str())?;
    let (_, def) = descriptor.define(id, &plugin.source()).ok()?;
    let grants = policy.grant(id, tool, &def.capabilities, profile);
    let explained = grants.decisions.into_iter().map(|decision| {
        let key = GrantKey::for_kind(&decision.capability.kind);
        let policy_keys = key.map_or_else(Vec::new, |key| policy.grant_locations(id, tool, key, profile));
        let refused = decision.hint();
        CapabilityExplanation {
            proposal: policy.proposal(id, tool, &decision.capability).filter(|_| refused.is_some()),
            granted: decision.granted,
            refused,
            capability: decision.capability,
            policy_keys,
        }
    });
    let declared = plugin.descriptor.tools.iter().flat_map(|tool| &tool.capabilities);
    let imports = &plugin.descriptor.imports;
    // Language runtimes import WASI whatever a plugin does, and some toolchains import the whole contract. Only plain
    // components use the WASI that they import.
    let is_plain = is_plain(&descriptor.entry);
    let undeclared = undeclared_imports(imports, declared).into_iter();
    let undeclared = undeclared.filter(|one| is_plain || (one.is_contract && !imports_everything(imports)));
    let limits = tool_limits(policy, id, tool, &def);
    Some(Explanation {
        tool: def.name.as_str().to_owned(),
        plugin: id.to_string(),
        version: plugin.version().map(ToOwned::to_owned),
        digest: plugin.digest.to_string(),
        origin: plugin.origin.clone(),
        profile: profile.map(ToOwned::to_owned),
        unavailable,
        calls: describe_calls(policy, entry, profile),
        capabilities: explained.collect(),
        settings: explain_settings(policy, plugin),
        undeclared: undeclared.map(|one| one.import.to_owned()).collect(),
        limits: policy.limit_rows(id, tool, &limits, def.max_result_chars.map(u64::from)),
        host: policy.host_rows(),
    })
}

/// The network rule of a capability of a service's tool.
pub(crate) fn net_rule(capability: &Capability) -> Option<NetRule> {
    let is_net = capability.kind == CapabilityKind::Net;
    is_net.then(|| NetRule::parse(&capability.target, Path::new("/")).ok()).flatten()
}

/// Explains a tool of an OpenAPI service.
pub(crate) fn explain_service_tool(
    policy: &Policy,
    info: &OpenApiInfo,
    entry: &ToolEntry,
    profile: Option<&str>,
    unavailable: Option<String>,
) -> Option<Explanation> {
    let (service, def) = (policy.openapi_service(&info.name)?, &entry.def);
    let tool = ToolName::new(def.own_name()).ok()?;
    let reached: Vec<NetRule> = def.capabilities.iter().filter_map(net_rule).collect();
    let grants = policy.openapi_grant(service, &tool, &def.capabilities, &reached, profile);
    let mut policy_keys = vec![format!("[openapi.{}]", service.name)];
    policy_keys.extend(profile.map(|name| format!("[profile.{name}]")));
    let explained = grants.decisions.into_iter().map(|decision| CapabilityExplanation {
        refused: decision.hint(),
        granted: decision.granted,
        policy_keys: policy_keys.clone(),
        proposal: None,
        capability: decision.capability,
    });
    Some(Explanation {
        tool: def.name.as_str().to_owned(),
        plugin: def.source.label(),
        version: info.tools.get(def.name.as_str()).cloned(),
        digest: info.digest.clone().unwrap_or_default(),
        origin: None,
        profile: profile.map(ToOwned::to_owned),
        unavailable,
        calls: describe_calls(policy, entry, profile),
        capabilities: explained.collect(),
        settings: Vec::new(),
        undeclared: Vec::new(),
        limits: policy.openapi_limit_rows(service, &tool),
        host: policy.host_rows(),
    })
}
