//! The format of `[[trust]]`, and its conversion into [`TrustRule`].

use std::path::Path;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::problem::{PolicyProblem, of_key};
use crate::quantity::unit::{OptionalQuantity, Time};
use crate::trust::{
    IdentityPattern, KeylessSigner, MAX_IDENTITY, MAX_TRUST_RULES, MAX_TRUSTED_KEYS, TrustRequirement,
    TrustRule, TrustScope, TrustedSigners,
};

/// The key of the list.
pub(super) const LIST: &str = "trust";

/// Whose signatures count for some repositories.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(
    extend("if" = {"required": ["require"], "properties": {"require": {"const": "digest"}}}),
    extend("then" = {"properties": {
        "keys": {"maxItems": 0}, "identity": false, "issuer": false, "root": false, "min_age": false
    }}),
    extend("else" = {"anyOf": [
        {"required": ["keys"], "properties": {"keys": {"minItems": 1}}},
        {"required": ["identity"]}
    ]}),
    extend("dependentRequired" = {
        "identity": ["issuer", "root"], "issuer": ["identity"], "root": ["identity"], "min_age": ["identity"]
    })
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
    /// Identities that may sign them with a certificate: `https://forge.example/acme/*/release.yml@refs/tags/*`.
    #[schemars(length(max = MAX_IDENTITY), regex(pattern = IDENTITY))]
    identity: Option<String>,
    /// Who vouches for the identities: the issuer of their tokens.
    #[schemars(length(min = 1, max = MAX_IDENTITY), regex(pattern = "^[^|]*$"))]
    issuer: Option<String>,
    /// A file with the authorities and logs that are trusted (`trusted_root.json`), relative to the policy's folder.
    root: Option<String>,
    /// The age that a signature with a certificate must have: `3d`.
    #[serde(default)]
    min_age: OptionalQuantity<Duration, Time>,
}

/// An identity with its host or domain written out.
const IDENTITY: &str = r"^([^*:/@]+://[^*/@]+(/.*)?|[^@:]*@[^*@:/]+|[^*@:/]+)$";

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
        let rule = section.resolve(base).map_err(|problem| problem.under_entry(LIST, index))?;
        if rules.iter().any(|earlier| earlier.scope == rule.scope) {
            let message = format!("`scope`: another `[[trust]]` has `{}`: keep one of them", rule.scope);
            return Err(PolicyProblem::at_list_entry(LIST, index, message).in_key("scope"));
        }
        rules.push(rule);
    }
    Ok(rules)
}

impl TrustSection {
    fn resolve(self, base: &Path) -> Result<TrustRule, PolicyProblem> {
        let scope = TrustScope::parse(&self.scope).map_err(of_key("scope"))?;
        if self.keys.len() > MAX_TRUSTED_KEYS {
            let message = format!("`keys` has more than {MAX_TRUSTED_KEYS} entries");
            return Err(PolicyProblem::at_keys(["keys"], message));
        }
        let keyless = self.keyless(base)?;
        let requirement = match (self.require, self.keys.is_empty() && keyless.is_none()) {
            (Requirement::Signed, true) => {
                let message = "`keys` is missing: name the public keys that may sign, or an `identity`";
                return Err(PolicyProblem::at_keys(["keys"], message).avoided_by(&["identity"]));
            }
            (Requirement::Digest, false) => {
                let message =
                    "`keys` and `identity` have no effect with `require = \"digest\"`: remove one of them";
                return Err(PolicyProblem::at_keys(["keys"], message));
            }
            (Requirement::Signed, false) => {
                let keys = self.keys.iter().map(|file| base.join(file)).collect();
                TrustRequirement::Signed(TrustedSigners { keys, keyless })
            }
            (Requirement::Digest, true) => TrustRequirement::Digest,
        };
        Ok(TrustRule { scope, requirement })
    }

    /// The identities, if the rule has any.
    fn keyless(&self, base: &Path) -> Result<Option<KeylessSigner>, PolicyProblem> {
        let min_age = self.min_age.0;
        let (identity, issuer, root) = match (&self.identity, &self.issuer, &self.root) {
            (None, None, None) if min_age.is_some() => {
                let message = "`min_age` needs `identity`: the signature of a key has no time";
                return Err(PolicyProblem::at_keys(["min_age"], message));
            }
            (None, None, None) => return Ok(None),
            (Some(identity), Some(issuer), Some(root)) => (identity, issuer, root),
            (..) => {
                let message = "`identity`, `issuer` and `root` belong together: write all three";
                return Err(PolicyProblem::at_keys(["identity"], message));
            }
        };
        let is_bad = |c: char| c.is_control() || c == '|';
        if issuer.is_empty() || issuer.chars().count() > MAX_IDENTITY || issuer.contains(is_bad) {
            return Err(PolicyProblem::at_keys(["issuer"], "`issuer` is not the address of an issuer"));
        }
        let identity = IdentityPattern::parse(identity).map_err(of_key("identity"))?;
        Ok(Some(KeylessSigner { identity, issuer: issuer.clone(), root: base.join(root), min_age }))
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use crate::Policy;
    use crate::registry::RegistryHost;
    use crate::trust::{TrustRequirement, TrustedSigners};

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
        let signed = |keys: &[PathBuf]| {
            TrustRequirement::Signed(TrustedSigners { keys: keys.to_vec(), keyless: None })
        };
        let keys = [PathBuf::from("/srv/acme.pub"), PathBuf::from("/keys/old.pub")];
        assert_eq!(requirement("a.example", "acme/hash"), Some(signed(&keys)));
        assert_eq!(requirement("a.example", "other/hash"), Some(TrustRequirement::Digest));
        assert_eq!(requirement("b.example", "acme/hash"), None);
        for (text, part) in [
            ("scope = \"a.example/\"", "`keys` is missing"),
            ("scope = \"a.example/\"\nkeys = [\"a\"]\nrequire = \"digest\"", "no effect"),
            ("scope = \"acme/\"\nkeys = [\"a\"]", "is not a registry"),
            ("scope = \"a.example/*\"\nkeys = [\"a\"]", "is not a scope"),
            ("scope = \"a.example/\"\nkeys = [\"a\"]\nrequire = \"none\"", "none"),
            ("scope = \"a.example/\"\nkeys = [\"a\"]\nidentity = \"jo@b.example\"", "belong together"),
            ("scope = \"a.example/\"\nkeys = [\"a\"]\nmin_age = \"3d\"", "needs `identity`"),
            (
                "scope = \"a.example/\"\nidentity = \"*\"\nissuer = \"i\"\nroot = \"r\"",
                "does not say whose identities",
            ),
            (
                "scope = \"a.example/\"\nidentity = \"jo@b.example\"\nissuer = \"a|b\"\nroot = \"r\"",
                "is not the address of an issuer",
            ),
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
