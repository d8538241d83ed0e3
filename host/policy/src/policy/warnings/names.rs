//! Names that do not exist: plugins, tools, toolsets, tags, sources, profiles, reducers.
//!
//! A name is compared with what is known of the source that it names. What another source is like does not matter, so one
//! plugin that does not load, or one server that was never asked, hides no typing mistake about the others.

use std::collections::{BTreeMap, BTreeSet};

use super::super::{Policy, Profile, ReducerBinding};
use super::rule_order::rule_lists;
use super::{CheckInput, CheckReport, KnownNames, KnownPlugin, rule_arguments};
use crate::mcp_server::McpServer;
use crate::name::{self, MCP_PREFIX, NAME_SEPARATOR, PluginId};
use crate::permission::{PermissionRule, SourceLabel};
use crate::problem::{PolicyProblem, suggest_name};
use crate::rule::GrantRule as _;
use crate::wildcard::text_matches;

/// The tool that stands for reading a resource of an MCP server in rules.
const READ_RESOURCE: &str = "read_resource";

/// Adds what is wrong with names.
pub(super) fn check_names(input: &CheckInput<'_>, report: &mut CheckReport) {
    let CheckInput { policy, known, .. } = input;
    let mut check = NameCheck { policy, known, report };
    check.check_plugins();
    check.check_lists();
    check.check_rules(policy.permissions().rules.as_slice(), None);
    policy.profiles.values().for_each(|profile| check.check_profile(profile));
    check.check_contradictions();
    check.check_token_profiles();
    check.check_builtin_reducers();
}

/// Compares the names in a policy with the known names.
struct NameCheck<'a, 'r> {
    policy: &'a Policy,
    known: &'a KnownNames,
    report: &'r mut CheckReport,
}

/// The message and the help for an unknown name, and the table that would define it.
struct UnknownName {
    message: String,
    help: Option<String>,
    table: Option<[String; 2]>,
}

/// What is known of the source of a tool.
enum SourceState {
    /// Its tools are known.
    Read,
    /// The source exists, and its tools are not known.
    Unread(String),
    /// It is not known whether the name exists.
    Unlisted,
    /// The name does not exist.
    Absent(UnknownName),
}

impl UnknownName {
    fn new(message: String, help: Option<String>) -> Self {
        Self { message, help, table: None }
    }

    fn at<'k>(self, keys: impl IntoIterator<Item = &'k str>) -> PolicyProblem {
        let Self { message, help, table } = self;
        PolicyProblem { help, required_table: table.map(Box::new), ..PolicyProblem::at_keys(keys, message) }
    }
}

impl NameCheck<'_, '_> {
    /// The plugins; `None` if no folder was read.
    fn plugins(&self) -> Option<&BTreeMap<String, KnownPlugin>> {
        self.known.plugins.as_ref()
    }

    /// Checks the tables of plugins.
    fn check_plugins(&mut self) {
        let Some(plugins) = self.known.plugins.as_ref() else { return };
        for (id, own) in &self.policy.plugins {
            let table = ["plugins", id.as_str()];
            let Some(plugin) = plugins.get(id.as_str()) else {
                let problem = match &own.section.file {
                    Some(file) => {
                        let message = format!("the plugin directory has no file `{file}`");
                        PolicyProblem::at_keys(["plugins", id.as_str(), "file"], message)
                    }
                    None => self.unknown_plugin(id.as_str()).at(table),
                };
                self.report.push(problem);
                continue;
            };
            if let Some(tools) = &plugin.tools {
                for tool in own.tools.keys().filter(|tool| !tools.contains_key(tool.as_str())) {
                    let message = format!("the plugin `{id}` has no tool `{tool}`");
                    let problem = PolicyProblem::at_keys(["tools", tool.as_str()], message).under_keys(table);
                    self.report
                        .push(problem.with_suggestion(tool.as_str(), tools.keys().map(String::as_str)));
                }
                self.check_reducers(id, &own.reduce, plugin);
            } else if !own.tools.is_empty() || !own.reduce.is_empty() {
                self.report.not_compared.insert(format!("plugin:{id}"));
            }
            if let Some((key, message)) = &plugin.refused_setting {
                let path = ["plugins", id.as_str(), "config", key];
                self.report.push(PolicyProblem::at_keys(path, format!("`{key}`: {message}")));
            }
        }
    }

    /// Checks the tools whose results a plugin reduces, and the plugin's reducers for them.
    fn check_reducers(&mut self, id: &PluginId, list: &[ReducerBinding], plugin: &KnownPlugin) {
        for (index, ReducerBinding { tool, reducer }) in list.iter().enumerate() {
            let at = |unknown: UnknownName| {
                unknown.at(["plugins", id.as_str(), "grant", "reduce"]).in_entry(index)
            };
            if let Some(unknown) = self.check_tool(tool) {
                self.report.push(at(unknown));
            }
            if !plugin.reducers.iter().any(|declared| declared == reducer || declared == tool) {
                let help = suggest_name(reducer, plugin.reducers.iter().map(String::as_str));
                let message = format!("the plugin `{id}` has no reducer `{reducer}`");
                self.report.push(at(UnknownName::new(message, help)));
            }
        }
    }

