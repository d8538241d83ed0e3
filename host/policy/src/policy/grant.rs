//! Computes what a tool gets from its declarations and the policy, as one pure function.

use std::path::Path;

use ipnet::IpNet;

use super::openapi::OpenApiService;
use super::{AccessQuery, Advice, GrantKey, Policy, RuleLists};
use crate::capability::kind::kinds;
use crate::capability::net::NetRule;
use crate::capability::path_rule;
use crate::capability::{Capability, CapabilityKind, FROM_PROFILE};
use crate::hint::Hint;
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
    /// What would grant it; `None` if something is granted.
    pub advice: Option<Advice>,
}

impl GrantDecision {
    /// Why nothing is granted: the policy lines that would grant it, or the reason why none can.
    #[must_use]
    pub fn hint(&self) -> Option<Hint> {
        self.advice.as_ref().map(Advice::hint)
    }
}

macro_rules! grants {
    ([$($([$($kind:tt)*])? $Key:ident $key:ident: $Rule:ty, $grants:tt;)*]) => {
        /// The grants of one tool.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct Grants {
            $(#[doc = $grants] pub $key: Vec<$Rule>,)*
            /// The decision about each declared capability, in the order of the declarations.
            pub decisions: Vec<GrantDecision>,
        }

        impl Grants {
            /// The rules of each key as policy lines.
            pub(crate) fn lines(&self, workspace: &Path) -> Vec<(GrantKey, Vec<String>)> {
                vec![$((GrantKey::$Key, self.$key.iter().map(|rule| rule.show(workspace)).collect()),)*]
            }
        }
    };
}

kinds!(grants! {});

impl Grants {
    /// The declared capabilities that are not granted at all.
    pub fn missing(&self) -> impl Iterator<Item = &GrantDecision> {
        self.decisions.iter().filter(|decision| decision.advice.is_some())
    }

    /// Returns why the tool cannot run: required capabilities are missing. The hint has the lines of all.
    #[must_use]
    pub fn unavailable(&self) -> Option<PolicyRefusal> {
        let required = || self.missing().filter(|decision| !decision.capability.optional);
        let name = |Capability { kind, target, .. }: &Capability| {
            format!("`{}` of `{}`", kind.as_str(), path_rule::printable_path(target))
        };
        let names: Vec<String> = required().map(|decision| name(&decision.capability)).collect();
        let text = match names.as_slice() {
            [] => return None,
            [one] => format!("it needs {one}, which is not granted"),
            [first, second] => format!("it needs {first} and {second}, which are not granted"),
            [first, second, more @ ..] => {
                format!("it needs {first}, {second} and {} more, which are not granted", more.len())
            }
        };
        let hint = Advice::joint_hint(required().filter_map(|decision| decision.advice.as_ref()));
        Some(PolicyRefusal::new(text, hint))
    }
}

/// The rules of all levels for one tool in one profile.
struct GrantLevels<'a> {
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

    /// Computes the grants of a service's tool: `reached`, the targets of its operations, and the lists of the
    /// section, narrowed by the profile. `declared` are the tool's capabilities.
    #[must_use]
    pub fn openapi_grant(
        &self,
        service: &OpenApiService,
        tool: &ToolName,
        declared: &[Capability],
        reached: &[NetRule],
        profile: Option<&str>,
    ) -> Grants {
        let rules = service.rules(reached);
        let levels = GrantLevels {
            policy: self,
            plugin: &service.name,
            tool,
            plugin_rules: Some(&rules),
            tool_rules: None,
            profile: None,
            service: Some(service),
        };
        levels.grant(declared, profile)
    }
}

impl GrantLevels<'_> {
    /// Computes the grants for the declarations under a profile. An unknown profile grants nothing.
    fn grant(self, declared: &[Capability], profile: Option<&str>) -> Grants {
        let unknown = RuleLists::deny_all();
        let profile =
            profile.map(|name| (name, self.policy.profile(name).map_or(&unknown, |profile| &profile.rules)));
        let levels = GrantLevels { profile, ..self };
        let mut grants = Grants::default();
        for capability in declared {
            let decided = levels.decide(capability, &mut grants);
            let (granted, advice) = match decided {
                Ok(granted) => (granted, None),
                Err(advice) => (Vec::new(), Some(advice)),
            };
            grants.decisions.push(GrantDecision { capability: capability.clone(), granted, advice });
        }
        if !grants.net.is_empty() {
            grants.net_private = levels.private_networks();
        }
        grants
    }

    fn decide(&self, capability: &Capability, grants: &mut Grants) -> Result<Vec<String>, Advice> {
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
                        let why = "The host does not know this kind of capability.";
                        Err(Advice::Impossible(why.to_owned()))
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
    ) -> Result<Vec<String>, Advice> {
        let workspace = &self.policy.workspace;
        let of_profile = self.profile.and_then(|(_, rules)| list(rules));
        let wanted = if capability.target == FROM_PROFILE && !R::IS_SWITCH {
            let missing = || Advice::Impossible(self.missing_profile_hint(key));
            of_profile.ok_or_else(missing)?.to_vec()
        } else {
            let wanted = R::parse_declared(&capability.target, workspace);
            let invalid = |e| Advice::Impossible(format!("Its author declared an invalid target: {e}."));
            vec![wanted.map_err(invalid)?]
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
                self.advice(capability, key, &line)
            } else {
                Advice::Impossible(self.outside_profile_hint(key))
            });
        }
        let shown = R::show_list(&found, workspace);
        if merge_rules(granted, found) {
            Ok(shown)
        } else {
            Err(Advice::Impossible(too_many_rules_hint(key)))
        }
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

    /// Returns the advice for a refused declaration. `line` is the proposed policy line.
    fn advice(&self, capability: &Capability, key: GrantKey, line: &str) -> Advice {
        match self.service {
            Some(service) => self.policy.advise_openapi(service, None, key, line),
            None => {
                let of = AccessQuery { plugin: self.plugin, tool: self.tool, profile: None, key, line };
                self.policy.advise(of, std::iter::once(capability))
            }
        }
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
