//! The format of `[[trust]]`, and its conversion into [`TrustRule`].

use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;

use super::problem::PolicyProblem;
use crate::trust::{MAX_TRUST_RULES, MAX_TRUSTED_KEYS, TrustRequirement, TrustRule, TrustScope};

/// The key of the list.
pub(super) const LIST: &str = "trust";

/// Whose signatures count for some repositories.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(
    extend("if" = {"required": ["require"], "properties": {"require": {"const": "digest"}}}),
    extend("then" = {"properties": {"keys": {"maxItems": 0}}}),
    extend("else" = {"required": ["keys"], "properties": {"keys": {"minItems": 1}}})
)]
pub(super) struct TrustSection {
    /// The repositories: `registry.example/acme/`. The rule with the longest path decides.
    #[schemars(regex(pattern = "^(localhost|[^/?#@A-Z ]*[.:][^/?#@A-Z ]*)(/[a-z0-9._-]+)*/?$"))]
    scope: String,
    /// What they need. Default: a signature.
    #[serde(default)]
    require: Requirement,
    /// Files with the public keys that may sign them (PEM), relative to the policy's folder.
    #[serde(default)]
    #[schemars(length(max = MAX_TRUSTED_KEYS))]
    keys: Vec<String>,
}

#[derive(Deserialize, JsonSchema, Default)]
#[serde(rename_all = "lowercase")]
enum Requirement {
    /// A signature by one of the keys.
    #[default]
    Signed,
    /// Nothing but the digest in the lock.
    Digest,
}

/// Converts all rules. Relative paths start from `base`.
pub(super) fn resolve_all(sections: Vec<TrustSection>, base: &Path) -> Result<Vec<TrustRule>, PolicyProblem> {
    if sections.len() > MAX_TRUST_RULES {
        let message = format!("a policy can have at most {MAX_TRUST_RULES} tables `[[trust]]`");
        return Err(PolicyProblem::at_keys([LIST], message));
    }
    let mut rules: Vec<TrustRule> = Vec::new();
    for (index, section) in sections.into_iter().enumerate() {
        let rule = section.resolve(base).map_err(|why| PolicyProblem::at_list_entry(LIST, index, why))?;
        if rules.iter().any(|earlier| earlier.scope == rule.scope) {
            let message = format!("`scope`: another `[[trust]]` has `{}`: keep one of them", rule.scope);
            return Err(PolicyProblem::at_list_entry(LIST, index, message));
        }
        rules.push(rule);
    }
    Ok(rules)
}

impl TrustSection {
    fn resolve(self, base: &Path) -> Result<TrustRule, String> {
        let scope = TrustScope::parse(&self.scope).map_err(|why| format!("`scope`: {why}"))?;
        if self.keys.len() > MAX_TRUSTED_KEYS {
            return Err(format!("`keys` has more than {MAX_TRUSTED_KEYS} entries"));
        }
        let requirement = match (self.require, self.keys.is_empty()) {
            (Requirement::Signed, true) => {
                return Err("`keys` is missing: name the public keys that may sign".to_owned());
            }
            (Requirement::Digest, false) => {
                return Err("`keys` has no effect with `require = \"digest\"`: remove one of them".to_owned());
            }
            (Requirement::Signed, false) => {
                TrustRequirement::Signed(self.keys.iter().map(|file| base.join(file)).collect())
            }
            (Requirement::Digest, true) => TrustRequirement::Digest,
        };
        Ok(TrustRule { scope, requirement })
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use crate::Policy;
    use crate::registry::RegistryHost;
    use crate::trust::TrustRequirement;

    #[test]
    fn the_longest_scope_decides_and_mistakes_are_refused() {
        let parse = |text: &str| Policy::parse(&format!("version = 1\n{text}"), Path::new("/srv"), None);
        let policy = parse(
            "[[trust]]\nscope = \"a.example/\"\nrequire = \"digest\"\n\
             [[trust]]\nscope = \"a.example/acme/\"\nkeys = [\"acme.pub\", \"/keys/old.pub\"]",
        )
        .unwrap();
        let host = |name: &str| RegistryHost::parse(name).unwrap();
        let requirement = |host_name: &str, repository: &str| {
            policy.trust_for(&host(host_name), repository).map(|rule| rule.requirement.clone())
        };
        let keys = [PathBuf::from("/srv/acme.pub"), PathBuf::from("/keys/old.pub")];
        assert_eq!(requirement("a.example", "acme/hash"), Some(TrustRequirement::Signed(keys.to_vec())));
        assert_eq!(requirement("a.example", "other/hash"), Some(TrustRequirement::Digest));
        assert_eq!(requirement("b.example", "acme/hash"), None);
        for (text, part) in [
            ("scope = \"a.example/\"", "`keys` is missing"),
            ("scope = \"a.example/\"\nkeys = [\"a\"]\nrequire = \"digest\"", "no effect"),
            ("scope = \"acme/\"\nkeys = [\"a\"]", "is not a registry"),
            ("scope = \"a.example/*\"\nkeys = [\"a\"]", "is not a scope"),
            ("scope = \"a.example/\"\nkeys = [\"a\"]\nrequire = \"none\"", "none"),
            ("scope = \"a.example/\"\nkeys = [\"a\"]\nidentity = \"*\"", "identity"),
            (
                "scope = \"a.example/\"\nkeys = [\"a\"]\n[[trust]]\nscope = \"a.example\"\nkeys = [\"b\"]",
                "keep one of them",
            ),
        ] {
            let error = parse(&format!("[[trust]]\n{text}")).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
