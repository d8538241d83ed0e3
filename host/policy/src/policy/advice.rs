//! Advice: the policy change that permits one use, and nothing more.
//!
//! Advice is verified before it is given: each proposed list is parsed like a policy and must cover the use. If no
//! line would help, the advice gives the reason: the tool does not declare the use, an exclusion matches, a program
//! has no file, or a profile does not exist.

use std::path::Path;

use super::openapi::OpenApiService;
use super::{GrantKey, Policy, RuleLists};
use crate::capability::environment::EnvRule;
use crate::capability::kind::by_rule;
use crate::capability::path_rule;
use crate::capability::program::ProgramRule;
use crate::capability::secret::SecretRule;
use crate::capability::{Capability, FROM_PROFILE};
use crate::hint::{Hint, LineValue, PolicyLine, Remedy};
use crate::name::{PluginId, ToolName};
use crate::refusal;
use crate::rule::{self, GrantRule};

/// Merges lists: those of a table stand together, and each list is there once with the lines of all.
fn merge_lists<'l>(lists: impl IntoIterator<Item = &'l PolicyLine>) -> Vec<PolicyLine> {
    let mut merged: Vec<PolicyLine> = Vec::new();
    for list in lists {
        let Some(same) = merged.iter_mut().find(|one| one.table == list.table && one.key == list.key) else {
            let last = merged.iter().rposition(|one| one.table == list.table);
            merged.insert(last.map_or(merged.len(), |at| at + 1), list.clone());
            continue;
        };
        if let (LineValue::List(known), LineValue::List(more)) = (&mut same.value, &list.value) {
            let new: Vec<String> = more.iter().filter(|line| !known.contains(line)).cloned().collect();
            known.extend(new);
        }
    }
    merged
}

/// How an operator can permit a use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Advice {
    /// Write all these lists.
    Write {
        /// A sentence about a missing definition, such as the file of a program or the source of a secret.
        prerequisite: Option<String>,
        /// The lists, each with its present lines and one more.
        lists: Vec<PolicyLine>,
    },
    /// The policy already grants the use.
    AlreadyGranted,
    /// No line would help. A sentence with the reason.
    Impossible(String),
}

impl Advice {
    /// What a message for models says of the use: whether the operator can allow it.
    #[must_use]
    pub fn notice(&self, tool: &str) -> String {
        match self {
            Self::Impossible(_) => refusal::NEVER_PERMITTED_NOTICE.to_owned(),
            Self::Write { .. } | Self::AlreadyGranted => refusal::not_permitted_notice(tool),
        }
    }

    /// The hint of a refusal.
    #[must_use]
    pub fn hint(&self) -> Hint {
        Self::joint_hint([self])
    }

    /// One hint for uses that are all needed: the reasons of those that no line allows, then the lists of the others.
    #[must_use]
    pub fn joint_hint<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Hint {
        let (mut sentences, mut all): (Vec<&str>, Vec<&PolicyLine>) = (Vec::new(), Vec::new());
        for part in parts {
            let sentence = match part {
                Self::Write { prerequisite, lists } => {
                    all.extend(lists);
                    prerequisite.as_ref()
                }
                Self::AlreadyGranted => None,
                Self::Impossible(why) => Some(why),
            };
            sentences.extend(sentence.map(String::as_str).filter(|new| !sentences.contains(new)));
        }
        let first = (!sentences.is_empty()).then(|| sentences.join(" "));
        if !all.is_empty() {
            return Remedy::Allow { first, lines: merge_lists(all) }.into();
        }
        first.unwrap_or_else(|| "The policy grants it already.".to_owned()).into()
    }
}

/// How a list relates to a use.
enum ListCoverage {
    Covers,
    Needs(Vec<String>),
    /// An exclusion in the list matches the use: that line.
    Excludes(String),
}

/// A use that the policy is asked about.
#[derive(Debug, Clone, Copy)]
pub struct AccessQuery<'a> {
    /// The plugin.
    pub plugin: &'a PluginId,
    /// Its tool.
    pub tool: &'a ToolName,
    /// The profile of the call.
    pub profile: Option<&'a str>,
    /// The key that would grant it.
    pub key: GrantKey,
    /// The use as a line of that list.
    pub line: &'a str,
}

