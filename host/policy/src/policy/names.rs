//! Checks that the programs, secrets and sources that a policy names are defined, and defined once.

use std::collections::BTreeMap;

use super::{MAX_SHOWN, Policy, RuleLists};
use crate::capability::environment::EnvRule;
use crate::capability::secret::{Secret, SecretRule, SecretSource};
use crate::excerpt::one_line;
use crate::name::{NameError, QualifiedName, ToolName};
use crate::problem::{PolicyProblem, nest_under};

impl Policy {
    /// Returns the lists of all tables, each with the keys of its table.
    pub(super) fn tables(&self) -> impl Iterator<Item = (Vec<&str>, &RuleLists)> {
        let plugins = self.plugins.iter().flat_map(|(id, plugin)| {
            let tools = plugin.tools.iter();
            let tools = tools.map(|(tool, section)| {
                (vec!["plugins", id.as_str(), "tools", tool.as_str()], &section.rules)
            });
            std::iter::once((vec!["plugins", id.as_str(), "grant"], &plugin.rules)).chain(tools)
        });
        plugins.chain(
            self.profiles.iter().map(|(name, profile)| (vec!["profile", name.as_str()], &profile.rules)),
        )
    }

    /// Refuses grants of undefined programs and secrets, because they would never work.
    pub(super) fn check_names(&self) -> Result<(), PolicyProblem> {
        for (table, rules) in self.tables() {
            for (index, rule) in rules.process.iter().flatten().enumerate() {
                let name = rule.program();
                if !self.programs.contains_key(name) {
                    let problem = format!("`process` names `{name}`, and there is no [programs.{name}]");
                    let problem =
                        PolicyProblem::at_keys(["process"], problem).in_entry(index).under_keys(table);
                    let problem = problem.with_required_table(["programs", name]);
                    return Err(problem.with_suggestion(name, self.programs.keys().map(String::as_str)));
                }
            }
            for (index, rule) in rules.secrets.iter().flatten().enumerate() {
                if let SecretRule::Exact(name) = rule {
                    let found = self.find_secret("secrets", name).map_err(|problem| problem.in_entry(index));
                    found.map_err(nest_under(table.iter().copied()))?;
                }
            }
            for rule in rules.env.iter().flatten() {
                self.check_variable(rule).map_err(nest_under(table.iter().copied()))?;
            }
        }
        self.check_sources()?;
        self.check_servers()
    }

    /// Refuses two sources with the same name.
    fn check_sources(&self) -> Result<(), PolicyProblem> {
        let taken = self.plugins.keys().find_map(|id| Some((id, self.conflicting_section(id)?)));
        taken.map_or(Ok(()), |(id, table)| {
            let message = format!("{table} and [plugins.{id}] have the same name; rename one of the two");
            Err(PolicyProblem::at_keys(["plugins", id.as_str()], message))
        })
    }

    /// Returns the secret that a key names.
    pub(super) fn find_secret(&self, key: &str, name: &str) -> Result<&Secret, PolicyProblem> {
        self.secrets.get(name).ok_or_else(|| {
            let shown = one_line(name, MAX_SHOWN);
            let problem = format!("`{key}` names the secret `{shown}`, and there is no [secrets.{name:?}]");
            let problem = PolicyProblem::at_keys([key], problem).with_required_table(["secrets", name]);
            problem.with_suggestion(name, self.secrets.keys().map(String::as_str))
        })
    }

    /// Refuses a variable that holds a secret: guests would get the secret in the clear.
    pub(super) fn check_variable(&self, rule: &EnvRule) -> Result<(), PolicyProblem> {
        let (None, name) = (&rule.value, &rule.name) else { return Ok(()) };
        let is_source = |secret: &Secret| secret.from == SecretSource::Env(name.clone()) && !secret.reveal;
        match self.secrets.iter().find(|(_, secret)| is_source(secret)) {
            Some((secret, _)) => {
                let message = format!(
                    "`env` names `{name}`, the value of [secrets.{secret:?}], which would then reach guests in the clear; \
                     grant `secrets = [{secret:?}]` instead"
                );
                Err(PolicyProblem::at_keys(["env"], message).in_text(name))
            }
            None => Ok(()),
        }
    }
}

/// Refuses names that two tools of a source would have, or that are too long. `tools` are those with a section in `table`,
/// each with the operator's name for it.
pub(super) fn check_tool_names<'a>(
    table: &str,
    tools: impl Iterator<Item = (&'a str, Option<&'a ToolName>)> + Clone,
    qualify: impl Fn(&ToolName) -> Result<QualifiedName, NameError>,
) -> Result<(), PolicyProblem> {
    // Tools with a section and without a name of their own keep the source's.
    let kept = tools.clone().filter(|(_, name)| name.is_none());
    let mut taken: BTreeMap<String, &str> = kept.map(|(tool, _)| (tool.to_ascii_lowercase(), tool)).collect();
    for (tool, name) in tools {
        let Some(name) = name else { continue };
        let problem = |text: String| PolicyProblem::at_keys([table, tool, "name"], text);
        qualify(name).map_err(|e| problem(e.to_string()))?;
        if let Some(other) = taken.insert(name.as_str().to_ascii_lowercase(), tool) {
            return Err(problem(format!("`{name}` is also the name of the tool `{other}`")));
        }
    }
    Ok(())
}
