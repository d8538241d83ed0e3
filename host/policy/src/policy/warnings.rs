//! Warnings about names in a policy that do not exist: plugins, tools, toolsets, profiles, reducers, files.
//!
//! A warning does not refuse a policy, because plugins and files come and go. But a grant for a misspelled plugin
//! grants nothing, and a rule for a misspelled tool refuses nothing. The caller provides the known names; this module
//! does no I/O. Loading a policy and `toolbay policy check` give the same warnings.

mod paths;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::check::{PolicyFinding, Severity};
use super::problem::{PathStep, PolicyProblem, nest_under, suggest_name};
use super::{Policy, Profile, ReducerBinding};
use crate::mcp_server::McpServer;
use crate::name::{self, MCP_PREFIX, NAME_SEPARATOR, PluginId};
use crate::permission;
use crate::rule::GrantRule as _;
use crate::wildcard::text_matches;

/// An installed plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownPlugin {
    /// The names of its tools. `None` if it could not be loaded.
    pub tools: Option<BTreeSet<String>>,
    /// The reducers that it declares.
    pub reducers: BTreeSet<String>,
    /// A policy setting that it refuses, and the reason.
    pub refused_setting: Option<(String, String)>,
}

/// The names that a policy can use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownNames {
    /// The plugins by id. `None` if they are unknown; names of plugins and tools are then not checked.
    pub plugins: Option<BTreeMap<String, KnownPlugin>>,
    /// The qualified names of all tools, native ones included.
    pub tools: BTreeSet<String>,
    /// The toolsets of all tools.
    pub toolsets: BTreeSet<String>,
    /// The tags that tools can have: derived ones, and those of all tools.
    pub tags: BTreeSet<String>,
    /// The built-in reducers. If empty, reducers are not checked.
    pub reducers: BTreeSet<String>,
}

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
    /// A regular file that this process may execute.
    Program,
    /// Any other regular file.
    File,
    /// A folder.
    Folder,
    /// Any other file type, or a path that cannot be inspected.
    Other,
    /// Nothing exists at the path.
    Missing,
}

impl Policy {
    /// Returns the warnings of the policy, sorted by line. `look` inspects a path.
    #[must_use]
    pub fn warnings(&self, known: &KnownNames, look: &dyn Fn(&Path) -> PathKind) -> Vec<PolicyFinding> {
        let mut found = paths::check_paths(self, look);
        self.check_token_profiles(&mut found);
        self.check_builtin_reducers(known, &mut found);
        self.check_fairness(&mut found);
        if let Some(plugins) = &known.plugins {
            let names = NameCheck { policy: self, known, plugins };
            names.check_plugins(&mut found);
            names.check_lists(&mut found);
            names.check_rules(self.permissions().rules.as_slice(), None, &mut found);
            for profile in self.profiles.values() {
                names.check_profile(profile, &mut found);
            }
        }
        self.source.findings(Severity::Warning, found)
    }

    /// Returns the first of these profiles that the policy does not have, with message and help. A credential for it
    /// grants less than it seems to.
    #[must_use]
    pub fn unknown_profile<'a>(
        &self,
        mut profiles: impl Iterator<Item = &'a str>,
    ) -> Option<(&'a str, String, Option<String>)> {
        let unknown = profiles.find(|name| self.profile(name).is_none())?;
        let message = format!("there is no profile `{unknown}` in the policy");
        Some((unknown, message, suggest_name(unknown, self.profile_names())))
    }

    fn check_token_profiles(&self, found: &mut Vec<PolicyProblem>) {
        let Some(oauth) = &self.serve().oauth else { return };
        for name in oauth.profiles.keys().map(String::as_str).filter(|name| *name != "*") {
            if let Some((_, message, help)) = self.unknown_profile(std::iter::once(name)) {
                let problem = PolicyProblem::at_keys(["serve", "oauth", "profiles", name], message);
                found.push(PolicyProblem { help, ..problem });
            }
        }
    }

    fn check_builtin_reducers(&self, known: &KnownNames, found: &mut Vec<PolicyProblem>) {
        let wrong = |name: Option<&str>, path: &[&str]| {
            let name = name.filter(|name| *name != "none" && !known.reducers.contains(*name))?;
            let problem =
                PolicyProblem::at_keys(path.iter().copied(), format!("there is no reducer `{name}`"));
            Some(problem.with_suggestion(name, known.reducers.iter().map(String::as_str)))
        };
        if known.reducers.is_empty() {
            return;
        }
        for service in self.openapi_services() {
            let name = service.name.as_str();
            found.extend(wrong(service.reduce.as_deref(), &["openapi", name, "reduce"]));
            for (tool, section) in &service.tools {
                let path = ["openapi", name, "tools", tool.as_str(), "reduce"];
                found.extend(wrong(section.reduce.as_deref(), &path));
            }
        }
        for server in self.mcp_servers() {
            let McpServer { name, tool_defaults: rules, tool_overrides: of_tools, .. } = &**server;
            found.extend(wrong(rules.reduce.as_deref(), &["mcp", name.as_str(), "reduce"]));
            for (tool, rules) in of_tools {
                found.extend(wrong(rules.reduce.as_deref(), &["mcp", name.as_str(), "tool", tool, "reduce"]));
            }
        }
    }
}

