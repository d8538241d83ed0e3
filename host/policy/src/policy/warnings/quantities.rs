//! Amounts that mean something else than they seem to: networks with host bits, and memory without a unit.

use ipnet::IpNet;

use super::contradictions::{call_limits, is_written};
use super::{CheckInput, CheckReport, ProgramSection};
use crate::quantity::show_bytes;

/// The keys with lists of networks.
const NETWORK_KEYS: [&str; 3] = ["net_private", "redirect_private", "trusted_proxies"];
/// The memory below which no guest starts: a page of WebAssembly. A number without a unit counts bytes.
const MIN_GUEST: u64 = 64 << 10;
/// The address space below which no program starts: the loader and the C library need more.
const MIN_PROGRAM: u64 = 1 << 20;

/// Adds a problem for each network whose address has bits outside its prefix.
pub(super) fn check_networks(input: &CheckInput<'_>, report: &mut CheckReport) {
    for written in input.texts {
        let is_list = written.keys().last().is_some_and(|key| NETWORK_KEYS.contains(key));
        let Some(network) = written.text.parse::<IpNet>().ok().filter(|_| is_list) else { continue };
        let truncated = network.trunc();
        if truncated != network {
            let message = format!("`{network}` names one address and means the whole network `{truncated}`");
            let host = IpNet::from(network.addr());
            let help = format!("write `{truncated}`, or `{host}` for the address alone");
            report.warn_at_text(written, message, help);
        }
    }
}

/// Adds a problem for each network of all addresses.
pub(super) fn check_whole_networks(input: &CheckInput<'_>, report: &mut CheckReport) {
    for written in input.texts {
        let is_list = written.keys().last().is_some_and(|key| *key == "net_private");
        let network = written.text.parse::<IpNet>().ok().filter(|network| network.prefix_len() == 0);
        if is_list && network.is_some() {
            let message = "this line includes every private address, also those of this machine".to_owned();
            let help = "name the networks, such as `10.1.0.0/16`".to_owned();
            report.warn_at_text(written, message, help);
        }
    }
}

/// Adds a problem for each memory limit with which nothing starts.
pub(super) fn check_memory(input: &CheckInput<'_>, report: &mut CheckReport) {
    for (table, limits) in call_limits(input) {
        check(input, report, &table, limits.memory, MIN_GUEST, "no plugin starts");
    }
    for ProgramSection { table, program, args, .. } in input.policy.program_sections() {
        let what = if args.is_some() { "the server does not start" } else { "the program does not start" };
        if let Some(bytes) = program.memory_bytes {
            check(input, report, &table, bytes, MIN_PROGRAM, what);
        }
    }
}

fn check(
    input: &CheckInput<'_>,
    report: &mut CheckReport,
    table: &[&str],
    bytes: u64,
    least: u64,
    what: &str,
) {
    if bytes >= least || !is_written(input, table, "memory") {
        return;
    }
    let keys = [table, &["memory"]].concat();
    let written = input.texts.iter().find(|written| written.keys() == keys);
    let has_unit = written.is_some_and(|written| !written.text.ends_with(|c: char| c.is_ascii_digit()));
    let (shown, note) = match has_unit {
        true => (show_bytes(bytes), ""),
        false => (format!("{bytes} bytes"), "; a number without a unit counts bytes"),
    };
    let message = format!("`memory` is {shown}, with which {what}{note}");
    let help = match bytes {
        1.. if !has_unit => format!("did you mean `{bytes}MiB`?"),
        _ => format!("write at least `{}`", show_bytes(least)),
    };
    report.warn(keys, message, help);
}