impl Policy {
    /// Returns the narrowest change that permits a use by a tool with these declarations.
    #[must_use]
    pub fn advise<'c>(
        &self,
        of: AccessQuery<'_>,
        declared: impl IntoIterator<Item = &'c Capability>,
    ) -> Advice {
        let AccessQuery { plugin, tool, profile, key, line } = of;
        if let Some(why) = self.impossible_reason(&of, declared) {
            return Advice::Impossible(why);
        }
        let levels = self.list_levels(plugin, tool, profile, key).into_iter().enumerate();
        // An absent list grants nothing to a plugin. At the other levels it does not narrow.
        let levels = levels.filter_map(|(level, (table, list))| match level {
            0 => Some((table, list.unwrap_or_default())),
            _ => Some((table, list?)),
        });
        self.advice_for_levels(levels, key, line, self.missing_definition(key, line))
    }

    /// The list of a key at each level of a tool, as policy lines, with its table: of the plugin, the tool and the profile.
    /// `None` if the level has no such list.
    pub(super) fn list_levels(
        &self,
        plugin: &PluginId,
        tool: &ToolName,
        profile: Option<&str>,
        key: GrantKey,
    ) -> Vec<(String, Option<Vec<String>>)> {
        let lines = |rules: &RuleLists| rules.list_lines(key, &self.workspace);
        let of_plugin = (format!("[plugins.{plugin}.grant]"), self.plugin_rules(plugin).and_then(lines));
        let of_tool =
            (format!("[plugins.{plugin}.tools.{tool}]"), self.tool_rules(plugin, tool).and_then(lines));
        [of_plugin, of_tool].into_iter().chain(self.profile_level(profile, key)).collect()
    }

    /// The level of a profile. `None` if there is no such profile.
    fn profile_level(&self, profile: Option<&str>, key: GrantKey) -> Option<(String, Option<Vec<String>>)> {
        let name = profile?;
        let list = self.profile(name)?.rules.list_lines(key, &self.workspace);
        Some((format!("[profile.{}]", table_name(name)), list))
    }

    /// Returns the same for a service of an OpenAPI document.
    #[must_use]
    pub fn advise_openapi(
        &self,
        service: &OpenApiService,
        profile: Option<&str>,
        key: GrantKey,
        line: &str,
    ) -> Advice {
        let own = match key {
            GrantKey::Net => GrantRule::show_list(&service.net, &self.workspace),
            GrantKey::NetPrivate => GrantRule::show_list(&service.net_private, &self.workspace),
            _ => {
                return Advice::Impossible(
                    "The section of a service can only grant `net` and `net_private`.".to_owned(),
                );
            }
        };
        let of_profile = self.profile_level(profile, key).and_then(|(table, list)| Some((table, list?)));
        let own = (format!("[openapi.{}]", service.name), own);
        self.advice_for_levels(std::iter::once(own).chain(of_profile), key, line, None)
    }

    /// Returns the tables whose list has this line: `[plugins.files.grant]`. `the policy` if no list has exactly this text.
    #[must_use]
    pub fn tables_with_line(&self, of: AccessQuery<'_>) -> String {
        let AccessQuery { plugin, tool, profile, key, line } = of;
        let has_line =
            |lines: &Vec<String>| lines.iter().any(|one| one.split(" & ").any(|part| part == line));
        let levels = self.list_levels(plugin, tool, profile, key).into_iter();
        let tables = levels.filter(|(_, list)| list.as_ref().is_some_and(has_line));
        let tables: Vec<String> = tables.map(|(table, _)| table).collect();
        if tables.is_empty() { "the policy".to_owned() } else { tables.join(" and ") }
    }

    /// Returns the advice for these levels. A level is a table with its list.
    fn advice_for_levels(
        &self,
        levels: impl IntoIterator<Item = (String, Vec<String>)>,
        key: GrantKey,
        line: &str,
        first: Option<String>,
    ) -> Advice {
        let mut lists = Vec::new();
        for (table, list) in levels {
            let workspace = &self.workspace;
            match by_rule!(key, list_coverage(&list, line, workspace)) {
                Ok(ListCoverage::Covers) => {}
                Ok(ListCoverage::Needs(lines)) => {
                    let value = if key.is_switch() { LineValue::Switch } else { LineValue::List(lines) };
                    lists.push(PolicyLine::new(table, key.name(), value));
                }
                Ok(ListCoverage::Excludes(exclusion)) => {
                    let (line, key) = (path_rule::printable_path(line), key.name());
                    return Advice::Impossible(format!(
                        "`{exclusion}` in `{key}` of {table} excludes `{line}`, so no further line would help."
                    ));
                }
                Err(problem) => {
                    return Advice::Impossible(format!("No line of the policy can name it: {problem}."));
                }
            }
        }
        if lists.is_empty() { Advice::AlreadyGranted } else { Advice::Write { prerequisite: first, lists } }
    }

    /// Returns why no line of a list would help, if so.
    fn impossible_reason<'c>(
        &self,
        of: &AccessQuery<'_>,
        declared: impl IntoIterator<Item = &'c Capability>,
    ) -> Option<String> {
        let AccessQuery { plugin, tool, profile, key, line } = *of;
        if let Some(name) = profile.filter(|name| self.profile(name).is_none()) {
            return Some(format!("The policy has no profile `{name}`, so nothing is granted under it."));
        }
        let mut declared = declared.into_iter();
        let asks = |one: &Capability| declares(one, key, line, &self.workspace);
        // Networks are not declared, because they narrow `net`.
        if key != GrantKey::NetPrivate && !declared.any(asks) {
            let (shown, key) = (path_rule::printable_path(line), key.name());
            return Some(format!(
                "The tool `{tool}` does not declare `{key}` of `{shown}`, so no policy line can grant it; its \
                 author must declare it."
            ));
        }
        if key == GrantKey::Process
            && ProgramRule::parse(line, &self.workspace).is_ok_and(|rule| rule.program() == "*")
        {
            return Some(format!(
                "Write which programs it may run: [plugins.{plugin}.grant] process = [\"NAME ARGUMENTS\"], and \
                 [programs.NAME] with `path`."
            ));
        }
        // A variable that holds a secret is never granted.
        let rule = if key == GrantKey::Env { EnvRule::parse(line, &self.workspace).ok() } else { None };
        rule.and_then(|rule| self.check_variable(&rule).err())
            .map(|problem| format!("No line would help: {}", problem.message))
    }

    /// Returns a sentence about a definition that the line needs and the policy lacks.
    fn missing_definition(&self, key: GrantKey, line: &str) -> Option<String> {
        let program = || ProgramRule::parse(line, &self.workspace).ok().map(|rule| rule.program().to_owned());
        match key {
            GrantKey::Process => match program()?.as_str() {
                name if self.program(name).is_none() => Some(format!(
                    "The policy does not say which file `{name}` is: write [programs.{name}] with `path`."
                )),
                _ => None,
            },
            GrantKey::Secrets => match SecretRule::parse(line, &self.workspace) {
                Ok(SecretRule::Exact(name)) if !self.secrets.contains_key(&name) => {
                    Some(format!("The policy has no such secret: write [secrets.{name:?}] with `from`."))
                }
                _ => None,
            },
            _ => None,
        }
    }
}

