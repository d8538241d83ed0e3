//! From what a tool declares and what the operator allows to what the tool gets: one pure function.

use ipnet::IpNet;

use super::openapi::OpenApiService;
use super::{AccessQuery, GrantKey, Grants, Policy, RuleLists};
use crate::capability::kind::kinds;
use crate::capability::path_rule;
use crate::capability::{Capability, CapabilityKind, FROM_PROFILE};
use crate::name::{PluginId, ToolName};
use crate::refusal::PolicyRefusal;
use crate::rule::{self, GrantRule, intersect_lists};

/// Most rules of one kind that several wishes of one tool come to; each is asked about each use. What one wish alone
/// comes to, the policy bounds.
const MAX_RULES: usize = 256;

/// What became of one declared capability.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantDecision {
    /// The wish.
    pub capability: Capability,
    /// What of it is granted, as a policy would write it; empty: nothing.
    pub granted: Vec<String>,
    /// Why nothing is granted: the policy lines that would grant it, or why none can.
    pub hint: Option<String>,
}

impl Grants {
    /// What was declared and is not granted at all.
    pub fn missing(&self) -> impl Iterator<Item = &GrantDecision> {
        self.decisions.iter().filter(|decision| decision.hint.is_some())
    }

    /// Why the tool cannot run at all: a capability that is not optional is missing.
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

/// The rules that hold for one tool in one profile.
pub(super) struct GrantLevels<'a> {
    policy: &'a Policy,
    plugin: &'a PluginId,
    tool: &'a ToolName,
    plugin_rules: Option<&'a RuleLists>,
    tool_rules: Option<&'a RuleLists>,
    profile: Option<(&'a str, &'a RuleLists)>,
    /// The service it belongs to, if that is no plugin.
    service: Option<&'a OpenApiService>,
}

impl Policy {
    /// What a tool gets: its declarations, cut down to the plugin's grant, to the tool's section and to the profile.
    /// A profile that is not in the policy grants nothing.
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
    /// Those of a tool of a service, whose section says all that it may.
    pub(super) fn for_service(
        policy: &'a Policy,
        service: &'a OpenApiService,
        tool: &'a ToolName,
        rules: &'a RuleLists,
    ) -> Self {
        let (plugin, of_plugin, service) = (&service.name, Some(rules), Some(service));
        Self { policy, plugin, tool, plugin_rules: of_plugin, tool_rules: None, profile: None, service }
    }

    /// What the declarations come to under a profile. One that is not in the policy grants nothing.
    pub(super) fn grant(self, declared: &[Capability], profile: Option<&str>) -> Grants {
        let unknown = RuleLists::deny_all();
        let profile =
            profile.map(|name| (name, self.policy.profile(name).map_or(&unknown, |profile| &profile.rules)));
        let levels = GrantLevels { profile, ..self };
        let mut grants = Grants::default();
        for wish in declared {
            let decided = levels.decide(wish, &mut grants);
            let (granted, hint) = match decided {
                Ok(granted) => (granted, None),
                Err(hint) => (Vec::new(), Some(hint)),
            };
            grants.decisions.push(GrantDecision { capability: wish.clone(), granted, hint });
        }
        if !grants.net.is_empty() {
            grants.net_private = levels.private_networks();
        }
        grants
    }
}

impl GrantLevels<'_> {
    fn decide(&self, wish: &Capability, grants: &mut Grants) -> Result<Vec<String>, String> {
        macro_rules! decide {
            (
                [$($([$Kind:ident $($about:tt)*])? $Key:ident $key:ident: $Rule:ty, $text:tt;)*]
                $levels:ident $grants:ident
            ) => {
                match &wish.kind {
                    $($(CapabilityKind::$Kind => {
                        $levels.narrow(wish, GrantKey::$Key, |rules| rules.$key.as_deref(), &mut $grants.$key)
                    })?)*
                    CapabilityKind::Unknown(_) => {
                        Err("The host does not know this kind of capability.".to_owned())
                    }
                }
            };
        }
        kinds!(decide! { self grants })
    }

    /// Cuts one wish down and adds what is left of it to `granted`.
    fn narrow<R: GrantRule>(
        &self,
        wish: &Capability,
        key: GrantKey,
        list: impl Fn(&RuleLists) -> Option<&[R]>,
        granted: &mut Vec<R>,
    ) -> Result<Vec<String>, String> {
        let workspace = &self.policy.workspace;
        let of_profile = self.profile.and_then(|(_, rules)| list(rules));
        let wanted = if wish.target == FROM_PROFILE && !R::IS_SWITCH {
            let reach = of_profile.ok_or_else(|| self.missing_profile_hint(key))?;
            reach.to_vec()
        } else {
            let wanted = R::parse_declared(&wish.target, workspace);
            vec![wanted.map_err(|e| format!("Its author wrote a target the host cannot read: {e}."))?]
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
                self.hint(wish, key, &line)
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

    /// What would grant a declared wish, as far as an operator is asked for it: `line` is that.
    fn hint(&self, wish: &Capability, key: GrantKey, line: &str) -> String {
        let advice = match self.service {
            Some(service) => self.policy.advise_openapi(service, None, key, line),
            None => {
                let of = AccessQuery { plugin: self.plugin, tool: self.tool, profile: None, key, wish: line };
                self.policy.advise(of, std::iter::once(wish))
            }
        };
        advice.hint()
    }

    fn outside_profile_hint(&self, key: GrantKey) -> String {
        let name = self.profile.map_or("", |(name, _)| name);
        format!("The profile `{name}` does not reach so far: see `{}` in [profile.{name}].", key.name())
    }

    fn missing_profile_hint(&self, key: GrantKey) -> String {
        match self.profile {
            None => {
                "It asks for what the profile of the call reaches, and the call has no profile.".to_owned()
            }
            Some((name, _)) => {
                format!("It asks for what the profile reaches, and [profile.{name}] has no `{}`.", key.name())
            }
        }
    }
}

/// Adds what one wish came to, without what is there already; returns whether it was not too much. Each rule is compared
/// with each that is there and never with those of its own wish, among which none covers another.
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
        "With the tool's other wishes it meets more than {MAX_RULES} lines of `{}`: its author should ask for less, or \
         you write fewer and wider lines.",
        key.name()
    )
}

#[cfg(test)]
#[path = "grant_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "grant_work_tests.rs"]
mod work_tests;
