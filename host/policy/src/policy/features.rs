//! The parts of the program that a policy needs. A program can be built without some of them. It then refuses a policy
//! that grants or connects something through them, which would silently be absent. It warns about sections for work
//! that it never does, such as fetching plugins: the policy may also be for a program that does it.

use super::check::{PolicyFinding, Severity};
use super::{Policy, PolicyError, trust};
use crate::problem::PolicyProblem;
use crate::serve::ServePolicy;

/// A part that a program can be built without: a feature of the crate `toolbay`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Feature {
    /// Requests and connections of plugins.
    Net,
    /// Other MCP servers, and the MCP server of the program itself.
    Mcp,
    /// Services that OpenAPI documents describe.
    OpenApi,
    /// The client of registries, and the verification of signatures.
    Registry,
}

impl Feature {
    /// All features.
    pub const ALL: [Self; 4] = [Self::Net, Self::Mcp, Self::OpenApi, Self::Registry];

    /// The name of the Cargo feature.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Net => "net",
            Self::Mcp => "mcp",
            Self::OpenApi => "openapi",
            Self::Registry => "registry",
        }
    }
}

impl Policy {
    /// Checks that the policy grants and connects nothing that a program with only these features lacks.
    ///
    /// ```
    /// use std::path::Path;
    /// use toolbay_policy::{Feature, Policy};
    ///
    /// let text = "version = 1\n[mcp.git]\ncommand = [\"/usr/bin/git-mcp\"]";
    /// let policy = Policy::parse(text, Path::new("/srv/agent"), None)?;
    /// assert!(policy.check_features(&Feature::ALL).is_ok());
    /// let error = policy.check_features(&[Feature::Net]).unwrap_err();
    /// assert!(error.to_string().contains("feature `mcp`"));
    /// # Ok::<(), toolbay_policy::PolicyError>(())
    /// ```
    ///
    /// # Errors
    /// Lists all lines that need another feature.
    pub fn check_features(&self, built: &[Feature]) -> Result<(), PolicyError> {
        let refused = lacking(built).flat_map(|feature| self.refused_without(feature));
        match self.source.findings(Severity::Error, refused.collect()) {
            findings if findings.is_empty() => Ok(()),
            findings => Err(PolicyError::new(findings)),
        }
    }

    /// Warns about sections without effect in a program with only these features: settings of a server that it cannot be,
    /// and of registries that it cannot ask. It verifies no signature, either.
    ///
    /// ```
    /// use std::path::Path;
    /// use toolbay_policy::{Feature, Policy};
    ///
    /// let text = "version = 1\n[[trust]]\nscope = \"registry.example/\"\nkeys = [\"acme.pub\"]";
    /// let policy = Policy::parse(text, Path::new("/srv/agent"), None)?;
    /// assert!(policy.feature_warnings(&Feature::ALL).is_empty());
    /// let warnings = policy.feature_warnings(&[Feature::Net]);
    /// assert!(warnings[0].message.contains("feature `registry`"));
    /// # Ok::<(), toolbay_policy::PolicyError>(())
    /// ```
    #[must_use]
    pub fn feature_warnings(&self, built: &[Feature]) -> Vec<PolicyFinding> {
        let idle = lacking(built).flat_map(|feature| self.idle_without(feature));
        self.source.findings(Severity::Warning, idle.collect())
    }

    /// The lines that a program without a feature refuses.
    fn refused_without(&self, feature: Feature) -> Vec<PolicyProblem> {
        let problem = |keys: &[&str]| {
            let name = feature.name();
            let help = format!("build it with `features = [\"{name}\"]`, or remove this");
            PolicyProblem {
                help: Some(help),
                ..PolicyProblem::at_keys(keys.iter().copied(), absence(feature))
            }
        };
        match feature {
            Feature::Net => {
                let granting = self
                    .plugins
                    .iter()
                    .filter(|(_, plugin)| plugin.rules.net.as_ref().is_some_and(|rules| !rules.is_empty()));
                granting.map(|(id, _)| problem(&["plugins", id.as_str(), "grant", "net"])).collect()
            }
            Feature::Mcp => self.servers.keys().map(|name| problem(&["mcp", name.as_str()])).collect(),
            Feature::OpenApi => {
                self.openapi.keys().map(|name| problem(&["openapi", name.as_str()])).collect()
            }
            Feature::Registry => Vec::new(),
        }
    }

