//! Secrets that a plugin is granted and can send nowhere.

use std::path::Path;

use super::{CheckInput, CheckReport};
use crate::capability::net::NetRule;
use crate::capability::secret::Secret;
use crate::problem::PolicyProblem;
use crate::rule::GrantRule as _;

/// Adds a problem for each line of `secrets` whose secrets have no origin that the plugin's `net` reaches. A secret that is
/// revealed needs none.
pub(super) fn check_origins(input: &CheckInput<'_>, report: &mut CheckReport) {
    // The line that is missing may be one with a mistake.
    if input.policy.source.has_mistakes() {
        return;
    }
    for (id, plugin) in &input.policy.plugins {
        let net = plugin.rules.net.as_deref().unwrap_or_default();
        for rule in plugin.rules.secrets.iter().flatten() {
            let granted = input.policy.secrets().filter(|(name, _)| rule.matches(name));
            let granted: Vec<&Secret> = granted.map(|(_, secret)| secret).collect();
            let Some(origin) = granted.iter().find_map(|secret| secret.origins.first()) else { continue };
            if granted.iter().any(|secret| secret.reveal || reaches(net, secret)) {
                continue;
            }
            let text = rule.show(Path::new("/"));
            let message = "the plugin can send this secret nowhere: no line of its `net` reaches one of the secret's `origins`";
            let keys = ["plugins", id.as_str(), "grant", "secrets"];
            let problem = PolicyProblem::at_keys(keys, message).in_text(&text);
            let help = format!("grant `net = [\"{}\"]`, or remove the line", origin.show(Path::new("/")));
            report.push(PolicyProblem { help: Some(help), ..problem });
        }
    }
}

fn reaches(net: &[NetRule], secret: &Secret) -> bool {
    secret.origins.iter().any(|origin| net.iter().any(|line| line.intersect(origin).is_some()))
}
