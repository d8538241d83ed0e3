//! What an operator would have to write so that a policy permits one use, and nothing beside it.
//!
//! Advice is checked before it is given: each list it names is put together and read as the policy reads it, and must
//! then cover the use. Where no line would help, the advice says why instead: the tool does not declare it, an
//! exclusion is in the way, a program has no file, a profile does not exist.

use std::fmt;
use std::path::Path;

use super::openapi::OpenApiService;
use super::{GrantKey, Policy};
use crate::capability::environment::EnvRule;
use crate::capability::kind::by_rule;
use crate::capability::path_rule;
use crate::capability::program::ProgramRule;
use crate::capability::secret::SecretRule;
use crate::capability::{Capability, FROM_PROFILE};
use crate::name::{PluginId, ToolName};
use crate::refusal;
use crate::rule::{self, GrantRule};

/// One list of the policy as it would have to be: what stands there now, and one line more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdvisedList {
    /// The table, with its brackets: `[plugins.files.grant]`.
    pub table: String,
    /// The list in it.
    pub key: GrantKey,
    /// Its lines; of a switch, `true`.
    pub lines: Vec<String>,
}

impl fmt::Display for AdvisedList {
    /// As the policy would write it: two lines of TOML.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (table, key) = (&self.table, self.key.name());
        if self.key.is_switch() {
            return write!(f, "{table}\n{key} = true");
        }
        let lines: Vec<String> =
            self.lines.iter().map(|line| serde_json::Value::from(line.as_str()).to_string()).collect();
        write!(f, "{table}\n{key} = [{}]", lines.join(", "))
    }
}

/// What would permit a use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Advice {
    /// These lists, all of them.
    Write {
        /// What has to be written before, as a sentence: the file of a program, the source of a secret.
        prerequisite: Option<String>,
        /// The lists.
        lists: Vec<AdvisedList>,
    },
    /// Nothing in the way stands in the lists of the policy.
    AlreadyGranted,
    /// No line alone would: why, as a sentence.
    Impossible(String),
}

impl Advice {
    /// The hint of a refusal.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Write { prerequisite, lists } => {
                let lists: Vec<String> = lists.iter().map(ToString::to_string).collect();
                let hint = refusal::allow_hint(&lists.join("\n"));
                match prerequisite {
                    Some(prerequisite) => format!("{prerequisite} {hint}"),
                    None => hint,
                }
            }
            Self::AlreadyGranted => "The policy grants it already.".to_owned(),
            Self::Impossible(why) => why.clone(),
        }
    }
}

/// What one list has to say of a use.
enum ListCoverage {
    Covers,
    Needs(Vec<String>),
    /// A line of the list excludes the use.
    Excludes,
}

/// The use that a policy is asked about.
#[derive(Debug, Clone, Copy)]
pub struct AccessQuery<'a> {
    /// The plugin.
    pub plugin: &'a PluginId,
    /// Its tool.
    pub tool: &'a ToolName,
    /// The profile of the call.
    pub profile: Option<&'a str>,
    /// The list that would grant it.
    pub key: GrantKey,
    /// What is used, as a line of that list.
    pub wish: &'a str,
}

