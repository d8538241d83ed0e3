//! Hosts that a `net` list excludes: `!HOST`, for all lines of the list and for every method, scheme, port and path.
//!
//! | text | excludes |
//! |---|---|
//! | `!api.example.com` | this host |
//! | `!*.example.com` | every host below `example.com`, not `example.com` itself |
//! | `!203.0.113.7` | this address, also where a name resolves to it |
//!
//! An excluded name does not exclude its addresses: another name, or a granted address, may lead to them.

use core::net::IpAddr;
use std::collections::BTreeSet;

use super::{HostPattern, NetRule, address};
use crate::capability::excluding_list::AND;

/// Splits a line into its rule and its exclusions.
pub(super) fn split_line(text: &str) -> Result<(&str, BTreeSet<HostPattern>), String> {
    let (rule, except) = match text.split_once(AND) {
        Some((rule, except)) => (rule, Some(except)),
        None => (text, None),
    };
    if rule.starts_with('!') {
        return Err("only excludes hosts: add a line that grants the rest".to_owned());
    }
    let except = except.into_iter().flat_map(|except| except.split(AND));
    Ok((rule, except.map(parse_exclusion).collect::<Result<_, _>>()?))
}

/// Parses `!HOST`.
fn parse_exclusion(text: &str) -> Result<HostPattern, String> {
    parse_excluded_host(text.strip_prefix('!').ok_or("only exclusions (`!host`) follow a ` & `")?)
}

pub(super) fn parse_excluded_host(host: &str) -> Result<HostPattern, String> {
    if host.contains('/') {
        return Err(
            "an exclusion applies to every scheme, port and path: write `!` and the host alone".to_owned()
        );
    }
    match HostPattern::parse(host)? {
        HostPattern::Any => Err("excludes every host: leave the list empty instead".to_owned()),
        pattern => Ok(pattern),
    }
}

impl NetRule {
    /// The rule with further exclusions. `None` if they cover all of its hosts.
    #[must_use]
    pub fn with_exclusions(mut self, except: &BTreeSet<HostPattern>) -> Option<Self> {
        self.except.extend(except.iter().cloned());
        let covered =
            self.except.iter().any(|except| except.intersect(&self.host).as_ref() == Some(&self.host));
        (!covered).then_some(self)
    }

    /// Whether an exclusion matches a canonical host.
    pub(super) fn excludes_host(&self, host: &str) -> bool {
        self.except.iter().any(|except| except.matches(host))
    }

    /// Formats the rule with the exclusions that are not in `shown`.
    pub(super) fn show_except(&self, mut line: String, shown: &BTreeSet<HostPattern>) -> String {
        for except in self.except.difference(shown) {
            line += &format!("{AND}!{except}");
        }
        line
    }
}

/// Returns the exclusion of a list that names an address, as a policy line. An IPv6 address that
/// contains an excluded IPv4 address is excluded, too.
#[must_use]
pub fn excluded_address(rules: &[NetRule], ip: IpAddr) -> Option<String> {
    let excluded =
        |except: &&HostPattern| except.address().is_some_and(|except| address::is_or_embeds(ip, except));
    let except = rules.iter().flat_map(|rule| &rule.except).find(excluded)?;
    Some(format!("!{except}"))
}
