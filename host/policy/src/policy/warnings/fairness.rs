//! Warnings about a policy that lets one plugin use most of the host's parallel calls.

use super::{CheckInput, CheckReport};
use crate::limits::CallLimits;
use crate::limits::table::LimitTable as _;
use crate::problem::PolicyProblem;

/// Adds a problem for each table that lets one plugin run more than half of `parallel_calls`. By default, `concurrency` is a
/// quarter of `parallel_calls`. Beyond a half, slow calls of one plugin can leave only the reserved permits to
/// all others. A host with a single permit has nothing to share.
pub(super) fn check_concurrency(input: &CheckInput<'_>, report: &mut CheckReport) {
    let policy = input.policy;
    let parallel_calls = policy.host.parallel_calls;
    if parallel_calls <= 1 {
        return;
    }
    let problem = |path: &[&str], concurrency: u32| {
        let most = concurrency.min(parallel_calls);
        let message = format!(
            "one plugin may run {most} of the {parallel_calls} parallel calls of the host, so its slow calls delay \
             all other plugins"
        );
        let help = format!(
            "write `concurrency = {}` in the limits, or raise `parallel_calls`",
            parallel_calls.div_ceil(4)
        );
        PolicyProblem { help: Some(help), ..PolicyProblem::at_keys(path.iter().copied(), message) }
    };
    let of_all = policy.limits.apply(CallLimits::default());
    if of_all.concurrency > parallel_calls / 2 {
        let is_written = CallLimits::keys_of(&policy.limits).contains(&"concurrency");
        let path = if is_written { ["limits", "concurrency"] } else { ["host", "parallel_calls"] };
        report.push(problem(&path, of_all.concurrency));
    }
    for (id, plugin) in &policy.plugins {
        let concurrency = plugin.section.limits.apply(of_all.clone()).concurrency;
        // A section without its own value has the one of `[limits]`, which is reported once.
        if concurrency != of_all.concurrency && concurrency > parallel_calls / 2 {
            report.push(problem(&["plugins", id.as_str(), "limits", "concurrency"], concurrency));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::path::Path;

    use crate::policy::warnings::CompleteMachine;
    use crate::policy::{KnownNames, Policy};

    /// Returns the lines with warnings.
    fn warned_lines(policy: &str) -> Vec<usize> {
        let policy = format!("version = 1\nworkspace = \"/srv\"\n{policy}");
        let policy = Policy::parse(&policy, Path::new("/"), None).unwrap();
        let found = policy.review(&KnownNames::default(), &CompleteMachine).findings;
        assert!(found.iter().all(|finding| finding.message.contains("one plugin may run")), "{found:?}");
        found.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_plugin_with_most_parallel_calls_is_reported_at_its_table() {
        assert_eq!(warned_lines(""), [0_usize; 0]);
        assert_eq!(warned_lines("[limits]\nconcurrency = 32"), [0_usize; 0]);
        assert_eq!(warned_lines("[host]\nparallel_calls = 1\n"), [0_usize; 0], "nothing to share");
        assert_eq!(warned_lines("[host]\nparallel_calls = 32\n"), [0_usize; 0]);
        assert_eq!(warned_lines("[host]\nparallel_calls = 4\n"), [4], "the default of `concurrency`");
        assert_eq!(warned_lines("[limits]\nconcurrency = 33\n[plugins.a.limits]\nmemory = \"1MiB\""), [4]);
        assert_eq!(
            warned_lines("[plugins.a.limits]\nconcurrency = 64\n[plugins.b.limits]\nconcurrency = 8"),
            [4]
        );
    }
}