/// Compares the names in a policy with the known names.
struct NameCheck<'a> {
    policy: &'a Policy,
    known: &'a KnownNames,
    plugins: &'a BTreeMap<String, KnownPlugin>,
}

/// The message and the help for an unknown name.
type UnknownName = (String, Option<String>);

impl NameCheck<'_> {
    /// Checks the tables of plugins.
    fn check_plugins(&self, found: &mut Vec<PolicyProblem>) {
        for (id, own) in &self.policy.plugins {
            let table = ["plugins", id.as_str()];
            let Some(plugin) = self.plugins.get(id.as_str()) else {
                found.push(match &own.section.file {
                    Some(file) => PolicyProblem::at_keys(
                        ["plugins", id.as_str(), "file"],
                        format!("the plugin directory has no file `{file}`"),
                    ),
                    None => problem_for(self.unknown_plugin(id.as_str()), table),
                });
                continue;
            };
            if let Some(tools) = &plugin.tools {
                for tool in own.tools.keys().filter(|tool| !tools.contains(tool.as_str())) {
                    let message = format!("the plugin `{id}` has no tool `{tool}`");
                    let problem = PolicyProblem::at_keys(["tools", tool.as_str()], message).under_keys(table);
                    found.push(problem.with_suggestion(tool.as_str(), tools.iter().map(String::as_str)));
                }
                self.check_reducers(id, &own.reduce, plugin, found);
            }
            if let Some((key, message)) = &plugin.refused_setting {
                found.push(PolicyProblem::at_keys(
                    ["plugins", id.as_str(), "config", key],
                    format!("`{key}`: {message}"),
                ));
            }
        }
    }

    /// Checks the tools whose results a plugin reduces, and the plugin's reducers for them.
    fn check_reducers(
        &self,
        id: &PluginId,
        list: &[ReducerBinding],
        plugin: &KnownPlugin,
        found: &mut Vec<PolicyProblem>,
    ) {
        for (index, ReducerBinding { tool, reducer }) in list.iter().enumerate() {
            let at = |unknown: UnknownName| {
                let mut problem = problem_for(unknown, ["plugins", id.as_str(), "grant", "reduce"]);
                problem.path.push(PathStep::Index(index));
                problem
            };
            if let Some(unknown) = self.check_tool(tool) {
                found.push(at(unknown));
            }
            if !plugin.reducers.iter().any(|declared| declared == reducer || declared == tool) {
                let help = suggest_name(reducer, plugin.reducers.iter().map(String::as_str));
                found.push(at((format!("the plugin `{id}` has no reducer `{reducer}`"), help)));
            }
        }
    }

    /// Checks the `invoke` lists of grants, tool sections and profiles.
    fn check_lists(&self, found: &mut Vec<PolicyProblem>) {
        for (table, rules) in self.policy.tables() {
            for rule in rules.invoke.iter().flatten() {
                let text = rule.show(self.policy.workspace());
                if let Some(unknown) = self.check_pattern(&text) {
                    found.push(problem_for(unknown, table.iter().copied().chain(["invoke"])).in_text(&text));
                }
            }
        }
    }

    fn check_profile(&self, profile: &Profile, found: &mut Vec<PolicyProblem>) {
        let name = &**profile.name();
        let mut check =
            |key: &str, list: Option<&BTreeSet<String>>, unknown: &dyn Fn(&str) -> Option<UnknownName>| {
                for text in list.into_iter().flatten() {
                    if let Some(unknown) = unknown(text) {
                        found.push(problem_for(unknown, ["profile", name, key]).in_text(text));
                    }
                }
            };
        check("plugins", profile.plugins.as_ref(), &|id| {
            (!self.plugins.contains_key(id)).then(|| self.unknown_plugin(id))
        });
        check("tools", profile.tools.as_ref(), &|tool| self.check_tool(tool));
        check("exclude_tools", Some(&profile.exclude_tools), &|tool| self.check_tool(tool));
        check("toolsets", profile.toolsets.as_ref(), &|name| {
            self.check_label(name, &self.known.toolsets, "no tool is in the toolset")
        });
        check("mcp_servers", profile.mcp_servers.as_ref(), &|server| self.check_server(server));
        for server in profile.mcp_tools.iter().flatten().map(|(server, _)| server) {
            if let Some(unknown) = self.check_server(server) {
                found.push(problem_for(unknown, ["profile", name, "mcp_tools", server]));
            }
        }
        self.check_rules(&profile.permissions.rules, Some(name), found);
    }

    fn check_rules(
        &self,
        rules: &[permission::PermissionRule],
        profile: Option<&str>,
        found: &mut Vec<PolicyProblem>,
    ) {
        let tag = |name: &str| self.check_label(name, &self.known.tags, "no tool has the tag");
        for (index, rule) in rules.iter().enumerate() {
            let unknown = [
                ("tool", rule.tool.as_deref().and_then(|tool| self.check_pattern(tool))),
                ("tag", rule.tag.as_deref().and_then(tag)),
                ("source", rule.source.as_deref().and_then(|source| self.check_source(source))),
            ];
            for (key, unknown) in unknown {
                let Some((message, help)) = unknown else { continue };
                let of_rule = PolicyProblem { help, ..PolicyProblem::at_list_entry("rule", index, message) }
                    .in_key(key);
                let table = profile.map(|name| ["profile", name]);
                found.push(nest_under(table.into_iter().flatten())(of_rule));
            }
        }
    }

    fn unknown_plugin(&self, id: &str) -> UnknownName {
        let message = format!("no plugin `{id}` is installed");
        (message, suggest_name(id, self.plugins.keys().map(String::as_str)))
    }

    fn check_server(&self, name: &str) -> Option<UnknownName> {
        let servers = || self.policy.mcp_servers().map(|server| server.name.as_str());
        let is_unknown = self.policy.mcp_server(name).is_none();
        is_unknown.then(|| (format!("there is no [mcp.{name}]"), suggest_name(name, servers())))
    }

    /// Whether all tools are known. Plugins that failed to load, services and servers may have others.
    fn knows_all(&self) -> bool {
        self.plugins.values().all(|plugin| plugin.tools.is_some())
            && self.policy.mcp_servers().next().is_none()
            && self.policy.openapi_services().next().is_none()
    }

    /// Checks a toolset or tag, if all tools are known.
    fn check_label(&self, name: &str, known: &BTreeSet<String>, message: &str) -> Option<UnknownName> {
        let is_unknown = !known.contains(name) && self.knows_all();
        let help = || suggest_name(name, known.iter().map(String::as_str));
        is_unknown.then(|| (format!("{message} `{name}`"), help()))
    }

    fn check_source(&self, pattern: &str) -> Option<UnknownName> {
        let (kind, name) = pattern.split_once(':')?;
        let of_kind: BTreeSet<&str> = match kind {
            "plugin" => self.plugins.keys().map(String::as_str).collect(),
            "mcp" => self.policy.mcp_servers().map(|server| server.name.as_str()).collect(),
            _ => self.policy.openapi_services().map(|service| service.name.as_str()).collect(),
        };
        let is_unknown = !of_kind.iter().any(|known| text_matches(name, known));
        is_unknown.then(|| (format!("there is no source `{pattern}`"), suggest_name(name, of_kind)))
    }

    /// Checks a tool name that may contain stars.
    fn check_pattern(&self, pattern: &str) -> Option<UnknownName> {
        let Some((head, _)) = pattern.split_once('*') else { return self.check_tool(pattern) };
        if self.known.tools.iter().any(|tool| text_matches(pattern, tool)) {
            return None;
        }
        let nothing = || (format!("no tool has a name like `{pattern}`"), None);
        match name::split_qualified(head) {
            Some((source, _)) => {
                self.check_source_tool(source, head).map(|unknown| unknown.unwrap_or_else(nothing))
            }
            None => self.knows_all().then(nothing),
        }
    }

    fn check_tool(&self, name: &str) -> Option<UnknownName> {
        if self.known.tools.contains(name) {
            return None;
        }
        let help = || suggest_name(name, self.known.tools.iter().map(String::as_str));
        let unknown = || (format!("there is no tool `{name}`"), help());
        match name::split_qualified(name) {
            Some((source, _)) => self.check_source_tool(source, name).map(|of| of.unwrap_or_else(unknown)),
            None => Some(unknown()),
        }
    }

    /// Checks an unknown tool of a source. `None` if the source's tools are not known. `Some(None)` if the source
    /// lacks the tool. Otherwise the source itself is unknown.
    fn check_source_tool(&self, source: &str, name: &str) -> Option<Option<UnknownName>> {
        let prefix = format!("{source}{NAME_SEPARATOR}");
        if name.starts_with(MCP_PREFIX) {
            // The tools of a server are not known before it is asked.
            return source.strip_prefix(MCP_PREFIX).and_then(|server| self.check_server(server)).map(Some);
        }
        if self.known.tools.iter().any(|tool| tool.starts_with(&prefix)) {
            return Some(None);
        }
        if self.policy.openapi_service(source).is_some() {
            return None;
        }
        match self.plugins.get(source) {
            Some(KnownPlugin { tools: None, .. }) => None,
            Some(_) => Some(None),
            None => Some(Some(self.unknown_plugin(source))),
        }
    }
}

fn problem_for<'a>((message, help): UnknownName, keys: impl IntoIterator<Item = &'a str>) -> PolicyProblem {
    PolicyProblem { help, ..PolicyProblem::at_keys(keys, message) }
}