    /// Checks the `invoke` lists of grants, tool sections and profiles.
    fn check_lists(&mut self) {
        for (table, rules) in self.policy.tables() {
            for rule in rules.invoke.iter().flatten() {
                let text = rule.show(self.policy.workspace());
                if let Some(unknown) = self.check_pattern(&text) {
                    let keys = table.iter().copied().chain(["invoke"]);
                    self.report.push(unknown.at(keys).in_text(&text));
                }
            }
        }
    }

    fn check_profile(&mut self, profile: &Profile) {
        let name = &**profile.name();
        self.check_list(name, "plugins", profile.plugins.as_ref(), |check, id| {
            let is_unknown = check.plugins().is_some_and(|plugins| !plugins.contains_key(id));
            is_unknown.then(|| check.unknown_plugin(id))
        });
        self.check_list(name, "tools", profile.tools.as_ref(), Self::check_tool);
        self.check_list(name, "exclude_tools", Some(&profile.exclude_tools), Self::check_tool);
        self.check_list(name, "toolsets", profile.toolsets.as_ref(), |check, toolset| {
            let known = check.toolsets();
            check.check_label(toolset, &known, "is in the toolset")
        });
        self.check_list(name, "mcp_servers", profile.mcp_servers.as_ref(), |check, server| {
            check.check_server(server)
        });
        for (server, tools) in profile.mcp_tools.iter().flatten() {
            let keys = ["profile", name, "mcp_tools", server];
            if let Some(unknown) = self.check_server(server) {
                self.report.push(unknown.at(keys));
                continue;
            }
            let Some(known) = self.known.servers.get(server) else {
                self.report.not_compared.insert(format!("mcp:{server}"));
                continue;
            };
            for tool in tools.iter().filter(|tool| !known.contains(tool.as_str())) {
                let help = suggest_name(tool, known.iter().map(String::as_str));
                let unknown =
                    UnknownName::new(format!("the MCP server `{server}` has no tool `{tool}`"), help);
                self.report.push(unknown.at(keys).in_text(tool));
            }
        }
        self.check_rules(&profile.permissions.rules, Some(name));
    }

    /// Checks each entry of a list of a profile.
    fn check_list(
        &mut self,
        profile: &str,
        key: &str,
        list: Option<&BTreeSet<String>>,
        check: impl Fn(&mut Self, &str) -> Option<UnknownName>,
    ) {
        for text in list.into_iter().flatten() {
            if let Some(unknown) = check(self, text) {
                self.report.push(unknown.at(["profile", profile, key]).in_text(text));
            }
        }
    }

    fn check_rules(&mut self, rules: &[PermissionRule], profile: Option<&str>) {
        for (index, rule) in rules.iter().enumerate() {
            let unknown = [
                ("tool", rule.tool.as_deref().and_then(|tool| self.check_pattern(tool))),
                (
                    "tag",
                    rule.tag
                        .as_deref()
                        .and_then(|tag| self.check_label(tag, &self.known.tags, "has the tag")),
                ),
                ("source", rule.source.as_deref().and_then(|source| self.check_source(source))),
            ];
            for (key, unknown) in unknown {
                let Some(UnknownName { message, help, table }) = unknown else { continue };
                let problem = PolicyProblem::at_list_entry("rule", index, message).in_key(key);
                let problem = PolicyProblem { help, required_table: table.map(Box::new), ..problem };
                let table = profile.map(|name| ["profile", name]);
                self.report.push(problem.under_keys(table.into_iter().flatten()));
            }
        }
    }

    /// Adds a problem for each rule whose selectors match tools, but not the same ones.
    fn check_contradictions(&mut self) {
        if self.plugins().is_none() || !self.unread_sources().is_empty() {
            return;
        }
        for (table, rules) in rule_lists(self.policy) {
            for (index, rule) in rules.iter().enumerate() {
                if !self.is_contradictory(rule) {
                    continue;
                }
                let message = "no tool fits all of `tool`, `tag` and `source`, so this rule never decides";
                let problem = PolicyProblem::at_list_entry("rule", index, message);
                let problem = problem.avoided_by(&["tool", "tag", "source"]);
                self.report.push(problem.under_keys(table.into_iter().flatten()));
            }
        }
    }

