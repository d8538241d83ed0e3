//! Grants without effect: what no tool of a plugin asks for, what a narrower level names and the grant does not have, and
//! private addresses that `net_private` does not include.

use core::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use url::Url;

use super::super::{DocumentLocation, GrantKey, OpenApiService, RuleLists};
use super::{CheckInput, CheckReport};
use crate::capability::kind::kinds;
use crate::capability::net::{HostPattern, NetRule, address};
use crate::capability::{Capability, FROM_PROFILE};
use crate::problem::PolicyProblem;
use crate::rule::GrantRule;

/// The host name of this machine.
const LOCALHOST: &str = "localhost";

/// Calls a generic function for each key, with the list that one level has and the list of another.
macro_rules! each_key {
    ([$($([$($kind:tt)*])? $Key:ident $key:ident: $Rule:ty, $grants:tt;)*] $function:ident $state:tt $one:tt $other:tt) => {
        $($function::<$Rule>($state, GrantKey::$Key, $one.$key.as_deref(), $other.$key.as_deref().unwrap_or_default());)*
    };
}

/// Adds a problem for each line of a grant that no tool of the plugin asks for.
pub(super) fn check_requested(input: &CheckInput<'_>, report: &mut CheckReport) {
    for (id, plugin) in &input.policy.plugins {
        let known = input.known.plugins.as_ref().and_then(|plugins| plugins.get(id.as_str()));
        let Some(tools) = known.and_then(|plugin| plugin.tools.as_ref()) else { continue };
        let declared: Vec<&Capability> = tools.values().flatten().collect();
        let requested = RuleLists::of_declarations(&declared, input.policy.workspace());
        let (rules, state) =
            (&plugin.rules, &mut RequestCheck { id: id.as_str(), declared: &declared, report });
        kinds!(each_key! { check_requests state rules requested });
    }
}

struct RequestCheck<'a, 'r> {
    id: &'a str,
    declared: &'a [&'a Capability],
    report: &'r mut CheckReport,
}

impl RequestCheck<'_, '_> {
    /// Whether a tool asks for anything that a key grants.
    fn is_requested(&self, key: GrantKey) -> bool {
        // Private networks belong to connections.
        let key = if key == GrantKey::NetPrivate { GrantKey::Net } else { key };
        self.declared.iter().any(|one| GrantKey::for_kind(&one.kind) == Some(key))
    }

    /// Whether what a tool asks for depends on the profile.
    fn is_open(&self, key: GrantKey) -> bool {
        key == GrantKey::NetPrivate
            || self
                .declared
                .iter()
                .any(|one| GrantKey::for_kind(&one.kind) == Some(key) && one.target == FROM_PROFILE)
    }
}

fn check_requests<R: GrantRule>(
    state: &mut RequestCheck<'_, '_>,
    key: GrantKey,
    granted: Option<&[R]>,
    requested: &[R],
) {
    let granted = granted.unwrap_or_default();
    let table = ["plugins", state.id, "grant", key.name()];
    if granted.is_empty() {
        return;
    }
    if !state.is_requested(key) {
        let message = format!("no tool of the plugin `{}` asks for `{}`", state.id, key.name());
        state.report.warn(table, message, "remove it".to_owned());
        return;
    }
    if state.is_open(key) || R::IS_SWITCH {
        return;
    }
    for (index, line) in granted.iter().enumerate() {
        if !requested.iter().any(|declared| declared.intersect(line).is_some()) {
            let message = format!("no tool of the plugin `{}` asks for this", state.id);
            state.report.push(PolicyProblem::at_keys(table, message).in_line(index));
        }
    }
}

/// Adds a problem for each line of a tool's section or of a profile that reaches more than the grants that it narrows.
pub(super) fn check_width(input: &CheckInput<'_>, report: &mut CheckReport) {
    let policy = input.policy;
    for (id, plugin) in &policy.plugins {
        let granted = &plugin.rules;
        for (tool, section) in &plugin.tools {
            let table = ["plugins", id.as_str(), "tools", tool.as_str()];
            let rules = &section.rules;
            let state = &mut WidthCheck { table: &table, level: NarrowLevel::Tool, unknown: &[], report };
            kinds!(each_key! { check_widths state rules granted });
        }
    }
    let mut granted = RuleLists::default();
    policy.plugins.values().for_each(|plugin| granted.add(&plugin.rules));
    let unknown = add_services(input, &mut granted);
    for (name, profile) in &policy.profiles {
        let table = ["profile", name.as_str()];
        let rules = &profile.rules;
        let state = &mut WidthCheck { table: &table, level: NarrowLevel::Profile, unknown: &unknown, report };
        kinds!(each_key! { check_widths state rules granted });
    }
}

/// Adds what services are granted. Returns the keys whose entries are not all known.
fn add_services(input: &CheckInput<'_>, granted: &mut RuleLists) -> Vec<GrantKey> {
    let mut unknown = Vec::new();
    for service in input.policy.openapi_services() {
        let known = input.known.services.get(service.name.as_str());
        let reached = known.map_or(&[][..], |known| known.reached.as_slice());
        granted.add(&service.rules(reached));
        unknown.extend(known.is_none().then_some(GrantKey::Net));
    }
    unknown
}

