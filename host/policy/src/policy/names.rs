//! Programs and secrets that one part of a policy names and another defines.

use super::problem::{Problem, within};
use super::{MAX_SHOWN, Policy, Rules};
use crate::capability::environment::EnvRule;
use crate::capability::secret::{Secret, SecretRule, SecretSource};
use crate::text::one_line;

impl Policy {
    /// The lists of all tables, each with the keys that lead to it.
    pub(super) fn tables(&self) -> impl Iterator<Item = (Vec<&str>, &Rules)> {
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

    /// A grant that names a program or a secret that nobody defined would never work.
    pub(super) fn check_names(&self) -> Result<(), Problem> {
        for (table, rules) in self.tables() {
            for rule in rules.process.iter().flatten() {
                let name = rule.program();
                if !self.programs.contains_key(name) {
                    let problem = format!("`process` names `{name}`, and there is no [programs.{name}]");
                    let problem = Problem::at(table, problem).wanting(["programs", name]);
                    return Err(problem.suggesting(name, self.programs.keys().map(String::as_str)));
                }
            }
            for rule in rules.secrets.iter().flatten() {
                if let SecretRule::Named(name) = rule {
                    self.secret_of("secrets", name).map_err(within(table.iter().copied()))?;
                }
            }
            for rule in rules.env.iter().flatten() {
                self.check_variable(rule).map_err(within(table.iter().copied()))?;
            }
        }
        self.check_sources()?;
        self.check_servers()
    }

    /// Two sources of one name could be mistaken for each other.
    fn check_sources(&self) -> Result<(), Problem> {
        let taken = self.plugins.keys().find_map(|id| Some((id, self.source_named(id)?)));
        taken.map_or(Ok(()), |(id, table)| {
            let message = format!("{table} has this name; give one of the two another name");
            Err(Problem::at(["plugins", id.as_str()], message))
        })
    }

    /// A secret that a key names.
    pub(super) fn secret_of(&self, key: &str, name: &str) -> Result<&Secret, Problem> {
        self.secrets.get(name).ok_or_else(|| {
            let shown = one_line(name, MAX_SHOWN);
            let problem = format!("`{key}` names the secret `{shown}`, and there is no [secrets.{name:?}]");
            let problem = Problem::from(problem).wanting(["secrets", name]);
            problem.suggesting(name, self.secrets.keys().map(String::as_str))
        })
    }

    /// A variable that holds a secret is not to reach guests in the clear by another way.
    pub(super) fn check_variable(&self, rule: &EnvRule) -> Result<(), Problem> {
        let (None, name) = (&rule.value, &rule.name) else { return Ok(()) };
        let is_source = |secret: &Secret| secret.from == SecretSource::Env(name.clone()) && !secret.reveal;
        match self.secrets.iter().find(|(_, secret)| is_source(secret)) {
            Some((secret, _)) => Err(Problem::from(format!(
                "`env` names `{name}`, the value of [secrets.{secret:?}], which would then reach guests in the clear; \
                 grant `secrets = [{secret:?}]` instead"
            ))),
            None => Ok(()),
        }
    }
}
