//! Computes what a tool gets from its declarations and the policy, as one pure function.

use ipnet::IpNet;

use super::openapi::OpenApiService;
use super::{AccessQuery, GrantKey, Grants, Policy, RuleLists};
use crate::capability::kind::kinds;
use crate::capability::path_rule;
use crate::capability::{Capability, CapabilityKind, FROM_PROFILE};
use crate::name::{PluginId, ToolName};
use crate::refusal::PolicyRefusal;
use crate::rule::{self, GrantRule, intersect_lists};

/// Most rules of one key that several declarations of one tool can produce together, because each use is compared
/// with all of them. A single declaration is bounded by the policy itself.
const MAX_RULES: usize = 256;

/// The decision about one declared capability.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantDecision {
    /// The declared capability.
    pub capability: Capability,
    /// The granted part as policy lines. Empty if nothing is granted.
    pub granted: Vec<String>,
    /// Why nothing is granted: the policy lines that would grant it, or the reason why none can.
    pub hint: Option<String>,
}

impl Grants {
    /// The declared capabilities that are not granted at all.
    pub fn missing(&self) -> impl Iterator<Item = &GrantDecision> {
        self.decisions.iter().filter(|decision| decision.hint.is_some())
    }

    /// Returns why the tool cannot run: a required capability is missing.
    #[must_use]
    pub fn unavailable(&self) -> Option<PolicyRefusal> {
        let missing = self.missing().find(|decision| !decision.capability.optional)?;
        let Capability { kind, target, .. } = &missing.capability;
        let text = format!(
            "it needs `{}` of `{}`, which is not granted",
            kind.as_str(),
            path_rule::printable_path(target)
        );
        Some(PolicyRefusal { text, hint: missing.hint.clone() })
    }
}

/// The rules of all levels for one tool in one profile.
pub(super) struct GrantLevels<'a> {
    policy: &'a Policy,
    plugin: &'a PluginId,
    tool: &'a ToolName,
    plugin_rules: Option<&'a RuleLists>,
    tool_rules: Option<&'a RuleLists>,
    profile: Option<(&'a str, &'a RuleLists)>,
    /// The service of the tool, if it does not belong to a plugin.
    service: Option<&'a OpenApiService>,
}

impl Policy {
    /// Computes the grants of a tool: the intersection of its declarations, the plugin's grant, the tool's section
    /// and the profile. An unknown profile grants nothing.
    #[must_use]
    pub fn grant(
        &self,
        plugin: &PluginId,
        tool: &ToolName,
        declared: &[Capability],
        profile: Option<&str>,
    ) -> Grants {
        let levels = GrantLevels {
            policy: self,
            plugin,
            tool,
            plugin_rules: self.plugin_rules(plugin),
            tool_rules: self.tool_rules(plugin, tool),
            profile: None,
            service: None,
        };
        levels.grant(declared, profile)
    }
}

impl<'a> GrantLevels<'a> {
    /// Creates the levels for a tool of a service. Only the service's section grants something.
    pub(super) fn for_service(
        policy: &'a Policy,
        service: &'a OpenApiService,
        tool: &'a ToolName,
        rules: &'a RuleLists,
    ) -> Self {
        let (plugin, of_plugin, service) = (&service.name, Some(rules), Some(service));
        Self { policy, plugin, tool, plugin_rules: of_plugin, tool_rules: None, profile: None, service }
    }

    /// Computes the grants for the declarations under a profile. An unknown profile grants nothing.
    pub(super) fn grant(self, declared: &[Capability], profile: Option<&str>) -> Grants {
        let unknown = RuleLists::deny_all();
        let profile =
            profile.map(|name| (name, self.policy.profile(name).map_or(&unknown, |profile| &profile.rules)));
        let levels = GrantLevels { profile, ..self };
        let mut grants = Grants::default();
        for capability in declared {
            let decided = levels.decide(capability, &mut grants);
            let (granted, hint) = match decided {
                Ok(granted) => (granted, None),
                Err(hint) => (Vec::new(), Some(hint)),
            };
            grants.decisions.push(GrantDecision { capability: capability.clone(), granted, hint });
        }
        if !grants.net.is_empty() {
            grants.net_private = levels.private_networks();
        }
        grants
    }
}