    /// The sections that a program without a feature ignores.
    fn idle_without(&self, feature: Feature) -> Vec<PolicyProblem> {
        let ignored = |problem: PolicyProblem, effect: &str| {
            let message = format!("{}, so {effect}", absence(feature));
            PolicyProblem { message, ..problem }
        };
        match feature {
            Feature::Net | Feature::OpenApi => Vec::new(),
            Feature::Mcp => {
                let problem = PolicyProblem::at_keys(["serve"], String::new());
                let written = self.serve != ServePolicy::default();
                written.then(|| ignored(problem, "it serves no clients")).into_iter().collect()
            }
            Feature::Registry => {
                let registries = self.registries.keys().map(|host| {
                    let problem = PolicyProblem::at_keys(["registry", host.as_str()], String::new());
                    ignored(problem, "it fetches no plugins")
                });
                let rules = (0..self.trust.len()).map(|index| {
                    let problem = PolicyProblem::at_list_entry(trust::LIST, index, String::new());
                    let problem = problem.in_key("scope");
                    ignored(problem, "it verifies no signatures: a program with it must fetch the plugins")
                });
                registries.chain(rules).collect()
            }
        }
    }
}

/// The features that a program lacks.
fn lacking(built: &[Feature]) -> impl Iterator<Item = Feature> {
    Feature::ALL.into_iter().filter(|feature| !built.contains(feature))
}

fn absence(feature: Feature) -> String {
    format!("this program was built without the feature `{}` of the crate `toolbay`", feature.name())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_policy_that_needs_a_feature_is_refused_at_its_line_without_it() {
        for (feature, text) in [
            (Feature::Net, "[plugins.web.grant]\nnet = [\"https://example.com\"]"),
            (Feature::Mcp, "[mcp.git]\ncommand = [\"/usr/bin/git-mcp\"]"),
            (Feature::OpenApi, "[openapi.pets]\ndocument = \"pets.yaml\""),
        ] {
            let policy = Policy::parse(&format!("version = 1\n{text}"), Path::new("/srv"), None).unwrap();
            let others: Vec<Feature> = Feature::ALL.into_iter().filter(|one| *one != feature).collect();
            let error = policy.check_features(&others).unwrap_err();
            let [finding] = error.findings() else { panic!("{error}") };
            assert!(finding.message.contains(&format!("`{}`", feature.name())), "{error}");
            assert_ne!(finding.line, 1, "{error}");
            assert_eq!(policy.check_features(&[feature]), Ok(()), "{text}");
        }
    }

    #[test]
    fn a_section_without_effect_in_this_program_is_a_warning_at_its_line() {
        let oauth = "[serve.oauth]\nissuer = \"https://i.example\"\naudience = [\"a\"]\njwks = \"k\"";
        let trust = "[[trust]]\nscope = \"a.example/\"\nkeys = [\"a.pub\"]";
        let two_rules = format!("{trust}\n{}", trust.replace("a.example", "b.example"));
        for (feature, text, lines) in [
            (Feature::Mcp, oauth, 1),
            (Feature::Registry, "[registry.\"registry.example\"]", 1),
            (Feature::Registry, trust, 1),
            (Feature::Registry, two_rules.as_str(), 2),
        ] {
            let policy = Policy::parse(&format!("version = 1\n{text}"), Path::new("/srv"), None).unwrap();
            let others: Vec<Feature> = Feature::ALL.into_iter().filter(|one| *one != feature).collect();
            let found = policy.feature_warnings(&others);
            assert_eq!(found.len(), lines, "{text}: {found:?}");
            for finding in found {
                assert!(finding.message.contains(&format!("`{}`", feature.name())), "{text}: {finding}");
                assert_eq!(finding.severity, Severity::Warning, "{text}");
                assert_ne!(finding.line, 1, "{text}: {finding}");
            }
            assert!(policy.feature_warnings(&[feature]).is_empty(), "{text}");
            assert_eq!(policy.check_features(&[]), Ok(()), "{text}");
        }
    }

    #[test]
    fn a_policy_that_grants_nothing_needs_no_feature() {
        let text = "version = 1\n[plugins.web.grant]\nnet = []\nfs_read = [\"$workspace/**\"]\n\
                    [registry.\"registry.example\"]\n[secrets.S]\nfrom = \"env:S\"\nreveal = true";
        let policy = Policy::parse(text, Path::new("/srv"), None).unwrap();
        assert_eq!(policy.check_features(&[]), Ok(()));
        assert_eq!(Policy::deny_all(Path::new("/srv")).check_features(&[]), Ok(()));
    }
}
