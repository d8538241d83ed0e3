//! Lines about the network that match no request, or other ones than they seem to.

use super::{CheckInput, CheckReport};
use crate::capability::net::{AddressScope, HostPattern, NetRule};
use crate::problem::PolicyProblem;
use crate::problem::suggest_name;

/// The methods that are in use (RFC 9110, RFC 5789), for suggestions.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
/// Methods that no request may have, so that a line of them matches none.
const REFUSED_METHODS: [&str; 2] = ["CONNECT", "TRACE"];
/// Longest prefix of a network.
const MAX_PREFIX: u8 = 128;

/// Adds a problem for each line of `net` that matches no request, and for exclusions of hosts that no line includes.
pub(super) fn check_lines(input: &CheckInput<'_>, report: &mut CheckReport) {
    for (table, rules) in input.policy.tables() {
        let lines = rules.net.as_deref().unwrap_or_default();
        let keys = || table.iter().copied().chain(["net"]);
        for (index, line) in lines.iter().enumerate() {
            let found = wrong_method(line).or_else(|| Some((network_as_host(line)?, None)));
            let Some((message, help)) = found else { continue };
            let problem = PolicyProblem::at_keys(keys(), message).in_line(index);
            report.push(PolicyProblem { help, ..problem });
        }
        // Each line has the exclusions of all.
        for except in lines.iter().take(1).flat_map(|line| &line.except) {
            if !lines.iter().any(|line| line.host.overlaps(except)) {
                let text = format!("!{except}");
                let message = format!("`{text}` excludes nothing: no line includes the host");
                report.push(PolicyProblem::at_keys(keys(), message).in_text(&text));
            }
        }
    }
}

/// Adds a problem for private networks in a grant that no line of `net` reaches.
pub(super) fn check_private(input: &CheckInput<'_>, report: &mut CheckReport) {
    for (id, plugin) in &input.policy.plugins {
        if plugin.rules.net_private.as_ref().is_none_or(Vec::is_empty) {
            continue;
        }
        let lines = plugin.rules.net.as_deref().unwrap_or_default();
        let message = if lines.is_empty() {
            "this grants nothing without `net`: it only says which private addresses its hosts may have"
        } else if lines.iter().all(|line| line.addresses == AddressScope::PublicOnly) {
            "this grants nothing: every host, `*`, means public addresses only; name the host in `net`"
        } else {
            continue;
        };
        report.warn(["plugins", id.as_str(), "grant", "net_private"], message.to_owned(), None);
    }
}

fn wrong_method(line: &NetRule) -> Option<(String, Option<String>)> {
    line.methods.iter().flatten().find_map(|method| {
        if REFUSED_METHODS.contains(&method.as_str()) {
            return Some((format!("no request may have the method `{method}`"), None));
        }
        let help = suggest_name(method, METHODS).filter(|_| !METHODS.contains(&method.as_str()))?;
        Some((format!("`{method}` is no common method"), Some(help)))
    })
}

/// A network with a prefix, which a URL reads as a path.
fn network_as_host(line: &NetRule) -> Option<String> {
    let HostPattern::Exact(host) = &line.host else { return None };
    line.host.address()?;
    let path = line.path.as_ref()?.to_string();
    let prefix = path.strip_prefix('/')?.parse::<u8>().ok().filter(|prefix| *prefix <= MAX_PREFIX)?;
    Some(format!("this is the host `{host}` and the path `/{prefix}`: networks belong into `net_private`"))
}