    fn is_contradictory(&self, rule: &PermissionRule) -> bool {
        let fits = |rule: &PermissionRule| {
            self.known.tools.iter().any(|(name, tool)| rule_arguments::matches(rule, name, tool))
        };
        let any = PermissionRule { tool: None, tag: None, source: None, ..rule.clone() };
        let alone = [
            PermissionRule { tool: rule.tool.clone(), ..any.clone() },
            PermissionRule { tag: rule.tag.clone(), ..any.clone() },
            PermissionRule { source: rule.source.clone(), ..any },
        ];
        // A selector that fits no tool is another problem.
        !fits(rule) && alone.iter().all(fits)
    }

    fn check_token_profiles(&mut self) {
        let Some(oauth) = &self.policy.serve().oauth else { return };
        for name in oauth.profiles.keys() {
            if let Some((_, message, help)) = self.policy.unknown_profile(std::iter::once(name.as_str())) {
                let table = Some(["profile".to_owned(), name.clone()]);
                let unknown = UnknownName { message, help, table };
                self.report.push(unknown.at(["serve", "oauth", "profiles", name]));
            }
        }
    }

    fn check_builtin_reducers(&mut self) {
        let known = &self.known.reducers;
        if known.is_empty() {
            return;
        }
        let wrong = |name: Option<&str>, path: &[&str]| {
            let name = name.filter(|name| *name != "none" && !known.contains(*name))?;
            let problem =
                PolicyProblem::at_keys(path.iter().copied(), format!("there is no reducer `{name}`"));
            Some(problem.with_suggestion(name, known.iter().map(String::as_str)))
        };
        for service in self.policy.openapi_services() {
            let name = service.name.as_str();
            self.report.found.extend(wrong(service.reduce.as_deref(), &["openapi", name, "reduce"]));
            for (tool, section) in &service.tools {
                let path = ["openapi", name, "tools", tool.as_str(), "reduce"];
                self.report.found.extend(wrong(section.reduce.as_deref(), &path));
            }
        }
        for server in self.policy.mcp_servers() {
            let McpServer { name, tool_defaults: rules, tool_overrides: of_tools, .. } = &**server;
            self.report.found.extend(wrong(rules.reduce.as_deref(), &["mcp", name.as_str(), "reduce"]));
            for (tool, rules) in of_tools {
                let path = ["mcp", name.as_str(), "tool", tool, "reduce"];
                self.report.found.extend(wrong(rules.reduce.as_deref(), &path));
            }
        }
    }

    fn unknown_plugin(&self, id: &str) -> UnknownName {
        let known = self.plugins().into_iter().flatten().map(|(id, _)| id.as_str());
        UnknownName::new(format!("no plugin `{id}` is installed"), suggest_name(id, known))
    }

    fn check_server(&self, name: &str) -> Option<UnknownName> {
        let servers = self.policy.mcp_servers().map(|server| server.name.as_str());
        let is_unknown = self.policy.mcp_server(name).is_none();
        is_unknown.then(|| UnknownName {
            message: format!("there is no [mcp.{name}]"),
            help: suggest_name(name, servers),
            table: Some(["mcp".to_owned(), name.to_owned()]),
        })
    }

    /// The toolsets that tools can have. Those of services and servers follow from their names.
    fn toolsets(&self) -> BTreeSet<String> {
        let servers = self.policy.mcp_servers().map(|server| format!("mcp:{}", server.name));
        let services = self.policy.openapi_services().map(|service| format!("openapi:{}", service.name));
        self.known.toolsets.iter().cloned().chain(servers).chain(services).collect()
    }

    /// Checks a toolset or a tag. Tags of a service begin with its name, and servers have none of their own, so only what is
    /// read of plugins matters.
    fn check_label(&self, name: &str, known: &BTreeSet<String>, what: &str) -> Option<UnknownName> {
        let plugins = self.plugins()?;
        let of_service = name.split_once('.').map(|(service, _)| service);
        let is_open = of_service.is_some_and(|service| {
            self.policy.openapi_service(service).is_some() && !self.known.services.contains_key(service)
        });
        if is_open || known.contains(name) {
            return None;
        }
        let all = plugins.values().all(|plugin| plugin.tools.is_some());
        let tools = if all { "no tool" } else { "no tool that could be read" };
        let help = suggest_name(name, known.iter().map(String::as_str));
        Some(UnknownName::new(format!("{tools} {what} `{name}`"), help))
    }

    fn check_source(&self, pattern: &str) -> Option<UnknownName> {
        let (kind, name) = pattern.split_once(':')?;
        let of_kind: BTreeSet<&str> = match kind {
            "plugin" => self.plugins()?.keys().map(String::as_str).collect(),
            "mcp" => self.policy.mcp_servers().map(|server| server.name.as_str()).collect(),
            _ => self.policy.openapi_services().map(|service| service.name.as_str()).collect(),
        };
        let is_unknown = !of_kind.iter().any(|known| text_matches(name, known));
        is_unknown.then(|| UnknownName {
            message: format!("there is no source `{pattern}`"),
            help: suggest_name(name, of_kind),
            table: (kind != "plugin").then(|| [kind.to_owned(), name.to_owned()]),
        })
    }

