//! Why a tool may do what it may, and why not what it may not: for people, from the same functions that decide.

use serde::Serialize;
use serde_json::Value;
use toolbay_core::registry::Entry;
use toolbay_policy::capability::net::NetRule;
use toolbay_policy::capability::{Capability, CapabilityKind, undeclared};
use toolbay_policy::name::{PluginId, ToolName};
use toolbay_policy::quantity;
use toolbay_policy::rule::Rule as _;
use toolbay_policy::{Key, LimitRow, Policy, Proposal};

use crate::openapi::OpenApiInfo;
use crate::plugins::loader::limits_of;
use crate::plugins::plugin::Plugin;

/// All that decides what one tool may do.
#[derive(Debug, Clone, Serialize)]
pub struct Explanation {
    /// The tool's qualified name.
    pub tool: String,
    /// Its plugin.
    pub plugin: String,
    /// The version the plugin claims.
    pub version: Option<String>,
    /// SHA-256 of the plugin's bytes, in hex.
    pub digest: String,
    /// The profile it is explained under.
    pub profile: Option<String>,
    /// Why it cannot be called; `None`: it can.
    pub unavailable: Option<String>,
    /// What becomes of a call before it runs: the rules that can fit, whether it waits for others, whether a result of
    /// before will do. Where two rules say different things, the stricter holds.
    pub calls: Vec<String>,
    /// Each capability that it declares.
    pub wishes: Vec<Wish>,
    /// What the operator may set for the plugin, as its author declares it, and what is set.
    pub settings: Vec<Setting>,
    /// Interfaces that the component imports and no tool of it declares a capability for: there it finds nothing.
    pub undeclared: Vec<String>,
    /// The limits of a call.
    pub limits: Vec<LimitRow>,
    /// The bounds of all calls together.
    pub host: Vec<LimitRow>,
}

/// One of the plugin's settings.
#[derive(Debug, Clone, Serialize)]
pub struct Setting {
    /// Its key below `[plugins.ID.config]`.
    pub key: String,
    /// What its author says of it.
    pub description: Option<String>,
    /// What it is set to, as JSON; `None`: it is not set.
    pub value: Option<Value>,
    /// The line of the policy on which it stands.
    pub line: Option<usize>,
}

/// What became of one declared capability.
#[derive(Debug, Clone, Serialize)]
pub struct Wish {
    /// What is declared.
    #[serde(flatten)]
    pub capability: Capability,
    /// What of it is granted, as a policy would write it.
    pub granted: Vec<String>,
    /// The tables and keys of the policy that say so.
    pub stands: Vec<String>,
    /// Why nothing is granted, with the lines that would grant it.
    pub refused: Option<String>,
    /// The one line that would grant it.
    pub proposal: Option<Proposal>,
}

/// What the gates of the policy make of calls of a tool.
fn calls(policy: &Policy, entry: &Entry, profile: Option<&str>) -> Vec<String> {
    let tags: Vec<&str> = entry.tags().iter().map(|tag| &**tag).collect();
    let tool = entry.def.subject(&tags);
    let mut lines = policy.permissions().told(tool, "the policy");
    if let Some(profile) = profile.and_then(|name| policy.profile(name)) {
        let rules = &profile.permissions;
        if !rules.is_open() {
            lines.extend(rules.told(tool, &format!("[profile.{}]", profile.name())));
        }
    }
    let lane = entry.call.serial.as_ref().map(|lane| format!("one after the other, in the lane `{lane}`"));
    let cache = entry.call.cache.map(quantity::show_duration);
    lines.into_iter().chain(lane).chain(cache.map(|keep| format!("a result is kept for {keep}"))).collect()
}

