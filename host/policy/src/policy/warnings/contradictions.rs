//! Limits that another limit makes useless, and limits with which nothing works.

use super::{CheckInput, CheckReport};
use crate::limits::{CallLimits, CallLimitsPatch};
use crate::problem::PolicyProblem;
use crate::quantity::{show_bytes, show_duration};

/// The fuel below which no plugin starts: about ten microseconds of CPU.
const MIN_FUEL: u64 = 1_000;
/// The size of results below which hardly any fits.
const MIN_RESULT: u64 = 1 << 10;

/// A limit that should be no larger than another one.
struct LimitPair {
    key: &'static str,
    outer: &'static str,
    exceeds: bool,
    /// The value of the outer limit, as a policy writes it.
    shown: String,
}

/// Compares two limits of one table.
macro_rules! pairs {
    ($limits:expr, $show:expr; $($key:ident in $outer:ident),* $(,)?) => {
        [$(LimitPair {
            key: stringify!($key),
            outer: stringify!($outer),
            exceeds: $limits.$key > $limits.$outer,
            shown: $show($limits.$outer),
        }),*]
    };
}

/// Adds a problem for each written limit that another one makes useless.
pub(super) fn check_pairs(input: &CheckInput<'_>, report: &mut CheckReport) {
    let (serve, host) = (&input.policy.serve().limits, input.policy.host());
    let count = |number: u32| number.to_string();
    let counts = pairs! { serve, count;
    connections_per_peer in connections, requests_per_client in requests,
    streams_per_client in streams, sessions_per_client in sessions };
    let sizes = pairs! { serve, show_bytes;
    resume_buffer_bytes_per_client in resume_buffer_bytes, body_bytes_per_client in body_bytes_total };
    let times = pairs! { serve, show_duration; session_idle in session_age };
    compare(input, report, &["serve", "limits"], counts.into_iter().chain(sizes).chain(times));
    let outputs = pairs! { host, show_bytes; saved_output_bytes_per_session in saved_output_bytes };
    compare(input, report, &["host"], outputs);
    let session = input.policy.session();
    let unbounded = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
    let session = pairs! { session, unbounded;
    max_identical_calls in max_calls, max_calls_per_turn in max_calls,
    max_identical_calls_per_turn in max_calls_per_turn,
    max_identical_calls_per_turn in max_identical_calls };
    // A limit that is not set is no bound.
    compare(input, report, &["session"], session.into_iter().filter(|pair| !pair.shown.is_empty()));
    for (table, limits) in call_limits(input) {
        let kv = pairs! { limits, show_bytes; kv_value_bytes in kv_bytes };
        compare(input, report, &table, kv);
    }
}

/// Adds a problem for each limit of calls with which nothing works.
pub(super) fn check_minimums(input: &CheckInput<'_>, report: &mut CheckReport) {
    let guests = input.policy.host().guest_memory;
    for (table, limits) in call_limits(input) {
        let small = [
            ("fuel", limits.fuel.is_some_and(|fuel| fuel < MIN_FUEL), "no plugin starts with so little fuel"),
            (
                "result_bytes",
                limits.result_bytes < MIN_RESULT,
                "hardly any result fits; a number counts bytes",
            ),
            (
                "memory",
                guests.is_some_and(|all| limits.memory > all),
                "a call may have more memory than `guest_memory` of [host] has for all",
            ),
        ];
        for (key, is_wrong, message) in small {
            if is_wrong && is_written(input, &table, key) {
                report.warn(table.iter().copied().chain([key]), message.to_owned(), None);
            }
        }
    }
}

fn compare(
    input: &CheckInput<'_>,
    report: &mut CheckReport,
    table: &[&str],
    pairs: impl IntoIterator<Item = LimitPair>,
) {
    for LimitPair { key, outer, exceeds, shown } in pairs {
        if exceeds && is_written(input, table, key) {
            let message = format!("`{key}` is above `{outer}`, `{shown}`, which is reached first");
            report.warn(table.iter().copied().chain([key]), message, None);
        }
    }
}

/// Whether the file has a key.
pub(super) fn is_written(input: &CheckInput<'_>, table: &[&str], key: &str) -> bool {
    let keys = table.iter().copied().chain([key]);
    input.policy.source.line(&PolicyProblem::at_keys(keys, String::new())).is_some()
}

/// The limits of each table for calls, with those of the tables above.
pub(super) fn call_limits<'a>(input: &CheckInput<'a>) -> Vec<(Vec<&'a str>, CallLimits)> {
    let policy = input.policy;
    let of_all = policy.limits.apply(CallLimits::default());
    let mut found = vec![(vec!["limits"], of_all.clone())];
    for (id, plugin) in &policy.plugins {
        let with = |patch: &CallLimitsPatch, above: &CallLimits| patch.apply(above.clone());
        let of_plugin = with(&plugin.section.limits, &of_all);
        found.push((vec!["plugins", id.as_str(), "limits"], of_plugin.clone()));
        let tools = plugin.tools.iter();
        found.extend(tools.map(|(tool, own)| {
            let table = vec!["plugins", id.as_str(), "tools", tool.as_str(), "limits"];
            (table, with(&own.section.limits, &of_plugin))
        }));
    }
    found
}