/// A level that narrows grants.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NarrowLevel {
    Tool,
    Profile,
}

struct WidthCheck<'a, 'r> {
    table: &'a [&'a str],
    level: NarrowLevel,
    /// The keys whose grants are not all known.
    unknown: &'a [GrantKey],
    report: &'r mut CheckReport,
}

fn check_widths<R: GrantRule>(
    state: &mut WidthCheck<'_, '_>,
    key: GrantKey,
    narrow: Option<&[R]>,
    granted: &[R],
) {
    let lines = narrow.unwrap_or_default();
    if lines.is_empty() || state.unknown.contains(&key) {
        return;
    }
    let (nothing, only) = match state.level {
        NarrowLevel::Tool => {
            ("the plugin's grant has no", "a tool's section never widens the plugin's grant")
        }
        NarrowLevel::Profile => ("no plugin is granted", "a profile never widens a grant"),
    };
    let keys = || state.table.iter().copied().chain([key.name()]);
    if granted.is_empty() {
        let message = format!("{nothing} `{}`, so this grants nothing: {only}", key.name());
        let problem = PolicyProblem::at_keys(keys(), message);
        state.report.push(problem);
        return;
    }
    for (index, line) in lines.iter().enumerate().filter(|(_, line)| !line.is_everything()) {
        if granted.iter().any(|grant| grant.holds(line)) {
            continue;
        }
        let message = match granted.iter().filter(|grant| grant.intersect(line).is_some()).count() {
            0 => format!("this grants nothing: no grant has it, and {only}"),
            // A profile may span the grants of several plugins.
            2.. if state.level == NarrowLevel::Profile => continue,
            _ => format!("this reaches more than the grant, and {only}"),
        };
        let problem = PolicyProblem::at_keys(keys(), message).in_line(index);
        state.report.push(problem);
    }
}

/// Adds a problem for each address that is not public and that no private network includes.
pub(super) fn check_addresses(input: &CheckInput<'_>, report: &mut CheckReport) {
    for (id, plugin) in &input.policy.plugins {
        let private = plugin.rules.net_private.as_deref().unwrap_or_default();
        let table = ["plugins", id.as_str(), "grant"];
        check_lines(&table, plugin.rules.net.as_deref().unwrap_or_default(), private, report);
    }
    for service in input.policy.openapi_services() {
        let table = ["openapi", service.name.as_str()];
        check_lines(&table, &service.net, &service.net_private, report);
        for (key, url) in service_urls(service) {
            let host = url.host().and_then(|host| host_address(&host));
            let refused = host.and_then(|(host, address)| refusal(&host, address, &service.net_private));
            if let Some((message, help)) = refused {
                report.warn(table.into_iter().chain([key]), message, help);
            }
        }
    }
}

fn check_lines(table: &[&str], lines: &[NetRule], private: &[IpNet], report: &mut CheckReport) {
    for (index, line) in lines.iter().enumerate() {
        let address = match &line.host {
            HostPattern::Exact(name) if name == LOCALHOST => Some(IpAddr::from(Ipv4Addr::LOCALHOST)),
            host => host.address(),
        };
        let refused = address.and_then(|address| refusal(&line.host.to_string(), address, private));
        if let Some((message, help)) = refused {
            let keys = table.iter().copied().chain(["net"]);
            let problem = PolicyProblem::at_keys(keys, message).in_line(index);
            report.push(PolicyProblem { help: Some(help), ..problem });
        }
    }
}

/// The URLs of a section that the host connects to.
fn service_urls(service: &OpenApiService) -> Vec<(&'static str, Url)> {
    let server = service.server.as_deref().and_then(|server| Url::parse(server).ok());
    let document = match &service.document {
        DocumentLocation::Url(url) => Some(url.clone()),
        DocumentLocation::File(_) => None,
    };
    [("server", server), ("document", document)]
        .into_iter()
        .filter_map(|(key, url)| Some((key, url?)))
        .collect()
}

/// The address that a host of a URL is, if the text says so.
fn host_address(host: &url::Host<&str>) -> Option<(String, IpAddr)> {
    match host {
        url::Host::Ipv4(v4) => Some((v4.to_string(), IpAddr::from(*v4))),
        url::Host::Ipv6(v6) => Some((v6.to_string(), IpAddr::from(*v6))),
        url::Host::Domain(LOCALHOST) => Some((LOCALHOST.to_owned(), IpAddr::from(Ipv4Addr::LOCALHOST))),
        url::Host::Domain(_) => None,
    }
}

/// Why connections to an address are refused, and what allows them.
fn refusal(host: &str, address: IpAddr, private: &[IpNet]) -> Option<(String, String)> {
    let loopback = host == LOCALHOST && private.iter().any(|net| net.addr().is_loopback());
    address::check_address(host, address, private).err().filter(|_| !loopback)?;
    let message = format!("`{host}` is not a public address, so every connection to it is refused");
    Some((message, format!("allow it with `net_private = [\"{}\"]`", IpNet::from(address))))
}