impl Policy {
    /// The narrowest change of the policy that permits a use of a tool which declares `declared`.
    #[must_use]
    pub fn advise<'c>(
        &self,
        of: AccessQuery<'_>,
        declared: impl IntoIterator<Item = &'c Capability>,
    ) -> Advice {
        let AccessQuery { plugin, tool, profile, key, wish } = of;
        if let Some(why) = self.impossible_reason(&of, declared) {
            return Advice::Impossible(why);
        }
        let shown = |rules: &super::RuleLists| rules.list_lines(key, &self.workspace);
        let of_profile = profile.and_then(|name| Some((name, &self.profile(name)?.rules)));
        let levels = [
            // Without a list, a plugin is granted nothing, and the others narrow nothing.
            Some((
                format!("[plugins.{plugin}.grant]"),
                self.plugin_rules(plugin).and_then(shown).unwrap_or_default(),
            )),
            self.tool_rules(plugin, tool)
                .and_then(shown)
                .map(|list| (format!("[plugins.{plugin}.tools.{tool}]"), list)),
            of_profile
                .and_then(|(name, rules)| Some((format!("[profile.{}]", table_name(name)), shown(rules)?))),
        ];
        self.advice_for_levels(levels.into_iter().flatten(), key, wish, self.missing_definition(key, wish))
    }

    /// The same for a service of an OpenAPI document.
    #[must_use]
    pub fn advise_openapi(
        &self,
        service: &OpenApiService,
        profile: Option<&str>,
        key: GrantKey,
        wish: &str,
    ) -> Advice {
        let own = match key {
            GrantKey::Net => GrantRule::show_list(&service.net, &self.workspace),
            GrantKey::NetPrivate => GrantRule::show_list(&service.net_private, &self.workspace),
            _ => return Advice::Impossible("A service is granted what its section says.".to_owned()),
        };
        let of_profile = profile.and_then(|name| Some((name, &self.profile(name)?.rules)));
        let of_profile = of_profile.and_then(|(name, rules)| {
            Some((format!("[profile.{}]", table_name(name)), rules.list_lines(key, &self.workspace)?))
        });
        let own = (format!("[openapi.{}]", service.name), own);
        self.advice_for_levels(std::iter::once(own).chain(of_profile), key, wish, None)
    }

    /// What each level, a table with its list, needs for a use.
    fn advice_for_levels(
        &self,
        levels: impl IntoIterator<Item = (String, Vec<String>)>,
        key: GrantKey,
        wish: &str,
        first: Option<String>,
    ) -> Advice {
        let mut lists = Vec::new();
        for (table, list) in levels {
            let workspace = &self.workspace;
            match by_rule!(key, list_coverage(&list, wish, workspace)) {
                Ok(ListCoverage::Covers) => {}
                Ok(ListCoverage::Needs(lines)) => lists.push(AdvisedList { table, key, lines }),
                Ok(ListCoverage::Excludes) => {
                    let (wish, key) = (path_rule::printable_path(wish), key.name());
                    return Advice::Impossible(format!(
                        "An exclusion (`!…`) in `{key}` of {table} keeps `{wish}` out: no further line would help."
                    ));
                }
                Err(problem) => {
                    return Advice::Impossible(format!("No line of the policy can name it: {problem}."));
                }
            }
        }
        if lists.is_empty() { Advice::AlreadyGranted } else { Advice::Write { prerequisite: first, lists } }
    }

    /// Why no line of a list would help, if that is so.
    fn impossible_reason<'c>(
        &self,
        of: &AccessQuery<'_>,
        declared: impl IntoIterator<Item = &'c Capability>,
    ) -> Option<String> {
        let AccessQuery { plugin, tool, profile, key, wish } = *of;
        if let Some(name) = profile.filter(|name| self.profile(name).is_none()) {
            return Some(format!("The policy has no profile `{name}`, so nothing is granted under it."));
        }
        let mut declared = declared.into_iter();
        let asks = |one: &Capability| declares(one, key, wish, &self.workspace);
        // Networks are not declared: they narrow `net`.
        if key != GrantKey::NetPrivate && !declared.any(asks) {
            let (shown, key) = (path_rule::printable_path(wish), key.name());
            return Some(format!(
                "The tool `{tool}` does not declare `{key}` of `{shown}`, so no line of the policy would grant it: its \
                 author has to declare it."
            ));
        }
        if key == GrantKey::Process
            && ProgramRule::parse(wish, &self.workspace).is_ok_and(|rule| rule.program() == "*")
        {
            return Some(format!(
                "Write which programs it may run: [plugins.{plugin}.grant] process = [\"NAME ARGUMENTS\"], and \
                 [programs.NAME] with `path`."
            ));
        }
        // A variable that holds a secret is granted to nobody.
        let rule = if key == GrantKey::Env { EnvRule::parse(wish, &self.workspace).ok() } else { None };
        rule.and_then(|rule| self.check_variable(&rule).err())
            .map(|problem| format!("No line would help: {}", problem.message))
    }

    /// What a line would name that the policy does not have yet.
    fn missing_definition(&self, key: GrantKey, wish: &str) -> Option<String> {
        let program = || ProgramRule::parse(wish, &self.workspace).ok().map(|rule| rule.program().to_owned());
        match key {
            GrantKey::Process => match program()?.as_str() {
                name if self.program(name).is_none() => Some(format!(
                    "The policy does not say which file `{name}` is: write [programs.{name}] with `path`."
                )),
                _ => None,
            },
            GrantKey::Secrets => match SecretRule::parse(wish, &self.workspace) {
                Ok(SecretRule::Exact(name)) if !self.secrets.contains_key(&name) => {
                    Some(format!("The policy has no such secret: write [secrets.{name:?}] with `from`."))
                }
                _ => None,
            },
            _ => None,
        }
    }
}

/// A name as a part of a table's name.
fn table_name(name: &str) -> String {
    let bare =
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    if bare { name.to_owned() } else { serde_json::Value::from(name).to_string() }
}

/// Whether a declaration asks for the use.
fn declares(declared: &Capability, key: GrantKey, wish: &str, workspace: &Path) -> bool {
    fn covers<R: GrantRule>(target: &str, wish: &str, workspace: &Path) -> bool {
        let rules = (R::parse_declared(target, workspace), R::parse(wish, workspace));
        matches!(rules, (Ok(target), Ok(wish)) if rule::covers(&target, &wish))
    }
    if GrantKey::for_kind(&declared.kind) != Some(key) {
        return false;
    }
    let target = declared.target.as_str();
    target == FROM_PROFILE || by_rule!(key, covers(target, wish, workspace))
}

/// What a list has to say of a use, by reading it as the policy does.
fn list_coverage<R: GrantRule>(
    list: &[String],
    wish: &str,
    workspace: &Path,
) -> Result<ListCoverage, String> {
    let rule = R::parse(wish, workspace)?;
    let covered = |list: &[String]| {
        R::parse_list(list, workspace).is_ok_and(|rules| rules.iter().any(|one| one.permits(&rule)))
    };
    if covered(list) {
        return Ok(ListCoverage::Covers);
    }
    let more: Vec<String> = list.iter().cloned().chain([wish.to_owned()]).collect();
    Ok(if covered(&more) { ListCoverage::Needs(more) } else { ListCoverage::Excludes })
}

#[cfg(test)]
#[path = "advice_tests.rs"]
mod tests;