/// The settings that the author declares; those that are only written have no description.
fn settings(policy: &Policy, plugin: &Plugin) -> Vec<Setting> {
    let about = plugin.descriptor.about.as_ref();
    let declared = about.and_then(|about| about.config_schema.as_ref()?.get("properties")?.as_object());
    let written = policy.config(&plugin.id).into_iter().flatten().map(|(key, _)| key);
    let mut keys: Vec<&String> = declared.into_iter().flatten().map(|(key, _)| key).collect();
    keys.extend(written.filter(|key| declared.is_none_or(|declared| !declared.contains_key(*key))));
    let setting = |key: &String| Setting {
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
pub(crate) fn explain(
    policy: &Policy,
    plugin: &Plugin,
    entry: &Entry,
    tool: &ToolName,
    profile: Option<&str>,
    unavailable: Option<String>,
) -> Option<Explanation> {
    let id: &PluginId = &plugin.id;
    let descriptor = plugin.descriptor.tools.iter().find(|one| one.name == tool.as_str())?;
    let (_, def) = descriptor.define(id, &plugin.source()).ok()?;
    let grants = policy.grant(id, tool, &def.capabilities, profile);
    let wishes = grants.decisions.into_iter().map(|decision| {
        let key = Key::of(&decision.capability.kind);
        let stands = key.map_or_else(Vec::new, |key| policy.stands(id, tool, key, profile));
        let refused = decision.hint.is_some();
        Wish {
            proposal: policy.proposal(id, tool, &decision.capability).filter(|_| refused),
            granted: decision.granted,
            refused: decision.hint,
            capability: decision.capability,
            stands,
        }
    });
    let declared = plugin.descriptor.tools.iter().flat_map(|tool| &tool.capabilities);
    let undeclared = undeclared(&plugin.descriptor.imports, declared).into_iter();
    let limits = limits_of(policy, id, tool, &def);
    Some(Explanation {
        tool: def.name.as_str().to_owned(),
        plugin: id.to_string(),
        version: plugin.version().map(ToOwned::to_owned),
        digest: plugin.digest.to_string(),
        profile: profile.map(ToOwned::to_owned),
        unavailable,
        calls: calls(policy, entry, profile),
        wishes: wishes.collect(),
        settings: settings(policy, plugin),
        undeclared: undeclared.map(|one| one.import.to_owned()).collect(),
        limits: policy.limit_rows(id, tool, &limits, def.max_result_chars.map(u64::from)),
        host: policy.host_rows(),
    })
}

/// Explains a tool of a service.
pub(crate) fn explain_service(
    policy: &Policy,
    info: &OpenApiInfo,
    entry: &Entry,
    profile: Option<&str>,
    unavailable: Option<String>,
) -> Option<Explanation> {
    let (service, def) = (policy.openapi_named(&info.name)?, &entry.def);
    let tool = ToolName::new(def.bare()).ok()?;
    let of_net = def.capabilities.iter().filter(|wish| wish.kind == CapabilityKind::Net);
    let reached: Vec<NetRule> =
        of_net.filter_map(|wish| NetRule::parse(&wish.target, policy.workspace()).ok()).collect();
    let grants = policy.openapi_grant(service, &tool, &def.capabilities, &reached, profile);
    let mut stands = vec![format!("[openapi.{}]", service.name)];
    stands.extend(profile.map(|name| format!("[profile.{name}]")));
    let wishes = grants.decisions.into_iter().map(|decision| Wish {
        granted: decision.granted,
        stands: stands.clone(),
        refused: decision.hint,
        proposal: None,
        capability: decision.capability,
    });
    Some(Explanation {
        tool: def.name.as_str().to_owned(),
        plugin: def.source.label(),
        version: info.tools.get(def.name.as_str()).cloned(),
        digest: info.digest.clone().unwrap_or_default(),
        profile: profile.map(ToOwned::to_owned),
        unavailable,
        calls: calls(policy, entry, profile),
        wishes: wishes.collect(),
        settings: Vec::new(),
        undeclared: Vec::new(),
        limits: policy.openapi_limit_rows(service, &tool),
        host: policy.host_rows(),
    })
}