    /// Checks a tool name that may contain stars.
    fn check_pattern(&mut self, pattern: &str) -> Option<UnknownName> {
        let Some((head, _)) = pattern.split_once('*') else { return self.check_tool(pattern) };
        if self.known.tools.keys().any(|tool| text_matches(pattern, tool)) {
            return None;
        }
        let nothing = || UnknownName::new(format!("no tool has a name like `{pattern}`"), None);
        // `mcp__*` begins the names of all servers.
        match name::split_qualified(head).filter(|(source, _)| !MCP_PREFIX.starts_with(source)) {
            Some((source, _)) => self.check_source_tool(source, nothing),
            None => {
                let unread = self.unread_sources();
                let open: Vec<&String> = unread
                    .iter()
                    .filter(|(prefix, _)| prefix.starts_with(head))
                    .map(|(_, label)| label)
                    .collect();
                if open.is_empty() && self.plugins().is_some() {
                    return Some(nothing());
                }
                self.report.not_compared.extend(open.into_iter().cloned());
                None
            }
        }
    }

    fn check_tool(&mut self, name: &str) -> Option<UnknownName> {
        if self.known.tools.contains_key(name) {
            return None;
        }
        let known = self.known;
        let unknown = || {
            let help = suggest_name(name, known.tools.keys().map(String::as_str));
            UnknownName::new(format!("there is no tool `{name}`"), help)
        };
        match name::split_qualified(name) {
            Some((source, READ_RESOURCE)) if source.starts_with(MCP_PREFIX) => {
                self.check_server(source.strip_prefix(MCP_PREFIX).unwrap_or_default())
            }
            Some((source, _)) => self.check_source_tool(source, unknown),
            None => Some(unknown()),
        }
    }

    /// Checks a tool that is not known, by its source. `lacks` describes a tool that the source lacks.
    fn check_source_tool(&mut self, source: &str, lacks: impl Fn() -> UnknownName) -> Option<UnknownName> {
        match self.source_state(source) {
            SourceState::Read => Some(lacks()),
            SourceState::Absent(unknown) => Some(unknown),
            SourceState::Unlisted => None,
            SourceState::Unread(label) => {
                self.report.not_compared.insert(label);
                None
            }
        }
    }

    /// Facts about the source that is the first part of a tool's name.
    fn source_state(&self, source: &str) -> SourceState {
        if let Some(server) = source.strip_prefix(MCP_PREFIX) {
            return match self.check_server(server) {
                Some(unknown) => SourceState::Absent(unknown),
                None if self.known.servers.contains_key(server) => SourceState::Read,
                None => SourceState::Unread(format!("mcp:{server}")),
            };
        }
        let prefix = format!("{source}{NAME_SEPARATOR}");
        if self.known.tools.keys().any(|tool| tool.starts_with(&prefix)) {
            return SourceState::Read;
        }
        if self.policy.openapi_service(source).is_some() {
            return match self.known.services.contains_key(source) {
                true => SourceState::Read,
                false => SourceState::Unread(format!("openapi:{source}")),
            };
        }
        match self.plugins().map(|plugins| plugins.get(source)) {
            None => SourceState::Unlisted,
            Some(None) => SourceState::Absent(self.unknown_plugin(source)),
            Some(Some(KnownPlugin { tools: None, .. })) => SourceState::Unread(format!("plugin:{source}")),
            Some(Some(_)) => SourceState::Read,
        }
    }

    /// The sources whose tools are not known: the begin of their tools' names, and the source as rules write it.
    fn unread_sources(&self) -> Vec<(String, String)> {
        let plugins = self.plugins().into_iter().flatten().filter(|(_, plugin)| plugin.tools.is_none());
        let plugins =
            plugins.map(|(id, _)| (id.clone(), SourceLabel { kind: "plugin", name: id }.to_string()));
        let known = self.known;
        let services = self.policy.openapi_services().map(|service| service.name.to_string());
        let services = services.filter(|name| !known.services.contains_key(name));
        let services = services.map(|name| (name.clone(), format!("openapi:{name}")));
        let servers = self.policy.mcp_servers().map(|server| server.name.to_string());
        let servers = servers.filter(|name| !known.servers.contains_key(name));
        let servers = servers.map(|name| (format!("{MCP_PREFIX}{name}"), format!("mcp:{name}")));
        let all = plugins.chain(services).chain(servers);
        all.map(|(begin, label)| (format!("{begin}{NAME_SEPARATOR}"), label)).collect()
    }
}
