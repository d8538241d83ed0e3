//! The commands that the operator configured: one for each tool, or several by name.
//!
//! ```toml
//! config = { lint = ["ruff", "check", "{paths}"], typecheck = { rust = ["cargo", "check"], py = ["mypy", "{paths}"] } }
//! ```
//!
//! `{paths}` and `{filter}` are replaced by the values of a call, each as separate arguments. Without the placeholder, a
//! call cannot pass any.

use std::collections::BTreeMap;

use toolbay_sdk::config;
use toolbay_sdk::prelude::*;
use toolbay_sdk::process::Command;

/// The most paths of one call.
const MAX_PATHS: usize = 200;

/// A setting.
#[data]
#[derive(Debug, Clone, PartialEq, Eq)]
#[serde(untagged)]
enum CommandSetting {
    One(Vec<String>),
    Named(BTreeMap<String, Vec<String>>),
}

/// The reason why a tool is unavailable: no command is configured.
pub(crate) fn available(tool: &str) -> std::result::Result<(), String> {
    let setting = config::get::<CommandSetting>(tool).map_err(|error| error.to_string())?;
    if setting.is_some_and(|setting| !setting.commands().is_empty()) {
        return Ok(());
    }
    Err(format!(
        "`{tool}` needs a command; write in the policy, for instance: [plugins.code] config = {{ {tool} = [\"PROGRAM\", \
         \"ARGUMENT\"] }}"
    ))
}

impl CommandSetting {
    fn commands(self) -> BTreeMap<String, Vec<String>> {
        match self {
            Self::One(words) => BTreeMap::from([(String::new(), words)]),
            Self::Named(named) => named,
        }
    }
}

/// The command for a tool: the named one, or the only one.
pub(crate) fn command(tool: &str, of: Option<&str>, given: &[(&str, &[String])]) -> Result<Command> {
    let commands = config::require::<CommandSetting>(tool)?.commands();
    let names = || commands.keys().cloned().collect::<Vec<_>>().join(", ");
    let words = match of {
        Some(name) => commands.get(name),
        None if commands.len() == 1 => commands.values().next(),
        None => return Err(Error::input(format!("say which: {}", names())).at("/of")),
    };
    let words = words
        .ok_or_else(|| Error::input(format!("there is no such command; there are: {}", names())).at("/of"))?;
    let mut filled = Vec::new();
    let mut taken = Vec::new();
    for word in words {
        match given.iter().find(|(name, _)| *word == format!("{{{name}}}")) {
            Some((name, values)) => {
                taken.push(*name);
                filled.extend_from_slice(values);
            }
            None => filled.push(word.clone()),
        }
    }
    if let Some((name, _)) = given.iter().find(|(name, values)| !values.is_empty() && !taken.contains(name)) {
        let problem = format!("the command of the operator takes no {name}; leave it out");
        return Err(Error::input(problem).at(format!("/{name}")));
    }
    let mut words = filled.into_iter();
    let program =
        words.next().ok_or_else(|| Error::not_available("the operator's command is empty").at("config"))?;
    Ok(Command::new(program).args(words))
}

/// Checks values from a model: a value must not become an option.
pub(crate) fn check(argument: &str, values: &[String]) -> Result<()> {
    if values.len() > MAX_PATHS {
        return Err(Error::input(format!("more than {MAX_PATHS} of them")).at(format!("/{argument}")));
    }
    let bad = |value: &String| value.is_empty() || value.starts_with('-') || value.contains('\0');
    match values.iter().position(bad) {
        None => Ok(()),
        Some(at) => {
            Err(Error::input("is empty or begins with `-`, as an option does")
                .at(format!("/{argument}/{at}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use toolbay_sdk::testing::FakeHost;

    use super::*;

    fn words(
        setting: &toolbay_sdk::serde_json::Value,
        of: Option<&str>,
        paths: &[&str],
    ) -> Result<Vec<String>> {
        let paths: Vec<String> = paths.iter().map(ToString::to_string).collect();
        FakeHost::new().config("lint", setting).run(|| {
            let command = command("lint", of, &[("paths", &paths)])?;
            Ok(std::iter::once(command.program).chain(command.args).collect())
        })
    }

    #[test]
    fn paths_stand_where_the_operator_lets_them() {
        let ruff = json!(["ruff", "check", "{paths}", "-q"]);
        assert_eq!(words(&ruff, None, &["a b", "c"]).unwrap(), ["ruff", "check", "a b", "c", "-q"]);
        assert_eq!(words(&ruff, None, &[]).unwrap(), ["ruff", "check", "-q"]);
        let fixed = json!(["cargo", "clippy"]);
        assert_eq!(words(&fixed, None, &["a"]).unwrap_err().subject(), Some("/paths"));
        // A placeholder is a whole word. It is not replaced within other words.
        assert_eq!(words(&json!(["x", "--p={paths}"]), None, &[]).unwrap(), ["x", "--p={paths}"]);
    }

    #[test]
    fn one_of_several_is_named() {
        let both = json!({"rust": ["cargo", "clippy"], "py": ["ruff"]});
        assert_eq!(words(&both, Some("py"), &[]).unwrap(), ["ruff"]);
        let error = words(&both, None, &[]).unwrap_err();
        assert!(error.to_string().contains("py, rust") && error.subject() == Some("/of"), "{error}");
        assert_eq!(words(&both, Some("go"), &[]).unwrap_err().subject(), Some("/of"));
        assert_eq!(words(&json!([]), None, &[]).unwrap_err().subject(), Some("config"));
    }

    #[test]
    fn a_tool_without_a_command_is_not_available() {
        FakeHost::new().config("lint", json!(["x"])).config("typecheck", 7).run(|| {
            assert_eq!(available("lint"), Ok(()));
            assert!(available("run_tests").unwrap_err().contains("config = { run_tests ="));
            assert!(available("typecheck").is_err());
        });
    }

    #[test]
    fn what_is_named_becomes_no_option() {
        for bad in ["", "-x", "--fix", "a\0"] {
            let values = ["ok".to_owned(), bad.to_owned()];
            assert_eq!(check("paths", &values).unwrap_err().subject(), Some("/paths/1"), "{bad:?}");
        }
        assert!(check("paths", &vec!["a".to_owned(); MAX_PATHS + 1]).is_err());
        assert!(check("paths", &["a-b".to_owned()]).is_ok());
    }
}
