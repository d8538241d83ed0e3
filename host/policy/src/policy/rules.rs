//! The rule lists of one level of a policy.

use std::path::Path;

use crate::capability::kind::kinds;
use crate::capability::{Capability, GrantKey};
use crate::rule::GrantRule;

macro_rules! rule_lists {
    ([$($([$($kind:tt)*])? $Key:ident $key:ident: $Rule:ty, $grants:tt;)*]) => {
        /// The lists of one level. In a plugin's grant an absent list grants nothing. At other levels it does not
        /// narrow.
        #[derive(Debug, Clone, Default, PartialEq)]
        pub(super) struct RuleLists {
            $(pub(super) $key: Option<Vec<$Rule>>,)*
        }

        impl RuleLists {
            /// The level that denies everything.
            pub(super) fn deny_all() -> Self {
                Self { $($key: Some(Vec::new()),)* }
            }

            /// What declarations ask for. Targets that cannot be granted are left out.
            pub(super) fn of_declarations(declared: &[&Capability], workspace: &Path) -> Self {
                Self { $($key: Some(targets(declared, GrantKey::$Key, workspace)),)* }
            }

            /// Adds the rules of another level.
            pub(super) fn add(&mut self, level: &Self) {
                $(self.$key.get_or_insert_default().extend(level.$key.iter().flatten().cloned());)*
            }

            /// Returns a list as policy lines. `None` if it is absent.
            pub(super) fn list_lines(&self, key: GrantKey, workspace: &Path) -> Option<Vec<String>> {
                match key {
                    $(GrantKey::$Key => self.$key.as_ref().map(|rules| GrantRule::show_list(rules, workspace)),)*
                }
            }

            /// Whether a list grants `line`. `None` if it is absent.
            pub(super) fn list_grants(&self, key: GrantKey, line: &str, workspace: &Path) -> Option<bool> {
                match key { $(GrantKey::$Key => any_grants(self.$key.as_deref(), line, workspace),)* }
            }

            /// Whether a list grants something. `net_private` alone only narrows `net`.
            pub(super) fn grants_anything(&self) -> bool {
                let lists = [$((GrantKey::$Key, self.$key.as_ref().map_or(0, Vec::len)),)*];
                lists.into_iter().any(|(key, lines)| key != GrantKey::NetPrivate && lines > 0)
            }
        }
    };
}

kinds!(rule_lists! {});

fn any_grants<R: GrantRule>(rules: Option<&[R]>, line: &str, workspace: &Path) -> Option<bool> {
    let line = R::parse(line, workspace);
    rules.map(|rules| line.is_ok_and(|line| rules.iter().any(|rule| rule.grants(&line))))
}

fn targets<R: GrantRule>(declared: &[&Capability], key: GrantKey, workspace: &Path) -> Vec<R> {
    let of_key = declared.iter().filter(|one| GrantKey::for_kind(&one.kind) == Some(key));
    of_key.filter_map(|one| R::parse_declared(&one.target, workspace).ok()).collect()
}