/// Formats a name as part of a table header.
fn table_name(name: &str) -> String {
    let bare =
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    if bare { name.to_owned() } else { serde_json::Value::from(name).to_string() }
}

/// Whether a declaration asks for the use.
fn declares(declared: &Capability, key: GrantKey, line: &str, workspace: &Path) -> bool {
    fn covers<R: GrantRule>(target: &str, line: &str, workspace: &Path) -> bool {
        let rules = (R::parse_declared(target, workspace), R::parse(line, workspace));
        matches!(rules, (Ok(target), Ok(line)) if rule::covers(&target, &line))
    }
    if GrantKey::for_kind(&declared.kind) != Some(key) {
        return false;
    }
    let target = declared.target.as_str();
    target == FROM_PROFILE || by_rule!(key, covers(target, line, workspace))
}

/// Parses a list like a policy and compares it with a use.
fn list_coverage<R: GrantRule>(
    list: &[String],
    line: &str,
    workspace: &Path,
) -> Result<ListCoverage, String> {
    let rule = R::parse(line, workspace)?;
    let covered = |list: &[String]| {
        R::parse_list(list, workspace).is_ok_and(|rules| rules.iter().any(|one| one.permits(&rule)))
    };
    if covered(list) {
        return Ok(ListCoverage::Covers);
    }
    let more: Vec<String> = list.iter().cloned().chain([line.to_owned()]).collect();
    if covered(&more) {
        return Ok(ListCoverage::Needs(more));
    }
    let excludes = |exclusion: &&String| {
        exclusion.starts_with('!') && !covered(&[line.to_owned(), (*exclusion).clone()])
    };
    let exclusion = list.iter().find(excludes).map_or("!…", String::as_str);
    Ok(ListCoverage::Excludes(path_rule::printable_path(exclusion)))
}

#[cfg(test)]
#[path = "advice_tests.rs"]
mod tests;