impl GrantLevels<'_> {
    fn decide(&self, capability: &Capability, grants: &mut Grants) -> Result<Vec<String>, String> {
        macro_rules! decide {
            (
                [$($([$Kind:ident $($about:tt)*])? $Key:ident $key:ident: $Rule:ty, $text:tt;)*]
                $levels:ident $grants:ident
            ) => {
                match &capability.kind {
                    $($(CapabilityKind::$Kind => {
                        $levels.narrow(capability, GrantKey::$Key, |rules| rules.$key.as_deref(), &mut $grants.$key)
                    })?)*
                    CapabilityKind::Unknown(_) => {
                        Err("The host does not know this kind of capability.".to_owned())
                    }
                }
            };
        }
        kinds!(decide! { self grants })
    }

    /// Narrows one declaration and adds the rest to `granted`.
    fn narrow<R: GrantRule>(
        &self,
        capability: &Capability,
        key: GrantKey,
        list: impl Fn(&RuleLists) -> Option<&[R]>,
        granted: &mut Vec<R>,
    ) -> Result<Vec<String>, String> {
        let workspace = &self.policy.workspace;
        let of_profile = self.profile.and_then(|(_, rules)| list(rules));
        let wanted = if capability.target == FROM_PROFILE && !R::IS_SWITCH {
            let reach = of_profile.ok_or_else(|| self.missing_profile_hint(key))?;
            reach.to_vec()
        } else {
            let wanted = R::parse_declared(&capability.target, workspace);
            vec![wanted.map_err(|e| format!("Its author declared an invalid target: {e}."))?]
        };
        let mut found = intersect_lists(&wanted, self.plugin_rules.and_then(&list).unwrap_or_default());
        if let Some(narrow) = self.tool_rules.and_then(&list) {
            found = intersect_lists(&found, narrow);
        }
        let before = found.clone();
        if let Some(narrow) = of_profile {
            found = intersect_lists(&found, narrow);
        }
        if found.is_empty() {
            let line = wanted.first().map_or_else(String::new, |wanted| wanted.proposed_line(workspace));
            return Err(if before.is_empty() {
                self.hint(capability, key, &line)
            } else {
                self.outside_profile_hint(key)
            });
        }
        let shown = R::show_list(&found, workspace);
        if merge_rules(granted, found) { Ok(shown) } else { Err(too_many_rules_hint(key)) }
    }

    fn private_networks(&self) -> Vec<IpNet> {
        let list = |rules: &RuleLists| rules.net_private.clone();
        let mut found = self.plugin_rules.and_then(list).unwrap_or_default();
        let narrower = [self.tool_rules.and_then(list), self.profile.and_then(|(_, rules)| list(rules))];
        for narrow in narrower.into_iter().flatten() {
            found = intersect_lists(&found, &narrow);
        }
        found
    }

    /// Returns the hint for a refused declaration. `line` is the proposed policy line.
    fn hint(&self, capability: &Capability, key: GrantKey, line: &str) -> String {
        let advice = match self.service {
            Some(service) => self.policy.advise_openapi(service, None, key, line),
            None => {
                let of = AccessQuery { plugin: self.plugin, tool: self.tool, profile: None, key, line };
                self.policy.advise(of, std::iter::once(capability))
            }
        };
        advice.hint()
    }

    fn outside_profile_hint(&self, key: GrantKey) -> String {
        let name = self.profile.map_or("", |(name, _)| name);
        format!("The profile `{name}` does not allow it: see `{}` in [profile.{name}].", key.name())
    }

    fn missing_profile_hint(&self, key: GrantKey) -> String {
        match self.profile {
            None => "It asks for the grants of the profile, and the call has no profile.".to_owned(),
            Some((name, _)) => {
                format!(
                    "It asks for the grants of the profile, and [profile.{name}] has no `{}`.",
                    key.name()
                )
            }
        }
    }
}

/// Adds the rules of one declaration, without covered ones. Returns false if there would be too many. Rules of the
/// same declaration never cover each other, so each rule is only compared with the earlier ones.
fn merge_rules<R: GrantRule>(granted: &mut Vec<R>, found: Vec<R>) -> bool {
    let is_new = |new: &R| !granted.iter().any(|old| rule::covers(old, new));
    let new: Vec<R> = found.into_iter().filter(is_new).collect();
    if !granted.is_empty() && !new.is_empty() && granted.len() + new.len() > MAX_RULES {
        return false;
    }
    granted.retain(|old| !new.iter().any(|new| rule::covers(new, old)));
    granted.extend(new);
    true
}

fn too_many_rules_hint(key: GrantKey) -> String {
    format!(
        "With the tool's other declarations it matches more than {MAX_RULES} lines of `{}`: its author should ask for less, or \
         you should write fewer and wider lines.",
        key.name()
    )
}

#[cfg(test)]
#[path = "grant_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "grant_work_tests.rs"]
mod work_tests;
