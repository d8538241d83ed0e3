//! The parts of the program that a policy needs. A program can be built without some of them, and then refuses a policy
//! that names them: what it grants or connects would silently be absent.

use super::check::Severity;
use super::{Policy, PolicyError};
use crate::problem::PolicyProblem;

/// A part that a program can be built without: a feature of the crate `toolbay`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Feature {
    /// Requests and connections of plugins.
    Net,
    /// Other MCP servers.
    Mcp,
    /// Services that OpenAPI documents describe.
    OpenApi,
}

impl Feature {
    /// All features.
    pub const ALL: [Self; 3] = [Self::Net, Self::Mcp, Self::OpenApi];

    /// The name of the Cargo feature.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Net => "net",
            Self::Mcp => "mcp",
            Self::OpenApi => "openapi",
        }
    }
}

impl Policy {
    /// Checks that the policy names nothing that a program with only these features lacks.
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
        let lacking = Feature::ALL.into_iter().filter(|feature| !built.contains(feature));
        let problems: Vec<PolicyProblem> = lacking.flat_map(|feature| self.lines_of(feature)).collect();
        match self.source.findings(Severity::Error, problems) {
            findings if findings.is_empty() => Ok(()),
            findings => Err(PolicyError::new(findings)),
        }
    }

    /// The lines that need a feature.
    fn lines_of(&self, feature: Feature) -> Vec<PolicyProblem> {
        let problem = |keys: &[&str]| {
            let name = feature.name();
            let message =
                format!("this program was built without the feature `{name}` of the crate `toolbay`");
            PolicyProblem {
                help: Some(format!("build it with `features = [\"{name}\"]`, or remove this")),
                ..PolicyProblem::at_keys(keys.iter().copied(), message)
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
        }
    }
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
    fn a_policy_that_grants_nothing_needs_no_feature() {
        let text = "version = 1\n[plugins.web.grant]\nnet = []\nfs_read = [\"$workspace/**\"]\n\
                    [registry.\"registry.example\"]\n[secrets.S]\nfrom = \"env:S\"\nreveal = true";
        let policy = Policy::parse(text, Path::new("/srv"), None).unwrap();
        assert_eq!(policy.check_features(&[]), Ok(()));
        assert_eq!(Policy::deny_all(Path::new("/srv")).check_features(&[]), Ok(()));
    }
}
